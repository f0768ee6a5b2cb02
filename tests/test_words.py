"""The check of words: what it finds, what it leaves alone, and that the repository passes it."""

from pathlib import Path

import pytest

from lint import words

ROOT = Path(__file__).parents[1]
LISTED = words.Words((ROOT / "lint" / "words.toml").read_text(encoding="utf-8"))

MODULE = '''"""A module
that told too much."""

def f():
    """Say so."""
    raise ValueError(f"three labels {1} came")

said = "said"
'''


def found(tmp_path, unrevised=()):
    return words.problems(tmp_path, LISTED, set(unrevised))


def write(tmp_path, name, text):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_the_repository_has_no_word_to_avoid(capsys):
    assert words.main([]) == 0, capsys.readouterr().out


def test_words_of_a_page_are_found_with_their_line(tmp_path):
    write(tmp_path, "docs/a/page.md", "# Title\n\nFine so far.\nTold to be\nSure, besides.\n")
    listed, excused = found(tmp_path)
    assert [line.split(";")[0] for line in listed] == [
        'docs/a/page.md:4: avoid "Told"',
        'docs/a/page.md:5: avoid "Sure"',
        'docs/a/page.md:5: avoid "besides"',
    ]
    assert listed[0].endswith("use pass, specify or set")
    assert not excused


@pytest.mark.parametrize(
    "text",
    [
        "`told`",
        "``said x``",
        "[here](docs/sure.md)",
        "Makes confidence mean what\nit says.",
        "measures, essays",
        ">>> told = 3",
        '<p id="t-says">T is 2</p>',
    ],
)
def test_code_links_and_what_is_allowed_are_left_alone(tmp_path, text):
    write(tmp_path, "README.md", f"Words\n{text}\n")
    assert found(tmp_path) == ([], set())


def test_words_that_a_line_break_parts_are_found(tmp_path):
    write(tmp_path, "README.md", "First.\n\nWritten beside\nthese words.\n")
    assert found(tmp_path)[0] == ['README.md:3: avoid "beside these"; use also, or in addition']


def test_docstrings_and_messages_are_read_and_names_are_not(tmp_path):
    write(tmp_path, "src/a.py", MODULE)
    lines = [line.split(":")[1] for line in found(tmp_path)[0]]
    assert sorted(lines) == ["2", "5", "6"]


def test_the_list_excuses_docstrings_and_never_messages(tmp_path):
    write(tmp_path, "src/a.py", MODULE)
    listed, excused = found(tmp_path, ["src/a.py"])
    assert [line.split(":")[1] for line in listed] == ["6"]
    assert excused == {"src/a.py"}


def test_a_file_on_the_list_that_is_clean_leaves_it(tmp_path, monkeypatch):
    write(tmp_path, "lint/words.toml", 'allowed = ["so to say"]\n[use]\n"said, say" = "report"\n')
    write(tmp_path, "lint/unrevised.txt", "README.md\ndocs/clean.md\n")
    write(tmp_path, "README.md", "It said so.\n")
    write(tmp_path, "docs/clean.md", "Fine, so to say.\n")
    monkeypatch.setattr(words, "HERE", tmp_path / "lint")
    monkeypatch.setattr(words, "UNREVISED", tmp_path / "lint" / "unrevised.txt")
    assert words.main([]) == 0
    assert words.main(["--shorten"]) == 0
    assert words.UNREVISED.read_text() == "README.md\n"
    write(tmp_path, "docs/clean.md", "Said again.\n")
    assert words.main([]) == 1
