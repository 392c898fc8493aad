"""The package as a user gets it: a wheel built from the checkout, and an interpreter that sees the dependencies but not the checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark

from tests.truth.places import PROJECT


def build_wheel(folder: Path) -> Path:
    """Build the project's wheel into a folder."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=PROJECT, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def dependencies() -> str:
    """The folder of the installed dependencies. On PYTHONPATH it brings no .pth file with it, so an editable install stays unseen."""
    return str(Path(pyspark.__file__).parents[1])


def bare_python(folder: Path) -> Path:
    """A Python that sees the dependencies, and neither the checkout nor an editable install of it."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{dependencies()}" exec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    return script
