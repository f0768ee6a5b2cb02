"""A model repository for Triton: the network, the map, and an ensemble that runs one after the other. Needs onnx.

python examples/serving/triton_ensemble/make_repository.py network.onnx map.json repository/
tritonserver --model-repository repository/
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import onnx

from attemper.onnx import map_to_onnx

MAX_BATCH = 64
TYPES = {"FLOAT": "TYPE_FP32", "FLOAT16": "TYPE_FP16", "DOUBLE": "TYPE_FP64", "INT64": "TYPE_INT64"}

MODEL = """\
name: "{name}"
platform: "onnxruntime_onnx"
max_batch_size: {max_batch}
input [ {input} ]
output [ {output} ]
dynamic_batching {{ }}
"""

ENSEMBLE = """\
name: "calibrated"
platform: "ensemble"
max_batch_size: {max_batch}
input [ {input} ]
output [ {output} ]
ensemble_scheduling {{
  step [
    {{
      model_name: "network"
      model_version: -1
      input_map {{ key: "{x}" value: "{x}" }}
      output_map {{ key: "{network_logits}" value: "logits" }}
    }},
    {{
      model_name: "calibration"
      model_version: -1
      input_map {{ key: "{map_logits}" value: "logits" }}
      output_map {{ key: "{probs}" value: "{probs}" }}
    }}
  ]
}}
"""


def tensor(info: Any) -> str:
    """Tell a tensor as Triton does: dims without the batch, which comes first; -1 for any size."""
    kind = info.type.tensor_type
    dims = [d.dim_value or -1 for d in kind.shape.dim]
    if not dims or dims[0] != -1:
        raise SystemExit(f"{info.name}: its first dimension is {dims[:1]}, not a batch of any size; export it dynamic")
    data_type = TYPES[onnx.TensorProto.DataType.Name(kind.elem_type)]
    return f'{{ name: "{info.name}" data_type: {data_type} dims: {dims[1:]} }}'


def ends(model: Any) -> tuple[Any, Any]:
    """Return the input and the output of a model that has one of each."""
    weights = {w.name for w in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in weights]
    if len(inputs) != 1 or len(model.graph.output) != 1:
        raise SystemExit(f"{len(inputs)} inputs, {len(model.graph.output)} outputs; this example takes one of each")
    return inputs[0], model.graph.output[0]


def main(network: Path, calibration: Path, repository: Path) -> None:
    """Write the three models."""
    net = onnx.load(network, load_external_data=False)
    if any(node.op_type in ("Softmax", "LogSoftmax") and ends(net)[1].name in node.output for node in net.graph.node):
        raise SystemExit(f"{network}: ends in a softmax, and the map takes logits; use: attemper export MAP {network}")
    (x, logits), (map_logits, probs) = ends(net), ends(map_to_onnx(calibration).model)
    if map_logits.name != "logits":
        raise SystemExit(f"{calibration}: takes probabilities; fit a map on logits, which the network gives")
    if tensor(logits).partition(" data_type")[2] != tensor(map_logits).partition(" data_type")[2]:
        raise SystemExit(f"the network gives {tensor(logits)}, but the map takes {tensor(map_logits)}")
    names = {"x": x.name, "network_logits": logits.name, "map_logits": map_logits.name, "probs": probs.name}
    configs = {
        "network": MODEL.format(name="network", max_batch=MAX_BATCH, input=tensor(x), output=tensor(logits)),
        "calibration": MODEL.format(
            name="calibration", max_batch=MAX_BATCH, input=tensor(map_logits), output=tensor(probs)
        ),
        "calibrated": ENSEMBLE.format(max_batch=MAX_BATCH, input=tensor(x), output=tensor(probs), **names),
    }
    for name, text in configs.items():
        (repository / name / "1").mkdir(parents=True, exist_ok=True)  # an ensemble has an empty version
        (repository / name / "config.pbtxt").write_text(text)
    shutil.copy(network, repository / "network" / "1" / "model.onnx")
    map_to_onnx(calibration, repository / "calibration" / "1" / "model.onnx")  # as `attemper export map.json -o` does


if __name__ == "__main__":
    main(*(Path(arg) for arg in sys.argv[1:]))
