"""Which unit logits are in: T*, where the mean confidence is the accuracy, for each set of a folder.

    python benchmarks/units.py FOLDER [--draws 20]

For every .npz of the folder (keys as in sets.py): the unit and the range of temperatures of all rows, those of random
draws of 20 and 200 labels, and how far T / c of `ts` and `ats` fitted on c times the logits is from T.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

import sets
from attemper import AttendedTemperatureScaling, Scores, TemperatureScaling
from attemper.data.scale import logit_scale

FACTORS = (1e-3, 1e3, 1e6)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    told = parser.parse_args()
    warnings.simplefilter("ignore")
    rows, units = [], Counter()
    for path in sorted(told.folder.glob("*.npz")):
        try:
            h, y = sets.read(path)
        except KeyError:
            continue
        rng, h = np.random.default_rng(0), h.astype(np.float64)
        scale = logit_scale(Scores.from_logits(h, y))
        few = []
        for n in (20, 200):
            draws = (rng.choice(len(y), min(n, len(y)), replace=False) for _ in range(told.draws))
            found = Counter(logit_scale(Scores.from_logits(h[i], y[i])).unit for i in draws)
            units.update({(n, unit == 1): count for unit, count in found.items()})
            few.append(" ".join(f"{unit:g}: {count}" for unit, count in found.most_common()))
        off = 0.0
        part = rng.choice(len(y), min(2000, len(y)), replace=False)
        for recipe in (TemperatureScaling, AttendedTemperatureScaling):
            t = recipe().fit(h[part], y[part]).temperature_
            off = max([off, *(abs(recipe().fit(c * h[part], y[part]).temperature_ / c / t - 1) for c in FACTORS)])
        rows.append([path.stem, f"{scale.unit:g}", "{:g} … {:g}".format(*scale.t_range), *few, f"{off:.0e}"])
    sets.table(["set", "unit", "range", "20 labels", "200 labels", "T/c off by"], rows)
    print()
    for n in (20, 200):
        print(f"{n} labels: unit 1 in {units[n, True]} of {units[n, True] + units[n, False]} draws")


if __name__ == "__main__":
    main()
