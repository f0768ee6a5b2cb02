"""A small network to serve: an MLP on the digits of scikit-learn, as network.onnx, with val.npz and test.npz.

python examples/serving/network.py files/
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier


def main(folder: Path) -> None:
    """Train, and write the network and what it says of images that it has not seen."""
    folder.mkdir(parents=True, exist_ok=True)
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=300, random_state=0)
    X_val, X_test, y_val, y_test = train_test_split(X_rest, y_rest, train_size=700, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it learns by heart, and is too sure of itself
        model = MLPClassifier((32,), alpha=0, learning_rate_init=0.01, max_iter=100, random_state=0)
        model.fit(X_train, y_train)
    write_onnx(model, folder / "network.onnx")
    for name, inputs, labels in (("val", X_val, y_val), ("test", X_test, y_test)):
        np.savez(folder / f"{name}.npz", logits=logits_of(model, inputs), labels=labels, inputs=inputs)


def logits_of(model: MLPClassifier, inputs: np.ndarray) -> np.ndarray:
    """Return what the network gives before its softmax, which scikit-learn does not show."""
    (w1, w2), (b1, b2) = model.coefs_, model.intercepts_
    return (np.maximum(inputs @ w1 + b1, 0) @ w2 + b2).astype(np.float32)


def write_onnx(model: MLPClassifier, path: Path) -> None:
    """Write the network with ``pixels`` as input and ``logits`` as output, for batches of any size."""
    weights = {"w1": model.coefs_[0], "b1": model.intercepts_[0], "w2": model.coefs_[1], "b2": model.intercepts_[1]}
    nodes = [
        helper.make_node("Gemm", ["pixels", "w1", "b1"], ["sums"]),
        helper.make_node("Relu", ["sums"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "w2", "b2"], ["logits"]),
    ]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 64])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "digits", [pixels], [logits], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8  # that runtimes of 2022 read
    onnx.save(made, path)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
