"""Figures of the bundled network (resnet200-skin-lesionsplit-s0) that pages quote: methods, referrals, prediction sets.

python benchmarks/bundled.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import attemper
from attemper import BayesianTemperatureScaling, Scores, datasets
from attemper.decisions import prediction_sets, set_outcome
from sets import table

NAMES = "--classes akiec,bcc,bkl,df,mel,nv,vasc"
REFERRALS = {
    "`--max-miss 0.1`": "--max-miss 0.1",
    f"`--max-miss mel=0.15 {NAMES}`": f"--max-miss mel=0.15 {NAMES}",
    "`--max-miss 0.1 --clusters lesion_id` (at most 6 of each)": "--max-miss 0.1 --clusters lesion_id",
    "… `--max-per-cluster 3`": "--max-miss 0.1 --clusters lesion_id --max-per-cluster 3",
    "… `--max-per-cluster 1`": "--max-miss 0.1 --clusters lesion_id --max-per-cluster 1",
}


def methods(data):
    """Compare every method as `attemper demo` does: images of one lesion count as one case."""
    n, lesions = len(data.val_labels), data.extra["lesion_id"]
    val = Scores.from_logits(data.val_logits, data.val_labels, clusters=lesions[:n])
    test = Scores.from_logits(data.test_logits, data.test_labels, clusters=lesions[n:])
    rows = []
    for row in attemper.compare(val, test).rows:
        values = [row.cv.nll, *(row.metrics[name] for name in ("accuracy", "nll", "ece")), row.referral_area]
        rows.append([row.method, *(f"{getattr(value, 'value', value):.4f}" for value in values)])
    table(["method", "CV NLL", "accuracy", "NLL", "ECE", "area"], rows)


def referrals(data, folder):
    """Run the commands of the page of referrals."""
    n, lesions, rows = len(data.val_labels), data.extra["lesion_id"], []
    for part, ids in (("val", lesions[:n]), ("test", lesions[n:])):
        arrays = {name: getattr(data, f"{part}_{name}") for name in ("logits", "labels")}
        np.savez(Path(folder) / f"{part}.npz", **arrays, lesion_id=ids)
    for name, options in REFERRALS.items():
        command = [sys.executable, "-m", "attemper", "refer", "val.npz", "test.npz", *options.split(), "--json"]
        printed = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(printed)
        test, clusters = found["test"], found.get("clusters")
        melanoma = test["by_class"][4]["miss_rate"]
        shares = [percent(part) for part in (test["referred_share"], test["miss_rate"], melanoma)]
        thresholds = found["policy"]["threshold"]
        threshold = f"{thresholds:.3f}" if isinstance(thresholds, float) else "by class"
        rows.append([name, threshold, *shares, f"{test['caught']:.0f} of {test['errors']:.0f}"])
        if clusters:
            print(f"\n{found['n_chosen']} samples choose; TEST is worth {clusters['effective']:.0f} independent ones")
    head = ["`attemper refer` with", "threshold", "referred on TEST", "misses", "melanomas missed", "errors caught"]
    table(head, rows)


def percent(share):
    return "{value:.1f} % ({low:.1f}–{high:.1f} %)".format(
        **{key: 100 * share[key] for key in ("value", "low", "high")}
    )


def sets(data):
    fit, rest = slice(0, 160), slice(160, None)
    bts = BayesianTemperatureScaling().fit(data.val_logits[fit], data.val_labels[fit])
    p, new = bts.predict_proba(data.val_logits[rest]), bts.predict_proba(data.test_logits)
    rows = []
    for by in (None, "class"):
        policy = prediction_sets(p, data.val_labels[rest], 0.9, classes=data.class_names, **({"by": by} if by else {}))
        found = set_outcome(policy, new, data.test_labels)
        shares = [f"{row.coverage.value:.2f}" for row in found.by_class]
        rows.append([by or "all samples", f"{found.all.coverage.value:.3f}", f"{found.all.mean_size:.2f}", *shares])
    table(["thresholds by", "coverage", "mean size", *data.class_names], rows)


def main():
    data = datasets.load()
    methods(data)
    with tempfile.TemporaryDirectory() as folder:
        referrals(data, folder)
    sets(data)


if __name__ == "__main__":
    main()
