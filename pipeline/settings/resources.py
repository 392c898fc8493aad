"""Read the project's configuration files, in a checkout, in an installed wheel or inside a zip.

A wheel carries them as `pipeline/conf` (force-include in pyproject.toml), so that they reach a cluster with the code;
in a checkout they are the top-level folder `conf`. Surprise: inside a zip they are no files, so no function returns
a path.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def conf_text(name: str) -> str:
    """Return the text of a file with a name such as `broker-defaults.json`; raise FileNotFoundError if there is none."""
    return _conf().joinpath(name).read_text(encoding="utf-8")


def _conf() -> Traversable:
    # the packaged folder first: next to an installed package, a folder `conf` may belong to another project
    packaged = files("pipeline").joinpath("conf")
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "conf"
