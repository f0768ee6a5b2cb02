"""Make the pictures of docs/plots.md, by running the page: python docs/images/plots.py."""

import os
import re
from pathlib import Path

IMAGES = Path(__file__).parent

if __name__ == "__main__":
    page = (IMAGES.parent / "plots.md").read_text(encoding="utf-8")
    os.chdir(IMAGES)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S):
        exec(compile(block, "plots.md", "exec"), names)
