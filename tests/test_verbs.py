"""The front door: every form that people hold gives the same fit; files, sketches, processes, groups and labels."""

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import attemper
from attemper import (
    METHODS,
    GroupedCalibrator,
    MultiLabelCalibrator,
    Scores,
    TemperatureScaling,
    apply,
    applying,
    check,
    compare,
    datasets,
    decide,
    evaluate,
    fit,
    load,
    metrics,
    monitor,
    read,
    sketch,
)
from attemper.applying import tables
from attemper.data.files import sha256_of, write
from attemper.data.shared import was_fitted_on
from attemper.errors import AttemperWarning, InputError, collected_warnings
from conftest import draw

N, K = 600, 3
DATA = draw(N, K)
H, Y, P = DATA.h, DATA.y, DATA.p
NAMES = np.array(["cat", "dog", "eel"])
SITE, CASE = np.where(np.arange(N) % 3, "north", "south"), np.arange(N) // 2
TABLE = {
    "id": np.arange(N),
    **{f"logit_{name}": H[:, k] for k, name in enumerate(NAMES)},
    "truth": NAMES[Y],
    "site": SITE,
}
MORE = draw(N, K, seed=1)
OTHER = TABLE | {f"logit_{name}": MORE.h[:, k] for k, name in enumerate(NAMES)} | {"truth": NAMES[MORE.y]}
T = TemperatureScaling().fit(H, Y).temperature_


def shards(n=4, key="logits", values=H):
    for i, rows in enumerate(np.array_split(np.arange(N), n)):
        np.savez(f"shard{i}.npz", **{key: values[rows], "labels": Y[rows]})
    np.savez("all.npz", **{key: values, "labels": Y})


@pytest.mark.parametrize("call", [
    lambda: fit(sketch(H, Y), method="ts"),
    lambda: fit([sketch(H[:200], Y[:200]), sketch(H[200:], Y[200:])], method="ts"),
    lambda: fit(H, Y, method=TemperatureScaling),
    lambda: fit(P, Y, method=TemperatureScaling(input="probs")),
])  # fmt: skip
def test_sketches_classes_and_instances_give_the_same_fit(call):
    assert call().temperature_ == pytest.approx(T, rel=1e-8)


def test_files(folder):
    shards()
    write("a.csv", TABLE)
    expected = fit(H, Y, method="ts").temperature_
    assert fit("all.npz", method="ts").temperature_ == expected
    assert fit("shard*.npz", method="ts", n_jobs=2).temperature_ == expected
    assert fit([f"shard{i}.npz" for i in range(4)], method="ts").temperature_ == expected
    assert fit("a.csv", "truth", method="ts").temperature_ == pytest.approx(T, rel=1e-12)
    np.save("y.npy", Y)
    np.save("h.npy", H)
    assert fit("h.npy", "y.npy", method="ts").temperature_ == expected
    sketch("shard*.npz").save("s.json")
    assert fit("s.json", method="ts").temperature_ == pytest.approx(T, rel=1e-8)


@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_large_files_become_sketches_with_the_same_bits_for_any_n_jobs(folder, monkeypatch, kind):
    monkeypatch.setattr("attemper.verbs.IN_MEMORY", 100)
    values = H if kind == "logits" else np.where(P < 1e-3, 0, P) / np.where(P < 1e-3, 0, P).sum(axis=1, keepdims=True)
    shards(key=kind, values=values)
    one = fit("shard*.npz", method="ts")
    with joblib.parallel_config(backend="threading"):
        two = fit("shard*.npz", method="ts", n_jobs=2)
    assert one.temperature_ == two.temperature_
    assert one.temperature_ == pytest.approx(fit(values, Y, method="ts", input=kind).temperature_, rel=1e-6)
    assert one.map_.zeros_as == fit(values, Y, method="ts", input=kind).map_.zeros_as
    assert one.read_.input == kind
    np.save("y.npy", Y)
    assert fit("shard*.npz", "y.npy", method="ts").temperature_ == pytest.approx(one.temperature_, rel=1e-9)


def test_priors_of_new_data():
    old, new = np.bincount(Y) / N, [0.2, 0.3, 0.5]
    p = apply(fit(sketch(H, Y), method="ts"), H, priors=new)
    whole = fit(H, Y, method="ts")
    np.testing.assert_allclose(p["prob_1"], whole.with_priors(new, old).predict_proba(H)[:, 1], rtol=1e-6)
    for clusters, n in (("who", N // 2), (CASE, N // 2), (None, N)):
        assert tables(whole, TABLE | {"who": CASE}, "estimate", clusters=clusters)[0].adapted_.n_cases == n


def test_groups_and_labels_choose_their_calibrators():
    grouped = fit(TABLE, "truth", groups="site", clusters=CASE, method="ts")
    assert isinstance(grouped, GroupedCalibrator)
    same = GroupedCalibrator("ts").fit(H, Y, groups=SITE, clusters=CASE)
    assert (
        grouped.groups_ == same.groups_ == fit(H, Y, method=GroupedCalibrator("ts"), groups=SITE, clusters=CASE).groups_
    )
    table = apply(grouped, TABLE)
    np.testing.assert_allclose(table["confidence"], same.predict_proba(H, groups=SITE).max(axis=1))
    with pytest.warns(AttemperWarning):
        west = apply(grouped, TABLE | {"site": np.full(N, "west")})
    np.testing.assert_allclose(west["confidence"], same.common_.predict_proba(H).max(axis=1))
    many = fit(H, np.eye(K)[Y], multi_label=True)
    assert isinstance(many, MultiLabelCalibrator)
    assert list(apply(many, H)) == list(apply(many, H).shown()) == ["prob_0", "prob_1", "prob_2"]


def test_apply_remembers_how_it_was_read(folder):
    write("val.csv", TABLE)
    cal = fit("val.csv", "truth", clusters="id", method="ts")
    cal.save("net.json")
    cal = load("net.json")
    assert (cal.read_.labels, cal.read_.clusters, cal.read_.classes) == ("truth", "id", tuple(NAMES))
    new = {name: column for name, column in TABLE.items() if name != "truth"}
    turned = {name: new[name] for name in ("logit_eel", "id", "logit_dog", "logit_cat")}  # another order, no labels
    write("new.csv", turned)
    table = apply("net.json", "new.csv")
    assert list(table) == [*turned, "prediction", "confidence", "prob_cat", "prob_dog", "prob_eel"]
    p = cal.predict_proba(H)
    np.testing.assert_allclose(np.column_stack([table[f"prob_{name}"] for name in NAMES]), p, atol=1e-12)
    assert (table["prediction"] == NAMES[H.argmax(axis=1)]).all()
    np.testing.assert_allclose(apply(cal, pl.DataFrame(turned))["confidence"], p.max(axis=1), atol=1e-12)
    arrays = apply(cal, H)
    assert list(arrays) == ["prediction", "confidence", "prob_cat", "prob_dog", "prob_eel"]
    assert pd.DataFrame(arrays).shape == (N, 5)
    images = apply(fit(H, Y, method="ts"), H.reshape(6, 10, 10, K), axis=-1)  # a row for each pixel
    assert pd.DataFrame(images).shape == (N, 5)


def test_the_users_columns_stay_as_they_are(folder, monkeypatch):
    monkeypatch.setattr("attemper.data.files.TEXT_BLOCK", 1 << 12)  # what comes late is not in the first block
    own = [f"00{i},{10**21 + i},7E{i % 9},N/A,{'late' if i > 500 else ''}" for i in range(N)]
    lines = [f"{text},{i % 2},{','.join(map(str, row))}" for i, (text, row) in enumerate(zip(own, H))]
    (folder / "new.csv").write_text("\n".join(["id,long,code,none,note,site,0,1,2", *lines]) + "\n")
    cal = fit(H, Y, groups=np.arange(N) % 2, method="ts")
    table = apply(cal, "new.csv", columns=["0", "1", "2"], groups="site")
    assert [",".join(row) for row in zip(*(table[name] for name in ("id", "long", "code", "none", "note")))] == own
    np.testing.assert_array_equal(table["confidence"], cal.predict_proba(H, groups=np.arange(N) % 2).max(axis=1))


@pytest.mark.parametrize("order", [[2, 0, 1], [1, 0, 2]])
def test_columns_go_by_the_names_of_the_classes(folder, order):
    frames = [{f"logit_{NAMES[k]}": H[:, k] for k in own} | {"truth": NAMES[Y]} for own in ([0, 1, 2], order)]
    cal = fit(H, Y, classes=NAMES, method="ts")
    for name, frame in zip("ab", frames):
        write(f"{name}.csv", frame)
        np.testing.assert_array_equal(apply(cal, frame)["prob_dog"], cal.predict_proba(H)[:, 1])
        np.testing.assert_array_equal(cal.predict_proba(pd.DataFrame(frame)), cal.predict_proba(H))
    np.testing.assert_array_equal(read(["a.csv", "b.csv"], "truth", classes=NAMES).logits, np.tile(H, (2, 1)))
    numbers = {f"logit_{k}": H[:, k] for k in order}
    np.testing.assert_array_equal(read(numbers, classes=NAMES).logits, H)
    np.testing.assert_array_equal(read(numbers, columns=list(numbers), classes=NAMES).logits, H[:, order])
    other = pd.DataFrame({name.replace("dog", "cow"): column for name, column in frames[1].items() if name != "truth"})
    for call in (apply, TemperatureScaling.predict):
        with pytest.raises(InputError) as error:
            call(cal, other)
        assert error.value.param == "classes"


@pytest.mark.parametrize("groups", [None, list("aabbab")])
def test_images_have_the_classes_where_the_fit_had_them(groups):
    images = np.moveaxis(H.reshape(6, 10, 10, K), -1, 1)
    cal = fit(images, Y.reshape(6, 10, 10), axis=1, method="ts", **({"groups": groups} if groups else {}))
    own = {"groups": groups} if groups else {}
    p, found = cal.predict_proba(images, **own), cal.predict(images, **own)
    np.testing.assert_array_equal(found, p.argmax(axis=1))
    np.testing.assert_array_equal(found, images.argmax(axis=1))
    np.testing.assert_array_equal(cal.predict(np.moveaxis(images, 1, -1), axis=-1, **own), found)
    if not groups:
        np.testing.assert_allclose(cal.to_torch()(torch.tensor(images)), p, atol=1e-12)


def test_probabilities_replace_the_columns_they_come_from(folder):
    frame = pd.DataFrame({f"prob_{name}": P[:, k] for k, name in enumerate(NAMES)} | {"label": NAMES[Y], "n": 1})
    cal = fit(frame, method="ts")
    assert cal.map_.input == "probs"
    table = apply(cal, frame)
    assert list(table) == ["label", "n", "prediction", "confidence", "prob_cat", "prob_dog", "prob_eel"]
    np.testing.assert_allclose(table["prob_cat"], cal.predict_proba(P)[:, 0])


def test_one_column_of_a_forest():
    two = draw(N, 2)
    p = two.p[:, 1].round(1)  # some are 0
    cal = fit(p, two.y, input="probs")
    assert np.isfinite(cal.predict_risk(p)).all()
    assert cal.predict_risk(p).shape == (N,)


@pytest.mark.parametrize(("call", "param"), [
    (lambda: fit(H, Y, method="ts", noise=0.1), "noise"),
    (lambda: fit(H, Y, method="no"), "method"),
    (lambda: fit(H, method="ts"), "labels"),
    (lambda: fit(sketch(H, Y), Y, method="ts"), "labels"),
    (lambda: fit(H, Y, multi_label=True, method="ts"), "multi_label"),
    (lambda: fit(TABLE, "nothing", method="ts"), "labels"),
    (lambda: fit(H, Y, method="ts", columns=["a"]), "columns"),
    (lambda: apply(GroupedCalibrator("ts").fit(H, Y, groups=SITE), H), "groups"),
    (lambda: fit(sketch(H, Y), classes=NAMES, method="ts"), "classes"),
    (lambda: sketch(H, np.eye(K)[Y], multi_label=True), "multi_label"),
    (lambda: decide((H, Y), budget=0.1, calibrator=fit(*MORE), method="ts"), "method"),
    (lambda: decide((H, Y), budget=0.1, calibrator=fit(*MORE), noise=0.1), "noise"),
    (lambda: decide((H.reshape(6, 10, 10, K), Y.reshape(6, 10, 10)), budget=0.1, axis=-1), "axis"),
    (lambda: decide(read(H, Y, classes=NAMES), read(*MORE, classes=NAMES[::-1]), budget=0.1), "test"),
    (lambda: fit(H, Y, groups=SITE).adapt(H, groups=SITE, validation=(H[:9], Y[:9])), "validation"),
])  # fmt: skip
def test_refused(call, param):
    with pytest.raises(InputError) as error:
        call()
    assert error.value.param == param


@pytest.mark.parametrize("method", [m for m in METHODS if METHODS[m].knows_noise])
def test_noise_has_one_spelling(method):
    assert fit(H, Y, method=method, noise=0.1).noise == 0.1


def test_an_instance_is_not_changed():
    mine = TemperatureScaling()
    assert fit(H, Y, method=mine, classes=list(NAMES)) is not mine
    assert not hasattr(mine, "map_")
    assert mine.classes is None


def test_fit_remembers_names_and_hashes_not_files_beside(folder):
    shards(2)
    np.save("y.npy", Y)
    np.save("h.npy", H)
    cal = fit("h.npy", "y.npy", method="ts")
    assert cal.read_.labels is None
    assert cal.fitted_on_ == (sha256_of("h.npy"),)
    assert fit("shard*.npz", method="ts").fitted_on_ == (sha256_of("shard0.npz"), sha256_of("shard1.npz"))
    assert fit(H, Y, method="ts").fitted_on_ == ()
    cal.save("net.json")
    assert load("net.json").fitted_on_ == cal.fitted_on_


def test_evaluate_before_and_after():
    cal = fit(*MORE, method="ts")
    found = evaluate((H, Y), cal, metrics=["nll", "ece"])
    assert found.before["nll"].value == pytest.approx(metrics.nll(Y, P))
    assert found["nll"].value == found.after["nll"].value == pytest.approx(metrics.nll(Y, cal.predict_proba(H)))
    assert found.after["ece"].low <= found.after["ece"].value <= found.after["ece"].high
    assert set(found.to_dict()) == {"before", "after"}
    assert list(found.to_frame()) == [
        "metric",
        "before",
        "before_low",
        "before_high",
        "after",
        "after_low",
        "after_high",
    ]
    alone = evaluate(H, labels=Y, metrics="nll")
    assert alone.after is None
    assert alone["nll"].value == found.before["nll"].value
    wide = evaluate(H, labels=Y, metrics="nll", clusters=CASE)["nll"]
    assert wide.value == alone["nll"].value
    assert wide.low != alone["nll"].low
    low = evaluate(H, labels=Y, metrics="nll", confidence_level=0.5)["nll"]
    assert low.high - low.low < alone["nll"].high - alone["nll"].low


@pytest.mark.parametrize("method", ["ts", "grouped"])
def test_evaluate_by_group(method):
    groups = {"groups": "site"} if method == "grouped" else {}
    cal = fit(OTHER, "truth", method="ts", **groups)
    found = evaluate(TABLE, cal, by="site", metrics=["nll"])
    assert set(found.after.parts) == {"north", "south"}
    rows = SITE == "north"
    p = apply(cal, TABLE)
    p = np.column_stack([p[f"prob_{name}"] for name in NAMES])
    assert found.after.parts["north"]["nll"].value == pytest.approx(metrics.nll(Y[rows], p[rows]))
    assert evaluate((H, Y), fit(*MORE, method="ts"), by=SITE, metrics=["nll"]).before.parts["north"]
    assert found.columns()["part"] == ["all", "north", "south"]
    assert set(evaluate(TABLE, cal, groups="site", metrics=["nll"]).after.parts) == {"north", "south"}


def test_evaluate_several_labels():
    y = np.eye(K)[Y]
    cal = fit(MORE.h, np.eye(K)[MORE.y], multi_label=True)
    found = evaluate((H, y), cal, multi_label=True, metrics=["nll"])
    assert len(found.before.parts) == len(found.after.parts) == K
    assert found.after["nll"].value < found.before["nll"].value + 0.01


def test_a_calibrator_needs_options_for_what_differs_alone(folder):
    half = N // 2
    write("val.csv", {name: column[:half] for name, column in TABLE.items()})
    write("test.csv", {name: column[half:] for name, column in TABLE.items()})
    cal = fit("val.csv", "truth", method="ts")
    cal.save("net.json")
    assert evaluate("test.csv", "net.json", metrics="nll")["nll"].value == pytest.approx(
        metrics.nll(Y[half:], cal.predict_proba(H[half:]))
    )
    for data in ("val.csv", (H[:half], NAMES[Y[:half]])):  # the file of the fit, and its rows
        with pytest.warns(AttemperWarning):
            evaluate(data, "net.json", metrics="nll")
    found = compare("val.csv", "test.csv", methods=["ts"], calibrator="net.json", cv=0)  # columns as it knows them
    assert found["in use"].test["nll"].value == pytest.approx(found["ts"].test["nll"].value)
    odd = [
        {name.replace("logit_", "P, "): column[rows] for name, column in TABLE.items()}
        for rows in (slice(half), slice(half, None))
    ]
    named = fit(odd[0], "truth", columns=[f"P, {name}" for name in NAMES], classes=NAMES, method="ts")
    assert compare(*odd, methods=["ts"], calibrator=named, cv=0).calibrator.read_.columns == named.read_.columns
    report = monitor("net.json", "test.csv", state="state.json")
    assert [batch.n for batch in report.batches] == [half]
    renamed = {("y" if name == "truth" else name): column[half:] for name, column in TABLE.items()}
    assert evaluate(renamed, cal, labels="y", metrics="nll")["nll"].value == pytest.approx(
        evaluate("test.csv", cal, metrics="nll")["nll"].value
    )


def test_compare_and_decide_on_arrays_and_frames():
    val = {name: column[:300] for name, column in TABLE.items()}
    test = {name: column[300:] for name, column in TABLE.items()}
    best = compare(val, test, methods=["ts"], labels="truth", cv=0)
    assert best.calibrator.temperature_ == pytest.approx(fit(H[:300], Y[:300], method="ts").temperature_)
    decision = decide(val, test, labels="truth", method="ts", budget=0.3, ids="id")
    assert decision.calibrator.read_.labels == "truth"
    table = apply(decision.calibrator, test)
    assert table["refer"].dtype == bool
    assert 0 < table["refer"].mean() < 0.6
    assert decide((H, Y), max_miss=0.3, clusters=np.arange(len(Y)) // 2).rule.promise.unit == "cluster"
    sets = decide(val, test, labels="truth", method="ts", coverage=0.8)
    table = apply(sets.calibrator, test)
    assert all(p in s.split(";") for p, s in zip(table["prediction"], table["set"], strict=True))


def test_monitor_takes_batches_of_files_and_data_without_labels(folder):
    write("val.csv", {name: column[:200] for name, column in TABLE.items()})
    for i in range(2):
        write(f"month{i}.csv", {name: column[200 * (i + 1) : 200 * (i + 2)] for name, column in TABLE.items()})
    cal = fit("val.csv", "truth", method="ts")
    report = monitor(cal, "month*.csv", reference="val.csv")
    assert [(batch.batch, batch.n) for batch in report.batches] == [("month0", 200), ("month1", 200)]
    new = {name: column for name, column in TABLE.items() if name != "truth"}
    write("new.csv", new)
    fresh = fit(OTHER, "truth", method="ts")
    assert monitor(fresh, "new.csv").batches[-1].accuracy is None
    write("wrong.csv", TABLE | {"truth": np.where(np.arange(N) == 3, "kat", TABLE["truth"])})
    with pytest.raises(InputError) as error:  # not: as if there were no labels
        monitor(fresh, "wrong.csv")
    assert error.value.param == "labels"
    for data in ("val.csv", (H[:200], NAMES[Y[:200]])):
        with pytest.raises(InputError) as error:
            monitor(cal, data)
        assert error.value.param == "data"
    report = monitor(
        fit(*MORE, classes=NAMES, method="ts"), "month*.csv", reference="val.csv", labels="truth", alpha=0.01
    )
    assert report.gap is not None
    assert report.alpha == monitor(fresh, "month1.csv", alpha=0.01).alpha == 0.01
    with pytest.raises(InputError) as error:
        monitor(fresh, "month1.csv", reference=H)
    assert error.value.param == "reference"


def pair_of_files(overlap):
    half = N // 2
    write("val.csv", {name: column[:half] for name, column in TABLE.items()})
    write("test.csv", {name: column[half - overlap :] for name, column in TABLE.items()})


@pytest.mark.parametrize(("call", "param"), [
    (lambda: compare("val.csv", "val.csv", labels="truth", methods=["ts"], cv=0), "test"),
    (lambda: compare("val.csv", "test.csv", labels="truth", ids="id", methods=["ts"], cv=0), "ids"),
    (lambda: decide("val.csv", "test.csv", labels="truth", clusters="id", budget=0.1), "clusters"),
    (lambda: decide("val.csv", budget=0.1, calibrator=fit("val.csv", "truth", method="ts")), "calibrator"),
    (lambda: decide("val.csv", labels="truth"), None),
    (lambda: compare((H, Y), (H, Y), clusters=CASE, methods=["ts"], cv=0), "clusters"),
    (lambda: evaluate("val.csv", fit(P, Y, input="probs", method="ts"), input="logits"), "input"),
    (lambda: evaluate(H), "labels"),
    (lambda: fit(H, Y, cluster=CASE), "cluster"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*have the same logits")
def test_refused_pairs(folder, call, param):
    pair_of_files(10)
    with pytest.raises(InputError) as error:
        call()
    assert param is None or error.value.param == param


@pytest.mark.filterwarnings("ignore:.*have the same logits")
def test_shared_ids_may_be_allowed(folder):
    pair_of_files(10)
    assert compare("val.csv", "test.csv", labels="truth", ids="id", methods=["ts"], cv=0, allow_shared=True).rows


def test_apply_for_other_priors():
    cal = fit(TABLE, "truth", method="ts")
    new = apply(cal, TABLE, priors={"cat": 0.8, "dog": 0.1, "eel": 0.1})
    assert new["prob_cat"].mean() > apply(cal, TABLE)["prob_cat"].mean()
    few = np.flatnonzero((Y != 0) | (np.arange(N) % 4 == 0))
    estimated = apply(cal, {name: column[few] for name, column in TABLE.items()}, priors="estimate")
    assert estimated["prob_cat"].mean() < apply(cal, TABLE)["prob_cat"][few].mean()


def test_skin_lesions_from_a_frame_to_decisions(folder):
    skin = datasets.load()
    names = np.array(skin.class_names)
    frames = [
        pd.DataFrame(logits, columns=names).assign(diagnosis=names[labels], patient=patient)
        for logits, labels, patient in (
            (skin.val_logits, skin.val_labels, skin.extra["lesion_id"][: len(skin.val_labels)]),
            (skin.test_logits, skin.test_labels, skin.extra["lesion_id"][len(skin.val_labels) :]),
        )
    ]
    cal = fit(frames[0], "diagnosis", columns=list(names), clusters="patient")
    assert (cal.predict(skin.test_logits) == names[skin.test_logits.argmax(axis=1)]).all()
    assert cal.temperature_interval_[1] > fit(frames[0], "diagnosis", columns=list(names)).temperature_interval_[1]
    options = {"labels": "diagnosis", "columns": list(names), "clusters": "patient"}
    decision = decide(*frames, max_miss={"mel": 0.1}, **options)
    decision.calibrator.save("net.attemper.json")
    assert (
        load("net.attemper.json").decide(skin.test_logits).refer == decision.calibrator.decide(frames[1]).refer
    ).all()
    assert 0 < decision.outcome.all.referred < len(frames[1])


def test_the_classes_of_a_file_are_those_of_the_fit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("val.npz", logits=H, labels=Y, classes=NAMES)
    np.savez("turned.npz", logits=H[:, ::-1], labels=K - 1 - Y, classes=NAMES[::-1])
    cal = fit("val.npz")
    for call in (evaluate, lambda data, cal: apply(cal, data), lambda data, cal: monitor(cal, data)):
        with pytest.raises(InputError) as error:
            call("turned.npz", cal)
        assert error.value.param == "classes"


def test_every_verb_reads_zeros_as_the_calibrator_does():
    p = np.where(P < 0.02, 0.0, P)
    p /= p.sum(axis=1, keepdims=True)
    test = p[300:].copy()
    test[0] = [1e-9, 0.5, 0.5 - 1e-9]
    val, test = (read(p[:300], Y[:300], input="probs"), read(test, Y[300:], input="probs"))
    cal = TemperatureScaling(input="probs", zeros_as=val.zeros_as).fit(val)
    found = compare(val, test, methods=["ts"])["ts"]
    assert found.test["nll"].value == pytest.approx(evaluate(test, cal)["nll"].value, rel=1e-9)


def test_scores_can_be_read_again():
    soft = read(H, 0.9 * np.eye(K)[Y] + 0.1 / K)
    again = read(soft, clusters=CASE.repeat(K))
    assert again.n_samples == soft.n_samples == N
    named = compare(read(H, Y), classes=NAMES, methods=["ts"]).calibrator
    np.testing.assert_array_equal(named.classes_, NAMES)


def test_groups_get_the_noise():
    scores = read(H, Y, groups=SITE)
    assert fit(scores, method=GroupedCalibrator("bayes"), noise=0.1).common_.noise_ == 0.1
    found = compare(scores, methods=[GroupedCalibrator("bayes"), GroupedCalibrator("ts"), "bayes"], noise=0.1)
    assert [row.method for row in found.rows][1:] == ["grouped(bayes)", "grouped(ts)", "bayes"]
    assert found["grouped(bayes)"].calibrator.common_.noise_ == 0.1


def test_labels_of_a_sketch_stay_numbers():
    cal = TemperatureScaling().partial_fit(H, Y, classes=[0, 1, 2])
    assert 0 < cal.score(H, Y) == np.mean(H.argmax(axis=1) == Y)
    assert fit(sketch(H, Y + 3, classes=[3, 4, 5])).classes_.tolist() == [3, 4, 5]


def test_files_of_other_columns_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("a.csv", TABLE)
    write("b.csv", {name: column for name, column in TABLE.items() if name != "site"})
    with pytest.raises(InputError) as error:
        apply(fit(TABLE, labels="truth"), ["a.csv", "b.csv"])
    assert error.value.param == "data"


def test_images_are_adapted():
    images, labels = H.reshape(6, 10, 10, K).transpose(0, 3, 1, 2), Y.reshape(6, 10, 10)
    cal = fit(images, labels, axis=1, method="ts")
    adapted = cal.adapt(images[3:], validation=(images[:3], labels[:3]))
    assert adapted.adapted_.n_cases == 3
    assert adapted.predict_proba(images).shape == images.shape


def test_rounded_scores_are_not_taken_for_those_of_the_fit():
    rng = np.random.default_rng(0)
    p = [rng.random(n).round(4) for n in (2000, 5000)]
    val, new = (read(each, rng.random(len(each)) < each, input="probs") for each in p)
    cal = fit(val)
    assert was_fitted_on(cal, val)
    assert not was_fitted_on(cal, new)


def test_a_name_of_a_method_belongs_to_one_class(tmp_path):
    with pytest.raises(InputError):
        type("Other", (TemperatureScaling,), {"method": "ts"})
    assert METHODS["ts"] is TemperatureScaling
    with pytest.raises(InputError):
        type("Nameless", (TemperatureScaling,), {})().fit(H, Y).save(tmp_path / "a.json")


def test_a_calibrator_of_groups_is_evaluated_by_another_column():
    cal, half = fit(OTHER, "truth", method="ts", groups="site"), np.where(np.arange(N) % 2, "odd", "even")
    found = evaluate(TABLE | {"half": half}, cal, by="half", metrics=["nll"])
    assert set(found.after.parts) == {"even", "odd"}
    p, rows = cal.predict_proba(H, groups=SITE), half == "odd"
    assert found.after.parts["odd"]["nll"].value == pytest.approx(metrics.nll(Y[rows], p[rows]))


def test_a_rule_by_group_is_applied_by_group():
    cal = decide(TABLE, labels="truth", groups="site", coverage=0.8, by="group").calibrator
    made = apply(cal, OTHER)
    p = np.column_stack([made[f"prob_{name}"] for name in NAMES])
    np.testing.assert_array_equal(made["refer"], cal.rule_.decide(p, SITE).refer)


def test_a_note_of_both_evaluations_is_shown_once():
    found = evaluate((H, Y), fit(*MORE, method="ts"), metrics=["nll"], clusters=np.arange(N) // 300)
    assert len(found.notes()) == len(found.before.notes()) == 1


def test_a_sketch_of_probabilities_is_told_what_zeros_stand_for():
    p = np.where(P < 0.02, 0.0, P) / np.where(P < 0.02, 0.0, P).sum(axis=1, keepdims=True)
    found = fit(sketch(p, Y, input="probs", zeros_as=1e-3), method="ts")
    assert found.temperature_ == pytest.approx(fit(p, Y, input="probs", zeros_as=1e-3, method="ts").temperature_)
    with pytest.raises(InputError) as error:
        sketch(p, Y, input="probs")
    assert error.value.param == "zeros_as"


def test_several_labels_are_evaluated_with_weights():
    y, w, cal = np.eye(K)[Y], DATA.w.astype(int), fit(MORE.h, np.eye(K)[MORE.y], multi_label=True)
    options = {"multi_label": True, "metrics": ["nll"]}
    weighted = evaluate((H, y), cal, sample_weight=w, **options)
    repeats = evaluate((np.repeat(H, w, axis=0), np.repeat(y, w, axis=0)), cal, **options)
    for one, other in ((weighted.before, repeats.before), (weighted.after, repeats.after)):
        assert one["nll"].value == pytest.approx(other["nll"].value, rel=1e-9)
        assert one.parts[0]["nll"].value == pytest.approx(other.parts[0]["nll"].value, rel=1e-9)


def test_ids_and_groups_of_the_fit_are_not_asked_of_later_files(folder):
    write("val.csv", TABLE)
    plain = {name: column for name, column in OTHER.items() if name not in ("id", "site")}
    cal = fit("val.csv", "truth", ids="id", method="ts")
    best = compare("val.csv", labels="truth", groups="site", methods=["ts"]).calibrator
    for made in (cal, best):
        assert evaluate(plain, made)["nll"].value == evaluate((MORE.h, MORE.y), made)["nll"].value
    cases = fit("val.csv", "truth", clusters="id", method="ts")
    assert len(evaluate(plain, cases, clusters=False).before) > 0


def test_a_calibrator_that_was_fitted_on_test_is_noticed():
    cal = fit(MORE.h, MORE.y, method="ts")
    with pytest.warns(AttemperWarning):
        compare((H, Y), (MORE.h, MORE.y), calibrator=cal, methods=["ts"])


def test_tied_confidences_of_a_calibrator_are_noticed():
    cal = fit(MORE.h, MORE.y, method="histogram")
    with pytest.warns(AttemperWarning):
        decide((H, Y), calibrator=cal, max_miss=0.6)


def test_probabilities_are_adapted_as_they_were_read():
    p = Scores.of(MORE.p, input="probs")
    cal = TemperatureScaling().fit(Scores.of(P, Y, input="probs"))
    np.testing.assert_array_equal(cal.adapt(MORE.p).priors_, cal.adapt(p).priors_)


def test_samples_are_not_added_to_a_fit_of_other_priors():
    cal = TemperatureScaling().partial_fit(H, Y)
    with pytest.warns(AttemperWarning):
        again = cal.with_priors([0.2, 0.3, 0.5]).partial_fit(MORE.h, MORE.y)
    assert again.report_.n_samples == N


def test_minus_one_is_a_label_of_one_column_that_is_read_again():
    y = np.where(Y == 1, 1, -1)
    np.testing.assert_array_equal(read(read(H[:, 1]), y).labels, Y == 1)


def test_labels_of_minus_one_and_one_are_predicted_as_such():
    y = np.where(Y == 1, 1, -1)
    cal = TemperatureScaling().fit(H[:, 1], y)
    assert cal.classes_.tolist() == [-1, 1]
    assert cal.score(H[:, 1], y) == np.mean((H[:, 1] > 0) == (Y == 1))


def test_columns_may_have_numbers_for_names():
    assert fit(pd.DataFrame(H), Y, columns=[0, 1, 2], method="ts").temperature_ == T


def test_a_file_without_names_is_read_as_an_array(folder):
    write("val.csv", TABLE)
    np.save("new.npy", MORE.h)
    cal = fit("val.csv", "truth", method="ts")
    table = apply(cal, "new.npy")
    np.testing.assert_array_equal(table["prob_cat"], cal.predict_proba(MORE.h)[:, 0])
    np.testing.assert_array_equal(apply(cal, (MORE.h, MORE.y))["prob_cat"], table["prob_cat"])


def test_a_column_that_the_result_replaces_is_noticed():
    cal = fit(TABLE, "truth", method="ts")
    with pytest.warns(AttemperWarning):
        assert apply(cal, TABLE | {"prediction": SITE})["prediction"].tolist() == NAMES[H.argmax(axis=1)].tolist()


@pytest.mark.parametrize(
    "given",
    [{"labels": H[:, 0].argsort() % K}, {"sample_weight": np.arange(float(N))}, {"clusters": np.arange(N) // 8}],
    ids=lambda given: next(iter(given)),
)
def test_what_is_passed_beside_scores_counts(given):
    found = TemperatureScaling().fit(Scores.of(H, Y), given.get("labels"), given.get("sample_weight"),
                                     clusters=given.get("clusters"))  # fmt: skip
    plain = TemperatureScaling().fit(H, **{"y": given.pop("labels", Y)} | given)
    assert (found.temperature_, found.temperature_interval_) == (plain.temperature_, plain.temperature_interval_)
    with pytest.raises(InputError) as caught:
        TemperatureScaling(input="probs").fit(Scores.of(H, Y))
    assert caught.value.param == "input"


@pytest.mark.parametrize("name", ["sample_weight", "clusters", "groups", "labels"])
def test_lists_of_val_are_not_taken_for_test(name):
    entries = {"labels": Y, "sample_weight": np.ones(N), "clusters": np.arange(N), "groups": SITE}[name].tolist()
    val = H if name == "labels" else (H, Y)
    for call in (compare, decide):
        with pytest.raises(InputError) as caught:
            call(val, (H + 1, Y), **{name: entries})
        assert caught.value.param == name


@pytest.mark.parametrize("given", [{"sample_weight": False}, {"clusters": False}, {"sample_weight": 2.0}])
def test_what_is_no_name_is_not_remembered(folder, given):
    fit(H, Y, **given).save("a.json")
    assert getattr(load("a.json").read_, next(iter(given))) is None


def test_options_of_a_base_of_groups_count():
    p = draw(600, 3).p
    y, site = draw(600, 3).y, np.arange(600) % 2
    base = TemperatureScaling(input="probs", classes=["a", "b", "c"])
    names = np.array(["a", "b", "c"])[y]
    found = fit(p, names, method=GroupedCalibrator(base), groups=site)
    assert found.map_.input == "probs"
    assert found.common_.temperature_ > 1


def test_an_error_leaves_the_fit_as_it_was():
    cal = TemperatureScaling().fit(H, Y)
    before = dict(vars(cal))
    with pytest.raises(InputError):
        cal.set_params(classes=["too", "few"]).fit(Scores.of(H, Y))
    with pytest.raises(InputError):
        cal.fit_sketch(sketch(H, Y))
    assert {**vars(cal), "classes": None} == before


def test_images_in_large_files_count_as_pixels_and_this_is_noticed(folder, monkeypatch):
    np.savez("a.npz", logits=H.reshape(6, 10, 10, K), labels=Y.reshape(6, 10, 10))
    monkeypatch.setattr("attemper.verbs.IN_MEMORY", 1)
    with pytest.warns(AttemperWarning):
        fit("a.npz", method="ts", axis=-1)


def test_pixels_of_an_image_are_drawn_alike_in_any_file(folder):
    rng = np.random.default_rng(0)
    h = rng.normal(size=(3, 4, 10, 10))
    y = rng.integers(0, 4, (3, 10, 10))
    whole = read(h, y, axis=1, max_pixels=6).index.reshape(3, 6) % 100
    alone = [read(h[[i]], y[[i]], axis=1, max_pixels=6).index for i in range(3)]
    np.testing.assert_array_equal(whole, alone)
    assert len(np.unique(whole, axis=0)) == 3


def test_soft_labels_do_not_hide_that_rows_are_shared():
    soft = np.full((N, K), 0.1) + 0.7 * np.eye(K)[Y]
    with pytest.raises(InputError) as caught:
        compare((H, soft), (H, soft), methods=["ts"])
    assert caught.value.param == "test"
    assert was_fitted_on(fit(H, soft, method="ts"), read(H, soft))


def test_the_fit_knows_the_files_of_its_scores(folder):
    shards(1)
    assert fit(read("all.npz")).fitted_on_ == (sha256_of("all.npz"),)


def test_columns_of_a_frame_go_by_name_whoever_fits():
    frame = pd.DataFrame(draw(600, 3).h, columns=["a", "b", "c"])
    y = draw(600, 3).y
    names = frame.columns.to_numpy()[y]
    want = TemperatureScaling().fit(frame.to_numpy(), y).temperature_
    turned = frame[["c", "b", "a"]]
    cal = TemperatureScaling(classes=["a", "b", "c"]).fit(turned, names)
    assert cal.temperature_ == want
    np.testing.assert_array_equal(cal.predict_proba(frame), cal.predict_proba(turned))
    halves = TemperatureScaling(classes=["a", "b", "c"])
    halves.partial_fit(frame[:300], names[:300]).partial_fit(turned[300:], names[300:])
    np.testing.assert_allclose(halves.temperature_, want, rtol=1e-7)


def test_names_of_the_classes_of_image_files(folder):
    rng = np.random.default_rng(0)
    np.savez("a.npz", logits=rng.normal(size=(9, 3, 4, 5)), labels=rng.integers(0, 3, (9, 4, 5)), class_names=[*"abc"])
    assert read("a.npz", axis=1).classes == ("a", "b", "c")


@pytest.mark.filterwarnings("ignore:.*was fitted on these")
def test_several_labels_keep_their_names_and_groups_theirs_as_scores():
    several = (Y[:, None] == np.arange(K)).astype(float)
    scores = read(H, several, multi_label=True, classes=[*"abc"])
    for method in ("bayes", MultiLabelCalibrator, MultiLabelCalibrator()):
        cal = fit(scores, method=method)
        assert isinstance(cal, MultiLabelCalibrator)
    assert [*evaluate(scores, cal, metrics=["nll"]).after.parts] == [*"abc"]
    assert isinstance(fit(H, several, method=MultiLabelCalibrator), MultiLabelCalibrator)
    assert isinstance(fit(read(H, Y, groups=SITE)), GroupedCalibrator)
    again = read(read(H, Y, groups=SITE, clusters=SITE), groups=False, clusters=False)
    assert again.groups is None
    assert again.clusters is None


def test_weights_have_no_part_in_class_priors():
    cal = fit(H, Y)
    for data in ({"X": read(H, Y, sample_weight=1 + DATA.w)}, {"X": H, "validation": H[:9]}):
        with pytest.raises(InputError):
            cal.adapt(**data)
    with pytest.raises(InputError) as caught:
        apply(cal, H, priors="estimate", sample_weight=1 + DATA.w)
    assert caught.value.param == "sample_weight"


def test_soft_labels_are_counted_by_sample():
    soft = np.full((N, K), 0.1) + 0.7 * np.eye(K)[Y]
    assert sum(fit(H, soft, groups=SITE).groups_.n_samples) == N
    assert check(H, soft).holds["rows"] == N
    w = (np.arange(N) % 2).astype(float)
    assert sketch(H, Y, sample_weight=w).n_samples == fit(H, Y, sample_weight=w).report_.n_samples


def test_t_of_labels_that_are_all_right_is_that_of_the_rows():
    top = H.argmax(axis=1)
    with pytest.warns(AttemperWarning):
        assert fit(sketch(H, top), method="ts").temperature_ == fit(H, top, method="ts").temperature_


def test_arrays_of_a_method_stay_arrays_in_a_file(folder):
    cal = fit(H, Y)
    cal.slopes_ = np.array([[1.0, 2.0], [3.0, 4.0]])
    cal.save("a.json")
    np.testing.assert_array_equal(load("a.json").slopes_, cal.slopes_)


def test_an_error_in_a_later_file_leaves_the_state_as_it_was(folder):
    cal = fit(*MORE, method="ts")
    for name, labels in {"may": Y[:300], "june": np.full(300, 9)}.items():
        np.savez(f"{name}.npz", logits=H[:300] if name == "may" else H[300:], labels=labels)
    with pytest.raises(InputError):
        monitor(cal, ["may.npz", "june.npz"], state="state.json")
    np.savez("june.npz", logits=H[300:], labels=Y[300:])
    assert len(monitor(cal, ["may.npz", "june.npz"], state="state.json").batches) == 2
    with pytest.raises(InputError) as caught:
        monitor(cal, "may.npz", reference="may.npz")
    assert caught.value.param == "data"


def test_clusters_of_new_data_are_not_those_of_the_reference():
    cal, case = fit(*MORE, method="ts"), np.arange(300) // 5
    reference = read(H[300:], Y[300:], clusters=np.arange(300) // 2)
    new = {"data": H[:300], "labels": Y[:300], "clusters": case}
    plain = read(H[:300], Y[:300], clusters=case)
    assert monitor(cal, reference=reference, **new).p_value == monitor(cal, plain, reference=reference).p_value
    with pytest.raises(InputError) as caught:
        monitor(cal, reference=(H[300:], Y[300:]), **new)
    assert caught.value.param == "clusters"


def test_what_a_sketch_does_not_know_is_noticed(folder, monkeypatch):
    with pytest.warns(AttemperWarning):
        sketch(H, Y, clusters=CASE)
    shards(2)
    monkeypatch.setattr("attemper.verbs.IN_MEMORY", 1)
    with pytest.warns(AttemperWarning):
        fit("all.npz", noise="unknown")
    np.save("case.npy", CASE)
    with pytest.warns(AttemperWarning):
        fit("all.npz", method="ts", clusters="case.npy")


def test_columns_that_begin_logit_are_read_after_a_fit_to_arrays():
    cal = TemperatureScaling().fit(H, Y)
    frame = pd.DataFrame(H, columns=["logit_cat", "logit_dog", "logit_eel"])
    np.testing.assert_array_equal(cal.predict_proba(frame), cal.predict_proba(H))
    cal = TemperatureScaling()
    cal.partial_fit(frame[:300], Y[:300]).partial_fit(frame.iloc[300:, ::-1], Y[300:])
    np.testing.assert_allclose(cal.temperature_, T, rtol=1e-7)


def test_shares_of_soft_labels_are_not_replaced():
    soft = np.full((N, K), 0.1) + 0.7 * np.eye(K)[Y]
    scores = read(H, soft)
    with pytest.raises(InputError) as caught:
        TemperatureScaling().fit(scores, sample_weight=np.ones(len(scores)))
    assert caught.value.param == "sample_weight"
    images = read(H.reshape(6, 10, 10, K), Y.reshape(6, 10, 10), axis=-1)
    assert read(images, clusters=False).clusters is not None
    names = np.array([*"abc"])[Y].reshape(6, 10, 10)
    few = read(H.reshape(6, 10, 10, K), names, axis=-1, classes=[*"abc"], max_pixels=5)
    assert len(few) == 30


def test_evaluate_has_the_groups_of_scores():
    data = draw(300, 3, groups=2)
    parts = attemper.evaluate(attemper.read(data.h, data.y, groups=data.group)).before.parts
    assert [*parts] == [*attemper.evaluate((data.h, data.y), groups=data.group).before.parts]


def test_a_rule_by_group_remembers_the_column(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, names = draw(1500, 3, groups=2), ["a", "b", "c"]
    table = {f"logit_{name}": data.h[:, k] for k, name in enumerate(names)}
    table |= {"label": np.array(names)[data.y], "site": np.where(data.group == 0, "n", "s")}
    frame = pd.DataFrame(table)
    fit(frame[:300]).save("fit.json")
    decision = attemper.decide(frame[300:1400], calibrator="fit.json", coverage=0.8, by="group", groups="site")
    decision.calibrator.save("rule.json")
    assert len(attemper.apply("rule.json", frame[1400:])["set"]) == 100


def test_a_reference_is_no_batch_and_stays_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("fit", "first", "other", "june")):
        data = draw(400, 3, seed=seed)
        np.savez(f"{name}.npz", logits=data.h, labels=data.y)
    cal = fit("fit.npz")
    attemper.monitor(cal, "june.npz", state="s.json", reference="first.npz")
    for data, reference, param in (
        ("first.npz", None, "data"),
        (attemper.read("first.npz"), None, "data"),
        ("other.npz", "fit.npz", "reference"),
        ("other.npz", "june.npz", "reference"),
    ):
        with pytest.raises(InputError) as error:
            attemper.monitor(cal, data, state="s.json", reference=reference)
        assert error.value.param == param
    assert len(attemper.monitor(cal, "other.npz", state="s.json", reference="first.npz").batches) == 2


def test_equal_files_and_labels_that_start_at_1_are_warned_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = draw(400, 5)
    for name in ("a", "b"):
        np.savez(f"{name}.npz", logits=data.h, labels=data.y)
    with pytest.warns(attemper.AttemperWarning):
        fit(["a.npz", "b.npz"])
    some = data.y < 4  # no label is of the last class
    with collected_warnings() as found:
        read(data.h[some], data.y[some] + 1)
    assert any("classes=[1, 2, 3, 4, 5]" in str(each) for each in found)


@pytest.mark.parametrize("by", [False, True])
def test_evaluate_is_the_metrics_before_and_after_with_weights_and_clusters(by):
    data = draw(900, 3, clusters=3, groups=2, seed=4)
    cal = fit(H, Y, method="ts")
    ids = {"sample_weight": data.w, "clusters": data.cluster} | ({"by": data.group} if by else {})
    names = ["accuracy", "nll", "ece", "mmce"]
    found = evaluate((data.h, data.y), cal, metrics=names, confidence_level=0.8, **ids)
    for one, probs in ((found.before, data.p), (found.after, cal.predict_proba(data.h))):
        expected = metrics.evaluate(data.y, probs, names, confidence_level=0.8, **ids)
        pd.testing.assert_frame_equal(one.to_frame(), expected.to_frame(), rtol=1e-6)
        assert found["nll"] == found.after["nll"]
    frame = found.to_frame()
    assert len(frame) == 4 * (1 + 2 * by)
    assert frame["after_low" if "after_low" in frame else "after"].notna().all()


def test_an_option_that_is_passed_counts_more_than_that_of_an_instance():
    p = np.where(P < 1e-3, 0, P) / np.where(P < 1e-3, 0, P).sum(axis=1, keepdims=True)
    base = TemperatureScaling(input="probs", zeros_as=1e-3, classes=NAMES.tolist())
    for method in (base, GroupedCalibrator(base)):
        made = [fit(p, NAMES[Y], method=method, groups=SITE, **more) for more in ({}, {"zeros_as": 1e-6})]
        assert [each.map_.zeros_as for each in made] == [1e-3, 1e-6]


@pytest.mark.parametrize("names", [[0, 1, 2], [2, 0, 1], [1, 2, 3], ["01", "02", "10"]])
@pytest.mark.parametrize("form", ["dict", ".csv", ".parquet"])
def test_predictions_are_labels_where_columns_have_numbers_for_names(names, form, folder):
    own = dict(zip(names, H.T if 1 in names[:1] or "01" in names else H.T[names]))
    labels = np.array([*own])[np.stack([*own.values()]).argmax(axis=0)]
    labels[::3] = np.array([*own])[np.arange(N)[::3] % K]
    data = {f"logit_{name}": column for name, column in own.items()} | {"label": labels}
    if form != "dict":
        write(f"val{form}", data)
        data = f"val{form}"
    cal = fit(data, method="ts")
    accuracy = evaluate(read(data), metrics=["accuracy"])["accuracy"].value
    assert np.mean(apply(cal, data)["prediction"] == labels) == pytest.approx(accuracy)
    assert cal.score(np.stack([own[name] for name in cal.classes_.tolist()], axis=1), labels) == pytest.approx(accuracy)


def test_a_calibrator_reads_keys_lists_and_columns_in_the_order_of_its_classes(folder):
    turned = {name: TABLE[name] for name in [*TABLE][::-1]}
    lists = {"logits": H, "truth": Y}
    np.savez("more.npz", logits=MORE.h, labels=MORE.y)
    for data in (TABLE, turned, lists, pd.DataFrame(lists | {"logits": list(H)})):
        cal = fit(data, "truth", method="ts")
        column = cal.predict_proba(H[:, ::-1] if data is turned else H)[:, 1]
        for new in (TABLE, turned) if data is turned else (TABLE, turned, lists):
            np.testing.assert_allclose(apply(cal, new)[f"prob_{cal.classes_[1]}"], column, rtol=1e-12)
        if data is not turned:
            nll = evaluate(tuple(MORE), cal, metrics=["nll"])["nll"].value
            assert evaluate("more.npz", cal, labels="labels", metrics=["nll"])["nll"].value == nll
    more = TABLE | {"logit_cow": H[:, 0]}
    some = fit(more, "truth", columns=[f"logit_{name}" for name in NAMES], method="ts")
    np.testing.assert_array_equal(apply(some, more)["prob_dog"], some.predict_proba(H)[:, 1])


def test_each_sample_of_soft_labels_is_predicted_once_and_evaluated_by_its_shares():
    h, shares = MORE.h, 0.7 * np.eye(K)[MORE.y] + 0.1
    for more in ({}, {"groups": SITE}):
        cal, scores = fit(H, Y, method="ts", **more), read(h, shares, **more)
        expected = cal.predict_proba(h, **more)
        np.testing.assert_array_equal(cal.predict_proba(scores), expected)
        np.testing.assert_array_equal(apply(cal, scores)["prob_1"], expected[:, 1])
        np.testing.assert_array_equal(apply(cal, (h, shares), **more)["prob_1"], expected[:, 1])
        mixed = scores.take(np.random.default_rng(0).permutation(len(scores)))
        np.testing.assert_array_equal(cal.predict_proba(mixed), expected[list(dict.fromkeys(mixed.index.tolist()))])
        nll = -(shares * np.log(expected)).sum(axis=1).mean()
        assert evaluate(mixed, cal, metrics=["nll"])["nll"].value == pytest.approx(nll)
        assert compare((H, Y), mixed, methods=["ts"], calibrator=cal, cv=0).rows[-1].test["nll"].value == pytest.approx(
            nll
        )


def test_fewer_pixels_are_of_one_reading():
    images = H.reshape(6, 10, 10, K), Y.reshape(6, 10, 10)
    cal = fit(*images, axis=-1, max_pixels=5, method="ts")
    assert len(read(*images, **applying.fill(cal, images, {}))) == N
    assert evaluate(tuple(MORE), cal, metrics=["nll"]).after is not None


def test_ids_of_images_are_enough_for_scores():
    images, site = (H.reshape(6, 10, 10, K), Y.reshape(6, 10, 10)), np.array([*"aabbab"])
    expected = fit(*images, axis=-1, groups=site, clusters=np.arange(6) // 2, method="ts")
    found = fit(read(*images, axis=-1), groups=site, clusters=np.arange(6) // 2, method="ts")
    assert found.groups_ == expected.groups_
    with pytest.raises(InputError):
        read(read(*images, axis=-1), groups=site[1:])


def test_one_channel_of_images_is_the_second_class():
    z, y = (H[:, 1] - H[:, 0]).reshape(6, 1, 10, 10), (Y > 0).astype(int).reshape(6, 10, 10)
    for values, options in ((z, {}), (1 / (1 + np.exp(-z)), {"input": "probs"})):
        cal = fit(values, y, axis=1, method="ts", **options)
        flat = fit(values.reshape(-1), y.reshape(-1), method="ts", **options)
        assert cal.temperature_ == pytest.approx(flat.temperature_)
        p = cal.predict_proba(values)
        assert p.shape == (6, 2, 10, 10)
        np.testing.assert_allclose(p[:, 1].reshape(-1), flat.predict_proba(values.reshape(-1))[:, 1], rtol=1e-6)
        assert cal.predict_risk(values).shape == (6, 10, 10)


def test_a_group_is_a_column_of_a_frame():
    cal = fit(TABLE, "truth", groups="site", method="ts")
    expected = cal.predict_proba(H, groups=SITE)
    for frame in (pd.DataFrame(TABLE), pl.DataFrame(TABLE)):
        np.testing.assert_array_equal(cal.predict_proba(frame), expected)
        np.testing.assert_array_equal(cal.adapt(frame).priors_, cal.adapt(H, groups=SITE).priors_)
    by_site = decide((H, Y), coverage=0.8, by="group", groups=SITE, method="ts").calibrator
    actions = by_site.decide(pd.DataFrame(TABLE).filter(like="logit_"), groups=SITE)
    np.testing.assert_array_equal(by_site.decide(pd.DataFrame(TABLE), groups="site").action, actions.action)
    frame = pd.DataFrame(TABLE).rename(columns={"site": "hospital"})
    np.testing.assert_array_equal(cal.predict_proba(frame, groups="hospital"), expected)


@pytest.mark.parametrize("names", [[2, 0, 1], [1, 2, 3], ["2", "0", "1"]])
def test_names_that_are_numbers_change_no_number(names):
    def numbers(names):
        own, clusters = {"classes": names}, np.arange(N) // 2
        val, test = (H, np.array(names)[Y]), (MORE.h, np.array(names)[MORE.y])
        scores, found = read(val, **own), []
        found += [fit(scores, clusters=clusters, method="ts").temperature_]
        found += [evaluate(scores, by=np.arange(N) % 2, metrics=["accuracy"])["accuracy"].value]
        for goal in ({"max_miss": 0.6}, {"budget": 0.2}, {"coverage": 0.9}, {"coverage": 0.9, "by": "class"}):
            outcome = decide(val, test, **own, **goal).outcome
            found += [outcome.all.miss_rate.value, outcome.all.referred]
        found += [row.nll.value for row in compare(val, test, methods=["ts", "vector"], **own).rows]
        return found

    assert numbers(names) == numbers(["a", "b", "c"])
