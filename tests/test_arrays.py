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
    "values, why",
    [
        (MATRIX[0], r"Expected 2D array, .* got shape \(3,\)\. Reshape"),
        (torch.tensor(MATRIX[0]), r"got shape \(3,\)"),
        (3.0, r"got shape \(\)"),
        (None, r"got shape \(\)"),
        (MATRIX[:0], r"0 sample\(s\)"),
        (MATRIX[:, :0], r"0 feature\(s\)"),
        (MATRIX[:, :1], r"1 feature\(s\) .* np\.column_stack\(\[np\.zeros_like\(z\), z\]\)"),
        ([[1, 2], [3]], "expected an N×K array of numbers"),
        ([["a", "b"]], "could not convert string to float: .*; expected an N×K array of numbers"),
        (MATRIX + 1j, "Complex data not supported"),
        (torch.tensor(MATRIX + 1j), "Complex data not supported"),
        (jnp.asarray(MATRIX + 1j), "Complex data not supported"),
        (MATRIX.astype("m8[s]"), r"expected floating-point numbers, got dtype timedelta64\[s\]"),
        (np.zeros((2, 2), dtype=[("a", "f4")]), "expected floating-point numbers, got dtype "),
        (
            np.ma.masked_array(MATRIX, mask=MATRIX < 0),
            r"got a masked array with row 0, column \d masked.*\.filled\(-np\.inf\)",
        ),
    ],
)
def test_what_is_no_matrix(values, why):
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
    "labels, why",
    [
        ([0, 1], "2 labels for 3 rows of logits"),
        (np.zeros((3, 2)), r"got shape \(3, 2\)$"),
        (1, r"got shape \(\)"),
        ([[0], [1, 2], [0]], "expected one label per row"),
        ([0, -1, 2], r"row 11 has label -1, but there are 3 columns of logits, so labels run from 0 to 2"),
        ([1, 2, 3], r"row 12 has label 3, .* Labels that start at 1 need labels - 1"),
        (np.array([0, 2**64 - 1, 0], dtype=np.uint64), "row 11 has label 18446744073709551616"),
        ([0, 1, np.nan], "row 12 is nan"),
        ([0, np.inf, 1], "row 11 is inf"),
        ([0, None, 1], "row 11 is nan"),
        ([0, 1, 0.5], r"row 12 is 0\.5\. Unknown label type: continuous"),
        (["0", "1", "cat"], r"row 12 is 'cat'\. .* classes=\[…\]"),
        (["cat", "1", "2"], r"row 10 is 'cat'\."),
        ([0, 1, pd.NA], "row 12 is <NA>"),
        (np.array([0, 1, 2]) * 1j, "row 10 is 0j"),
        (np.array(["2020-01-01"] * 3, dtype="M8[s]"), r"row 10 is datetime"),
    ],
)
def test_labels_that_are_no_column_numbers(labels, why):
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
    "weights, why",
    [
        ([1, 2], r"sample_weight\.shape == \(2,\), expected \(3,\)"),
        ([[1], [2], [3]], r"sample_weight\.shape == \(3, 1\)"),
        ([1, -1, 1], r"sample_weight: row 11 is -1\.0"),
        ([1, 1, np.nan], "sample_weight: row 12 is nan"),
        ([np.inf, 1, 1], "sample_weight: row 10 is inf"),
        ([1, 1e13, 1], r"row 11 is 10000000000000\.0; .* at most 1e\+12"),
        ([0, 0, 0], "all weights are zero"),
        (["a", "b", "c"], "expected one number per row"),
        ([1, None, object()], "expected one number per row"),
        (np.ones(3) * 1j, "got complex numbers; expected one number per row"),
    ],
)
def test_weights_that_cannot_be_used(weights, why):
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
