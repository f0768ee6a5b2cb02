"""Arrays with the classes along an axis: the same bits as N×K rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attemper
from attemper import InputError, Scores, Sketch, TemperatureScaling
from attemper.calibrators import METHODS
from attemper.decisions import policy_for_miss
from attemper.drift import DriftTest

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


def test_a_file_keeps_the_axis(tmp_path):
    fitted = TemperatureScaling(axis=-1, ignore_index=IGNORE).fit(np.moveaxis(H, 1, -1), Y)
    fitted.save(tmp_path / "map.json")
    again = attemper.load(tmp_path / "map.json")
    assert (again.axis, again.ignore_index) == (-1, IGNORE)
    assert again.predict_proba(np.moveaxis(H, 1, -1)).shape == (6, 9, 11, K)


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


def test_one_image_leaves_t_without_an_interval():
    fitted = TemperatureScaling(axis=1).fit(H[:1], np.where(Y[:1] == IGNORE, 0, Y[:1]))
    assert fitted.temperature_interval_ is None


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


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Scores.from_logits(H, Y, axis=7),
        lambda: Scores.from_logits(H, Y, axis=1),
        lambda: Scores.from_logits(H, Y),
        lambda: Scores.from_logits(H, Y[:, :-1], **SETTINGS),
        lambda: Scores.from_logits(H, Y[:, None], **SETTINGS),
        lambda: Scores.from_logits(H, np.full(Y.shape, IGNORE), **SETTINGS),
        lambda: Scores.from_logits(H[:, :1], Y, **SETTINGS),
        lambda: Scores.from_logits(H, **SETTINGS),
        lambda: Scores.from_logits(H, Y, sample_weight=np.ones(3), **SETTINGS),
    ],
)
def test_what_does_not_fit_is_refused(wrong):
    with pytest.raises(InputError):
        wrong()


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
