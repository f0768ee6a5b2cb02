"""Every array library comes in; whatever cannot be used is told with its row and how to mend it."""

from __future__ import annotations

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import torch

from attemper.data.arrays import SelectedRows, as_matrix, log_probs, numbered, to_numpy
from attemper.data.labels import as_labels, as_weights
from attemper.errors import InputError

MATRIX = np.array([[1.5, -2.0, 0.25], [0.0, 4.0, -8.0]])


# as_matrix


@pytest.mark.parametrize(
    "values",
    [
        MATRIX[0],
        torch.tensor(MATRIX[0]),
        3.0,
        None,
        MATRIX[:0],
        MATRIX[:, :0],
        MATRIX[:, :1],
        [[1, 2], [3]],
        [["a", "b"]],
        MATRIX + 1j,
        torch.tensor(MATRIX + 1j),
        jnp.asarray(MATRIX + 1j),
        MATRIX.astype("m8[s]"),
        np.zeros((2, 2), dtype=[("a", "f4")]),
        np.ma.masked_array(MATRIX, mask=MATRIX < 0),
    ],
)
def test_what_is_no_matrix(values):
    with pytest.raises(InputError):
        as_matrix(values, "logits")


def test_what_is_masked_in_labels_and_weights():
    some = np.ma.array([0, 1, 1], mask=[False, False, True])
    with pytest.raises(InputError):
        as_labels(some, 3, 2)
    with pytest.raises(InputError):
        as_weights(some, 3)
    none = np.ma.array([0, 1, 1], mask=False)
    assert as_labels(none, 3, 2).tolist() == as_weights(none, 3).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "values",
    [
        MATRIX,
        MATRIX.astype(np.float16),
        torch.tensor(MATRIX),
        jnp.asarray(MATRIX),
        array_api_strict.asarray(MATRIX),
        np.asarray(jnp.asarray(MATRIX, dtype=jnp.bfloat16)),
    ],
    ids=lambda v: f"{type(v).__module__}-{v.dtype}",
)
def test_arrays_stay_what_they_are(values):
    assert as_matrix(values, "logits") is values


# as_labels


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1],
        np.zeros((3, 2)),
        1,
        [[0], [1, 2], [0]],
        [0, -1, 2],
        [1, 2, 3],
        np.array([0, 2**64 - 1, 0], dtype=np.uint64),
        [0, 1, np.nan],
        [0, np.inf, 1],
        [0, None, 1],
        [0, 1, 0.5],
        ["0", "1", "cat"],
        ["cat", "1", "2"],
        [0, 1, pd.NA],
        np.array([0, 1, 2]) * 1j,
        np.array(["2020-01-01"] * 3, dtype="M8[s]"),
    ],
)
def test_labels_that_are_no_column_numbers(labels):
    with pytest.raises(InputError):
        as_labels(labels, 3, 3, name=numbered(10))


@pytest.mark.parametrize(
    "labels",
    [
        [0, 2, 1],
        [0.0, 2.0, 1.0],
        ["0", "2", "1"],
        np.array([0, 2, 1], dtype=np.uint8),
        torch.tensor([0, 2, 1]),
        jnp.asarray([0, 2, 1]),
        array_api_strict.asarray([0, 2, 1]),
        pd.Series([0, 2, 1], index=[5, 6, 7]),
        pd.array([0, 2, 1], dtype="Int64"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_labels_of_every_kind(labels):
    result = as_labels(labels, 3, 3)
    assert result.dtype == np.int64
    assert result.tolist() == [0, 2, 1]


def test_names_are_looked_up():
    assert as_labels(np.array(["dog", "cat"]), 2, 2, classes=("cat", "dog")).tolist() == [1, 0]
    assert as_labels([7, 3], 2, 2, classes=np.array([3, 7])).tolist() == [1, 0]
    assert as_labels([True, False], 2, 2, classes=[False, True]).tolist() == [1, 0]


# as_weights


@pytest.mark.parametrize(
    "weights",
    [
        [1, 2],
        [[1], [2], [3]],
        [1, -1, 1],
        [1, 1, np.nan],
        [np.inf, 1, 1],
        [1, 1e13, 1],
        [0, 0, 0],
        ["a", "b", "c"],
        [1, None, object()],
        np.ones(3) * 1j,
    ],
)
def test_weights_that_cannot_be_used(weights):
    with pytest.raises(InputError):
        as_weights(weights, 3, name=numbered(10))


@pytest.mark.parametrize("weights", [[0, 1, 2], torch.tensor([0, 1, 2]), jnp.asarray([0, 1, 2]), pd.Series([0, 1, 2])])
def test_weights_of_every_kind(weights):
    result = as_weights(weights, 3)
    assert result.dtype == np.float64
    assert result.tolist() == [0, 1, 2]


def test_one_weight_is_for_all_rows():
    assert as_weights(2, 3).tolist() == [2, 2, 2]


# to_numpy, log_probs


@pytest.mark.parametrize(
    "array, dtype",
    [
        (MATRIX, np.float64),
        (MATRIX.astype(np.float32), np.float32),
        (MATRIX.astype(np.float16), np.float32),
        (torch.tensor(MATRIX), np.float64),
        (torch.tensor(MATRIX, requires_grad=True), np.float64),
        (torch.tensor(MATRIX).half(), np.float32),
        (torch.tensor(MATRIX).bfloat16(), np.float32),
        (jnp.asarray(MATRIX, dtype=jnp.float32), np.float32),
        (jnp.asarray(MATRIX, dtype=jnp.bfloat16), np.float32),
        (array_api_strict.asarray(MATRIX), np.float64),
    ],
    ids=lambda v: f"{type(v).__module__}-{v.dtype}" if hasattr(v, "shape") and v.shape else None,
)
def test_every_library_comes_to_numpy_in_single_precision_or_better(array, dtype):
    result = to_numpy(array)
    assert type(result) is np.ndarray
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, MATRIX)  # all of them are powers of two or close by


@pytest.mark.parametrize("make", [np.asarray, torch.tensor, jnp.asarray, array_api_strict.asarray])
def test_zeros_are_impossible_or_stand_for_the_floor(make):
    p = make([[0.0, 1.0], [1e-9, 1.0]])
    assert np.asarray(log_probs(p, None))[0].tolist() == [-np.inf, 0]
    floored = log_probs(p, 1e-6)
    assert type(floored) is type(p)
    np.testing.assert_allclose(np.asarray(floored), np.log([[1e-6, 1], [1e-6, 1]]), rtol=1e-6)


@pytest.mark.parametrize("make", [np.asarray, torch.tensor, jnp.asarray], ids=["numpy", "torch", "jax"])
@pytest.mark.parametrize("index", [[0, 2, 1, 3], [2, 3], [5], [1, 4, 0], [0, 2, 4]])
def test_selected_rows_are_those_of_the_index(make, index):
    base = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    rows = SelectedRows(make(base), np.array(index))
    np.testing.assert_array_equal(to_numpy(rows), base[index])
    np.testing.assert_array_equal(to_numpy(rows[1:, :]), base[index[1:]])
    np.testing.assert_array_equal(to_numpy(rows[::2, :]), base[index[::2]])
    assert (rows.shape, rows.ndim, len(rows)) == ((len(index), 3), 2, len(index))
    assert type(rows.gathered()) is type(make(base))
    assert as_matrix(rows, "logits") is rows
    with pytest.raises(InputError):
        rows[:, 1]
