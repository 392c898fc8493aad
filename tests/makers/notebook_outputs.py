"""Runs the notebooks in Jupyter, and stores what their cells show: python -m tests.makers.notebook_outputs [NAME ...].

Needs nbclient and ipykernel: pip install nbclient ipykernel. Text on stderr is left out: progress, and messages of the engine's start.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.truth.places import PROJECT

NOTEBOOKS = PROJECT / "notebooks"


def store_outputs(path: Path) -> None:
    """Run a notebook from its first cell to its last, and write it with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": path.parent}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")):
        store_outputs(NOTEBOOKS / f"{name}.ipynb")
        print(name)
