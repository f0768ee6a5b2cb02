"""Image files to arrays; the one place that needs Pillow."""

from __future__ import annotations

import io
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from attemper.errors import MissingExtraError


def decode(content: bytes, *, gray: bool = False, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """Height × width × 3 (or 1, if gray) bytes of a png or jpeg file, resized to (height, width) if told."""
    with pillow().open(io.BytesIO(content)) as picture:
        picture = picture.convert("L" if gray else "RGB")
        if size is not None and picture.size != size[::-1]:
            picture = picture.resize(size[::-1], pillow().Resampling.BILINEAR)
        array = np.asarray(picture, dtype=np.uint8)
    return array[..., None] if gray else array


def is_gray(content: bytes) -> bool:
    """Whether an image file has shades of gray only (and no palette or transparency)."""
    with pillow().open(io.BytesIO(content)) as picture:
        return picture.mode in ("1", "L")


def pillow() -> ModuleType:
    """Pillow, or how to get it."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError(
            "Pillow is needed to read image files and is not installed: pip install pillow"
        ) from None
    return Image
