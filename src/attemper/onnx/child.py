"""ONNX models, run by onnxruntime in a process of their own, which `verify` starts.

The process runs this file as a script. It imports neither attemper nor onnx, so that it starts quickly. Models, arrays
and errors are files in one folder: .onnx, .npy (without pickle) and .json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["LIMITS", "Limits", "limit", "run"]


class Limits(NamedTuple):
    """What the process may take, unless the caller sets other limits."""

    timeout: float = 120.0  # seconds, with the start of the process
    memory: float = 4.0  # GiB, in addition to what loading the model's weights takes


LIMITS = Limits()


def limit(memory: int, seconds: float) -> None:
    """Limit what this process may take, where the system can: memory in bytes, CPU time in case nobody stops it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, most in (("RLIMIT_AS", memory), ("RLIMIT_CPU", int(seconds) + 1), ("RLIMIT_CORE", 0)):
        try:
            number = getattr(resource, kind)
            hard = resource.getrlimit(number)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(number, (most, most))
        except (AttributeError, ValueError, OSError):  # macOS has no limit of memory
            pass


def run(folder: Path, job: dict[str, Any]) -> None:
    """Run each model on the same input and write one tensor of each; without input, only load them.

    What goes wrong is written too.
    """
    failure = None
    try:
        import numpy as np
        import onnxruntime as ort

        names = job["inputs"] or []
        feeds = {name: np.load(folder / f"input{i}.npy", allow_pickle=False) for i, name in enumerate(names)}
        options = ort.SessionOptions()
        options.log_severity_level = 4
        # What was written is run, and nothing of it is computed while it is loaded.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        # Threads and arenas reserve memory by the core, which would count against the limit.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        if job["external"] is not None:
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", job["external"])
        for i, name in enumerate(job["outputs"]):
            model = (folder / f"model{i}.onnx").read_bytes()
            session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            del model
            if job["inputs"] is None:
                continue
            array = np.asarray(session.run([name], feeds)[0])
            del session  # before the next is loaded
            if array.size > job["max_size"]:
                raise OverflowError(f"{name!r} has {array.size} elements")
            np.save(folder / f"output{i}.npy", array, allow_pickle=False)
    except Exception as error:  # onnxruntime has a dozen of its own
        failure = [type(error).__name__, " ".join(str(error).split())]
    (folder / "unfinished.json").write_text(json.dumps(failure), encoding="utf-8")
    (folder / "unfinished.json").rename(folder / "result.json")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    job = json.loads((place / "job.json").read_text(encoding="utf-8"))
    limit(job["memory"], job["seconds"])
    run(place, job)
