"""Options of a project from attemper.toml or pyproject.toml: what is taken, what wins, what is refused."""

from pathlib import Path

import pytest

import attemper
from attemper.cli.commands import cli as group
from attemper.cli.config import ONE_RUN, _keys, find_config

from commands import strict_json


def write(text, name="attemper.toml"):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def test_common_options_and_those_of_one_command(good, val):
    write('seed = 3\nlabels-key = "labels"\n[fit]\nmethod = "ts"\noutput = "net.json"\n')
    found = strict_json(good("fit", "val.npz", "--json"))
    assert (found["method"], found["output"]) == ("ts", "net.json")
    good("apply", "net.json", "val.npz", "-o", "p.npz")  # has no --seed, which is no error


def test_the_command_line_wins(good, val):
    write('[fit]\nmethod = "ts"\nnoisy = false\n')
    assert strict_json(good("fit", "val.npz", "--method", "vector", "--json"))["method"] == "vector"
    assert strict_json(good("fit", "val.npz", "--no-config", "--json"))["method"] == "bayes"
    assert strict_json(good("--no-config", "fit", "val.npz", "--json"))["method"] == "bayes"
    write('[fit]\nmethod = "ats"\n', "other/mine.toml")
    assert strict_json(good("fit", "val.npz", "--config", "other/mine.toml", "--json"))["method"] == "ats"
    assert strict_json(good("--config", "other/mine.toml", "fit", "val.npz", "--json"))["method"] == "ats"


def test_values_of_every_kind(good, val, unseen):
    write(
        '[fit]\nmethod = "vector"\nparam = ["l2=0.5", "centring=none"]\nclasses = ["a", "b", "c", "d"]\n'
        '[sketch]\nt-range = [0.2, 5]\nmethods = ["ts", "bayes"]\n'
        '[compare]\nmethods = "ts"\ncv = 3\n[evaluate]\nconfidence-level = 0.9\nn-bins = "auto"\n'
    )
    good("fit", "val.npz")
    fitted = attemper.load("attemper.json")
    assert (fitted.l2, fitted.centring, fitted.classes_.tolist()) == (0.5, "none", list("abcd"))
    good("sketch", "val.npz", "-o", "a.json")
    assert attemper.Sketch.load("a.json").t_range == (0.2, 5)
    assert set(attemper.Sketch.load("a.json").tables) == {"uniform", "similar"}
    assert [r["method"] for r in strict_json(good("compare", "val.npz", "test.npz", "--json"))["rows"]] == [
        "none",
        "ts",
    ]
    assert "90% intervals" in good("evaluate", "val.npz")


def test_paths_are_relative_to_the_file(good, val, tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    write('classes = "names.txt"\n[fit]\noutput = "maps/net.json"\n[report]\nclusters = "patient"\n')
    write("k\nl\nm\nn\n", "names.txt")
    (tmp_path / "maps").mkdir()
    (tmp_path / "deep/er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep/er")
    found = strict_json(good("fit", "../../val.npz", "--json"))
    assert found["output"] == "../../maps/net.json"
    assert attemper.load(tmp_path / "maps/net.json").classes_.tolist() == list("klmn")


def test_where_the_file_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inner = tmp_path / "repo/src/deep"
    inner.mkdir(parents=True)
    write("seed = 1\n")
    assert find_config(tmp_path) == tmp_path / "attemper.toml"
    assert find_config(inner) is None  # outside a repository no folder above is searched
    (tmp_path / "repo/.git").mkdir()
    assert find_config(inner) is None  # nor above its root
    write("[project]\nname = 'x'\n", "repo/pyproject.toml")
    assert find_config(inner) is None
    write("[tool.attemper]\nseed = 2\n", "repo/pyproject.toml")
    assert find_config(inner) == tmp_path / "repo/pyproject.toml"
    write("seed = 1\n", "repo/attemper.toml")
    assert find_config(inner) == tmp_path / "repo/attemper.toml"
    write("seed = 1\n", "repo/src/attemper.toml")
    assert find_config(inner) == tmp_path / "repo/src/attemper.toml"


def test_a_table_of_pyproject(good, val):
    write('[project]\nname = "mine"\n[tool.attemper.fit]\nmethod = "ts"\n', "pyproject.toml")
    assert strict_json(good("fit", "val.npz", "--json"))["method"] == "ts"
    assert strict_json(good("fit", "val.npz", "--config", "pyproject.toml", "--json"))["method"] == "ts"


def test_verbose_prints_what_was_taken(cli, val):
    write('seed = 3\nverbose = true\n[fit]\nmethod = "ts"\n')
    err = cli("fit", "val.npz").err
    assert "options from" in err
    assert "attemper.toml" in err
    assert "  method = ts" in err
    assert "seed" not in err  # fit has none
    assert "method = ts" not in cli("fit", "val.npz", "-q").err  # the command line wins
    assert "method = ts" not in cli("fit", "val.npz", "--method", "ts").err  # taken from the command line
    assert "options from" not in cli("fit", "val.npz", "--no-config", "-v").err


@pytest.mark.parametrize(
    "text, message",
    [
        ("sede = 3\n", "sede: there is no such option; did you mean 'seed'?"),
        ("labels_key = 'y'\n", "labels_key: there is no such option; did you mean 'labels-key'?"),
        ("[fit]\nmetod = 'ts'\n", "[fit] metod: there is no such option; did you mean 'method'?"),
        ("[fits]\nmethod = 'ts'\n", "fits: there is no such option; did you mean 'fit'?"),
        ("[apply]\nmethod = 'ts'\n", "[apply] method: there is no such option"),
        ("[compare]\nqqqqqq = 1\n", "keys are the options of"),
        ("json = true\n", "json: is for one run alone; use --json on the command line"),
        ("[fit]\nmethod = 'magic'\n", "method = 'magic': 'magic' is not one of"),
        ("[fit]\ntheta = 'x'\n", "theta = 'x': 'x' is not a valid float"),
        ("[fit]\nnoisy = 'yes'\n", "noisy = 'yes': expected true or false"),
        ("[fit]\nt-range = [1]\n", "t-range = [1]"),
        ("[fit]\nclasses = ['a,b', 'c']\n", "expected a list of names or numbers without commas"),
        ("seed = \n", "attemper.toml: not valid TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_one_message(bad, val, text, message):
    write(text)
    error = bad("fit", "val.npz")
    assert "attemper.toml: " in error
    assert message in error


def test_what_is_wrong_about_the_file(bad, val):
    assert "none.toml: cannot be read" in bad("fit", "val.npz", "--config", "none.toml")
    write("[project]\nname = 'x'\n", "pyproject.toml")
    assert "no table [tool.attemper]" in bad("fit", "val.npz", "--config", "pyproject.toml")
    write("tool.attemper = 3\n", "pyproject.toml")
    assert "expected a table" in bad("fit", "val.npz")
    write("\n", "a.toml")
    for args in (("--config", "a.toml", "--no-config"), ("--no-config", "--config", "a.toml")):
        assert "contradict each other" in bad("fit", "val.npz", *args)


def test_every_option_can_be_a_key():
    for name, command in group.commands.items():
        keys = dict(_keys(command))
        assert all(len(key) > 1 and "_" not in key and not key.startswith("-") for key in keys), name
        assert {"quiet", "verbose"} <= set(keys)
        assert not set(keys) & set(ONE_RUN)


@pytest.mark.parametrize(
    "text, match",
    [
        ("seed = 1.5", "seed = 1.5: expected a whole number"),
        ("seed = true", "seed = True: expected a whole number"),
        ("confidence-level = true", "confidence-level = True: expected a number"),
        ("[sketch]\nt-range = [true, 5]\n[evaluate]\nevaluate = 3", "evaluate: there is no such option"),
        ("evaluate = 3", "evaluate = 3: expected a table, [evaluate]"),
        ("[seed]\nvalue = 3", "[seed]: tables have the names of commands; write seed = …"),
        ("[tool.attemper]\nseed = 3", "[tool.attemper] is for pyproject.toml"),
    ],
)
def test_values_that_would_be_taken_for_others(bad, val, text, match):
    write(text + "\n")
    assert match in bad("evaluate", "val.npz")


def test_an_option_may_be_called_like_a_command(good, val, unseen):
    write('methods = "ts"\n')
    found = strict_json(good("compare", "val.npz", "test.npz", "--json"))
    assert [row["method"] for row in found["rows"]] == ["none", "ts"]
