"""Pictures of samples: looked up in one folder, made small, and put into the page.

A name is only ever looked up among the files of the folder, so no name can lead out of it; a link that does is not
one of them. Pictures are encoded anew, so what a camera wrote beside the picture (place, time, patient) does not come
along.
"""

from __future__ import annotations

import base64
import io
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from attemper.errors import FileError, InputError, require

__all__ = ["ImageFolder", "ids_by_order"]

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
LARGEST = 200  # pixels
QUALITY = 80


class ImageFolder:
    """The picture files of a folder, by name with and without their ending."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        require("PIL", extra="report", why="to make images small")
        self.folder = Path(folder)
        try:
            with os.scandir(self.folder) as entries:
                files = sorted(e.name for e in entries if e.name.lower().endswith(ENDINGS) and self._inside(e))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FileError(f"{self.folder}: no folder of images that can be read: {reason}") from None
        if not files:
            raise FileError(
                f"{self.folder}: holds no image; expected files ending in {', '.join(ENDINGS)}, and no links out of it"
            )
        self.files = files
        self._by_name = {Path(name).stem: name for name in reversed(files)} | {name: name for name in files}

    def _inside(self, entry: os.DirEntry[str]) -> bool:
        try:
            if not entry.is_file():
                return False
            return not entry.is_symlink() or Path(entry.path).resolve().parent == self.folder.resolve()
        except OSError:  # a link to itself
            return False

    def __contains__(self, name: str) -> bool:
        """Return whether there is an image of this name."""
        return name in self._by_name

    def data_uri(self, name: str) -> str | None:
        """Return a small JPEG as text; None where there is no image, or a damaged one."""
        if name not in self._by_name:
            return None
        from PIL import Image, ImageOps

        stream = io.BytesIO()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # such as that a picture is a bomb
                # Only these: Pillow looks at the content, and would run Ghostscript on PostScript named .png.
                with Image.open(self.folder / self._by_name[name], formats=FORMATS) as image:
                    small = ImageOps.exif_transpose(image).convert("RGB")
                    small.thumbnail((LARGEST, LARGEST))
                    small.info.clear()
                    small.save(stream, "JPEG", quality=QUALITY)
        except Exception:
            # Pillow's parsers raise whatever their inside runs into; a damaged picture must not cost the report.
            return None
        return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()


def ids_by_order(images: ImageFolder, n: int) -> Sequence[str]:
    """Take the files in sorted order as the test samples; only where there is one for each."""
    if len(images.files) != n:
        raise InputError(
            f"{images.folder}: {len(images.files)} images for {n} test samples, and no names to match them. Store "
            f"their names in TEST as an array image_id, or pass them with image_ids",
            param="image_ids",
        )
    return images.files
