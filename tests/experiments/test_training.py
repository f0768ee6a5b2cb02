"""Networks learn, are saved in the form of data/, and go on where they were interrupted."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from attemper import datasets, metrics
from experiments.zoo import cli, evaluation
from experiments.zoo.checkpoints import FORMAT
from experiments.zoo.data import load_dataset
from experiments.zoo.options import parse_command
from experiments.zoo.training import Run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NAME = "lenet5-digits-s0"
SMALL = shlex.split("--dataset digits --device cpu --limit 64 --batch 16 --lr 0.02 --epochs 4 --checkpoint-every 1")


@pytest.fixture
def zoo(tmp_path, capsys):
    """Run the program in this process; gives its exit code and what it printed."""

    def run(*words):
        code = cli.main([*words, "--out", str(tmp_path)])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


@pytest.fixture
def interrupted(zoo, tmp_path, monkeypatch):
    """A run that was interrupted when its two epochs were done and nothing was evaluated yet; its options."""
    words = [*SMALL, "--epochs", "2"]
    with monkeypatch.context() as patch:
        patch.setattr(cli, "save_results", None)
        assert zoo(*words)[0] == 1
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.checkpoint"]
    return words


def weights(out, name=NAME):
    return torch.load(out / f"{name}.pt", weights_only=True)


def assert_same_weights(one, other):
    assert list(one) == list(other)
    for key in one:
        assert torch.equal(one[key], other[key]), key


def test_lenet_learns_digits_and_leaves_a_file_like_those_of_data(zoo, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "MC_PASSES", 10)
    code, printed = zoo(*shlex.split("--dataset digits --device cpu --epochs 4 --batch 32 --lr 0.05 --dropout 0.1"))
    assert code == 0
    assert "epoch 4/4 loss 0." in printed
    assert "test accuracy 0.9" in printed
    assert "MC dropout accuracy 0.9" in printed
    name = "lenet5-digits-dropout-s0"
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.npz"]  # no checkpoint, no weights

    monkeypatch.setenv("ATTEMPER_DATA", str(tmp_path))
    data = datasets.load(name)
    published = ROOT / "data" / "lenet5-mnist-dropout-s0.npz"
    with np.load(tmp_path / f"{name}.npz") as ours, np.load(published) as theirs:
        assert set(ours.files) == set(theirs.files)
        for key in set(ours.files) - {"config"}:
            assert ours[key].dtype == theirs[key].dtype, key
            assert ours[key].ndim == theirs[key].ndim, key
        assert set(json.loads(str(theirs["config"]))) <= set(data.config)
    assert data.test_logits.shape == (400, 10)
    assert data.val_logits.shape == (200, 10)
    for logits in (data.test_logits, data.val_logits):
        assert np.array_equal(logits, np.rint(logits * 1024) / 1024)
    for key in ("mc_mean_probs", "val_mc_mean_probs"):
        probs = data.extra[key].astype(float)
        assert np.array_equal(probs, np.rint(probs * 2**20) / 2**20)
        assert np.allclose(probs.sum(axis=1), 1, atol=1e-5)
    accuracy = (data.test_logits.argmax(axis=1) == data.test_labels).mean()
    assert accuracy > 0.93
    assert (data.val_logits.argmax(axis=1) == data.val_labels).mean() > 0.93
    assert data.config["test"]["accuracy"] == accuracy
    probs = torch.tensor(data.test_logits).double().softmax(1).numpy()
    assert data.config["test"]["nll"] == pytest.approx(metrics.nll(data.test_labels, probs), abs=1e-4)
    assert data.config["test"]["ece15"] == pytest.approx(metrics.ece(data.test_labels, probs), abs=1e-3)
    assert data.config["precision"] == "float32"
    assert data.config["n_train"] == 1197


def killed_after_next_checkpoint(command, checkpoint):
    """Start the program and kill it (SIGKILL) once it has written a checkpoint."""
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    end = time.monotonic() + 600
    while not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before:
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < end
        time.sleep(0.002)
    process.kill()
    printed, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, printed
    return printed


def test_a_killed_run_ends_in_the_same_bits(zoo, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "MC_PASSES", 10)  # of those that end here; the killed ones have more to do
    # Dropout and random crops, so that both random generators have to be taken up where they were.
    words = shlex.split(
        "--dataset digits --limit 300 --device cpu --epochs 20 --batch 32 --lr 0.05 --dropout 0.2 --view crop"
    )
    words += ["--checkpoint-every", "1", "--save-weights"]
    name, out = "lenet5-digits-dropout-s0", tmp_path / "killed"
    checkpoint = out / f"{name}.checkpoint"
    command = [sys.executable, "-m", "experiments.zoo", *words, "--out", str(out)]
    assert "ready" in killed_after_next_checkpoint(command, checkpoint)
    assert "goes on after epoch" in killed_after_next_checkpoint(command, checkpoint)
    assert not (out / f"{name}.npz").exists()

    assert cli.main([*words, "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [f"{name}.npz", f"{name}.pt"]
    assert zoo(*words)[0] == 0
    assert_same_weights(weights(out, name), weights(tmp_path, name))
    with np.load(out / f"{name}.npz") as killed, np.load(tmp_path / f"{name}.npz") as whole:
        for key in set(whole.files) - {"config"}:
            assert np.array_equal(killed[key], whole[key]), key


def test_a_run_goes_on_from_any_epoch(zoo, tmp_path, monkeypatch):
    assert zoo(*SMALL, "--save-weights", "--seed", "1")[0] == 0
    whole = weights(tmp_path, "lenet5-digits-s1")
    (tmp_path / "lenet5-digits-s1.npz").unlink()
    step, taken = Run.train_step, []

    def stumbling_step(run):
        taken.append(None)
        if len(taken) == 11:  # in the third of four epochs of four steps
            raise RuntimeError("out of memory")
        step(run)

    monkeypatch.setattr(Run, "train_step", stumbling_step)
    code, printed = zoo(*SMALL, "--save-weights", "--seed", "1")
    assert code == 1
    assert "FAILED: RuntimeError('out of memory')" in printed
    code, printed = zoo(*SMALL, "--save-weights", "--seed", "1")
    assert code == 0
    assert "goes on after epoch 2" in printed
    assert len(taken) == 11 + 8
    assert_same_weights(weights(tmp_path, "lenet5-digits-s1"), whole)


@pytest.fixture
def replayed(monkeypatch):
    """Stand-ins for CUDA streams and graphs: a capture takes no step, a replay takes one."""
    step, capturing, graphs = Run.train_step, [], []

    class Graph:
        def __init__(self):
            self.replays = 0
            graphs.append(self)

        def register_generator_state(self, generator):
            pass

        def replay(self):
            self.replays += 1
            self.replayed()

    @contextmanager
    def capture(graph, stream):
        capturing.append(graph)
        yield
        capturing.pop()

    def train_step(run):
        if capturing:
            capturing[-1].replayed = run.train_step
        else:
            step(run)

    monkeypatch.setattr(Run, "train_step", train_step)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    return graphs


@pytest.mark.parametrize(
    "n_images, steps", [(96, 6), (48, 3)]
)  # more and fewer steps an epoch than come before a capture
@pytest.mark.parametrize("first_epochs", [0, 2, 3])
def test_the_steps_before_a_capture_are_steps_of_the_next_epoch(replayed, n_images, steps, first_epochs):
    data = load_dataset("digits", Path(), limit=n_images)
    options = parse_command([*SMALL, "--epochs", "3", "--dropout", "0.1"]).runs[0]
    whole, first, second = (Run(options, data, torch.device("cpu")) for _ in range(3))
    assert list(whole.epochs()) == [1, 2, 3]
    for _ in range(first_epochs):
        next(first.epochs())
    second.restore(first.state())
    second.stream = "a stream"
    second.capture()
    assert list(second.epochs()) == list(range(first_epochs + 1, 4))
    assert second.steps_taken == whole.steps_taken == 3 * steps
    assert_same_weights(second.weights(), whole.weights())
    steps_left = (3 - first_epochs) * steps
    assert [graph.replays for graph in replayed] == ([steps_left - min(4, steps)] if steps_left else [])


def test_an_interrupt_of_the_evaluation_loses_nothing(zoo, interrupted, monkeypatch):
    monkeypatch.setattr(Run, "train_step", None)
    code, printed = zoo(*interrupted)
    assert code == 0
    assert "goes on after epoch 2" in printed


def test_ctrl_c_stops_all_runs(zoo, tmp_path, monkeypatch):
    def wait_and_interrupt(futures):
        while not (tmp_path / f"{NAME}.checkpoint").exists():
            time.sleep(0.001)
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "wait", wait_and_interrupt)
    code, printed = zoo(*SMALL, "--epochs", "5000")
    assert code == 130
    assert "the same command goes on" in printed
    assert "FAILED" not in printed
    assert not (tmp_path / f"{NAME}.npz").exists()


def test_a_finished_run_is_not_repeated(zoo, tmp_path, monkeypatch):
    assert zoo(*SMALL)[0] == 0
    path = tmp_path / f"{NAME}.npz"
    before = path.read_bytes()
    (tmp_path / f"{NAME}.checkpoint").write_bytes(b"left by a kill in the last moment")
    monkeypatch.setattr(Run, "train_step", None)
    code, printed = zoo(*SMALL)
    assert code == 0
    assert f"{NAME} is finished: {path} is there" in printed
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    code, printed = zoo(*SMALL, "--save-weights")
    assert code == 2
    assert "its weights were not kept; --fresh" in printed


def test_results_of_other_options_are_kept_unless_told(zoo, tmp_path):
    assert zoo(*SMALL)[0] == 0
    path = tmp_path / f"{NAME}.npz"
    before = path.read_bytes()
    for changes, message in [
        (["--epochs", "2"], "epochs 4 there, 2 asked for"),
        (["--lr", "0.03", "--schedule", "cosine"], "lr 0.02 there, 0.03 asked for; schedule 'step' there, 'cosine'"),
        (["--limit", "60"], "n_train 64 there, 60 asked for"),
        (["--view", "crop"], "augmentation 'PlainView' there, 'CropView' asked for"),
    ]:
        code, printed = zoo(*SMALL, *changes)
        assert code == 2
        assert message in printed
        assert "--fresh" in printed
        assert path.read_bytes() == before
    assert zoo(*SMALL, "--epochs", "2", "--fresh")[0] == 0
    with np.load(path) as stored:
        assert json.loads(str(stored["config"]))["epochs"] == 2


def test_checkpoints_of_other_options_are_kept_unless_told(zoo, tmp_path, interrupted):
    path = tmp_path / f"{NAME}.checkpoint"
    before = path.read_bytes()
    code, printed = zoo(*interrupted, "--weight-decay", "0.1", "--batch", "32")
    assert code == 2
    assert "batch 16 there, 32 asked for; weight_decay 0.0005 there, 0.1 asked for" in printed
    assert path.read_bytes() == before
    code, printed = zoo(*interrupted, "--batch", "32", "--fresh")
    assert code == 0
    assert "ready, 2 steps an epoch" in printed
    assert not path.exists()


def test_a_checkpoint_is_not_used_with_other_data(zoo, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    arrays = {f"x_{part}": rng.integers(0, 256, (40, 28, 28), dtype=np.uint8) for part in ("train", "test")}
    arrays |= {f"y_{part}": np.arange(40) % 4 for part in ("train", "test")}
    words = ["--data", str(tmp_path), "--dataset", "noise", "--device", "cpu", "--epochs", "1"]
    np.savez(tmp_path / "noise.npz", **arrays)
    with monkeypatch.context() as patch:
        patch.setattr(cli, "save_results", None)
        assert zoo(*words)[0] == 1
    arrays["x_train"][0, 0, 0] ^= 1
    np.savez(tmp_path / "noise.npz", **arrays)
    code, printed = zoo(*words)
    assert code == 2
    assert "data_sha256" in printed


class Evil:
    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.system, (f"touch {self.trace}",)


def test_damaged_checkpoints_are_refused(zoo, tmp_path, interrupted):
    path, trace = tmp_path / f"{NAME}.checkpoint", tmp_path / "trace"
    whole = path.read_bytes()
    content = torch.load(path, weights_only=True)
    state, middle = content["state"], len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]

    def written(**changes):
        torch.save({**content, **changes}, path)

    for damage, message in [
        (lambda: path.write_bytes(whole[:-100]), "cannot be read as a checkpoint"),
        (lambda: path.write_bytes(b"PK and nothing else"), "cannot be read as a checkpoint"),
        (lambda: path.write_bytes(b""), "cannot be read as a checkpoint"),
        (lambda: path.write_bytes(flipped), "is damaged"),
        (lambda: torch.save(Evil(trace), path), "cannot be read as a checkpoint"),
        (lambda: torch.save([1, 2], path), "cannot be read as a checkpoint"),
        (lambda: written(format=FORMAT + 1), "it is of another version"),
        (lambda: written(state={**state, "velocity": []}), "does not fit this network"),
        (lambda: written(state={**state, "weights": {}}), "does not fit this network"),
        (lambda: written(state={**state, "shuffling": torch.zeros(3, dtype=torch.uint8)}), "does not fit this network"),
    ]:
        damage()
        code, printed = zoo(*interrupted)
        assert code == 2, message
        assert message in printed
        assert "--fresh starts over" in printed
        assert str(path) in printed
        assert not trace.exists()
    assert zoo(*interrupted, "--fresh")[0] == 0


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(zoo, tmp_path, interrupted, monkeypatch):
    path = tmp_path / f"{NAME}.checkpoint"
    before = path.read_bytes()
    save = torch.save

    def half_saved(content, stream):
        save(content, stream)
        stream.truncate(1000)
        raise OSError(28, "No space left on device")

    content = torch.load(path, weights_only=True)
    content["state"]["epochs_done"] = 1
    save(content, path)
    one_epoch = path.read_bytes()
    monkeypatch.setattr(torch, "save", half_saved)
    code, printed = zoo(*interrupted)
    assert code == 1
    assert "No space left on device" in printed
    assert path.read_bytes() == one_epoch != before
    assert list(tmp_path.iterdir()) == [path]


def test_a_diverging_run_says_so_and_the_others_go_on(zoo, tmp_path):
    plan = tmp_path / "plan.txt"
    common = "--dataset digits --epochs 2 --batch 16 --warmup-epochs 0"
    plan.write_text(f"# two runs\n\n{common} --lr 1e20 --seed 1\n{common} --lr 0.02 --seed 2 --dropout 0.1\n")
    code, printed = zoo("--plan", str(plan), "--limit", "64", "--device", "cpu")
    assert code == 1
    assert "lenet5-digits-s1 FAILED: the loss is nan after epoch 1; a smaller --lr" in printed
    assert "lenet5-digits-dropout-s2 test accuracy" in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lenet5-digits-dropout-s2.npz", "plan.txt"]
