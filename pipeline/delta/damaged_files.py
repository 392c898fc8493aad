"""Find out from the text of an error of Spark or DuckDB that a data file of a lake is damaged or missing, and name its table and file.

Spark's conditions FAILED_READ_FILE (4.2) name the file; the table is the folder of the lake that holds it. FAILED_READ_FILE.NO_HINT counts
for local files only: a remote file whose read broke off may be undamaged.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from pipeline.schema.tables import LAKE_VERSION, TABLES

_FAILED: Final = re.compile(r"\[FAILED_READ_FILE\.(?P<why>\w+)\]\s+Encountered error while reading file (?P<file>.+?)\.(?=\s|$)")
_NO_PARQUET, _GONE, _BYTES = "one that is no Parquet file, or was cut short", "none: it was deleted or moved", "one with damaged bytes"
_FOUND: Final = {"CANNOT_READ_FILE_FOOTER": _NO_PARQUET, "FILE_NOT_EXIST": _GONE}
# messages of DuckDB 2.0 -> what was found
_OF_DUCKDB: Final = {
    re.compile(r'No files found that match the pattern "(?P<file>.+)"'): _GONE,
    re.compile(r"No magic bytes found at \w+ of file '(?P<file>.+)'"): _NO_PARQUET,
    re.compile(r"File '(?P<file>.+)' too small to be a Parquet file"): _NO_PARQUET,
    re.compile(r'Failed to read file "(?P<file>.+?)": '): _BYTES,
}
# messages of DuckDB that do not name the file
_SOME_FILE: Final = re.compile(r"TProtocolException.*|don't know what type.*|Parquet file is likely corrupted.*")
_LOCAL: Final = "file:"
RESTORE: Final = "restore the file from a copy of the lake, or import the store into a new --lake"


def damaged_file(text: str) -> str | None:
    """Return a message that a data file of the lake is damaged or missing; None if the text of the error does not say so."""
    for pattern, what in _OF_DUCKDB.items():
        if told := pattern.search(text):
            return _told(told["file"], told["file"].split("/"), what)
    if some := _SOME_FILE.search(text):
        return f"expected data files of the lake, found one with damaged bytes ({some[0].strip(' :')}); {RESTORE}"
    failed = _FAILED.search(text)
    if failed is None:
        return None
    place = failed["file"]
    found = _FOUND.get(failed["why"], _BYTES if failed["why"] == "NO_HINT" and place.startswith(_LOCAL) else None)
    return None if found is None else _told(place, unquote(place).split("/"), found)


def _told(place: str, folders: list[str], found: str) -> str | None:
    table = next((name for name in reversed(folders[:-1]) if name in TABLES or name == LAKE_VERSION.name), None)
    if table is None:
        return None
    return f"table {table}, file {place}: expected a data file of the lake, found {found}; {RESTORE}"
