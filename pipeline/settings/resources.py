"""The project's configuration files, found alike in a checkout, in an installed wheel and inside a zip.

A wheel carries them as `pipeline/conf` (force-include in pyproject.toml), so that they reach a cluster with the code;
in a checkout they are the top-level folder `conf`. Surprise: inside a zip they are no files, so nothing here hands out
a path.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def conf_text(name: str) -> str:
    """The text of one file, by a name such as `broker-defaults.json`; FileNotFoundError if there is none."""
    return _conf().joinpath(name).read_text(encoding="utf-8")


def _conf() -> Traversable:
    # the packaged folder first: beside an installed package, a folder `conf` may be anybody's
    packaged = files("pipeline").joinpath("conf")
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "conf"
