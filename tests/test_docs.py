"""What the documentation says is true: code runs, commands work, names exist."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

import attemper
from attemper import cli

import onnx_models as models

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *(ROOT / page for page in ("README.md", "CONTRIBUTING.md", "data/README.md", "experiments/zoo/README.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.M | re.S)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with the files that commands of the pages name."""
    monkeypatch.chdir(tmp_path)
    data = attemper.datasets.load()
    n, lesions = len(data.val_labels), data.extra["lesion_id"]
    np.savez("val.npz", logits=data.val_logits, labels=data.val_labels, lesion_id=lesions[:n])
    np.savez("test.npz", logits=data.test_logits, labels=data.test_labels, lesion_id=lesions[n:])
    onnx.save(models.mlp(n_classes=data.val_logits.shape[1]), "model.onnx")
    return tmp_path


# Runs the blocks of a page as a reader does: in a new Python and an empty folder, one after the other. What a block
# prints goes into a file of its own.
AS_A_READER = """
import contextlib, json, sys, warnings

warnings.simplefilter("error")
names = {"__name__": "__main__"}
for i, block in enumerate(json.load(sys.stdin)):
    with open(f"{sys.argv[1]}/{i}.txt", "w", encoding="utf-8") as printed, contextlib.redirect_stdout(printed):
        exec(compile(block, f"block {i + 1}", "exec"), names)
"""


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_blocks_run_in_order_in_an_empty_folder(page, tmp_path):
    empty, printed = tmp_path / "empty", tmp_path / "printed"
    empty.mkdir()
    printed.mkdir()
    given = {"cwd": empty, "input": json.dumps(blocks(page, "python")), "text": True}
    done = subprocess.run([sys.executable, "-c", AS_A_READER, printed], capture_output=True, **given)
    assert done.returncode == 0, done.stderr
    for i, block in enumerate(blocks(page, "python")):
        shown = re.findall(r"^# → (.*)", block, flags=re.M)
        assert not shown or (printed / f"{i}.txt").read_text(encoding="utf-8").splitlines() == shown


def commands(page):
    """Return the commands of a page; not those that need a cluster, a bucket or pictures of patients."""
    lines = [line.split(" #")[0].strip() for block in blocks(page, "sh") for line in block.splitlines()]
    elsewhere = ("10.0.0.5", "s3://")
    return [line for line in lines if line.startswith("attemper ") and not any(place in line for place in elsewhere)]


def write_what_pages_speak_of(data):
    """Write the files that commands of the docs name, beside val.npz, test.npz and model.onnx."""
    rng = np.random.default_rng(0)
    Path("names.txt").write_text("akiec bcc bkl df mel nv vasc".replace(" ", "\n"))
    Path("names.csv").write_text("class,description\nakiec,\nbcc,\nbkl,\ndf,\nmel,melanoma\nnv,\nvasc,\n")
    Path("card.json").write_text('{"model": "resnet200", "version": 1}')
    np.savez("march.npz", logits=data.test_logits, labels=data.test_labels)
    for name in ("today", "hospital_a"):
        np.savez(f"{name}.npz", logits=data.val_logits, labels=data.val_labels)
    attemper.TemperatureScaling().fit(data.val_logits, data.val_labels).save("net.attemper.json")
    Path("shards").mkdir()
    for i in range(2):
        h, y = data.val_logits[i::2], data.val_labels[i::2]
        columns = {f"logit_{k}": h[:, k] for k in range(h.shape[1])}
        pq.write_table(pa.table({"label": y, **columns}), f"shards/{i}.parquet")
        save_file({"logits": h, "labels": np.where(rng.random(len(y)) < 0.1, -100, y)}, f"shards/{i}.safetensors")
    for name, n in (("sites_val", 400), ("sites_test", 800)):
        logits, site = 2 * rng.normal(size=(n, 3)), rng.choice(list("ABC"), n)
        y = (logits / np.where(site == "B", 2, 1.2)[:, None] + rng.gumbel(size=logits.shape)).argmax(axis=1)
        np.savez(f"{name}.npz", logits=logits, labels=y, site=site, patient=np.arange(n) // 2)
    h, right = rng.normal(size=(200, 500)).astype(np.float32), rng.integers(0, 4, size=200)
    tokens = np.array([317, 418, 356, 423])
    np.savez("questions.npz", logits=h, labels=right, answer_ids=tokens[right])
    np.savez("new.npz", logits=h)
    np.savez("part0.npz", logits=h, labels=np.where(right == 0, -100, right))
    for name in ("screening", "screening-new"):
        scores = 3 * rng.normal(size=300)
        answers = np.where(rng.random(300) < 1 / (1 + np.exp(-scores / 2)), "yes", "no")
        lines = "\n".join(f"{score!r},{answer}" for score, answer in zip(scores.tolist(), answers))
        Path(f"{name}.csv").write_text(f"score,label\n{lines}\n")
    for name in ("findings", "findings_2", "findings_test", "findings_new"):
        s = 3 * rng.normal(size=(400, 2))
        y = np.where(rng.random(s.shape) < 0.1, "", (s + rng.logistic(size=s.shape) > 0).astype(int).astype(str))
        lines = [",".join([*map(str, row), *own]) for row, own in zip(s, y)]
        Path(f"{name}.csv").write_text("\n".join(["logit_Edema,logit_Hernia,label_Edema,label_Hernia", *lines]))
    logits = 2 * rng.normal(size=(120, 4))
    answers = np.array(list("ABCD"))[(logits + rng.gumbel(size=logits.shape)).argmax(axis=1)]
    table = pd.DataFrame(logits, columns=list("ABCD")).assign(answer=answers)
    table.to_csv("answers.csv", index=False)
    table.to_json("answers.jsonl", orient="records", lines=True)
    table.to_parquet("new.parquet")
    table.rename(columns={letter: f"logit_{letter}" for letter in "ABCD"}).to_csv("table.csv", index=False)
    Path("images").mkdir()
    for name in ("val_images", "test_images"):
        h = 3 * rng.normal(size=(24, 4, 8, 8))
        y = (h / 1.6 + rng.gumbel(size=h.shape)).argmax(axis=1)
        y[:, 0] = 255
        np.savez(f"{name}.npz", logits=h, labels=y)
        np.savez(f"images/{name}.npz", logits=h[0], labels=y[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::attemper.EdgeWarning")  # logits of questions that nobody asked say nothing
@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: p.name)
def test_the_commands_of_a_page_run_in_order(page, folder, monkeypatch):
    if page.name not in ("README.md", "tutorial.md"):
        write_what_pages_speak_of(attemper.datasets.load())
    if page.name == "serving.md":
        subprocess.run([sys.executable, ROOT / "examples" / "serving" / "network.py", "."], check=True)
    for command in commands(page):
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 0, command
