"""The classes for torchmetrics: the functions' values, in sums that add up; the numbers of torchmetrics itself."""

import copy
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
import torchmetrics
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from attemper import InputError, InputTypeError, metrics
from attemper.torch.metrics import NLL, Accuracy, Brier, CalibrationError

KINDS = ["top", "classwise", "full", "top_label"]
MEANS = [(NLL, metrics.nll), (Brier, metrics.brier), (Accuracy, metrics.accuracy)]


def sample(n=300, k=4, seed=0, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    logits = torch.tensor(2 * rng.normal(size=(n, k)), dtype=dtype)
    return logits, torch.tensor(rng.integers(k, size=n)), torch.tensor(rng.uniform(0.1, 3, size=n))


def fed(metric, preds, target, *more, parts=3):
    for part in zip(*(torch.chunk(each, parts) for each in (preds, target, *more))):
        metric.update(*part)
    return metric


@pytest.mark.parametrize("norm", [1, 1.5, 2, "max"])
@pytest.mark.parametrize("k, kind", [*((k, kind) for k in (2, 5) for kind in KINDS), (2, "binary")])
def test_calibration_errors_are_those_of_the_functions(kind, norm, k):
    logits, y, w = sample(k=k)
    for input, preds in (("logits", logits), ("probs", logits.softmax(1)), ("log_probs", logits.log_softmax(1))):
        for n_bins in (1, 15, 60):
            metric = CalibrationError(kind=kind, n_bins=n_bins, norm=norm, n_classes=k, input=input)
            options = {"kind": kind, "n_bins": n_bins, "norm": norm, "input": input}
            expected = metrics.ece(y, preds, **options)
            assert fed(metric, preds, y).compute().item() == pytest.approx(expected, abs=1e-12)
            assert metric.sums.numel() == 3 * n_bins * (k if kind in ("classwise", "top_label") else 1)
            metric.reset()
            expected = metrics.ece(y, preds, sample_weight=w, **options)
            assert fed(metric, preds, y, w).compute().item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("made, function", MEANS)
def test_means_are_those_of_the_functions(made, function):
    logits, y, w = sample()
    for input, preds in (("logits", logits), ("probs", logits.softmax(1)), ("log_probs", logits.log_softmax(1))):
        metric = made(input=input)
        assert fed(metric, preds, y).compute().item() == pytest.approx(function(y, preds, input=input), abs=1e-12)
        metric.reset()
        expected = function(y, preds, input=input, sample_weight=w)
        assert fed(metric, preds, y, w).compute().item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_narrow_types_are_read_as_the_functions_read_them(dtype):
    logits, y, _ = sample(k=3)
    logits = logits.to(dtype)
    for input, preds in (("logits", logits), ("probs", logits.float().softmax(1).to(dtype))):
        for kind in KINDS:
            # Bins whose edges no number of these types meets: rounding could not be alike on both sides of one.
            metric = CalibrationError(kind=kind, n_bins=7, n_classes=3, input=input)
            expected = metrics.ece(y, preds, kind=kind, n_bins=7, input=input)
            assert fed(metric, preds, y).compute().item() == pytest.approx(expected, abs=1e-6)
        for made, function in MEANS:
            expected = function(y, preds, input=input)
            assert fed(made(input=input), preds, y).compute().item() == pytest.approx(expected, abs=1e-6)


@settings(deadline=None)
@given(n=st.integers(1, 40), k=st.integers(2, 5), n_bins=st.integers(1, 20), seed=st.integers(0, 1000))
def test_ties_zeros_and_ones(n, k, n_bins, seed):
    """Votes: probabilities of exactly 0 and 1, and on the edges of bins."""
    rng = np.random.default_rng(seed)
    votes = rng.integers(0, 4, size=(n, k)) * (rng.random((n, k)) < 0.7)
    votes[np.arange(n), rng.integers(k, size=n)] += 1
    p, y = votes / votes.sum(axis=1, keepdims=True), rng.integers(k, size=n)
    for kind in [*KINDS, *(["binary"] if k == 2 else [])]:
        metric = CalibrationError(kind=kind, n_bins=n_bins, n_classes=k)
        value = metric(torch.tensor(p), torch.tensor(y)).item()
        assert value == pytest.approx(metrics.ece(y, p, kind=kind, n_bins=n_bins), abs=1e-12)
    for made, function in MEANS:
        assert made()(torch.tensor(p), torch.tensor(y)).item() == pytest.approx(function(y, p), abs=1e-12)


def test_axis_and_ignore_index():
    rng = np.random.default_rng(0)
    images = torch.tensor(rng.normal(size=(4, 3, 5, 6)))
    y = torch.tensor(rng.integers(3, size=(4, 5, 6)))
    y[0, :2] = 255
    rows, labels = images.movedim(1, -1).reshape(-1, 3), y.flatten()
    keep = labels != 255
    rows, labels = rows[keep], labels[keep]
    broken = images.clone()
    broken[0, :, :2] = torch.nan  # what is ignored may be anything
    for preds, target, axis in ((images, y, 1), (broken, y, 1), (images.movedim(1, -1), y, -1)):
        options = {"input": "logits", "axis": axis, "ignore_index": 255}
        for kind in KINDS:
            metric = CalibrationError(kind=kind, n_classes=3, **options)
            expected = metrics.ece(labels, rows, kind=kind, input="logits")
            assert fed(metric, preds, target, parts=2).compute().item() == pytest.approx(expected, abs=1e-12)
        for made, function in MEANS:
            expected = function(labels, rows, input="logits")
            assert fed(made(**options), preds, target).compute().item() == pytest.approx(expected, abs=1e-12)


def test_many_classes_go_in_blocks(monkeypatch):
    from attemper.torch import batch

    logits, y, _ = sample(k=23)
    monkeypatch.setattr(batch, "BLOCK_ELEMENTS", 1000)  # three classes at a time
    for kind in ("classwise", "full"):
        metric = CalibrationError(kind=kind, n_classes=23, input="logits")
        expected = metrics.ece(y, logits, kind=kind, input="logits")
        assert fed(metric, logits, y, parts=1).compute().item() == pytest.approx(expected, abs=1e-12)


def test_one_column_is_the_second_class():
    z = torch.randn(100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = (torch.arange(100) % 3 == 0).long()
    both = torch.stack([torch.zeros_like(z), z], 1)
    p = both.softmax(1)
    for kind in ("binary", "top"):
        expected = metrics.ece(y, both, kind=kind, input="logits")
        for input, preds in (("logits", z), ("probs", p[:, 1]), ("log_probs", p[:, 1].log())):
            for column in (preds, preds[:, None]):
                value = CalibrationError(kind=kind, input=input)(column, y).item()
                assert value == pytest.approx(expected, abs=1e-12)
    maps, labels = z.reshape(4, 1, 5, 5), y.reshape(4, 5, 5)
    assert NLL(input="logits", axis=1)(maps, labels).item() == pytest.approx(metrics.nll(y, both, input="logits"))
    assert NLL(input="logits")(z, y.bool()).item() == pytest.approx(metrics.nll(y, both, input="logits"))


def test_parts_merge_in_any_order_and_forward_returns_the_batch():
    logits, y, _ = sample()
    first, second = (CalibrationError(kind="top_label", n_classes=4, input="logits", norm=2) for _ in range(2))
    expected = metrics.ece(y[:100], logits[:100], kind="top_label", norm=2, input="logits")
    assert first(logits[:100], y[:100]).item() == pytest.approx(expected)
    second.update(logits[100:], y[100:])
    state = {name: copy.deepcopy(getattr(first, name)) for name in first._defaults}
    second.merge_state(state)
    whole = metrics.ece(y, logits, kind="top_label", norm=2, input="logits")
    assert second.compute().item() == pytest.approx(whole)
    first(logits[100:], y[100:])
    assert first.compute().item() == pytest.approx(whole)
    again = pickle.loads(pickle.dumps(first))
    assert again.compute().item() == pytest.approx(whole)
    first.reset()
    assert first.sums.sum() == 0


def test_a_collection_shares_states_only_where_they_are_the_same():
    """Predictions of exactly 0 and 1 that are right make all losses 0 at first: sharing a state then would go wrong."""
    made = {
        "nll": NLL(),
        "brier": Brier(),
        "accuracy": Accuracy(),
        "ece": CalibrationError(),
        "mce": CalibrationError(norm="max"),
        "rms": CalibrationError(norm=2),
        "binary": CalibrationError(kind="binary"),
        "top_label": CalibrationError(kind="top_label", n_classes=2),
        "without 1": CalibrationError(ignore_index=1),
        "full": CalibrationError(kind="full"),
    }
    collection = torchmetrics.MetricCollection(made)
    rng = np.random.default_rng(0)
    p = np.vstack([[[0.0, 1.0]] * 5, rng.dirichlet([1, 1], size=50)])
    y = np.append(np.ones(5, int), rng.integers(2, size=50))
    for part in np.array_split(np.arange(55), 11):
        collection.update(torch.tensor(p[part]), torch.tensor(y[part]))
    found = {name: value.item() for name, value in collection.compute().items()}
    expected = {
        "nll": metrics.nll(y, p),
        "brier": metrics.brier(y, p),
        "accuracy": metrics.accuracy(y, p),
        "ece": metrics.ece(y, p),
        "mce": metrics.mce(y, p),
        "rms": metrics.ece(y, p, norm=2),
        "binary": metrics.ece(y, p, kind="binary"),
        "top_label": metrics.ece(y, p, kind="top_label"),
        "without 1": metrics.ece(y[y != 1], p[y != 1]),
        "full": metrics.ece(y, p, kind="full"),
    }
    assert found == pytest.approx(expected, abs=1e-12)
    assert {"ece", "mce", "rms"} in [set(names) for names in collection.compute_groups.values()]
    assert len(collection.compute_groups) == 8


def test_debiased_is_that_of_the_function():
    logits, y, _ = sample(n=2000)
    metric = CalibrationError(norm=2, debiased=True, input="logits")
    expected = metrics.ece(y, logits, norm=2, debiased=True, input="logits")
    assert fed(metric, logits, y).compute().item() == pytest.approx(expected, abs=1e-12)


def test_nothing_seen_is_no_number():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torchmetrics: before update
        assert CalibrationError().compute().isnan()
        assert NLL().compute().isnan()
    metric = CalibrationError(ignore_index=0)
    metric.update(torch.tensor([[0.5, 0.5]]), torch.tensor([0]))
    assert metric.compute().isnan()


def test_an_impossible_label_is_infinite():
    assert NLL()(torch.tensor([[1.0, 0.0]]), torch.tensor([1])).item() == np.inf
    value = NLL(ignore_index=1)(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([1, 0])).item()
    assert value == pytest.approx(np.log(2))


def test_single_precision_states_for_devices_without_double():
    logits, y, _ = sample()
    metric = CalibrationError(input="logits").set_dtype(torch.float32)
    assert fed(metric, logits.float(), y).sums.dtype == torch.float32
    assert metric.compute().item() == pytest.approx(metrics.ece(y, logits, input="logits"), abs=1e-5)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"strategy": "quantile"}, r"strategy='quantile': it needs all confidences.*attemper\.metrics\.ece"),
        ({"n_bins": "auto"}, r"n_bins='auto': it needs all confidences.*a whole n_bins"),
        ({"kind": "smooth"}, r"attemper\.metrics\.smooth_ece"),
        ({"kind": "corp"}, r"attemper\.metrics\.corp_reliability"),
        ({"kind": "top-label"}, "Use kind='top_label'"),
        ({"kind": "classwise"}, "Use n_classes=K"),
        ({"kind": "binary", "n_classes": 3}, "kind='binary': expected two classes, got 3"),
        ({"norm": "l1"}, "norm='l1': expected the power itself. Use norm=1"),
        ({"norm": "l2"}, "Use norm=2"),
        ({"debiased": True}, "expected norm=2"),
        ({"num_classes": 3}, "Use n_classes="),
        ({"n_bins": 0}, "n_bins=0"),
        ({"input": "scores"}, "input='scores'"),
        ({"axis": 1.5}, "axis=1.5"),
    ],
)
def test_settings_that_cannot_be(options, message):
    with pytest.raises(InputError):
        CalibrationError(**options)


@pytest.mark.parametrize(
    "options, preds, target, message",
    [
        (
            {},
            [[0.9, 0.1], [2.0, -1.0]],
            [0, 1],
            r"row 1: expected probabilities.*, got \[2, -1\]\. Use input=\"logits\"",
        ),
        ({}, [[0.9, 0.3]], [0], r"row 0: expected probabilities that sum to 1, got \[0.9, 0.3\]"),
        ({}, [[0.9, float("nan")]], [0], "row 0: expected probabilities that sum to 1"),
        ({"input": "log_probs"}, [[0.0, 0.0]], [0], "row 0: expected logarithms of probabilities"),
        ({"input": "logits"}, [[0.0, float("inf")]], [0], r"row 0: expected finite logits.*got \[0, inf\]"),
        ({}, [[0.9, 0.1]] * 2, [0, 2], "row 1 has label 2, expected 0 to 1. Use ignore_index=2"),
        ({}, [[0.9, 0.1]] * 2, [0, -100], "Use ignore_index=-100"),
        ({}, [0, 1], [[0.9, 0.1]] * 2, r"Use update\(preds, target\)"),
        ({}, [[0.9, 0.1]] * 2, [0, 1, 1], r"expected shape \(2,\)"),
        ({}, [[0.9, 0.1]] * 2, [[0.5, 0.5]] * 2, r"got soft labels of shape \(2, 2\). Use the functions"),
        ({}, [[[0.9, 0.1]]], [[0]], r"Use axis=1 .* or axis=-1"),
        ({"axis": 3}, [[[0.9, 0.1]]], [[0]], "axis=3"),
        ({"kind": "binary"}, [[0.2, 0.3, 0.5]], [0], "kind='binary': expected two classes, got 3"),
        ({"kind": "classwise", "n_classes": 2}, [[0.2, 0.3, 0.5]], [0], "expected 2 classes, as n_classes, got 3"),
    ],
)
def test_batches_that_cannot_be_are_refused_and_change_nothing(options, preds, target, message):
    metric = CalibrationError(**options)
    with pytest.raises(InputError):
        metric.update(torch.tensor(preds), torch.tensor(target))
    assert metric.sums.sum() == 0


def test_what_is_no_tensor_is_refused():
    with pytest.raises(InputTypeError):
        NLL().update([[0.5, 0.5]], torch.tensor([0]))
    with pytest.raises(InputTypeError):
        NLL().update(torch.tensor([[0.5, 0.5]]), torch.tensor([0.0]))
    with pytest.raises(InputError):
        NLL().update(torch.tensor([[0.5, 0.5]]), torch.tensor([0]), torch.ones(2))


def test_what_a_gpu_found_is_raised_at_the_end():
    metric = CalibrationError()
    metric.update(torch.tensor([[0.9, 0.1]]), torch.tensor([0]))
    metric.refused += torch.tensor([2, 0])
    with pytest.raises(InputError):
        metric.compute()
    metric.refused = torch.tensor([0, 3])
    with pytest.raises(InputError):
        metric._computed = None
        metric.compute()


# What torchmetrics' own tests compare with: [lo, hi) against (lo, hi] differ on edges alone, which random numbers miss.
@pytest.mark.parametrize("n_bins", [5, 10, 15, 20])
@pytest.mark.parametrize("norm, name", [(1, "l1"), (2, "l2"), ("max", "max")])
@pytest.mark.parametrize("seed", range(5))
def test_random_cases_of_torchmetrics(n_bins, norm, name, seed):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(5, (200,), generator=generator)
    for logits in (torch.randn(200, 5, generator=generator), 4 * torch.randn(200, 5, generator=generator)):
        p = logits.softmax(1)
        expected = multiclass_calibration_error(p, y, num_classes=5, n_bins=n_bins, norm=name).item()
        assert CalibrationError(n_bins=n_bins, norm=norm)(p, y).item() == pytest.approx(expected, abs=1e-6)
        assert metrics.ece(y, p, n_bins=n_bins, norm=norm) == pytest.approx(expected, abs=1e-6)
        kept = torch.where(y == 0, -1, y)
        expected = multiclass_calibration_error(p, kept, num_classes=5, n_bins=n_bins, norm=name, ignore_index=-1)
        value = CalibrationError(n_bins=n_bins, norm=norm, ignore_index=-1)(p, kept)
        assert value.item() == pytest.approx(expected.item(), abs=1e-6)
    q, two = torch.rand(200, generator=generator), torch.randint(2, (200,), generator=generator)
    expected = binary_calibration_error(q, two, n_bins=n_bins, norm=name).item()
    assert CalibrationError(kind="binary", n_bins=n_bins, norm=norm)(q, two).item() == pytest.approx(expected, abs=1e-6)
    both = torch.stack([1 - q, q], 1)
    assert metrics.ece(two, both, kind="binary", n_bins=n_bins, norm=norm) == pytest.approx(expected, abs=1e-6)


def test_edges_are_where_torchmetrics_differs():
    """Its bins are [lo, hi), and a confidence of 1 has a bin beyond the last: with 10 bins it finds 0.525 here."""
    p, y = torch.tensor([[1.0, 0.0], [0.95, 0.05]], dtype=torch.float64), torch.tensor([1, 0])
    theirs = multiclass_calibration_error(p, y, num_classes=2, n_bins=10).item()
    ours = CalibrationError(n_bins=10)(p, y).item()
    assert (theirs, ours) == pytest.approx((0.525, 0.475))


TWO_PROCESSES = """
import sys, torch, torch.distributed as dist
from attemper import metrics
from attemper.torch.metrics import NLL, CalibrationError
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
generator = torch.Generator().manual_seed(0)
logits = 2 * torch.randn(101, 3, generator=generator, dtype=torch.float64)
y = torch.randint(3, (101,), generator=generator)
mine = slice(0, 70) if rank == 0 else slice(70, 101)  # parts of different size
for kind in ("top", "classwise", "full", "top_label"):
    for norm in (1, 2, "max"):
        metric = CalibrationError(kind=kind, norm=norm, n_classes=3, input="logits")
        for part in torch.arange(101)[mine].chunk(rank + 2):  # and a different number of batches
            metric.update(logits[part], y[part])
        value, whole = metric.compute().item(), metrics.ece(y, logits, kind=kind, norm=norm, input="logits")
        assert abs(value - whole) < 1e-12, (kind, norm, value, whole)
        # Afterwards each has its own part again.
        assert metric.sums[0].sum() == len(y[mine]) * (3 if kind in ("classwise", "full") else 1)
metric = NLL(input="logits")
metric.update(logits[mine], y[mine])
assert abs(metric.compute().item() - metrics.nll(y, logits, input="logits")) < 1e-12
dist.destroy_process_group()
print("agreed")
"""


@pytest.mark.slow
def test_two_processes_add_up(tmp_path):
    command = [sys.executable, "-c", TWO_PROCESSES]
    running = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    assert [process.communicate(timeout=300)[0].strip() for process in running] == ["agreed"] * 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::Warning:lightning", "ignore:.*LeafSpec")
def test_lightning_logs_the_metric_of_an_epoch(tmp_path):
    import lightning

    logits, y, _ = sample(n=100)

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.val_ece = CalibrationError(input="logits")
            self.val_nll = NLL(input="logits")

        def validation_step(self, batch, _):
            for name in ("val_ece", "val_nll"):
                metric = getattr(self, name)
                metric.update(*batch)
                self.log(name, metric)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(logits, y), batch_size=30)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(accelerator="cpu", devices=1, default_root_dir=tmp_path, **quiet)
    module = Classifier()
    for _ in range(2):  # the second epoch begins anew
        [found] = trainer.validate(module, loader, verbose=False)
        assert found["val_ece"] == pytest.approx(metrics.ece(y, logits, input="logits"), abs=1e-6)
        assert found["val_nll"] == pytest.approx(metrics.nll(y, logits, input="logits"), abs=1e-6)


def test_a_table_that_is_kept_several_times_has_the_same_sums(monkeypatch):
    """As on a GPU."""
    from attemper.torch import metrics as classes

    logits, y, _ = sample()
    for kind in KINDS:
        made = [CalibrationError(kind=kind, n_classes=4, input="logits") for _ in range(2)]
        plain = fed(made[0], logits, y).sums
        monkeypatch.setattr(classes, "_copies", lambda device, size: 7)
        torch.testing.assert_close(fed(made[1], logits, y).sums, plain, rtol=1e-13, atol=0)
        monkeypatch.undo()


def test_an_update_looks_at_no_number():
    """A tensor on the meta device has none, so that whatever waits for one would fail."""
    for input in ("probs", "log_probs", "logits"):
        made = [CalibrationError(kind=kind, n_classes=4, input=input, ignore_index=-1) for kind in KINDS]
        for metric in [*made, *(mean(input=input, ignore_index=-1) for mean, _ in MEANS)]:
            metric.to("meta").update(torch.rand(9, 4, device="meta"), torch.zeros(9, dtype=torch.long, device="meta"))
            assert metric.sums.device.type == "meta"
