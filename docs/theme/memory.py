"""A build is short and takes 0.3 GB: without the garbage collector it needs a seventh less time."""

from __future__ import annotations

import gc


def on_startup(*, command: str, **_: object) -> None:
    """Switch the collector off where the process ends with the build."""
    if command == "build":
        gc.disable()
