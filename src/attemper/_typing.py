"""Names of the types that many signatures share."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
PathLike = str | os.PathLike[str]
InputKind = Literal["logits", "probs"]
