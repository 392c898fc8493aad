"""The build hook of the wheel: it generates `pipeline/sql/init.sql`, which the repository does not hold.

The hook imports the package from the sources. What it imports needs numpy and numba, so these two, which the package needs anyway, are
requirements of the build. Spark is none. An editable install leaves the file out: `pipeline/lake/init_file.py` writes it at its first use.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_IMPORTED = {"numpy", "numba"}


class InitFileHook(BuildHookInterface):
    """Puts the generated init file into a wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """The requirements of the package that the hook imports, in the versions that the package asks for."""
        return [one for one in self.metadata.core.dependencies if re.split(r"[^\w-]", one)[0] in _IMPORTED]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate the file in a temporary folder, and add it to the wheel."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from pipeline.lake.init_file import INIT_FILE, init_sql

        self._folder = Path(mkdtemp())
        written = self._folder / INIT_FILE
        written.write_text(init_sql(), "utf-8")
        build_data["force_include"][str(written)] = f"pipeline/sql/{INIT_FILE}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        if version != "editable":
            rmtree(self._folder)
