"""The metrics as a module of Hugging Face's evaluate: a file that ``evaluate.load`` reads, offline too."""

from __future__ import annotations

from pathlib import Path

__all__ = ["huggingface_module"]


def huggingface_module() -> str:
    """Return the path of the module file for ``evaluate.load``.

    Its ``compute(predictions=probs, references=labels)`` returns what `attemper.metrics.evaluate` returns; options of
    metrics, such as ``n_bins``, ``input``, ``classes``, ``kind`` or ``confidence_level``, are passed to it as well.

    Examples
    --------
    >>> import os
    >>> os.path.basename(huggingface_module())
    'attemper_calibration.py'
    """
    return str(Path(__file__).with_name("attemper_calibration.py"))
