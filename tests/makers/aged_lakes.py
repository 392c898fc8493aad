"""Makes the files of a lake older, as vacuum counts the hours of files and of removals."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

HOUR = 3600


def age(lake: Path, hours: float) -> None:
    """Make all files of a lake older, and the times of removals in the logs."""
    for path in [path for path in lake.rglob("*") if path.is_file() and path.suffix != ".crc"]:
        if path.parent.name == "_delta_log" and path.suffix == ".json":
            older = re.sub(r'(?<="deletionTimestamp":)\d+', lambda found: str(int(found[0]) - int(hours * HOUR * 1000)), path.read_text())
            path.write_text(older)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        age_file(path, hours)


def age_file(path: Path, hours: float) -> None:
    """Set the time of a file to some hours ago."""
    then = time.time() - hours * HOUR
    os.utime(path, (then, then))
