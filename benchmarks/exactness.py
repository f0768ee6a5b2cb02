"""How exact the fits are on real logits: against the peers, against direct minimisation, against the certificate.

    python benchmarks/exactness.py FOLDER [--thetas 100]

For every .npz of the folder (keys logits/labels, or logits_val/labels_val):

* NLL of attemper's T above that of the best peer that is installed (scikit-learn always is), mean per sample;
* |Δ log T| between the direct fit and the fit of a 64-node sketch, and the certificate that should bound it;
* for every θ of the default grid, |Δ log T(θ)| between the path of `AttendedTemperatureScaling` and a root of the slope
  of the attended loss, found without any table, for both losses; and whether the reported bounds hold.

Run it in the environment of `make bench` to have the peers.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from attemper import AttendedTemperatureScaling, Scores, Sketch, TemperatureScaling
from attemper.kernels import attended, nll
from attemper.kernels.softmax import rest, split
from speed import peers

STEP = 1e-4  # of the central difference in log T; its error is of order STEP²


class Direct:
    """The attended loss of one data set as a function of log T and θ, summed anew at every call."""

    def __init__(self, h, y, thetas, loss):
        self.reference = loss == "reference"
        self.y, self.h = y, h.astype(np.float64)
        self.rows = split(self.h, masked=False)
        self.pairs = attended.pairs(self.rows, y, None, thetas, reference=self.reference)

    def __call__(self, u):
        beta = np.exp(-u)
        _, total = rest(self.rows, beta)
        by_bin = attended.terms(self.rows, self.y, None, self.pairs, beta, total, reference=self.reference)
        value = nll.sums(self.h, self.y, None, beta)[0]
        return attended.theta_path(np.array([value]), by_bin[None, :])[0]


def worst_of_path(h, y, loss, count):
    fitted = AttendedTemperatureScaling(loss=loss).fit(h, y)
    direct = Direct(h, y, fitted.path_.theta, loss)
    worst, bounded, edges = 0.0, True, 0
    for b in np.unique(np.linspace(0, len(fitted.path_.theta) - 1, count).round().astype(int)):
        u = np.log(fitted.path_.temperature[b])

        def slope(v, b=b):
            return direct(v + STEP)[b] - direct(v - STEP)[b]

        if not slope(u - 3e-3) < 0 < slope(u + 3e-3):
            edges += 1  # a minimum on the edge of the range
            continue
        error = abs(brentq(slope, u - 3e-3, u + 3e-3, xtol=1e-12) - u)
        worst = max(worst, error)
        bounded &= error <= fitted.path_.error[b] + 2 * STEP**2
    return worst, bounded, edges


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--thetas", type=int, default=100, help="how many θ of the grid to check")
    told = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| set | T | NLL above best peer | sketch − direct | certificate | path: paper | path: reference | bounded |")
    print("|---|---|---|---|---|---|---|---|")
    worst = np.zeros(4)
    all_bounded = True
    for path in sorted(told.folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as z:
            suffix = "" if "logits" in z else "_val"
            h, y = z["logits" + suffix], z["labels" + suffix].astype(np.int64)
        ours = TemperatureScaling().fit(h, y)
        scores = Scores.from_logits(h, y)

        def mean_nll(t, s=scores):
            total = s.total(lambda c: nll.sums(*c, 1 / t, bound=s.bound, masked=s.masked), np.float64)
            return float(total[0]) / len(s)

        theirs = []
        for name, fit in peers(h, y).items():
            try:
                theirs.append(mean_nll(fit()))
            except Exception as error:  # a peer that fails on a set is no rival on it
                print(f"{path.stem}: {name} failed: {error}", file=sys.stderr)
        above = mean_nll(ours.temperature_) - min(theirs)
        table = TemperatureScaling().fit_sketch(Sketch.of(scores, parts=[]))
        gap = abs(np.log(table.temperature_ / ours.temperature_))
        certificate = table.fit_report_.log_t_error + ours.fit_report_.log_t_error
        paths = [worst_of_path(h, y, loss, told.thetas) for loss in ("paper", "reference")]
        bounded = gap <= certificate and all(p[1] for p in paths)
        all_bounded &= bounded
        worst = np.maximum(worst, [above, gap, paths[0][0], paths[1][0]])
        cells = " | ".join(f"{p[0]:.0e}" + (f" ({p[2]} on the edge)" if p[2] else "") for p in paths)
        print(
            f"| {path.stem} | {ours.temperature_:.4f} | {above:+.1e} | {gap:.0e} | {certificate:.0e} | {cells} | "
            f"{'yes' if bounded else 'NO'} |",
            flush=True,
        )
    print(
        f"\nworst: NLL above the best peer {worst[0]:+.1e}; sketch − direct {worst[1]:.0e}; path {worst[2:].max():.0e}"
    )
    print("every certificate holds" if all_bounded else "a certificate FAILS")


if __name__ == "__main__":
    main()
