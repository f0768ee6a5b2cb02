"""A network for skin lesions, from its logits to a report: calibrate it, choose whom to refer, tell a doctor.

python examples/skin_lesions/run.py
python examples/skin_lesions/run.py --output somewhere/
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

import numpy as np

import attemper
from attemper.calibrators import METHODS
from attemper.decisions import outcome_of, policy_for_miss
from attemper.metrics import evaluate, referral_area, referral_area_difference, referral_curve
from attemper.report import origin, write_report

HERE = Path(__file__).parent
with (HERE / "names.csv").open(encoding="utf-8", newline="") as file:
    DESCRIPTIONS = {row["class"]: row["description"] for row in csv.DictReader(file)}
NAMES = list(DESCRIPTIONS)
CARD = json.loads((HERE / "card.json").read_text(encoding="utf-8"))
COMPARED = ("ts", "ats", "bayes")
MAX_MISS, FITTED = 0.1, 160
CATCH = 0.8  # of the errors that are seen on the validation set


def main(output: Path) -> Path:
    """Go all the way; return where the report is."""
    # 1. The split: as in the paper, a fifth of the test images serves for validation. The test part judges.
    data = attemper.datasets.load("resnet200-skin-lesionsplit-s0", seed=0)
    n = len(data.val_labels)
    print(f"{n} images to fit on, {len(data.test_labels)} others to judge by, {len(NAMES)} classes\n")

    # 2. Temperature scaling, attended temperature scaling, Bayesian temperature scaling.
    h, y = data.test_logits.astype(np.float64), data.test_labels
    fitted = {method: METHODS[method]().fit(data.val_logits, data.val_labels) for method in COMPARED}
    probs = {"uncalibrated": attemper.maps.ScaleMap(1.0).apply(h)}
    probs |= {method: calibrator.predict_proba(h) for method, calibrator in fitted.items()}
    print("                   T     NLL (95 % interval)       ECE")
    for method, p in probs.items():
        found = evaluate(y, p, confidence_level=0.95)
        t = f"{fitted[method].temperature_:.3f}" if method in fitted else "1"
        (a, low, high), (b, low2, high2) = found["nll"], found["ece"]
        print(f"{method:12} {t:>7}   {a:.4f} ({low:.4f}–{high:.4f})   {b:.4f} ({low2:.4f}–{high2:.4f})")

    # 3. The referral curve: does a lower confidence point to the errors? Its area, and what calibration adds to it.
    print("\n             area under the referral curve   at the paper's 21 thresholds")
    for method, p in probs.items():
        areas = [referral_area(y, p, thresholds=t, confidence_level=0.95) for t in (None, "paper")]
        print(f"{method:12} " + "   ".join(f"{a:.4f} ({low:.4f}–{high:.4f})      " for a, low, high in areas))
    gain = referral_area_difference(y, probs["bayes"], probs["uncalibrated"], thresholds="paper", confidence_level=0.95)
    print(f"bayes over uncalibrated, paper's thresholds: {gain.value:+.4f} ({gain.low:+.4f} to {gain.high:+.4f})")

    # 4. The threshold: chosen on the validation images, judged on the test images.
    grid = np.arange(101) / 100
    on_val = referral_curve(data.val_labels, fitted["bayes"].predict_proba(data.val_logits), thresholds=grid)
    place = int(np.argmax(on_val.errors_referred >= CATCH))
    on_test = referral_curve(y, probs["bayes"], thresholds=grid)
    referred, caught, rate = (v[place] for v in (on_test.referred, on_test.errors_referred, on_test.error_rate_decided))
    print(
        f"\nRefer up to a confidence of {grid[place]:.2f}, the lowest that refers {CATCH:.0%} of the validation errors."
        f"\nOn the test images: {referred:.1%} referred, {caught:.1%} of the errors among them; of those decided "
        f"{rate:.1%} are wrong ({on_test.error_rate_decided[0]:.1%} without referral)."
    )

    # … and with a guarantee: a part of the validation images fits the map, the others certify the threshold.
    part = METHODS["bayes"]().fit(data.val_logits[:FITTED], data.val_labels[:FITTED])
    others = part.predict_proba(data.val_logits[FITTED:]), data.val_labels[FITTED:]
    policy = policy_for_miss(*others, MAX_MISS, classes=NAMES, fit_probs=part.predict_proba(data.val_logits[:FITTED]))
    outcome = outcome_of(policy, part.predict_proba(h), y)
    rate, low, high = outcome.all.miss_rate
    print(
        f"\nAt most {MAX_MISS:.0%} of the decided wrong, with 95 % confidence: {policy.rule()}\nOn the test images: "
        f"{outcome.referred_share.value:.1%} referred; of those decided {rate:.1%} ({low:.1%}–{high:.1%}) are wrong."
    )

    # … whose unit is the lesion, as several images show the same one: a fifth of the lesions fits the map.
    lesion, test_lesion = np.split(data.extra["lesion_id"], [n])
    fits = np.isin(lesion, np.unique(lesion)[::5])
    part = METHODS["bayes"]().fit(data.val_logits[fits], data.val_labels[fits], clusters=lesion[fits])
    about = {"clusters": lesion[~fits], "fit_clusters": lesion[fits], "classes": NAMES}
    about["fit_probs"] = part.predict_proba(data.val_logits[fits])
    policy = policy_for_miss(part.predict_proba(data.val_logits[~fits]), data.val_labels[~fits], MAX_MISS, **about)
    outcome = outcome_of(policy, part.predict_proba(h), y, clusters=test_lesion)
    rate, low, high = outcome.all.miss_rate
    print(
        f"By lesion ({policy.n_samples} images of {policy.n_clusters} lesions): {policy.rule()}\nOn the test images: "
        f"{outcome.referred_share.value:.1%} referred; of those decided {rate:.1%} ({low:.1%}–{high:.1%}) are wrong."
    )

    # 5. The report, from files that `attemper report val.npz test.npz --classes names.csv --card card.json` takes too.
    output.mkdir(parents=True, exist_ok=True)
    parts = {"val": (data.val_logits, data.val_labels), "test": (data.test_logits, data.test_labels)}
    for name, (logits, labels) in parts.items():
        np.savez_compressed(output / f"{name}.npz", logits=logits, labels=labels)
    write_report(
        output / "report.html",
        attemper.Scores.from_logits(*parts["val"]),
        attemper.Scores.from_logits(*parts["test"]),
        classes=NAMES,
        descriptions=DESCRIPTIONS,
        card=CARD,
        methods=COMPARED,
        catch=CATCH,
        title="Skin lesions: how far can this network be trusted?",
        files=[*origin("validation", output / "val.npz"), *origin("test", output / "test.npz")],
    )
    print(f"\nReport: {output / 'report.html'}")
    return output / "report.html"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("demo-output/skin_lesions"), help="folder for the files")
    main(parser.parse_args().output)
