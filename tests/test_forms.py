"""Every form that people hold becomes the same Scores, and gives the T of NumPy; what is odd about them is found."""

import shlex
import warnings
from dataclasses import fields
from functools import partial

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from safetensors.numpy import save_file

import attemper
from attemper.data.arrays import has_finite_masks
from attemper.data.checking import check
from attemper.data.doubts import _other_order, agreement
from attemper.data.files import Writer, expand, pieces, sha256_of, write
from attemper.data.inputs import label_shares
from attemper.data.reading import Read, ReadOptions, read
from attemper.data.scores import Scores
from attemper.data.shared import _hashes, check_disjoint, holds_rows, row_marks, shared_rows
from attemper.errors import (
    AttemperWarning,
    ChanceAccuracyWarning,
    FileError,
    InputError,
    ProbabilitiesAsLogitsWarning,
)
from conftest import draw

N, K = 300, 3
DATA = draw(N, K)
H, Y, P = DATA.h, DATA.y, DATA.p
NAMES = ["cat", "a dog", "eel, big"]  # a space and a comma
COLUMNS = {f"logit_{name}": H[:, k] for k, name in enumerate(NAMES)}
WHO = np.array([f"p{i // 3}" for i in range(N)])
TABLE = {"id": np.arange(N), **COLUMNS, "label": np.array(NAMES)[Y], "who": WHO}
BETAS = (0.3, 1.0)


def sums(scores):
    """NLL, slope and curvature at two temperatures: what every fit of a temperature is made of."""
    return np.concatenate([scores.backend.nll(beta) for beta in BETAS])


def t_of(*data, **options):
    return attemper.fit(*data, method="ts", **options).temperature_


REFERENCE, T = sums(Scores.of(H, Y)), t_of(H, Y)


def same(found, expected=T):
    assert found == pytest.approx(expected, rel=1e-12)


ARRAYS = {
    "lists": (H.tolist(), Y.tolist()),
    "numpy, Fortran order": (np.asfortranarray(H), Y),
    "torch": (torch.tensor(H), torch.tensor(Y)),
    "torch with a gradient": (torch.tensor(H, requires_grad=True), Y),
    "jax labels": (H, jnp.asarray(Y)),
    "pair": ((H, Y),),
    "pair of a frame": ((pd.DataFrame(COLUMNS), np.array(NAMES)[Y]),),
    "Scores": (Scores.of(H, Y),),
    "Scores without labels": (Scores.of(H), Y),
    "array API": (array_api_strict.asarray(H), array_api_strict.asarray(Y)),
    "column vector": (H, Y[:, None]),
    "one-hot": (H, np.eye(K)[Y]),
    "pandas labels": (H, pd.Series(Y, index=np.arange(N)[::-1])),
    "float labels": (H, Y.astype(float)),
}


@pytest.mark.parametrize("form", ARRAYS)
def test_arrays(form):
    same(t_of(*ARRAYS[form]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_lower_precision_is_that_of_its_numbers(dtype):
    low = torch.tensor(H).to(getattr(torch, dtype))
    np.testing.assert_allclose(sums(read(low, Y)), sums(read(low.double().numpy(), Y)), rtol=1e-6)
    assert read(low, Y).logits.dtype == np.float64


FRAMES = {
    "dict": TABLE,
    "pandas": pd.DataFrame(TABLE),
    "polars": pl.DataFrame(TABLE),
    "arrow": pa.table(TABLE),
    "list column": pd.DataFrame({"logits": list(H), "label": Y}),
    "list column, arrow": pa.table({"logits": list(H), "label": Y}),
    "list column, polars": pl.DataFrame({"logits": H, "label": Y}),
    "categories": pd.DataFrame(TABLE).astype({"label": "category"}),
    "numbers as names": pd.DataFrame(H).rename(columns=str).assign(label=Y),
    "no prefix": pd.DataFrame({name: H[:, k] for k, name in enumerate(NAMES)} | {"label": TABLE["label"], "age": 3.0}),
}


@pytest.mark.parametrize("form", FRAMES)
def test_frames(form):
    columns = {"no prefix": NAMES, "numbers as names": [0, 1, 2]}
    options = {"columns": columns[form]} if form in columns else {}
    same(t_of(FRAMES[form], **options))
    expected = None if form.startswith(("list", "numbers")) else tuple(NAMES)
    assert read(FRAMES[form], **options).classes == expected
    same(t_of(FRAMES[form], Y if expected is None else np.array(expected)[Y], **options))  # labels of their own


def test_columns_of_frames_go_by_name(tmp_path):
    frame = pd.DataFrame(H, columns=NAMES)
    for cal in (attemper.TemperatureScaling().fit(frame, Y), attemper.fit(frame.assign(label=Y), columns=NAMES)):
        cal.save(tmp_path / "cal.json")
        for fitted in (cal, attemper.load(tmp_path / "cal.json")):
            expected = fitted.predict_proba(H)
            for other in (
                frame[NAMES[::-1]],
                frame.assign(age=3.0)[["age", *NAMES]],
                pl.from_pandas(frame),
                frame.rename(columns=NAMES.index),
            ):
                np.testing.assert_array_equal(fitted.predict_proba(other), expected)
        with pytest.raises(InputError):
            cal.predict_proba(frame[NAMES[1:]])


FILES = (".csv", ".parquet", ".jsonl", ".arrow", ".npz", ".safetensors")


def save(path, table=TABLE, logits=H, labels=Y):
    if path.endswith(".npz"):
        np.savez(path, logits=logits, labels=labels, who=WHO[: len(labels)])
    elif path.endswith(".safetensors"):
        save_file({"logits": logits, "labels": labels}, path)
    elif path.endswith(".arrow"):
        with pa.ipc.new_file(path, pa.table(table).schema) as sink:
            sink.write_table(pa.table(table))
    else:
        write(path, table)


@pytest.mark.parametrize("extension", FILES)
def test_files(extension, folder):
    save(f"val{extension}")
    same(t_of(f"val{extension}"))
    parts = [piece.scores for piece in pieces([f"val{extension}"])]
    np.testing.assert_allclose(sum(map(sums, parts)), REFERENCE, rtol=1e-12)
    if extension != ".safetensors":
        assert len(np.unique(read(f"val{extension}", clusters="who").cases)) == N // 3


def test_npy_stays_on_disk(folder):
    np.save("h.npy", H)
    np.save("y.npy", Y)
    scores = read("h.npy", labels="y.npy")
    assert isinstance(scores.values.base, np.memmap)
    np.testing.assert_array_equal(sums(scores), REFERENCE)


def test_several_files_are_one(folder):
    for i, rows in enumerate(np.array_split(np.arange(N), 3)):
        save(f"part{i}.parquet", {name: column[rows] for name, column in TABLE.items()})
    scores = read("part*.parquet", clusters="who")
    np.testing.assert_array_equal(sums(scores), REFERENCE)
    assert scores.cases.max() + 1 == N // 3  # a case may be in two files
    assert [p.name for p in map(folder.joinpath, expand("part*.parquet"))] == [f"part{i}.parquet" for i in range(3)]
    (folder / "who.txt").write_text("\n".join(WHO), encoding="utf-8-sig")  # as Windows writes it
    np.testing.assert_array_equal(
        read(["part0.parquet", "part1.parquet", "part2.parquet"], clusters="who.txt").cases, scores.cases
    )
    assert sum(len(piece.scores) for piece in pieces(expand("part*.parquet"), clusters="who.txt")) == N


def test_one_column():
    two = draw(N, 2)
    z, y, both = two.h[:, 1] - two.h[:, 0], two.y, sums(Scores.of(two.h, two.y))
    for labels in (y, 2 * y - 1, y.astype(bool), np.where(y, "yes", "no")):
        classes = ["no", "yes"] if labels.dtype.kind == "U" else None
        np.testing.assert_allclose(sums(read(z, labels, classes=classes)), both, rtol=1e-12)
    p = 1 / (1 + np.exp(-z))
    np.testing.assert_allclose(sums(read(p[:, None], y, input="probs")), both, rtol=1e-9)
    turned = read({"prob_True": p, "prob_False": 1 - p, "label": y == 1})
    np.testing.assert_array_equal(turned.labels, 1 - y)
    with pytest.raises(InputError):
        read(z, np.arange(N) % 3 - 1)


def test_probabilities_and_their_zeros():
    np.testing.assert_allclose(sums(read(P, Y, input="probs"))[[1, 2, 4, 5]], REFERENCE[[1, 2, 4, 5]], rtol=1e-6)
    q = np.where(P < 0.01, 0, P)
    q /= q.sum(axis=1, keepdims=True)
    scores = read(q, Y, input="probs")
    assert scores.zeros_as == q[q > 0].min() / 2
    assert scores.logits.min() == np.log(scores.zeros_as)
    assert read(q, Y, input="probs", zeros_as=1e-5).logits.min() == np.log(1e-5)
    frame = {f"prob_{name}": q[:, k] for k, name in enumerate(NAMES)}
    assert read(frame, Y).input == "probs"


def test_soft_labels_are_expectations():
    shares = 0.7 * np.eye(K)[Y] + 0.3 * P
    scores = read(H, shares)
    expected = sum(sums(Scores.of(H, np.full(N, k), sample_weight=shares[:, k])) for k in range(K))
    np.testing.assert_allclose(sums(scores), expected, rtol=1e-12)
    assert scores.n_samples == scores.cases.max() + 1 == N
    assert scores.total_weight == pytest.approx(N)
    assert read(H, 0.99 * shares).total_weight == pytest.approx(N)
    w = 1.0 + np.arange(N) % 3
    expected = sum(sums(Scores.of(H, np.full(N, k), sample_weight=w * shares[:, k])) for k in range(K))
    np.testing.assert_allclose(sums(read(H, shares, sample_weight=w)), expected, rtol=1e-12)
    votes = np.array([["cat", None, "eel, big"], ["a dog", "a dog", None]], dtype=object)
    np.testing.assert_allclose(label_shares(votes, classes=NAMES), [[0.5, 0, 0.5], [0, 1, 0]])


def test_images_are_rows_of_pixels():
    data = draw(120, K)
    h, y, flat = (
        np.moveaxis(data.h.reshape(4, 5, 6, K), -1, 1),
        data.y.reshape(4, 5, 6),
        sums(Scores.of(data.h, data.y)),
    )
    for values, axis in ((h, 1), (torch.tensor(h), 1), (np.moveaxis(h, 1, -1), -1)):
        scores = read(values, y, axis=axis)
        np.testing.assert_allclose(sums(scores), flat, rtol=1e-12)
        assert np.bincount(scores.cases).tolist() == [30] * 4
    y[:, 0] = 255
    assert len(read(h, y, axis=1, ignore_index=255)) == 4 * 24
    few = read(h, y, axis=1, ignore_index=255, max_pixels=10)
    assert len(few) == 40
    assert few.total_weight == pytest.approx(4 * 24)
    weighted = read(h, y, axis=1, ignore_index=255, max_pixels=10, sample_weight=[1, 2, 3, 4])
    assert weighted.total_weight == pytest.approx(10 * 24)
    by_site = read(h, y, axis=1, ignore_index=255, groups=["a", "a", "b", "b"])
    assert (by_site.groups == "a").sum() == 48


def test_several_labels():
    y = np.where(np.arange(N * K).reshape(N, K) % 10, np.eye(K)[Y], np.nan)
    scores = read(H, y, multi_label=True)
    assert scores.multi_label
    np.testing.assert_array_equal(scores.labels, y)
    with pytest.raises(InputError) as error:
        read(H, y)
    assert error.value.param == "labels"


def test_masks():
    h = np.where(np.arange(K) == 2, -np.inf, H)
    y = Y % 2
    expected = sums(Scores.of(h, y))
    for mask in (-1e4, -1e9, -65504.0):
        np.testing.assert_allclose(sums(read(np.where(np.isinf(h), mask, h), y)), expected, rtol=1e-12)
    np.testing.assert_allclose(sums(read(np.ma.masked_array(H, np.isinf(h)), y)), expected, rtol=1e-12)
    assert not read(1e5 * H, Y).masked  # naive Bayes has logits of every size


def test_weights_and_rows():
    w, rows = DATA.w, np.repeat(np.arange(N), DATA.w.astype(int))
    np.testing.assert_allclose(sums(read(H, Y, sample_weight=w)), sums(read(H[rows], Y[rows])), rtol=1e-12)
    scores = read(H, Y, clusters=WHO, groups=Y)
    some = scores.take(Y == 1).take(slice(2, None))
    np.testing.assert_array_equal(some.logits, H[Y == 1][2:])
    assert (some.groups == 1).all()
    assert len(scores.sample(50)) <= 50


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_sums_have_the_same_bits_for_any_number_of_threads(threads, monkeypatch):
    many = draw(30_000, 100)
    scores = Scores.of(many.h, many.y)
    monkeypatch.setenv("ATTEMPER_THREADS", "3")
    before = sums(scores)
    monkeypatch.setenv("ATTEMPER_THREADS", threads)
    np.testing.assert_array_equal(sums(scores), before)


@pytest.mark.parametrize("extension", [*FILES, ".npy"])
def test_a_damaged_file_is_one_error(extension, folder):
    if extension == ".npy":
        np.save("val.npy", H)
    else:
        save(f"val{extension}")
    content = (folder / f"val{extension}").read_bytes()
    for damaged in (b"", content[: len(content) // 2], b"\xff\x00" * 50):
        (folder / f"val{extension}").write_bytes(damaged)
        with pytest.raises((FileError, InputError)):
            read(f"val{extension}", **({"labels": "val.npy"} if extension == ".npy" else {}))


def test_labels_of_a_file_of_their_own_are_as_many(folder):
    np.save("h.npy", H)
    np.save("y.npy", Y[:-1])
    with pytest.raises(InputError) as error:
        read("h.npy", labels="y.npy")
    assert error.value.param == "labels"


@pytest.mark.parametrize("extension", [".csv", ".parquet", ".jsonl", ".npz"])
def test_what_is_written_comes_back(extension, folder):
    parts = [
        {"id": np.arange(N)[rows], "prediction": np.array(NAMES)[Y[rows]], "p": P[rows, 0]}
        for rows in (slice(0, 9), slice(9, N))
    ]
    write(f"out{extension}", parts)
    if extension == ".npz":
        with np.load("out.npz") as z:
            np.testing.assert_array_equal(z["p"], P[:, 0])
            return
    found = list(pieces([f"out{extension}"], columns="p", input="probs", ids="id", keep=True))
    np.testing.assert_array_equal(np.concatenate([piece.scores.values[:, 1] for piece in found]), P[:, 0])
    np.testing.assert_array_equal(np.concatenate([piece.scores.ids for piece in found]), np.arange(N))
    assert [name for p in found for name in p.table["prediction"].tolist()] == np.array(NAMES)[Y].tolist()
    assert len(sha256_of(f"out{extension}")) == 64


def test_a_failed_write_leaves_the_old_file(folder):
    (folder / "out.csv").write_text("before")
    with pytest.raises(ZeroDivisionError), Writer("out.csv") as writer:
        writer.add({"a": np.arange(3)})
        1 / 0  # noqa: B018
    assert (folder / "out.csv").read_text() == "before"
    assert [p.name for p in folder.iterdir()] == ["out.csv"]


def test_reading_options_are_remembered():
    options = ReadOptions.of({"labels": "truth", "columns": ["a", "b"], "clusters": np.arange(3), "ids": ("x", "y")})
    assert (options.labels, options.columns, options.clusters) == ("truth", ("a", "b"), None)
    assert options.known() == {"labels": "truth", "columns": ("a", "b")}


def test_columns_of_two_precisions_have_the_better_one():
    scores = read({**TABLE, f"logit_{NAMES[0]}": H[:, 0].astype(np.float32)})
    assert scores.values.dtype == np.float64
    np.testing.assert_array_equal(scores.values[:, 1:], H[:, 1:])


def test_agreement_with_weights():
    top = H.argmax(axis=1)
    assert agreement(Y, top, np.full(N, 4.0)) == pytest.approx(agreement(Y, top))


def test_doubts():
    with pytest.warns(ProbabilitiesAsLogitsWarning):
        read(P, Y)
    with pytest.warns(ProbabilitiesAsLogitsWarning):
        read(P[:, 0], Y == 0)
    cal = attemper.TemperatureScaling().fit(H, Y)
    with pytest.warns(ProbabilitiesAsLogitsWarning):
        cal.predict_proba(P[:1])
    nothing, p = draw(10 * N, K, t=1e9), draw(500, 2).p[:, 1]
    with pytest.warns(ChanceAccuracyWarning):
        read(nothing.h, nothing.y)
    with pytest.warns(ChanceAccuracyWarning) as seen:
        read(p, p < 0.5, input="probs")
    assert "[1, 0]" in str(seen[0].message)
    with pytest.warns(ChanceAccuracyWarning) as seen:
        read({f"logit_{name}": H[:, k - 1] for k, name in enumerate(NAMES)} | {"label": TABLE["label"]})
    assert "rename" in str(seen[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(p, p < 0.5, input="probs", classes=[1, 0])
        read(H, Y)
        read(np.log(P), Y)
    val, test = read(H[:200], Y[:200]), read(H[200:], Y[200:])
    assert shared_rows(val, test) == 0
    assert shared_rows(val, read(H[150:], Y[150:])) == 50
    assert shared_rows(Scores.of(np.tile(H[:20], (10, 1))), Scores.of(H[:30])) == 0  # twins within val
    check_disjoint(val, test)
    with pytest.warns(AttemperWarning):
        check_disjoint(val, read(H[150:], Y[150:]))
    with pytest.raises(InputError):
        check_disjoint(val, read(H[:150].astype(np.float32), Y[:150]))
    with pytest.raises(InputError):
        check_disjoint(val, val, allow_shared=True)
    for names in ([2, 1, 0], None):
        with pytest.raises(InputError):
            check_disjoint(
                read(H, classes=[0, 1, 2]), read(H[:, :2] if names is None else H, classes=names), allow_shared=True
            )


def test_check_describes_and_finds():
    found = check(H, Y, clusters=WHO)
    assert found
    assert found.holds["rows"] == N
    assert found.holds["clusters"] == N // 3
    assert found.to_dict()["holds"]["accuracy"] == pytest.approx((H.argmax(axis=1) == Y).mean(), abs=1e-4)
    h = np.column_stack([np.repeat(H, 5, axis=0), np.full(5 * N, -9.0)])
    shifted = check(h, np.repeat(H, 5, axis=0).argmax(axis=1) + 1)
    assert not shifted
    assert not check(H, 2 - H.argmax(axis=1))
    tied, w = np.zeros((N, K)), np.where(Y == 0, 3.0, 1.0)
    assert check(tied, Y).holds["accuracy"] == pytest.approx((Y == 0).mean())
    assert check(tied, Y, sample_weight=w).holds["accuracy"] == pytest.approx(w @ (Y == 0) / w.sum())
    assert not check(H, Y + 1)
    assert not check("nothing.csv")


def test_labels_off_by_one_are_found_with_the_share_and_the_fix():
    h = np.column_stack([H, np.full(N, -9.0)])  # the last class is never right: labels from 1 are columns, too
    with pytest.warns(ChanceAccuracyWarning) as seen:
        read(np.repeat(h, 5, axis=0), np.repeat(Y + 1, 5))
    share = (H.argmax(axis=1) == Y).mean()
    assert f"{share:.1%}" in str(seen[0].message)
    assert "[1, 2, 3, 4]" in str(seen[0].message)
    for classes in ([1, 2, 3], ["1", "2", "3"]):
        same(t_of(H, Y + 1, classes=classes))
    with pytest.raises(InputError) as error:
        read(H, Y + 1)
    assert f"{share:.1%}" in str(error.value)
    assert "[1, 2, 3]" in str(error.value)
    with pytest.raises(InputError) as error:
        read(H, Y - 1)
    assert "[-1, 0, 1]" in str(error.value)
    same(t_of({f"logit_{k + 1}": H[:, k] for k in range(K)} | {"label": Y + 1}))  # columns named by numbers


def test_check_gives_level_message_fix_and_the_next_command(folder):
    write("val.csv", TABLE)
    found = check("val.csv", clusters="who", columns=list(COLUMNS))
    assert found
    assert found.holds["clusters"] == N // 3
    assert shlex.split(found.next)[:3] == ["attemper", "fit", "val.csv"]
    assert shlex.split(found.next)[-2:] == ["-o", "net.attemper.json"]
    assert "who" in shlex.split(found.next)
    doubt = check(P, Y).findings[0]
    assert (doubt.level, bool(doubt.message), "probs" in doubt.fix) == ("warning", True, True)
    wrong = check("val.csv", clusters="woh")
    assert [f.level for f in wrong.findings] == ["error"]
    assert (wrong.next, check(P, Y).next, check(H).next) == ("", "", "")
    assert eval(check(P, Y, input="probs").next, {"attemper": attemper, "data": P, "labels": Y}).map_.input == "probs"


def test_validation_and_test_must_be_apart(folder):
    rows = np.arange(N)
    halves = rows < 150, rows >= 150
    first, second = (read(H[part], Y[part], ids=rows[part], clusters=WHO[part]) for part in halves)
    check_disjoint(first, second)
    for options in ({"ids": rows[halves[0]][::-1]}, {"clusters": WHO[halves[0]]}):
        with pytest.raises(InputError) as error:
            check_disjoint(first, read(H[halves[1]], Y[halves[1]], **options))
        assert error.value.param == next(iter(options))
        check_disjoint(first, read(H[halves[1]], Y[halves[1]], **options), allow_shared=True)
    images = [read(H[part].reshape(2, 15, 5, K), Y[part].reshape(2, 15, 5), axis=-1) for part in halves]
    check_disjoint(*images)  # they have numbers of their own
    flat = np.round(H)  # rows are equal by chance, so that only the bytes of the files tell
    for name in ("a.npz", "b.npz"):
        np.savez(name, logits=flat[:, :2], labels=Y % 2)
    with pytest.raises(InputError) as error:
        check_disjoint(read("a.npz"), read("b.npz"))
    assert error.value.param == "test"


def test_the_same_warning_is_given_once_for_all_shards(folder):
    for i in range(12):
        np.savez(f"{i}.npz", logits=P, labels=Y)
    for call in (attemper.sketch, attemper.fit, read, attemper.evaluate):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call("*.npz")
        assert [w.category for w in seen].count(ProbabilitiesAsLogitsWarning) == 1


def test_zeros_of_files_are_looked_through_once_and_stored(folder, monkeypatch):
    q = np.where(P < 0.01, 0, P)
    q /= q.sum(axis=1, keepdims=True)
    for i, rows in enumerate(np.array_split(np.arange(N), 3)):
        np.savez(f"{i}.npz", probs=q[rows], labels=Y[rows])
    expected = q[q > 0].min() / 2
    whole = attemper.fit("*.npz", method="ts")
    assert whole.map_.zeros_as == expected
    same(whole.temperature_, t_of(q, Y, input="probs"))
    same(t_of(Scores.of(q, Y, input="probs")), whole.temperature_)  # what Scores hold, they hold
    same(attemper.TemperatureScaling().fit(Scores.of(q, Y, input="probs")).temperature_, whole.temperature_)
    monkeypatch.setattr("attemper.verbs.IN_MEMORY", 0)  # by sketches
    large = attemper.fit("*.npz", method="ts")
    assert large.map_.zeros_as == expected
    assert large.temperature_ == pytest.approx(whole.temperature_, rel=1e-6)
    with pytest.raises(InputError) as error:
        attemper.sketch("*.npz")
    assert error.value.param == "zeros_as"
    parts = [attemper.sketch(f"{i}.npz", zeros_as=z) for i, z in ((0, 1e-6), (1, 1e-6), (2, 1e-5))]
    assert (parts[0] + parts[1]).zeros_as == 1e-6
    with pytest.raises(InputError):
        parts[0] + parts[2]


def test_several_labels_in_files(folder):
    y = np.eye(K)[Y]
    table = {**COLUMNS, **{f"label_{name}": y[:, k] for k, name in list(enumerate(NAMES))[::-1]}}
    for data in (table, pd.DataFrame(table)):
        np.testing.assert_array_equal(read(data, multi_label=True).labels, y)
    for extension in (".csv", ".parquet"):
        write(f"val{extension}", table)
        np.testing.assert_array_equal(read(f"val{extension}", multi_label=True).labels, y)
    np.savez("val.npz", logits=H, labels=y)
    np.testing.assert_array_equal(read("val.npz", multi_label=True).labels, y)


def test_addresses():
    fsspec = pytest.importorskip("fsspec")
    for i, rows in enumerate(np.array_split(np.arange(N), 2)):
        with fsspec.open(f"memory://shards/{i}.npz", "wb") as stream:
            np.savez(stream, logits=H[rows], labels=Y[rows])
        with fsspec.open(f"memory://shards/{i}.parquet", "wb") as stream:
            pa.parquet.write_table(pa.table({name: column[rows] for name, column in TABLE.items()}), stream)
    with fsspec.open("memory://shards/who.txt", "wb") as stream:
        stream.write("\n".join(WHO).encode())
    for pattern in ("memory://shards/*.npz", "memory://shards/*.parquet"):
        same(t_of(pattern))
        assert len(read(pattern, clusters="memory://shards/who.txt").cases) == N
    with pytest.raises(FileError):
        read("memory://shards/none.npz")


def test_text_files_as_people_write_them(folder, monkeypatch):
    monkeypatch.setattr("attemper.data.files.TEXT_BLOCK", 200)  # types are not those of the first rows alone
    lines = ["note,logit_a,logit_b,label,who"]
    lines += [f'"two\nlines {i}",{1 if i < 50 else 1.5},{-i},{"ab"[i % 2]},{i if i < 50 else "x"}' for i in range(99)]
    (folder / "val.csv").write_text("\n".join(lines), encoding="utf-8-sig")
    scores = read("val.csv", clusters="who")
    assert scores.classes == ("a", "b")
    np.testing.assert_array_equal(scores.logits[:, 1], -np.arange(99))
    assert len(np.unique(scores.cases)) == 51
    (folder / "one.csv").write_text("my risk,label\n0.2,0\n0.7,1\n")  # one column, with a space
    np.testing.assert_allclose(read("one.csv", columns="my risk", input="probs").values[:, 1], [0.2, 0.7])
    write("odd.csv", {name: H[:, k] for k, name in enumerate(NAMES)} | {"y": Y})
    same(t_of("odd.csv", labels="y", columns=NAMES))
    same(t_of("odd.csv", labels="y", classes=NAMES))


def test_lists_of_unequal_length_are_an_error(folder):
    pa.parquet.write_table(pa.table({"logits": [[1.0, 2.0], [1.0, 2.0, 3.0, 4.0]], "label": [0, 1]}), "val.parquet")
    with pytest.raises(InputError) as error:
        read("val.parquet")
    assert error.value.param == "columns"


@pytest.mark.parametrize("extension", [".csv", ".parquet", ".jsonl", ".npz"])
def test_columns_with_gaps_can_be_written_in_pieces(extension, folder):
    a = {"age": np.array([1, 2]), "note": np.array([None, None], dtype=object), "probs": P[:2]}
    b = {"age": np.array([np.nan, 4.0]), "note": np.array(["x", None], dtype=object), "probs": P[2:4]}
    write(f"out{extension}", [a, b])
    if extension == ".csv":
        frame = pd.read_csv("out.csv")
        np.testing.assert_array_equal(frame[["probs_0", "probs_1", "probs_2"]], P[:4])
        assert frame["note"].tolist()[2] == "x"
    elif extension == ".npz":
        with np.load("out.npz") as z:  # without pickle
            assert z["note"].tolist()[2] == "x"
            np.testing.assert_array_equal(z["probs"], P[:4])
        return
    else:
        read_it = pd.read_parquet if extension == ".parquet" else partial(pd.read_json, lines=True, precise_float=True)
        frame = read_it(f"out{extension}")
        np.testing.assert_allclose(np.stack(frame["probs"]), P[:4], rtol=1e-15)
    np.testing.assert_array_equal(frame["age"], [1, 2, np.nan, 4])


@pytest.mark.parametrize("extension", [".npy", ".parquet", ".csv"])
def test_pieces_are_small_and_add_up(extension, folder, monkeypatch):
    monkeypatch.setattr("attemper.data.files.BATCH_ELEMENTS", 30)
    monkeypatch.setattr("attemper.data.files.TEXT_BLOCK", 3000)
    many = {name: np.tile(column, 20) for name, column in TABLE.items()}
    if extension == ".npy":
        np.save("val.npy", np.tile(H, (20, 1)))
    else:
        write(f"val{extension}", many)
    np.save("y.npy", np.tile(Y, 20))
    parts = [piece.scores for piece in pieces([f"val{extension}"], labels="y.npy")]
    assert len(parts) > 4
    assert sum(map(len, parts)) == 20 * N
    np.testing.assert_allclose(sum(map(sums, parts)), 20 * REFERENCE, rtol=1e-12)
    some = np.tile(np.where(np.arange(N) < 200, 7, Y), 20)  # in some pieces nothing counts
    np.save("y.npy", some)
    counted = sum(len(piece.scores) for piece in pieces([f"val{extension}"], labels="y.npy", ignore_index=7))
    assert counted == 20 * (N - 200)


def test_single_precision_of_jax_is_that_of_numpy():
    low = H.astype(np.float32)
    same(t_of(jnp.asarray(low), Y), t_of(low, Y))
    same(t_of(torch.tensor(low), Y), t_of(low, Y))


def test_read_options_are_those_of_read():
    names = [name for name in Read.__annotations__ if name not in ("ids", "max_pixels")]  # of the data of a fit
    assert ["labels", *names] == [field.name for field in fields(ReadOptions)]


def test_masks_are_told_from_the_logits_of_all_parts_together():
    wide, far = np.array([[8000.0, -8000.0]]), np.array([[0.0, -20_000.0]])  # as naive Bayes has them
    assert has_finite_masks([far])
    assert not has_finite_masks([wide, far])
    assert not has_finite_masks([far, wide])


@pytest.mark.parametrize("mask", [-np.inf, -1e9])
def test_a_label_that_is_masked_out_is_refused(mask):
    with pytest.raises(InputError) as error:
        read(np.where(np.arange(K) == 2, mask, H), Y)
    assert error.value.param == "labels"


def test_scores_that_are_read_again_keep_weights_and_clusters():
    again = read(read(H, Y, sample_weight=DATA.w, clusters=WHO), groups=Y)
    np.testing.assert_array_equal(again.w, DATA.w)
    np.testing.assert_array_equal(again.clusters, WHO)
    np.testing.assert_array_equal(again.groups, Y)


def test_another_order_must_fit_rows_that_did_not_choose_it():
    nothing = draw(256, 50, t=1e9)  # an order of so many classes fits many of any 128 rows
    np.testing.assert_array_equal(_other_order(nothing.y, nothing.h.argmax(axis=1), 50), np.arange(50))


def test_rows_that_are_taken_keep_their_ids_and_groups():
    scores = Scores.of(H, Y, ids=np.arange(N), groups=WHO)
    for rows in (slice(3, 9), np.array([5, 2, 2]), np.arange(N) % 7 == 0):
        taken = scores.take(rows)
        np.testing.assert_array_equal(taken.ids, np.arange(N)[rows])
        np.testing.assert_array_equal(taken.groups, WHO[rows])


def test_images_without_a_row_that_counts_have_their_ids():
    y = np.zeros((6, 4, 5), dtype=int)
    y[5] = 255
    scores = Scores.of(np.zeros((6, 3, 4, 5)), y, axis=1, ignore_index=255, clusters=list("aabbcc"))
    np.testing.assert_array_equal(np.unique(scores.clusters, return_counts=True)[1], [40, 40, 20])


def test_one_column_that_is_read_again_is_one_column():
    data = draw(N, 2)
    once = read(data.p[:, 1], data.y, input="probs")
    again = read(once, groups=WHO)
    assert again.one_column
    values = [attemper.evaluate(each, metrics=["brier"])["brier"].value for each in (once, again)]
    assert values[0] == values[1]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, ""], ids=repr)
def test_missing_entries_are_named(missing):
    gap = pd.Series(["cat", missing, "dog"], dtype="string" if missing is pd.NA else object)
    for given in ({"labels": gap, "classes": ["cat", "dog"]}, {"labels": [0, 1, 0], "groups": gap}):
        with pytest.raises(InputError) as caught:
            Scores.of(np.eye(3)[:, :2], **given)
        assert caught.value.param in given


@pytest.mark.parametrize("names", [[0.5, 2.5, 3.5], [-3, -2, -1], [-1, 0, 1]], ids=repr)
def test_numbers_are_names(names):
    assert Scores.of(np.eye(3), names[::-1], classes=names).labels.tolist() == [2, 1, 0]
    votes = [[name, names[0]] for name in names]
    np.testing.assert_array_equal(label_shares(votes, classes=names)[2], [0.5, 0, 0.5])


def test_agreement_with_whole_weights_is_that_of_repeated_rows():
    data = draw(600, 3)
    top = data.h.argmax(axis=1)
    w = np.where(top == data.y, 1, 3)
    weighted = agreement(data.y, top, w.astype(float))
    repeated = agreement(np.repeat(data.y, w), np.repeat(top, w))
    assert (weighted.share, weighted.by_chance) == pytest.approx((repeated.share, repeated.by_chance))


@pytest.mark.parametrize("axis", [1, 2, -1, -3])
def test_pixels_keep_what_belongs_to_them(axis):
    h, y, w = DATA.h[:120].reshape(4, 5, 6, K), DATA.y[:120].reshape(4, 5, 6).copy(), 1 + DATA.w[:120]
    y[1, 2:], y[3, 0], image = 255, 255, np.repeat(np.arange(4), 30)
    kept = y.reshape(-1) != 255
    for weights in (w.reshape(4, 5, 6), np.array([1.0, 2, 3, 4])):
        for ids in (np.arange(120).reshape(4, 5, 6), np.arange(4)):
            scores = read(np.moveaxis(h, -1, axis), y, axis=axis, ignore_index=255, sample_weight=weights, groups=ids)
            np.testing.assert_array_equal(scores.logits, DATA.h[:120][kept])
            np.testing.assert_array_equal(scores.labels, DATA.y[:120][kept])
            for found, given in ((scores.w, weights), (scores.groups, ids)):
                np.testing.assert_array_equal(found, (given.ravel() if given.size == 120 else given[image])[kept])
            np.testing.assert_array_equal(scores.cases, image[kept])
            assert scores.n_samples == kept.sum()
    with pytest.raises(InputError):
        read(h, axis=-4)


def test_rows_that_do_not_count_are_as_if_removed():
    y, w = np.where(np.arange(N) % 7, Y, -1), 1 + DATA.w
    kept, ids = y >= 0, {"groups": WHO, "clusters": WHO, "ids": np.arange(N)}
    one = read(H, y, ignore_index=-1, sample_weight=w, **ids)
    two = read(H[kept], y[kept], sample_weight=w[kept], **{name: of[kept] for name, of in ids.items()})
    for name in ("logits", "labels", "w", "groups", "clusters", "ids", "cases", "n_samples", "total_weight"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)


def test_soft_labels_keep_what_belongs_to_their_sample():
    soft, w = 0.7 * np.eye(K)[Y] + 0.1, 1 + DATA.w
    scores = read(H, soft, sample_weight=w, groups=WHO, clusters=WHO, ids=np.arange(N))
    np.testing.assert_array_equal(scores.groups, WHO[scores.index])
    np.testing.assert_array_equal(scores.ids, scores.index)
    assert scores.cases.max() + 1 == N // 3
    np.testing.assert_allclose(np.bincount(scores.index, scores.w), w)
    some = scores.take(scores.labels == 1)
    np.testing.assert_array_equal(some.logits, H)
    np.testing.assert_allclose(some.w, w * soft[:, 1])


def test_agreement_of_some_rows_is_that_of_their_weights():
    top, some = H.argmax(axis=1), np.arange(N) % 3 > 0
    assert agreement(Y, top, 2.0 * some) == pytest.approx(agreement(Y[some], top[some]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_probabilities_of_lower_precision_are_their_numbers(dtype):
    many = draw(400, 2000)
    p = many.p.astype(dtype)
    scores = Scores.of(p, many.y, input="probs", zeros_as=1e-9)
    expected = np.log(np.where(p < np.finfo(dtype).smallest_normal, 1e-9, p.astype(float)))
    if dtype == np.float16:  # all of its numbers are normal ones in single precision
        expected = np.log(np.where(p == 0, 1e-9, p.astype(float)))
    np.testing.assert_allclose(scores.logits, expected, rtol=1e-12)
    assert scores.bound >= np.abs(scores.logits).max()


def test_no_logit_is_beyond_the_bound_and_the_bound_is_reached():
    h = np.where((np.arange(K) == 2) & (np.arange(N) % 2 == 0)[:, None], -1e9, H)
    y = np.where(np.arange(N) % 2, Y, Y % 2)
    for scores in (read(H, Y), read(h, y), read(P, Y, input="probs", zeros_as=0.1)):
        found = scores.logits[np.isfinite(scores.logits)]
        assert scores.bound == pytest.approx(np.abs(found).max())
    assert Scores.of([0.5, 2.0], [1, 1]).classes is None
    assert Scores.of([0.5, 2.0], [1, -1]).classes == (-1, 1)


def test_patients_of_images_must_not_be_shared():
    images, labels = np.random.default_rng(0).normal(size=(2, 6, 3, 4, 4)), np.zeros((6, 4, 4), dtype=int)
    labels[:, 0] = 1
    who = np.arange(6) // 2
    val, test = (read(each, labels, axis=1, clusters=who) for each in images)
    with pytest.raises(InputError):
        check_disjoint(val, test)


def test_files_in_another_order_of_the_classes_do_not_join(folder):
    table = {f"logit_{name}": H[:, k] for k, name in enumerate("abc")} | {"label": np.array(list("abc"))[Y]}
    for name, order in (("one.csv", "abc"), ("two.csv", "cba")):
        write(name, {key: table[key] for key in [*(f"logit_{c}" for c in order), "label"]})
    with pytest.raises(InputError):
        read(["one.csv", "two.csv"])


@pytest.mark.parametrize("spelling", [str.lower, str.title, str.upper])
def test_true_and_false_are_names_however_they_are_spelled(spelling):
    labels = [spelling("true"), spelling("false"), spelling("true")]
    for names in ([False, True], ["FALSE", "TRUE"], ["false", "true"]):
        assert Scores.of(np.zeros((3, 2)), labels, classes=names).labels.tolist() == [1, 0, 1]


def test_zeros_and_ones_alone_are_no_probabilities():
    one = np.eye(K)[Y]
    read(one, Y)  # a warning would be an error
    read(one[:, 0], Y == 0)
    with pytest.warns(ProbabilitiesAsLogitsWarning):
        read(0.9 * one + 0.1 / K, Y)


def test_marked_rows_are_found_among_many_in_any_precision_and_order():
    order = np.random.default_rng(0).permutation(N)
    marks = row_marks(read(H, Y))
    assert holds_rows(read(H.astype(np.float32)[order], Y[order]), marks)
    assert holds_rows(read(H[N // 2 :], Y[N // 2 :]), marks)
    assert not holds_rows(read(*draw(N, K, seed=1)), marks)
    assert len(np.unique(_hashes(read(*draw(20_000, 2))))) == 20_000


def test_labels_of_one_class_are_noticed():
    with pytest.warns(AttemperWarning):
        read(H, np.ones(N, dtype=int))
    assert not check(H, np.ones(N, dtype=int))
    read(H[:9], np.ones(9, dtype=int))  # which so few may be by chance


def test_the_first_columns_mark_a_row():
    data = draw(200, 80)
    changed = data.h.copy()
    changed[:, 70:] += 1  # of the same samples the first 64 columns are enough
    assert row_marks(read(changed, data.y)) == row_marks(read(data.h, data.y))
