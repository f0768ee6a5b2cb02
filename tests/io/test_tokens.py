"""Tokens and options in files: the same rows as in memory, in bounded pieces; errors name file and position."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from attemper.data.arrays import to_numpy
from attemper.errors import FileError, InputError
from attemper.io import open_scores, reading
from attemper.tokens import option_scores, token_scores

B, L, V = 7, 5, 6


def batch(seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(B, L, V)).astype(np.float32)
    labels = rng.integers(0, V, (B, L))
    labels[rng.random((B, L)) < 0.2] = -100
    return logits, labels, (rng.random((B, L)) < 0.7).astype(np.uint8)


def same(files, expected):
    scores = files.load()
    np.testing.assert_array_equal(scores.values, to_numpy(expected.values))
    np.testing.assert_array_equal(scores.labels, expected.labels)
    np.testing.assert_array_equal(scores.weights, expected.weights)


@given(st.integers(1, 12), st.booleans(), st.booleans(), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_blocks_may_end_anywhere(tmp_path_factory, rows, shifted, masked, seed):
    folder = tmp_path_factory.mktemp("blocks")
    logits, labels, mask = batch(seed)
    weights = np.arange(1.0, 1 + B * L).reshape(B, L)
    np.savez(folder / "a.npz", logits=logits, labels=labels, mask=mask, w=weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK_BYTES", rows * (8 * V + 17))
        files = open_scores(
            folder / "a.npz",
            weights_key="w",
            mask_key="mask" if masked else None,
            next_token=shifted,
            ignore_index=-100,
        )
        told = {"mask": mask if masked else None, "sample_weight": weights}
        expected = token_scores(logits, **{"input_ids" if shifted else "labels": labels}, **told)
        assert max(map(len, files)) <= rows
        same(files, expected)


def test_every_format_of_arrays(tmp_path):
    logits, labels, mask = batch()
    np.savez_compressed(tmp_path / "a.npz", logits=logits, labels=labels, mask=mask.astype(bool))
    tensors = {"logits": torch.tensor(logits).bfloat16(), "labels": torch.tensor(labels), "mask": torch.tensor(mask)}
    save_file(tensors, tmp_path / "a.safetensors")
    np.save(tmp_path / "a.npy", logits)
    np.save(tmp_path / "y.npy", labels)
    told = {"ignore_index": -100, "mask_key": "mask"}
    same(open_scores(tmp_path / "a.npz", **told), token_scores(logits, labels, mask=mask))
    same(open_scores(tmp_path / "a.safetensors", **told), token_scores(tensors["logits"], labels, mask=mask))
    same(
        open_scores(tmp_path / "a.npy", labels=tmp_path / "y.npy", ignore_index=-100, next_token=True),
        token_scores(logits, input_ids=labels),
    )
    with pytest.raises(FileError):
        open_scores(tmp_path / "a.npy", labels=tmp_path / "y.npy", mask_key="mask")


def test_rows_of_every_format_may_be_ignored(tmp_path, form, data, save):
    logits, labels, _ = data
    labels = np.where(np.arange(101) % 3 == 0, -100, labels)
    expected = token_scores(logits, labels)
    files = open_scores(**save(tmp_path, form, logits, labels), ignore_index=-100)
    np.testing.assert_array_equal(files.load().values, to_numpy(expected.values))
    np.testing.assert_array_equal(files.load().labels, expected.labels)


def test_options_in_every_format(tmp_path, form, data, save):
    logits, labels, _ = data
    files = open_scores(**save(tmp_path, form, logits, labels % 3), columns=[3, 0, 2])
    assert files.n_classes == 3
    np.testing.assert_array_equal(files.load().values, logits[:, [3, 0, 2]])
    by_token = np.where(labels == 1, -1, labels)
    files = open_scores(
        **save(tmp_path, form, logits, by_token), columns=[3, 0, 2], labels_are="tokens", ignore_index=-1
    )
    keep = labels != 1
    expected = option_scores(logits[keep], options=[3, 0, 2], labels=labels[keep], labels_are="tokens")
    same(files, expected)


def test_a_column_of_lists(tmp_path, data):
    logits, labels, _ = data
    table = {"logits": pa.array(logits.tolist()), "label": pa.array(labels % 2)}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    same(open_scores(tmp_path / "a.parquet", columns=[1, 3]), option_scores(logits, options=[1, 3], labels=labels % 2))


@pytest.mark.parametrize(
    "told, message",
    [
        ({}, r"a.npz: 'logits' has shape \(7, 5, 6\); expected two dim.* For logits of tokens"),
        ({"ignore_index": 0}, r"a.npz: labels: sequence \d, position \d \(row \d+\) has label -100"),
        ({"next_token": True, "logits_key": "flat"}, r"next_token needs \(B, L, V\)"),
        ({"mask_key": "labels"}, r"a.npz: mask: sequence \d, position \d \(row \d+\) is"),
        ({"mask_key": "flat"}, r"'flat' has shape \(35, 6\); expected one entry per position"),
        ({"mask_key": "none"}, r"a.npz: none of the 35 rows counts"),
        ({"columns": [1, 6]}, r"a.npz: columns: options: token 6 is outside"),
        ({"columns": [1, 1]}, "twice"),
        ({"columns": [1, 2], "ignore_index": -100}, r"a.npz: labels: sequence \d, position \d \(row \d+\) has label"),
        ({"columns": [1, 2], "labels_are": "tokens", "ignore_index": -100}, r"position \d \(row \d+\) has token"),
        ({"logits_key": "fortran", "ignore_index": -100}, "stored column after column"),
        ({"logits_key": "nan", "ignore_index": -100}, r"logits: sequence 2, position 1 \(row 11\), column 3 is NaN"),
        ({"ignore_index": -100, "need_labels": False}, "needs labels"),
    ],
)
def test_errors(tmp_path, told, message):
    logits, labels, mask = batch()
    nan = logits.copy()
    nan[2, 1, 3], labels[2, 1] = np.nan, 1
    more = {"fortran": np.asfortranarray(logits), "nan": nan, "none": 0 * mask, "flat": logits.reshape(-1, V)}
    np.savez(tmp_path / "a.npz", logits=logits, labels=labels, mask=mask, **more)
    with pytest.raises((InputError, FileError)):
        open_scores(tmp_path / "a.npz", **told).load()


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("told", [{"mask_key": "m"}, {"next_token": True}])
def test_tables_have_no_sequences(tmp_path, form, data, save, told):
    with pytest.raises(FileError):
        open_scores(**save(tmp_path, form, *data[:2]), **told)
