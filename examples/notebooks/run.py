"""Run the notebooks of this folder and keep their outputs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbclient
import nbformat

HERE = Path(__file__).parent
NOTEBOOKS = sorted(HERE.glob("*.ipynb"))


def executed(path: Path) -> nbformat.NotebookNode:
    """Return the notebook with the outputs of a fresh kernel in an empty folder."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(
            notebook,
            timeout=600,
            resources={"metadata": {"path": folder}},
            record_timing=False,
        )
        client.execute()
    # What depends on the machine is left out: a new run changes what is new alone.
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {
                "display_name": "Python 3",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        }
    )
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    return notebook


if __name__ == "__main__":
    for path in NOTEBOOKS:
        nbformat.write(executed(path), path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
