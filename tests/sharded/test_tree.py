import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper import InputError, Sketch
from attemper.sharded import merge_sketches
from attemper.sharded.tree import Tree

from data import draw


class Pair(str):
    """Text that shows how it was added."""

    def __add__(self, other):
        return Pair(f"({self}{other})")


def oracle(texts):
    """Pair neighbours until one is left."""
    while len(texts) > 1:
        texts = [f"({texts[i]}{texts[i + 1]})" if i + 1 < len(texts) else texts[i] for i in range(0, len(texts), 2)]
    return texts[0]


@given(st.integers(1, 33).flatmap(lambda n: st.permutations(range(n))))
def test_every_order_of_arrival_adds_the_same_pairs(order):
    tree = Tree(len(order))
    for number in order:
        assert tree.total is None
        tree.add(number, Pair(f"{number},"))
    assert tree.total == oracle([f"{i}," for i in range(len(order))])


@given(st.permutations(range(9)), st.sets(st.integers(0, 8)))
def test_what_is_left_out_is_passed_over(order, absent):
    tree = Tree(9)
    for number in order:
        tree.add(number, None if number in absent else Pair(number))
    kept = "".join(str(i) for i in range(9) if i not in absent)
    assert (tree.total or "").replace("(", "").replace(")", "") == kept


def test_few_are_held_when_they_come_in_order():
    tree = Tree(1000)
    most = 0
    for number in range(1000):
        tree.add(number, Pair("x"))
        most = max(most, len(tree._waiting))
    assert most <= 10


def test_merged_sketches_are_their_sum(tmp_path):
    parts = [Sketch.of(*draw(50, 3, seed=i)) for i in range(7)]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    found = merge_sketches(parts)
    assert found.n_samples == 350
    np.testing.assert_allclose(found.nll, whole.nll, rtol=1e-13)
    for name, table in whole.tables.items():
        np.testing.assert_allclose(found.tables[name], table, rtol=1e-13)
    for i, part in enumerate(parts):
        part.save(tmp_path / f"{i}.sketch.json")
    again = merge_sketches(str(tmp_path / "*.sketch.json"))
    assert (again.tables["uniform"] == found.tables["uniform"]).all()


def test_sketches_that_do_not_fit_are_named(tmp_path):
    h, y = draw()
    parts = [Sketch.of(h, y), Sketch.of(h, y), Sketch.of(h, y, thetas=[0.1])]
    with pytest.raises(InputError):
        merge_sketches(parts)
    for name, part in zip("abc", parts):
        part.save(tmp_path / f"{name}.json")
    with pytest.raises(InputError):
        merge_sketches([tmp_path / f"{name}.json" for name in "abc"])
    with pytest.raises(InputError):
        merge_sketches([parts[0], tmp_path / "a.json"])
