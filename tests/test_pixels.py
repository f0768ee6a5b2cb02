"""Arrays with the classes along an axis: the same bits as N×K rows, without a copy that moves them."""

from __future__ import annotations

import tracemalloc

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attemper
from attemper import InputError, Scores, Sketch, TemperatureScaling
from attemper.calibrators import METHODS
from attemper.data.arrays import to_numpy
from attemper.data.boundaries import boundary_mask
from attemper.data.pixels import BLOCK, Chosen, PixelRows
from attemper.decisions import policy_for_miss
from attemper.drift import DriftTest
from attemper.torch import to_torch

K, IGNORE = 4, 255


def draw_images(n=6, k=K, shape=(9, 11), seed=0, t=1.6, ignored=0.2):
    rng = np.random.default_rng(seed)
    h = 3 * rng.normal(size=(n, k, *shape)) + rng.normal(size=(n, k, *[1] * len(shape)))
    y = (h / t + rng.gumbel(size=h.shape)).argmax(axis=1)
    y[rng.random(y.shape) < ignored] = IGNORE
    return h, y


def moved(h, y, axis=1):
    """Rows that count, and their labels, by the obvious way."""
    rows, labels = np.moveaxis(h, axis, -1).reshape(-1, h.shape[axis]), y.ravel()
    return rows[labels != IGNORE], labels[labels != IGNORE]


H, Y = draw_images()
ROWS, LABELS = moved(H, Y)
SETTINGS = {"axis": 1, "ignore_index": IGNORE}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore::attemper.AttemperWarning")
def test_every_method_is_fitted_to_the_same_bits(method):
    one, two = METHODS[method](**SETTINGS).fit(H, Y), METHODS[method]().fit(ROWS, LABELS)
    assert one.map_.to_dict() == two.map_.to_dict()
    probs = one.predict_proba(H)
    assert probs.shape == H.shape
    every = np.moveaxis(H, 1, -1)
    np.testing.assert_array_equal(
        np.moveaxis(probs, 1, -1).reshape(-1, K), two.predict_proba(every.reshape(-1, K)), strict=True
    )
    np.testing.assert_array_equal(one.predict(H), two.predict(every.reshape(-1, K)).reshape(Y.shape))


@pytest.mark.parametrize(
    ("axis", "shape"),
    [(1, (3, K, 40, 50)), (-1, (3, 40, 50, K)), (1, (2, K, 5, 6, 7)), (0, (K, 40, 50)), (-1, (9, 70, K))],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_a_sketch_has_the_same_bits(axis, shape, dtype):
    rng = np.random.default_rng(1)
    h = (3 * rng.normal(size=shape)).astype(dtype)
    y = (h / 1.5 + rng.gumbel(size=shape)).argmax(axis=axis).astype(np.uint8)
    y[rng.random(y.shape) < 0.1] = IGNORE
    one = Sketch.of(h, y, axis=axis, ignore_index=IGNORE)
    two = Sketch.of(*moved(h, y, axis))
    np.testing.assert_array_equal(one.nll, two.nll)
    for name, table in two.tables.items():
        np.testing.assert_array_equal(one.tables[name], table)


def rows_slowly(h, axis, counts):
    """One pixel after the other."""
    found = [
        [h[(*place[:axis], k, *place[axis:])] for k in range(h.shape[axis])]
        for place in np.ndindex(*[n for k, n in enumerate(h.shape) if k != axis])
        if counts[place]
    ]
    return np.array(found).reshape(-1, h.shape[axis])


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_rows_are_those_that_a_loop_finds(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=3, max_size=5)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    h = np.arange(float(np.prod(shape))).reshape(shape)
    if data.draw(st.booleans()):
        h = h.transpose(data.draw(st.permutations(range(len(shape)))))  # strides that no view may fit
    positions = tuple(n for k, n in enumerate(h.shape) if k != axis)
    bits = data.draw(st.lists(st.booleans(), min_size=int(np.prod(positions)), max_size=int(np.prod(positions))))
    counts = np.array(bits, dtype=bool).reshape(positions)
    expected = rows_slowly(h, axis, counts)
    for array in (h, torch.from_numpy(h.copy()), array_api_strict.asarray(h.copy())):
        rows = PixelRows.of(array, axis, Chosen.of(counts.ravel()))
        np.testing.assert_array_equal(to_numpy(rows), expected)
        part = slice(data.draw(st.integers(0, 9)), data.draw(st.integers(0, 40)), data.draw(st.integers(1, 4)))
        np.testing.assert_array_equal(to_numpy(rows[part, :]), expected[part])
        place = np.nonzero(counts)
        np.testing.assert_array_equal(rows.images(), place[0] if axis else np.zeros(len(expected)))


def test_positions_are_found_in_many_blocks(monkeypatch):
    from attemper.data import pixels

    monkeypatch.setattr(pixels, "BLOCKS", 2)
    mask = np.random.default_rng(0).random(5 * BLOCK + 123) < 0.3
    chosen, expected = Chosen.of(mask), np.flatnonzero(mask)
    for rows in (range(len(chosen)), range(17, len(chosen), 7919), range(3, 5), range(BLOCK, BLOCK)):
        np.testing.assert_array_equal(chosen.positions(rows), expected[rows.start : rows.stop : rows.step])


def test_nothing_is_copied_but_chunks():
    h, y = draw_images(8, 8, (256, 256))
    h, y = h.astype(np.float16), y.astype(np.uint8)
    Sketch.of(h[:1], y[:1], parts=[], **SETTINGS)
    tracemalloc.start()
    Sketch.of(h, y, parts=[], **SETTINGS)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < y.size + 5 * h.nbytes  # one byte for each pixel, and chunks; rows in double precision are 4 × h
    assert most < 24e6


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_tensors_come_back_as_they_came(kind):
    h, y = torch.tensor(H, dtype=getattr(torch, kind)), torch.tensor(Y)
    fitted = TemperatureScaling(**SETTINGS).fit(h, y)
    rows = h.movedim(1, -1).reshape(-1, K)
    keep = (y != IGNORE).reshape(-1)
    assert fitted.temperature_ == TemperatureScaling().fit(rows[keep], y.reshape(-1)[keep]).temperature_
    probs = fitted.predict_proba(h)
    assert probs.shape == h.shape
    assert probs.dtype == h.dtype
    assert fitted.predict(h).shape == y.shape
    torch.testing.assert_close(probs.movedim(1, -1).reshape(-1, K), fitted.predict_proba(rows), rtol=0, atol=0)


@pytest.mark.parametrize("method", ["ts", "vector", "isotonic"])
def test_the_torch_module_agrees(method):
    fitted = METHODS[method](**SETTINGS).fit(H, Y)
    module = to_torch(fitted, dim=1)
    np.testing.assert_allclose(module(torch.tensor(H)).numpy(), fitted.predict_proba(H), rtol=1e-12)


def test_a_file_keeps_the_axis(tmp_path):
    fitted = TemperatureScaling(axis=-1, ignore_index=IGNORE).fit(np.moveaxis(H, 1, -1), Y)
    fitted.save(tmp_path / "map.json")
    again = attemper.load(tmp_path / "map.json")
    assert (again.axis, again.ignore_index) == (-1, IGNORE)
    assert again.predict_proba(np.moveaxis(H, 1, -1)).shape == (6, 9, 11, K)
    assert "axis" not in (
        TemperatureScaling().fit(ROWS, LABELS).save(tmp_path / "p.json") or (tmp_path / "p.json").read_text()
    )


def test_two_dimensions_are_rows_whatever_the_axis():
    for axis in (0, 1, -1):
        assert (
            TemperatureScaling(axis=axis).fit(ROWS, LABELS).temperature_
            == TemperatureScaling().fit(ROWS, LABELS).temperature_
        )


def test_rows_of_a_table_can_be_ignored_too():
    every = np.moveaxis(H, 1, -1).reshape(-1, K)
    one = Scores.from_logits(every, Y.ravel(), ignore_index=IGNORE)
    np.testing.assert_array_equal(one.logits, ROWS)
    np.testing.assert_array_equal(one.labels, LABELS)
    assert one.clusters is None


def test_weights_are_those_of_the_pixels():
    w = np.random.default_rng(2).random(Y.shape)
    one = TemperatureScaling(**SETTINGS).fit(H, Y, w)
    two = TemperatureScaling().fit(ROWS, LABELS, w.ravel()[Y.ravel() != IGNORE])
    assert one.temperature_ == two.temperature_


def test_the_interval_of_t_is_that_of_images():
    rng = np.random.default_rng(3)
    h = 2 * rng.normal(size=(30, K, 16, 16))
    y = (h / np.exp(0.4 * rng.normal(size=(30, 1, 1, 1))) + rng.gumbel(size=h.shape)).argmax(axis=1)
    one, two = TemperatureScaling(axis=1).fit(h, y), TemperatureScaling().fit(*moved(h, y))
    width = [np.log(f.temperature_interval_[1] / f.temperature_interval_[0]) for f in (one, two)]
    assert width[0] > 3 * width[1]
    # The same by a jackknife over images: leave one out, and see how T moves.
    left_out = [
        TemperatureScaling().fit(*moved(np.delete(h, i, 0), np.delete(y, i, 0))).temperature_ for i in range(30)
    ]
    error = np.sqrt(29 / 30 * np.square(np.log(left_out) - np.log(left_out).mean()).sum())
    assert width[0] == pytest.approx(2 * 2.045 * error, rel=0.1)
    assert "30 images" in one.fit_report_.message


def test_one_image_leaves_t_without_an_interval():
    fitted = TemperatureScaling(axis=1).fit(H[:1], np.where(Y[:1] == IGNORE, 0, Y[:1]))
    assert fitted.temperature_interval_ is None
    assert "one image" in fitted.fit_report_.message


class TestDrawing:
    def test_the_seed_decides_and_other_images_do_not(self):
        one, two, other = (Scores.from_logits(H, Y, max_pixels=20, seed=s, **SETTINGS) for s in (0, 0, 1))
        np.testing.assert_array_equal(one.logits, two.logits)
        assert not np.array_equal(one.logits, other.logits)
        first = Scores.from_logits(H[:3], Y[:3], max_pixels=20, **SETTINGS)
        np.testing.assert_array_equal(first.logits, one.logits[: len(first)])
        np.testing.assert_array_equal(np.bincount(one.clusters), 20)

    def test_weights_are_the_shares_that_count(self):
        y = np.where(np.arange(99).reshape(9, 11) < 33, IGNORE, np.where(Y == IGNORE, 0, Y))
        y[0] = np.where(y[0] == IGNORE, 1, y[0])
        scores = Scores.from_logits(H, y, max_pixels=10, **SETTINGS)
        by_image = np.bincount(scores.clusters, scores.weights)
        np.testing.assert_allclose(by_image, [10, *[10 * 66 / 99] * 5])
        assert Scores.from_logits(H, np.where(Y == IGNORE, 0, Y), max_pixels=10, axis=1).weights is None

    def test_more_than_there_are_is_all(self):
        assert len(Scores.from_logits(H, Y, max_pixels=10**6, **SETTINGS)) == len(ROWS)

    def test_only_images_are_drawn_from(self):
        with pytest.raises(InputError):
            Scores.from_logits(ROWS, LABELS, max_pixels=3)


WRONG = {
    r"axis=7.*axis=1 for \(N, K": lambda: Scores.from_logits(H, Y, axis=7),
    r"axis=True": lambda: Scores.from_logits(H, Y, axis=True),
    r"label 255.*use ignore_index=255": lambda: Scores.from_logits(H, Y, axis=1),
    r"labels: expected shape \(6, 9, 11\)": lambda: Scores.from_logits(H, Y[:, :-1], **SETTINGS),
    r"squeeze\(1\)": lambda: Scores.from_logits(H, Y[:, None], **SETTINGS),
    r"one-hot, use labels\.argmax\(1\)": lambda: Scores.from_logits(H, np.zeros(H.shape), axis=1),
    r"all 594 are 255": lambda: Scores.from_logits(H, np.full(Y.shape, IGNORE), **SETTINGS),
    r"two classes or more.*concatenate\(\[np\.zeros_like\(z\), z\], axis=1\)": lambda: Scores.from_logits(
        H[:, :1], Y, **SETTINGS
    ),
    r"ignore_index=255: needs labels": lambda: Scores.from_logits(H, **SETTINGS),
    r"Use axis=1 if the classes are the second dimension": lambda: Scores.from_logits(H, Y),
    r"sample_weight: expected shape": lambda: Scores.from_logits(H, Y, sample_weight=np.ones(3), **SETTINGS),
}


@pytest.mark.parametrize("message", WRONG)
def test_errors_name_what_was_expected_and_the_fix(message):
    with pytest.raises(InputError):
        WRONG[message]()


def test_an_error_names_the_pixel():
    h = H.copy()
    h[2, 3, 4, 5] = np.nan
    with pytest.raises(InputError):
        Scores.from_logits(h, np.where(Y == IGNORE, 0, Y), axis=1)
    with pytest.raises(InputError):
        Scores.from_logits(np.moveaxis(h[:, :, 4], 1, -1), np.zeros((6, 11), int), axis=-1)


def test_pixels_that_are_ignored_may_hold_anything():
    h, y = H.copy(), Y.copy()
    h[0, :, 0, 0], y[0, 0, 0] = np.nan, IGNORE
    np.testing.assert_array_equal(Scores.from_logits(h, y, **SETTINGS).labels, moved(h, y)[1])


def test_what_counts_independent_samples_refuses_pixels():
    fitted = TemperatureScaling(**SETTINGS).fit(H, Y)
    with pytest.raises(InputError):
        policy_for_miss(fitted.predict_proba(H), Y, 0.3)
    with pytest.raises(InputError):
        DriftTest(fitted).update(Scores.from_logits(H, Y, **SETTINGS))
    assert DriftTest(fitted).update(Scores.from_logits(H, Y, max_pixels=1, **SETTINGS)).n_samples == 6


def boundary_slowly(y, width):
    found = np.zeros(y.shape, dtype=bool)
    for i, image in enumerate(y):
        for place in np.ndindex(image.shape):
            for other in np.ndindex(image.shape):
                steps = sum(abs(a - b) for a, b in zip(place, other))
                if steps == 1 and image[place] != image[other]:
                    found[(i, *place)] = True
    for _ in range(width - 1):
        before = found.copy()
        for i in range(len(y)):
            for place in np.ndindex(y[i].shape):
                for axis in range(y.ndim - 1):
                    for step in (-1, 1):
                        near = list(place)
                        near[axis] += step
                        if 0 <= near[axis] < y.shape[axis + 1]:
                            found[(i, *place)] |= before[(i, *near)]
    return found


@given(st.integers(0, 10_000), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_boundaries_are_those_that_a_loop_finds(seed, width):
    y = np.random.default_rng(seed).integers(0, 2, (2, 4, 5)).repeat(2, axis=2)
    np.testing.assert_array_equal(boundary_mask(y, width), boundary_slowly(y, width))


def test_ignored_pixels_have_no_boundary():
    y = np.array([[[0, 0, 255, 1, 1]]])
    assert not boundary_mask(y, ignore_index=255).any()
    with pytest.raises(InputError):
        boundary_mask(y[0, 0])
