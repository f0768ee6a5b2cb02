"""No command writes over a file that one of its own options or arguments reads."""

from itertools import product
from pathlib import Path

import click
import numpy as np
import pytest

from attemper.cli import cli
from attemper.cli.paths import InputPath, OutputPath
from attemper.errors import FileError, InputError

from data import draw

# Text that names no file of its own. A new option of text is either added here or gets the type INPUT or OUTPUT.
NO_FILES = {
    "n_bins",
    *("columns", "labels_key", "logits_key", "mask_key", "weights_key", "val_labels_key", "val_logits_key"),
    *("params", "methods", "scheduler", "title", "max_miss", "cost_miss", "logits"),
    *("pos_label", "fail_if", "uncertain", "metrics", "group", "sets_group", "focus"),
}
FOLDERS = {("demo", "output")}  # reads no files


def parameters(kind):
    return [
        (name, parameter)
        for name, command in cli.commands.items()
        for parameter in command.params
        if isinstance(parameter.type, kind)
    ]


PAIRS = [
    (name, read, written)
    for (name, read), (other, written) in product(parameters(InputPath), parameters(OutputPath))
    if name == other
]


def arguments(name, **given):
    """Return a line that calls a command, with a file for each argument and each option that it requires."""
    line = [name]
    for parameter in cli.commands[name].params:
        if not (parameter.required or isinstance(parameter, click.Argument) or parameter.name in given):
            continue
        value = given.get(parameter.name, f"other-{parameter.name}")
        line += [value] if isinstance(parameter, click.Argument) else [max(parameter.opts, key=len), value]
    return line


def test_every_option_of_text_is_known_to_be_a_file_or_not():
    unknown = [
        (name, parameter.name)
        for name, parameter in parameters(click.types.StringParamType)
        if parameter.name not in NO_FILES and (name, parameter.name) not in FOLDERS
    ]
    assert not unknown
    assert len(PAIRS) > 30


@pytest.mark.parametrize("link", ["itself", "symbolic", "hard", "pattern", "folder", "address"])
@pytest.mark.parametrize(
    ("name", "read", "written"), PAIRS, ids=[f"{name}-{read.name}-{written.name}" for name, read, written in PAIRS]
)
def test_an_output_is_never_an_input(tmp_path, monkeypatch, name, read, written, link):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    victim = tmp_path / "folder" / "victim"
    victim.write_text("precious")
    given = {"pattern": "folder/vic*", "folder": "folder", "address": f"file://{victim}"}.get(link, "folder/victim")
    output = "folder/victim"
    if link == "symbolic":
        output = "link"
        Path(output).symlink_to(victim)
    if link == "hard":
        output = "link"
        Path(output).hardlink_to(victim)
    with pytest.raises(FileError, match="is one of the inputs, which would be overwritten"):
        cli.main(arguments(name, **{read.name: given, written.name: output}), standalone_mode=False)
    assert victim.read_text() == "precious"
    assert {path.name for path in Path().iterdir()} <= {"folder", "link"}


def test_two_outputs_are_two_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = ["refer", "val.npz", "test.npz", "--budget", "0.1", "-o", "a.json", "--save-map", "./a.json"]
    with pytest.raises(InputError, match=r"-o and --save-map both name \./a\.json"):
        cli.main(line, standalone_mode=False)


def test_labels_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("h.npy", np.eye(3)[[0, 1, 2, 1]])
    np.save("y.npy", [0, 1, 2, 0])
    with pytest.raises(FileError, match=r"y\.npy: is one of the inputs"):
        cli.main(["fit", "h.npy", "--labels", "y.npy", "-o", "y.npy"], standalone_mode=False)
    assert np.load("y.npy").tolist() == [0, 1, 2, 0]


def test_a_list_of_classes_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    h, y = draw(200, 3)
    np.savez("val.npz", logits=h, labels=y)
    for _ in range(2):  # the second time there is a map to write over
        cli.main(["fit", "val.npz", "--classes", "a*,b,c", "-o", "m.json"], standalone_mode=False)
