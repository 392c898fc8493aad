"""Read and write the small files of a stream. A file appears under its name only when it is complete.

Files of a checkpoint are JSON. Files of batches and entries are named by their number.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow.fs as pafs


def read_json(filesystem: pafs.FileSystem, path: str) -> Any:
    """The JSON value in a file.

    Raises:
        FileNotFoundError: there is no such file.
    """
    with filesystem.open_input_file(path) as file:
        return json.loads(file.read())


def write_json(filesystem: pafs.FileSystem, folder: str, name: str, value: Any) -> None:
    """Write a JSON value to a file, replacing an existing file."""
    write_whole(filesystem, folder, name, json.dumps(value).encode())


def write_whole(filesystem: pafs.FileSystem, folder: str, name: str, content: bytes) -> None:
    """Write a file under a name with a leading dot, then rename it, so that nobody sees an incomplete file."""
    unfinished = f"{folder}/.{name}"
    with filesystem.open_output_stream(unfinished) as file:
        file.write(content)
    filesystem.move(unfinished, f"{folder}/{name}")


def numbered_files(filesystem: pafs.FileSystem, folder: str, ending: str = "") -> dict[int, str]:
    """Paths of the files in a folder whose name is a number and `ending`, by that number."""
    infos = filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    stems = {info.base_name.removesuffix(ending): info for info in infos if info.base_name.endswith(ending)}
    return {int(stem): info.path for stem, info in stems.items() if stem.isdigit()}
