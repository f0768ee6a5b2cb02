"""The command line and plans: what they mean, and what is said of mistakes."""

import re
from pathlib import Path

import pytest

from attemper import FileError, InputError
from attemper import datasets as published
from experiments.zoo import cli
from experiments.zoo.options import parse_command, read_plan

PLANS = Path(__file__).parents[2] / "experiments" / "zoo" / "plans"


def test_the_plans_are_the_networks_of_data():
    runs = {}
    for plan in PLANS.glob("*.txt"):
        renamed = re.findall(r"^# the results file was renamed to ([\w-]+)\.npz$", plan.read_text(), flags=re.M)
        planned = read_plan(plan)
        assert len(renamed) in (0, len(planned))
        runs |= dict(zip(renamed or [run.name for run in planned], planned, strict=True))
    assert sorted(runs) == published.names()
    keys = ("dataset", "arch", "split", "dropout", "epochs", "batch", "lr", "schedule", "warmup_epochs", "weight_decay")
    views = {"plain": "PlainView", "crop": "CropView", "cropflip": "CropFlipView", "affine": "AffineView"}
    for name, run in runs.items():
        config = published.load(name).config
        assert {key: getattr(run, key) for key in (*keys, "seed")} == {key: config[key] for key in (*keys, "seed")}
        assert views[run.view] == config["augmentation"]


def test_defaults():
    command = parse_command([])
    (run,) = command.runs
    assert (run.dataset, run.arch, run.view, command.checkpoint_every) == ("mnist", "lenet5", "plain", 5)
    assert parse_command(["--dataset", "svhn"]).runs[0].view == "crop"
    assert parse_command(["--dataset", "svhn", "--view", "plain"]).runs[0].view == "plain"
    assert parse_command(["--image-size", "32x48"]).image_size == (32, 48)


@pytest.mark.parametrize(
    "words, message",
    [
        ("--epochs 0", "'0': expected a whole number, at least 1"),
        ("--dropout 1", "'1': expected a number, at least 0 and below 1"),
        ("--lr nan", "'nan': expected a number, at least 0"),
        ("--arch alexnet", "invalid choice: 'alexnet'"),
        ("--image-size 32", "expected height and width in pixels, such as 32x32"),
        ("--plan here.txt --epochs 3", "--epochs 3: beside --plan, what makes a run belongs into the lines"),
        ("--epoch 3", "unrecognized arguments"),
    ],
)
def test_mistakes_on_the_command_line(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_command(words.split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, message",
    [
        ("--seed 1\n--sed 2", "line 2: unrecognized arguments: --sed 2"),
        ("--seed one", "line 1: argument --seed: 'one': expected a whole number"),
        ("--out here", "line 1: unrecognized arguments: --out here"),
        ("--arch 'lenet5", "line 1: No closing quotation"),
        ("--dataset ../mnist", "line 1: --dataset '../mnist': expected a plain name"),
        ("--lr 0.1\n--lr 0.2", "more than one run would write lenet5-mnist-s0.npz"),
    ],
)
def test_mistakes_in_plans(tmp_path, text, message):
    plan = tmp_path / "plan.txt"
    plan.write_text(text)
    with pytest.raises(InputError):
        read_plan(plan)


def test_plans_without_runs(tmp_path):
    with pytest.raises(FileError):
        read_plan(tmp_path / "plan.txt")
    (tmp_path / "plan.txt").write_text("# nothing yet\n")
    with pytest.raises(FileError):
        read_plan(tmp_path / "plan.txt")


def test_errors_are_one_message_and_exit_code_2(tmp_path, capsys):
    words = ["--data", str(tmp_path), "--out", str(tmp_path / "new" / "out"), "--device", "cpu"]
    assert cli.main([*words, "--dataset", "cifar10"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: data set 'cifar10' is not there (nothing is downloaded); looked for")
    assert cli.main([*words, "--dataset", "digits", "--arch", "vgg16"]) == 2
    assert "vgg16 takes images whose sides are 32 to 63 pixels; these are 28 × 28" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert cli.main(["--out", str(tmp_path / "file"), "--dataset", "digits"]) == 2
    assert "cannot be made a folder: File exists" in capsys.readouterr().err


def test_help_teaches(capsys):
    with pytest.raises(SystemExit):
        parse_command(["--help"])
    printed = capsys.readouterr().out
    for word in ("--plan experiments/zoo/plans/cifar10.txt", "MNIST/raw", "goes on from there", "lenet5", "--fresh"):
        assert word in printed
