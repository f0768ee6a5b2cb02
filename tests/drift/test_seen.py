"""What a state remembers of rows and clusters: a day that is fed twice is noticed, whatever its order and batches."""

import json
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper import FileError, InputError, Scores
from attemper.drift import DriftTest, ExchangeabilityTest, UnlabelledMonitor, load_test
from attemper.drift.seen import BITS, Seen, hash_ids, hash_rows

from data import draw


def numbered(n, first=1):
    return first + np.arange(n)


@given(
    batches=st.lists(st.lists(st.integers(0, 2**BITS - 1), max_size=30), max_size=6),
    limit=st.integers(1, 40),
)
def test_what_is_remembered_does_not_depend_on_batches(batches, limit):
    """Against a dict: first numbers, or 0 for what came more than once, of the hashes below a power of two."""
    flat = [h for batch in batches for h in batch]
    with patch("attemper.drift.seen.LIMIT", limit):
        seen, n = Seen(), 0
        for batch in batches:
            seen = seen.add(np.array(batch, dtype=np.int64), numbered(len(batch), n + 1), mark_common=True)
            n += len(batch)
        whole = Seen().add(np.array(flat, dtype=np.int64), numbered(len(flat)), mark_common=True)
    assert len(seen.hashes) <= limit
    below = 1 << (BITS - seen.level)
    distinct = sorted({h for h in flat if h < below})
    assert seen.hashes.tolist() == distinct
    assert (seen.level, seen.hashes.tolist(), seen.at.tolist()) == (whole.level, distinct, whole.at.tolist())
    assert [a == 0 for a in whole.at] == [flat.count(h) > 1 for h in distinct]


def test_hashes_are_of_content():
    h, y = draw(500, 4)
    rows = hash_rows(Scores.from_logits(h), y)
    assert len(set(rows.tolist())) == 500
    single = h.astype(np.float32)
    np.testing.assert_array_equal(hash_rows(Scores.from_logits(single)), hash_rows(Scores.from_logits(single * 1.0)))
    np.testing.assert_array_equal(hash_rows(Scores.from_logits(h[::-1]), y[::-1]), rows[::-1])
    other = hash_rows(Scores.from_logits(h), (y + 1) % 4)
    assert not np.isin(other, rows).any()
    assert hash_rows(Scores.from_logits([[0.0, -0.0]]))[0] == hash_rows(Scores.from_logits([[-0.0, 0.0]]))[0]
    assert not np.isin(hash_rows(Scores.from_logits(h[:, ::-1])), hash_rows(Scores.from_logits(h))).any()
    assert rows.min() >= 0
    assert rows.max() < 2**BITS
    assert hash_ids(np.array([7]))[0] == hash_ids(np.array(["7"]))[0]


@pytest.mark.parametrize(
    "again",
    [
        lambda i: i[100:300],
        lambda i: i[100:300][::-1],
        lambda i: i[150:200],
        lambda i: np.concatenate([i[50:150], i[250:350]]),
    ],
    ids=["the same", "reversed", "a part", "parts of two"],
)
def test_a_day_fed_twice_is_noticed(again, tmp_path):
    h, y = draw(600, 4)
    test = DriftTest(2.0)
    for first in (0, 200, 400):
        test.update(h[first : first + 200], y[first : first + 200])
    test.save(tmp_path / "d.json")
    back = DriftTest.load(tmp_path / "d.json")
    rows = again(np.arange(600))
    before = back.log_e_value, back.n_samples
    with pytest.raises(InputError):
        back.update(h[rows], y[rows])
    assert (back.log_e_value, back.n_samples) == before
    assert back.update(h[rows], y[rows], repeats="skip").n_samples == 600
    assert back.update(h[rows], y[rows], repeats="count").n_samples == 600 + len(rows)
    with pytest.raises(InputError):
        back.update(h[rows], y[rows], repeats="ignore")


def test_the_error_names_the_samples():
    h, y = draw(600, 4)
    test = DriftTest(2.0).update(h[:300], y[:300]).update(h[300:], y[300:])
    with pytest.raises(InputError):
        test.update(h[300:], y[300:])


@pytest.mark.parametrize("digits", [0, 1, 2])
def test_equal_rows_by_chance_are_no_repeats(digits):
    """Rounded scores of two classes: there are few different rows, and a new day has the rows of the old ones."""
    rng = np.random.default_rng(digits)
    test = DriftTest(1.0, tolerance=1.0)
    for _ in range(40):
        z = rng.normal(size=rng.integers(5, 400)).round(digits)
        h = np.stack([np.zeros_like(z), z], axis=1)
        y = (h + rng.gumbel(size=h.shape)).argmax(axis=1)
        test.update(h, y)
    saturated = np.tile([0.0, 40.0], (300, 1))
    for _ in range(5):
        test.update(saturated, np.ones(300, dtype=int))


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr("attemper.drift.seen.LIMIT", 256)
    h, y = draw(8000, 3)
    test = DriftTest(2.0)
    for part in np.split(np.arange(8000), 16):
        test.update(h[part], y[part])
    assert len(test._seen_rows.hashes) <= 256
    assert test._seen_rows.level >= 5
    with pytest.raises(InputError):
        test.update(h[3000:5000], y[3000:5000])


def test_a_cluster_that_comes_again_is_noticed(tmp_path):
    h, y = draw(300, 3)
    ids = np.repeat(np.arange(100), 3)
    test = DriftTest(2.0).update(h[:150], y[:150], clusters=ids[:150])
    test.save(tmp_path / "d.json")
    test = load_test(tmp_path / "d.json")
    later = ids[150:].copy()
    later[70:73] = 7
    with pytest.raises(InputError):
        test.update(h[150:], y[150:], clusters=later)
    with pytest.raises(InputError):
        test.update(h[150:], y[150:], clusters=later.astype(str))
    skipped = load_test(tmp_path / "d.json").update(h[150:], y[150:], clusters=later, repeats="skip")
    assert (skipped.n_samples, skipped.n_rows) == (50 + 49 + 1, 297)
    skipped.save(tmp_path / "s.json")
    assert load_test(tmp_path / "s.json").n_rows == 297
    keep = later != 7
    same = load_test(tmp_path / "d.json").update(h[150:][keep], y[150:][keep], clusters=later[keep])
    assert skipped.log_e_value == same.log_e_value
    assert test.update(h[150:], y[150:], clusters=later, repeats="count").n_rows == 300


def test_unlabelled_rows_are_noticed_too():
    h, _ = draw(100, 3)
    monitor = UnlabelledMonitor(2.0).update(h)
    with pytest.raises(InputError):
        monitor.update(h)


@pytest.mark.parametrize("make", [lambda: DriftTest(2.0), lambda: ExchangeabilityTest(2.0, *draw(90, 3))])
def test_states_without_hashes_load(make, tmp_path):
    """States of earlier versions know neither rows nor clusters."""
    h, y = draw(200, 3, seed=1)
    make().update(h, y).save(tmp_path / "d.json")
    content = json.loads((tmp_path / "d.json").read_text())
    for name in ("seen_rows", "seen_clusters", "n_rows", "labelled", "clustered", "group_maps"):
        content.pop(name, None)
    (tmp_path / "d.json").write_text(json.dumps(content))
    test = load_test(tmp_path / "d.json")
    assert test.n_rows == test.n_samples == 200
    assert test.update(h, y).n_samples == 400


@pytest.mark.parametrize(
    "damage",
    [
        {"level": -1},
        {"level": 60},
        {"hashes": [1, 2]},
        {"hashes": [2, 1], "at": [1, 1]},
        {"hashes": [2**53], "at": [1]},
        {"hashes": [1], "at": [51]},
        {"hashes": [1], "at": [-1]},
        {"hashes": [0.5], "at": [1]},
    ],
)
def test_damaged_hashes(tmp_path, damage):
    DriftTest(2.0).update(*draw(50, 3)).save(tmp_path / "d.json")
    content = json.loads((tmp_path / "d.json").read_text())
    content["seen_rows"] |= damage
    (tmp_path / "d.json").write_text(json.dumps(content))
    with pytest.raises(FileError):
        load_test(tmp_path / "d.json")
