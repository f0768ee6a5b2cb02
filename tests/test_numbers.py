"""Numbers of the documentation come from files: tables from outputs of benchmarks, sentences from tables."""

import re

import pytest

from figures import COMPUTED, NOT_RESULTS, ROOT, output

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *(DOCS / "benchmarks").glob("*.md")])
SENTENCES = [ROOT / "README.md", *PAGES]

# Pages that a command writes as a whole, or from a mark on.
GENERATED = {"arena.md", "claims.md", "coverage.md", "families.md", "ats.md"}
# Tables with decimals that nobody measures, by the beginning of their first line.
NOT_MEASURED = {
    "bayesian.md": ["| Parameter | Default | Reason |"],
    "migration.md": ["|"],  # versions, and names of options
    "multi-label.md": ["| `uncertain=` |"],
    "paper-map.md": ["|"],
    "planning.md": ["| Question | Function"],
    "referral.md": ["| what | how | labels"],
    "serving.md": ["| example | what it shows"],
    "sets.md": ["| what | how |", "| coverage | 0.8"],
    "wrapper.md": ["| classifier | a zero stands for |"],
}


def tables_of(text):
    """Return the tables of a page, indented or not."""
    return output.tables(re.sub(r"^ +\|", "|", text, flags=re.M))


def without_code(text):
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)


def test_marked_tables_are_those_of_the_outputs():
    for page in PAGES:
        text = page.read_text()
        assert text == output.filled(text), f"{page.name}: run python benchmarks/output.py --fill"


def test_every_output_has_its_command_and_no_path_of_a_machine():
    kept = {path.stem: path.read_text() for path in output.KEPT.glob("*.md")}
    assert set(kept) == set(output.COMMANDS)
    for name, text in kept.items():
        assert text.startswith(f"`python benchmarks/{output.COMMANDS[name]}`\n\n"), name
        assert (ROOT / "benchmarks" / output.COMMANDS[name].split()[0]).exists(), name
        assert not re.search(r"/(?:root|home|work|tmp)/|\.\./shared", text), name
        assert re.search(r"^Python \d|" + re.escape(output.NOT_RERUN), text, flags=re.M), name


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in GENERATED], ids=lambda p: p.name)
def test_tables_of_measured_numbers_are_filled(page):
    text = without_code(output.BLOCK.sub("", page.read_text()))
    text = text.split("<!-- benchmarks/choosing.py -->")[0]
    for first, *rest in tables_of(text):
        if re.search(r"\d\.\d", "".join([first, *rest])):
            allowed = any(first.startswith(start) for start in NOT_MEASURED.get(page.name, []))
            assert allowed, f"{first}: mark this table with <!-- output: NAME --> (benchmarks/output.py)"


def test_no_page_names_a_folder_that_users_do_not_have():
    for page in [ROOT / "README.md", *PAGES]:
        assert "../shared" not in page.read_text(), page.name


# --- Sentences --------------------------------------------------------------------------------------------------------

NUMBER = r"(?<![\w.,/–-])[−+-]?\d+\.\d+(?![\w]|\.\d)(?: ?%| points?)?"


def prose_of(text):
    """Return a page without code, tables, links' addresses, marks and formulas in code style."""
    text = re.sub(r"<!--.*?-->", "", without_code(text), flags=re.S)
    text = re.sub(r"^ *\|.*$", "", text, flags=re.M)
    text = re.sub(r"`[^`]*`", "`", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def numbers_of(text):
    """Return all numbers of a text's tables and blocks of code, and of the outputs of the scripts that it names."""
    scripts = set(re.findall(r"benchmarks/(\w+\.py)", text))
    kept = [output.read(name) for name, command in output.COMMANDS.items() if command.split()[0] in scripts]
    blocks = re.findall(r"^ *```.*?^ *```|^ *\|[^\n]*", text, flags=re.M | re.S)
    return {float(number) for number in re.findall(r"\d+(?:\.\d+)?", "\n".join([*blocks, *kept]))}


def is_among(number, sources):
    """Whether a number is a source, rounded to its digits; a percentage may be a share there."""
    digits = re.search(r"\d+\.\d+", number)[0]
    value, half = float(digits), 0.5000001 * 10 ** -len(digits.partition(".")[2])
    return any(abs(x * factor - value) <= half for x in sources for factor in ((1,) if digits == number else (1, 100)))


def unknown_numbers(page):
    sources = numbers_of(page.read_text())
    return [n for n in re.findall(NUMBER, prose_of(page.read_text())) if not is_among(n, sources)]


# Numbers of sentences that nobody measures: constants, settings, formulas, versions, references.
CONSTANTS = {
    "bayesian.md": {"1.4": "a centre that was tried", "0.3": "a prior of an earlier version"},
    "annotators.md": {"0.72": "how weak networks were chosen"},
    "binary.md": {"99.5 %": "what a rounded 100 % stands for"},
    "drift.md": {
        "1.44": "1 / ln 2",
        "0.02": "width of a bin",
        "4.2": "log of 1/share",
        "7.0": "log of 1/share",
        "5.3": "log of 1/share",
    },
    "exactness.md": {"1.3": "the limit of the rule"},
    "install.md": {"3.11": "a version"},
    "llm.md": {"0.52": "largest difference of two columns", "0.06": "as before", "0.08": "as before"},
    "methods.md": {"0.25": "a limit of the unit", "0.001": "a factor"},
    "noise.md": {"0.8": "the largest rate of the grid", "0.02": "a limit of the evidence"},
    "paper-map.md": {"1810.11586": "arXiv", "1911.11195": "arXiv", "0.002": "the paper's grid of θ"},
    "patients.md": {"1.6": "T that labels are drawn with", "3.8": "a section of a book"},
    "planning.md": {
        "1.83": "2 / √1.2",
        "2.19": "2 · √1.2",
        "1.96": "a quantile of the normal law",
        "0.025": "a width that is asked",
        "0.03": "a width that is asked",
    },
    "plots.md": {"3.5": "inches", "0.47": "an edge of a bin: test_readme_numbers.py"},
    "referral.md": {"1.64": "a quantile of the normal law", "2.45": "√(2 log 1/0.05)"},
    "report.md": {"0.01": "steps of the threshold"},
    "sets.md": {"0.001": "a penalty that is tried", "0.01": "a penalty, and a limit of p", "2306.06342": "arXiv"},
    "speed.md": {"5.7": "of an earlier version"},
    "structured.md": {
        **dict.fromkeys(["0.6", "0.1", "0.45", "0.22"], "standard deviations of the priors"),
        **dict.fromkeys(["0.005", "0.02", "0.001"], "differences of means of families.md"),
    },
}


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in GENERATED], ids=lambda p: p.name)
def test_numbers_of_sentences_are_those_of_tables_outputs_and_code(page):
    unknown = [number for number in unknown_numbers(page) if number not in CONSTANTS.get(page.name, {})]
    assert not unknown, "put them into a table, an output, a block of code with # →, or CONSTANTS with a reason"


# --- Whole numbers and percentages ------------------------------------------------------------------------------------

WHOLE = r"(?<![\w.,/–−+×·^-])(?<![×·] )\d++(?: \d{3}\b)*+(?![\w⁰¹²³⁴⁵⁶⁷⁸⁹⁻]|[.,]\d| ?[×·/])"
RANGE = r",? (?:to|and|or) "
UNIT = rf"(?:{RANGE}{WHOLE})?(?: ?(%)|[ -](points?|ms|s|minutes|core-minutes|[kKM]B|passes|times|nats)\b)"
COUNT = r" of (?:the \d|(?!100\b)\d)"
# Numbers with such words are settings: limits, levels, bounds, shares that are replaced, repeats. So are 5 % and 95 %.
BEFORE = (
    r"(?:(?:more|fewer|less|larger) than|up to|at (?:most|least)|below|above|factors? of|power of|before:|target:"
    r"|bounds? of|levels? (?:of|is)|coverage of|alpha|middle|planned for|plan for|if|with a)(?: about)? $"
)
AFTER = (
    r" (?:\w+ )?(?:draws|streams|rounds|resamples)\b| of 100\b|, (?:19|20)\d\d\b"
    r"| ?% (?:interval|confiden|quantile|range|tolerance|probability|means|of (?:the labels|them|VAL)\b)"
)


def sections_of(text):
    """Return the sections of a page, with their subsections; what stands before the first is about the whole page."""
    marked = re.sub(r"^ *```.*?^ *```", lambda code: code[0].replace("\n#", "\n #"), text, flags=re.M | re.S)
    first, *others = re.split(r"^(?=## )", marked, flags=re.M)
    return [(first, text), *((section, section) for section in others)]


def line_of(section):
    """Return the sentences of a section as one line, without headings."""
    return " ".join(re.sub(r"^#.*$", "", prose_of(section), flags=re.M).split())


def is_round(value):
    return value <= 20 or len(str(value).rstrip("0")) == 1 or value & (value - 1) == 0


def results_of(line):
    """Yield the numbers of sentences that look like results, with their unit.

    These are percentages, numbers with a unit of time, memory or size, counts such as "33 of 288", and all other
    numbers above 20 that are neither round (400, 64) nor a year.
    """
    for match in re.finditer(WHOLE, line):
        value, before, after = int(match[0].replace(" ", "")), line[: match.start()], line[match.end() :]
        if re.search(BEFORE, before, flags=re.I) or re.match(AFTER, after):
            continue
        unit, alone = re.match(UNIT, after), not re.search(rf"\d{RANGE}$", before)
        if unit:
            if not (alone and re.match(" ?%", after) and value in (5, 95)):
                yield match[0], unit[1] or unit[2]
        elif re.match(COUNT, after) or (re.search(r"\d of (?:the )?$", before) and value != 100):
            yield match[0], "of"
        elif not (is_round(value) or 1900 < value < 2030):
            yield match[0], ""


def stands_in(number, unit, sources):
    """Whether a whole number is a source, rounded; a percentage may be a share there."""
    value, shared = int(number.replace(" ", "")), unit == "%" or unit.startswith("point")
    return any(abs(x * factor - value) <= 0.5000001 for x in sources for factor in ((1, 100) if shared else (1,)))


def unknown_results(page):
    """Return the results of sentences that neither a source of their section nor COMPUTED has."""
    unknown, patterns = [], [pattern for name, pattern, _ in COMPUTED if name == page.name]
    for section, about in sections_of(page.read_text()):
        line, sources = line_of(section), numbers_of(about)
        for pattern in patterns:
            line = re.sub(pattern, "…", line)
        unknown += [
            f"{number} {unit}".rstrip() for number, unit in results_of(line) if not stands_in(number, unit, sources)
        ]
    return unknown


@pytest.mark.parametrize("page", [p for p in SENTENCES if p.name not in GENERATED], ids=lambda p: p.name)
def test_whole_numbers_and_percentages_are_those_of_their_section(page):
    unknown = [number for number in unknown_results(page) if number not in NOT_RESULTS.get(page.name, {})]
    assert not unknown, "compute them in COMPUTED, or put them into NOT_RESULTS with a reason (tests/figures.py)"


@pytest.mark.parametrize(("name", "pattern", "computed"), COMPUTED, ids=[f"{name}, {p}" for name, p, _ in COMPUTED])
def test_results_of_sentences_are_computed_again(name, pattern, computed):
    [page] = [page for page in SENTENCES if page.name == name]
    stated = list(re.finditer(pattern, line_of(page.read_text())))
    assert len(stated) == 1, "the sentence is another now: change its pattern in tests/figures.py"
    assert tuple(int(number.replace(" ", "")) for number in stated[0].groups()) == tuple(computed())
