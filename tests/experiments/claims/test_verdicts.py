"""Verdicts follow from numbers: made-up rows flip each of them, in each direction."""

import random
import re
from pathlib import Path

import pytest

from claim_rows import EVERY, MNIST, SITUATIONS, VERDICTS, found, table1
from experiments.claims import CLAIMS, Results
from experiments.claims.cases import noise_cases, size_cases, with_all_methods
from experiments.claims.claim import Finding, share
from experiments.reproduce import PAGES
from experiments.reproduce.networks import about

DENSE = "densenet40-cifar10-s0"
MAKEFILE = Path(__file__).parents[3] / "Makefile"


def test_every_claim_has_rows_for_every_verdict():
    assert list(SITUATIONS) == [claim.title for claim in CLAIMS]


@pytest.mark.parametrize("title, verdict, rows", EVERY, ids=[f"{title[:30]}: {verdict}" for title, verdict, _ in EVERY])
def test_rows_decide(title, verdict, rows):
    assert found(title, rows).verdict == verdict


@pytest.mark.parametrize("title", SITUATIONS)
def test_the_number_changes_with_the_verdict_and_the_details_are_whole(title):
    of = [found(title, rows) for rows in SITUATIONS[title]]
    assert [finding.verdict for finding in of] == list(VERDICTS)
    assert len({(finding.number, finding.details) for finding in of}) == 3
    for finding in of:
        assert not re.search(r"\bnan\b|\binf\b|\{|\}|\$", finding.number + finding.details)


@pytest.mark.parametrize("title", SITUATIONS)
def test_the_order_of_rows_does_not_matter(title):
    rows = SITUATIONS[title][1]
    shuffled = {page: random.Random(0).sample(list(of), len(of)) for page, of in rows.items()}
    first, second = found(title, rows), found(title, shuffled)
    assert (first.verdict, first.number) == (second.verdict, second.number)


def test_commands_and_rules_are_whole():
    targets = re.findall(r"^([\w-]+):", MAKEFILE.read_text(), flags=re.M)
    assert len({claim.title for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        if claim.command:
            assert claim.command.removeprefix("make ") in targets
        else:
            assert claim.pages
            assert set(claim.pages) <= set(PAGES)
            assert claim.made_by == f"python -m experiments.reproduce {' '.join(claim.pages)}"
        assert claim.holds_if
        assert claim.in_part_if


def test_ats_is_not_better_than_all_others_where_another_is_better_than_ats():
    title = "ATS calibrates better than TS and all others"
    rows = SITUATIONS[title][0]["table1"]
    assert found(title, {"table1": rows}).verdict == "holds"
    beaten = [row | ({"nll": 0.5} if row["method"] == "vector" else {}) for row in rows]
    assert found(title, {"table1": beaten}).verdict == "does not hold"


def test_a_verdict_is_the_first_condition_that_is_met():
    verdicts = [Finding(holds, in_part, "", "").verdict for holds in (True, False) for in_part in (True, False)]
    assert verdicts == ["holds", "holds", "holds in part", "does not hold"]
    assert share([]) == 0


def test_methods_are_compared_in_the_repeats_that_both_have():
    rows = table1(lambda row: {"nll": 1.0 + row["division"]}, [MNIST], divisions=4)
    rows = [row for row in rows if row["method"] != "structured" or row["division"] < 2]
    results = Results({"table1": rows})
    assert results.mean("table1", network=MNIST, method="structured") == 1.5
    assert results.mean("table1", network=MNIST, method="ts") == 2.5
    assert results.above("table1", "structured", "ts", network=MNIST) == 0
    assert len(results.differences("table1", "structured", "ts", network=MNIST)) == 2


def test_a_mean_does_not_depend_on_the_order():
    values = [1e16, 1.0, -1e16] * 7
    rows = [{"network": MNIST, "method": "ts", "division": i, "nll": v} for i, v in enumerate(values)]
    for _ in range(5):
        random.Random(1).shuffle(rows)
        assert Results({"table1": rows}).mean("table1", network=MNIST, method="ts") == 1 / 3


def with_supplement(rows):
    """Add a study of one more network, of uniform noise, with one method fewer."""
    more = dict(rows)
    for page in ("noise", "size"):
        own = [row for row in rows.get(page, ()) if row["network"] == MNIST and row["method"] != "structured"]
        own = [row | {"network": DENSE} for row in own if row.get("kind", "none") in ("none", "uniform")]
        more[f"supplement-{page}"] = own + [row for row in rows.get(page, ()) if row["network"] == MNIST]
    return more


@pytest.mark.parametrize(
    "title, page",
    [
        ("TS fails when labels are wrong", "noise"),
        ("TS fails when the validation set is small", "size"),
        ("ATS is robust to wrong labels", "noise"),
        ("ATS needs fewer labels than TS", "size"),
        ("ATS is more stable than TS with few labels", "size"),
        ("ATS finds the optimal T where TS fails", "size"),
    ],
)
def test_networks_of_the_supplement_count_once_and_lack_a_method(title, page):
    for rows in SITUATIONS[title]:
        plain, more = found(title, rows), found(title, with_supplement(rows))
        assert plain.details != more.details
        if "optimal" not in title and plain.details.count(about(MNIST).label):
            assert more.details.count(about(MNIST).label) == plain.details.count(about(MNIST).label)
            assert about(DENSE).label in more.details
    results = Results(with_supplement(SITUATIONS[title][1]))
    cases = size_cases(results) if page == "size" else noise_cases(results, "uniform")
    assert [case.network for case in cases].count(DENSE) == 3
    assert [case.network for case in cases].count(MNIST) == 3
    assert not any(case.network == DENSE for case in with_all_methods(results, cases))
    assert not any(case.network == DENSE for case in noise_cases(results, "confusable"))
