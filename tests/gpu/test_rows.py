"""The sums of a pass over rows on a device, against loops and against the kernels of NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attemper import AttemperWarning
from attemper.kernels import nll
from attemper.torch import fused, plain, rows
from attemper.torch.rows import DeviceRows

from data import draw_masked as draw

# A GPU does not mind NaN; NumPy, which the interpreter works with, warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:divide by zero:RuntimeWarning")

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def as_float64(t):
    return t.to(torch.float64).numpy()


def scan_slowly(h, y):
    """Row by row, as a person would look."""
    found = []
    for row, label in zip(h, y):
        bad = sum(1 for v in row if np.isnan(v) or v == np.inf)
        row = [0.0 if np.isnan(v) or v == np.inf else float(v) for v in row]
        finite = [v for v in row if v > -np.inf]
        top = row.index(max(row))
        others = [v for k, v in enumerate(row) if k != top]
        lowest, total = min(finite, default=np.inf), sum(finite)
        found.append((top, max(row), max(others), lowest, total, len(finite), row[label] - max(row), bad))
    return np.array(found).T


@pytest.mark.parametrize("k", [2, 31, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_scan_sees_what_a_person_would(sums, k, dtype):
    h, y = draw(7, k)
    h[2, :] = 1.5  # all tie
    h[3, [0, k - 1]] = h[3].max() + 1  # two tie
    h[4, :] = -np.inf
    h[4, y[4]] = 2.0  # one class is possible
    for masked in (True, False):
        t = torch.tensor(h if masked else np.maximum(h, -30.0)).to(dtype)
        found, has_nonfinite = (plain if sums == "plain" else fused).scan(t, None, torch.from_numpy(y))
        expected = scan_slowly(as_float64(t), y)
        assert has_nonfinite == masked
        np.testing.assert_array_equal(found.top.numpy(), expected[0])
        np.testing.assert_allclose(found.values.numpy(), expected[1:], rtol=1e-6 if dtype != torch.float64 else 1e-13)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_scan_counts_what_is_no_number(sums, value):
    h, y = draw(4, 40, masked=False)
    assert DeviceRows.of(torch.tensor(h), y).usable()
    assert not DeviceRows.of(torch.tensor(h), y).has_nonfinite
    h[2, [5, 39]] = value
    found = DeviceRows.of(torch.tensor(h), y)
    assert found.has_nonfinite
    assert not found.usable()
    np.testing.assert_array_equal(found.found.bad.numpy(), [0, 0, 2, 0])


def test_a_row_without_a_class_and_a_label_that_is_masked_cannot_be_used(sums):
    h, y = draw(4, 10)
    assert DeviceRows.of(torch.tensor(h), y).usable()
    dead, hit = h.copy(), h.copy()
    dead[1] = -np.inf
    hit[2, y[2]] = -np.inf
    assert not DeviceRows.of(torch.tensor(dead), y).usable()
    assert not DeviceRows.of(torch.tensor(hit), y).usable()
    assert DeviceRows.of(torch.tensor(hit), None).usable()  # without labels none can be masked


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("beta", [1e-3, 0.7, 20.0])
def test_the_sums_are_those_of_numpy(sums, dtype, masked, beta):
    h, y = draw(9, 77, masked=masked)
    w = np.random.default_rng(1).random(9)
    t = torch.tensor(h).to(dtype)
    for weights in (None, w):
        expected = nll.sums(as_float64(t), y, weights, beta, masked=masked)
        np.testing.assert_allclose(DeviceRows.of(t, y, weights).nll(beta), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("beta", [0.1, 0.61803398874])
def test_in_single_precision_they_are_close(sums, monkeypatch, masked, beta):
    monkeypatch.setattr(rows, "FEW_ELEMENTS", 0)
    h, y = draw(30, 70, masked=masked)
    t = torch.tensor(h).to(torch.bfloat16)
    found = DeviceRows.of(t, y)
    assert not found.exact
    expected = nll.sums(as_float64(t), y, None, beta, masked=masked)
    np.testing.assert_allclose(found.nll(beta), expected, rtol=3e-7)


def test_derivatives_lead_from_a_rounded_beta_to_the_one_asked_for(monkeypatch):
    monkeypatch.setattr(rows, "_has_triton", lambda device: False)
    h, y = draw(40, 9)
    found = DeviceRows.of(torch.tensor(h), y)
    exact = found.nll(0.5034), found.rests(np.array([0.5034]))
    monkeypatch.setattr(plain, "_rounded", lambda beta, dtype: (0.5, beta - 0.5))  # coarser than any type of number
    near = found.nll(0.5034), found.rests(np.array([0.5034]))
    np.testing.assert_allclose(near[0][:2], exact[0][:2], rtol=2e-3)
    np.testing.assert_allclose(near[1], exact[1], atol=2e-3)
    off = np.abs(near[0][:2] - exact[0][:2])
    without = 0.0034 * np.abs(exact[0][1:])  # what the first derivatives make good
    assert (off < 0.1 * without).all()


def test_limits_are_those_of_numpy(sums):
    for masked in (False, True):
        h, y = draw(30, 9, masked=masked)
        expected = nll.limits(h, y, None)
        np.testing.assert_allclose(DeviceRows.of(torch.tensor(h), y).limits(), expected, rtol=1e-13)


@pytest.mark.parametrize("betas", [[0.7], [0.05, 1.0, 20.0], list(np.geomspace(0.05, 20, 11))])
def test_rests_leave_the_largest_out_and_never_underflow(sums, betas):
    h, y = draw(12, 65)
    h[0] *= 200  # exp(β (h − max)) underflows
    h[1], h[1, 3], y[1] = -np.inf, 2.0, 3  # no other class
    found = DeviceRows.of(torch.tensor(h), y).rests(np.array(betas)).numpy()
    d = h - h.max(axis=1, keepdims=True)
    d[np.arange(12), h.argmax(axis=1)] = -np.inf
    with np.errstate(divide="ignore"):
        expected = np.stack([np.logaddexp.reduce(b * d, axis=1) for b in betas], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_that_reach_a_cut_are_found_in_order(sums, dtype):
    h, y = draw(6, 300)
    t = torch.tensor(h).to(dtype)
    cut = torch.linspace(5, 13, 6, dtype=torch.float32)
    expected = np.argwhere(as_float64(t) >= cut.double().numpy()[:, None])
    largest = as_float64(t).max(axis=1)
    for most in (10**9, 20, 1):  # all at once, in some groups, row by row
        groups = list(DeviceRows.of(t, y).entries_above(cut, most))
        row, column, gap = (torch.cat(c).numpy() for c in zip(*groups))
        np.testing.assert_array_equal(np.stack([row, column], axis=1), expected)
        np.testing.assert_array_equal(gap, as_float64(t)[row, column] - largest[row])
        assert (len(groups) == 1) == (most == 10**9)


def test_rows_can_be_chosen_and_need_not_lie_side_by_side(sums):
    h, y = draw(60, 20)
    index = np.array([50, 3, 3, 17, 59])
    wide = torch.tensor(np.concatenate([h, h], axis=1))
    for t in (torch.tensor(h), wide[:, :20], wide.T.contiguous().T[:, :20]):
        some = DeviceRows.of(t, y[index], None, index)
        np.testing.assert_allclose(some.nll(0.8), nll.sums(h[index], y[index], None, 0.8, masked=True), rtol=1e-12)
        part = some[slice(1, None, 2)]
        assert len(part) == 2
        np.testing.assert_allclose(part.nll(0.8), nll.sums(h[[3, 17]], y[[3, 17]], None, 0.8, masked=True), rtol=1e-12)
    strided = DeviceRows.of(wide[:, :20], y).strided(7)
    np.testing.assert_allclose(strided.nll(1.2), nll.sums(h[::7], y[::7], None, 1.2, masked=True), rtol=1e-12)


def test_where_triton_cannot_compile_plain_torch_is_used():
    assert not rows._has_triton.__wrapped__("cpu")
    with pytest.warns(AttemperWarning):  # there is no GPU here
        assert not rows._has_triton.__wrapped__("cuda")


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.integers(2, 9), st.integers(0, 10**6), st.floats(0.01, 30.0))
def test_any_rows_give_the_sums_of_numpy(n, k, seed, beta):
    h, y = draw(n, k, seed)
    h = h.round()  # so that there are ties
    found = DeviceRows.of(torch.tensor(h), y)
    assert found.found.top.tolist() == h.argmax(axis=1).tolist()
    np.testing.assert_allclose(found.nll(beta), nll.sums(h, y, None, beta, masked=True), rtol=1e-10, atol=1e-9)
