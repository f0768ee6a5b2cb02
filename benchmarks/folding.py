"""What a calibrated model costs: the original, the folded, and one with the map inserted, side by side in one run.

PYTHONPATH=src python benchmarks/folding.py

Rounds go from one model to the next, so that whatever else the machine does falls on all of them. A ratio is the
median, over rounds, of a model's time by that of the original; "again" is the original a second time: the noise.
"""

from __future__ import annotations

import copy
import io
import time
import warnings

import numpy as np
import onnx
import onnxruntime as ort
import torch
from torch import nn

from attemper.maps import AffineMap, Map, MixtureMap, OddsMap, ScaleMap
from attemper.onnx import onnx_calibrate
from attemper.torch import fold_into_linear, to_torch
from sets import table

K = 100
ROUNDS = 60


def networks():
    mlp = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, K))
    convolutions = [layer for c in (3, 32, 32) for layer in (nn.Conv2d(c, 32, 3, padding=1), nn.ReLU())]
    cnn = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, K))
    yield "MLP", mlp.eval(), torch.randn(64, 256)
    yield "CNN", cnn.eval(), torch.randn(16, 3, 32, 32)


def maps() -> dict[str, Map]:
    rng = np.random.default_rng(0)
    matrix = 0.5 * np.eye(K) + 0.01 * rng.normal(size=(K, K))
    betas = np.linspace(0.4, 0.6, 8)
    return {
        "scale": ScaleMap(0.5),
        "matrix": AffineMap(matrix, 0.1 * rng.normal(size=K)),
        "mixture of 8": MixtureMap((1 / 8,) * 8, tuple(betas.tolist()), 0.0),
        "odds": OddsMap(np.full(K, 0.6), np.full(K, 0.5), np.zeros(K)),
    }


def ratios(models, repeats):
    """Median ratio to the first, and its quartiles."""
    times = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name, run in models.items():
            start = time.perf_counter()
            for _ in range(repeats):
                run()
            times[name].append((time.perf_counter() - start) / repeats)
    first, cells = np.array(next(iter(times.values()))), {"original": f"{1e3 * np.median(times['original']):.1f} ms"}
    for name in list(times)[1:]:
        low, middle, high = np.percentile(np.array(times[name]) / first, [25, 50, 75])
        cells[name] = f"{middle:.2f} ({low:.2f}–{high:.2f})"
    return cells


def torch_models(net, x):
    ending = nn.Softmax(-1)
    plain = nn.Sequential(net, ending)
    models = {"original": plain, "again": plain}
    for name in ("scale", "matrix"):
        folded = copy.deepcopy(net)
        fold_into_linear(folded[-1], maps()[name], check=None)
        models[f"{name}, folded"] = nn.Sequential(folded, ending)
    for name, m in maps().items():
        models[f"{name}, not folded"] = nn.Sequential(net, to_torch(m))
    return {name: (lambda model=model: model(x)) for name, model in models.items()}


def onnx_models(net, x):
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            nn.Sequential(net, nn.Softmax(-1)), (x,), stream, dynamo=False, input_names=["x"], opset_version=17
        )
    plain = onnx.load_from_string(stream.getvalue())
    models = {"original": plain, "again": plain}
    models |= {f"{name}, folded": onnx_calibrate(plain, maps()[name], fold=True).model for name in ("scale", "matrix")}
    models |= {f"{name}, not folded": onnx_calibrate(plain, m, fold=False).model for name, m in maps().items()}
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    feeds = {"x": x.numpy()}
    sessions = {name: ort.InferenceSession(m.SerializeToString(), options) for name, m in models.items()}
    return {name: (lambda session=session: session.run(None, feeds)) for name, session in sessions.items()}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    columns = {}
    for name, net, x in networks():
        for library, made in (("torch", torch_models), ("onnxruntime", onnx_models)):
            with torch.no_grad():
                models = made(net, x)
                for run in models.values():
                    run()
                columns[f"{library}, {name}, batch of {len(x)}"] = ratios(models, repeats=3)
    names = list(next(iter(columns.values())))
    table(["", *columns], [[name, *(cells[name] for cells in columns.values())] for name in names])


if __name__ == "__main__":
    main()
