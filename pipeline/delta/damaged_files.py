"""Recognises in the text of a Spark error that a data file of a lake is damaged or gone, and names table and file.

Spark's conditions FAILED_READ_FILE (4.2) name the file; the table is the folder below the lake that holds it. A remote file whose reading
broke off may be whole: only what Spark says of its content or its absence counts there.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from pipeline.schema.tables import LAKE_VERSION, TABLES

_FAILED: Final = re.compile(r"\[FAILED_READ_FILE\.(?P<why>\w+)\]\s+Encountered error while reading file (?P<file>.+?)\.(?=\s|$)")
_FOUND: Final = {
    "CANNOT_READ_FILE_FOOTER": "one that is no Parquet file, or was cut short",
    "FILE_NOT_EXIST": "none: it was deleted or moved",
}
_LOCAL: Final = "file:"
RESTORE: Final = "restore the file from a copy of the lake, or import the store into a new --lake"


def damaged_file(text: str) -> str | None:
    """The message about a damaged data file of a lake; None where the text of the error speaks of none."""
    failed = _FAILED.search(text)
    if failed is None:
        return None
    place = failed["file"]
    found = _FOUND.get(failed["why"], "one with damaged bytes" if failed["why"] == "NO_HINT" and place.startswith(_LOCAL) else None)
    folders = unquote(place).split("/")
    table = next((name for name in reversed(folders[:-1]) if name in TABLES or name == LAKE_VERSION.name), None)
    if found is None or table is None:
        return None
    return f"table {table}, file {place}: expected a data file of the lake, found {found}; {RESTORE}"
