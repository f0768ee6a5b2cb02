"""`attemper demo`: the bundled network as files, and every command on them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from attemper import datasets
from attemper.cli import _run
from attemper.data.files import write
from attemper.errors import FileError, require

NET, PAGE = "net.attemper.json", "report.html"
FILES = ("val.csv", "test.csv", "new.csv", "list.csv", "card.json", NET, PAGE)


def run(folder: str) -> int:
    """Write the files, then run commands on them; nothing that exists is overwritten."""
    for package in ("pyarrow", "jinja2", "matplotlib"):
        require(package, extra="report,files", why="for the demo")
    target = Path(folder)
    taken = next((target / name for name in FILES if (target / name).exists()), None)
    if taken is not None:
        raise FileError(f"{taken} exists, and stays as it is. Use another folder.")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{target}: cannot be made: {error.strerror or error}") from None
    _write_data(target)
    val, test, new, listed, card, net, page = (str(target / name) for name in FILES)
    reading = ["--labels", "diagnosis", "--columns", ",".join(datasets.SKIN_LESIONS), "--clusters", "lesion"]
    methods = ["--methods", "bayes,ts,structured", "--calibrator", net]
    for tokens in (
        ["check", val, *reading],
        ["decide", val, test, *reading, "--max-miss", "0.1", "-o", net],
        ["evaluate", test, "--calibrator", net],
        ["apply", net, new, "-o", listed],
        ["compare", val, test, *reading, "--ids", "image", *methods, "--card", card, "-o", page],
    ):
        print(f"\n$ attemper {' '.join(tokens)}", flush=True)
        if code := _run(tokens):
            return code
    print(f"\nOpen {page}; {listed} has the cases to refer.")
    return 0


def _write_data(folder: Path) -> None:
    """Write validation and test data with labels, and some rows without, as a clinic would hold them."""
    data = datasets.load()
    card = {"model": "ResNet-200, trained on HAM10000", "classes": datasets.SKIN_LESIONS}
    (folder / "card.json").write_text(json.dumps(card, indent=1), encoding="utf-8")
    logits = np.concatenate([data.val_logits, data.test_logits]).astype(np.float64).round(4)
    names = np.array(data.class_names)[np.concatenate([data.val_labels, data.test_labels])]
    table = {"image": data.extra["image_id"], "lesion": data.extra["lesion_id"]}
    table |= {name: logits[:, k] for k, name in enumerate(data.class_names)} | {"diagnosis": names}
    n = len(data.val_labels)
    for name, rows in (("val.csv", slice(n)), ("test.csv", slice(n, None)), ("new.csv", slice(n, n + 100))):
        part = {key: column[rows] for key, column in table.items() if not (name == "new.csv" and key == "diagnosis")}
        write(folder / name, part)
