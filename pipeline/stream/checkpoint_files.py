"""The small files of a stream: each appears whole under its name; those of a checkpoint are JSON, those of batches and entries are named by
number.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow.fs as pafs


def read_json(filesystem: pafs.FileSystem, path: str) -> Any:
    """What a file holds; FileNotFoundError where there is none."""
    with filesystem.open_input_file(path) as file:
        return json.loads(file.read())


def write_json(filesystem: pafs.FileSystem, folder: str, name: str, value: Any) -> None:
    """Write a file, or another one in its place."""
    write_whole(filesystem, folder, name, json.dumps(value).encode())


def write_whole(filesystem: pafs.FileSystem, folder: str, name: str, content: bytes) -> None:
    """Write a file under another name, with a dot before it, and rename it: who lists the folder sees all of it or none."""
    unfinished = f"{folder}/.{name}"
    with filesystem.open_output_stream(unfinished) as file:
        file.write(content)
    filesystem.move(unfinished, f"{folder}/{name}")


def numbered_files(filesystem: pafs.FileSystem, folder: str, ending: str = "") -> dict[int, str]:
    """Paths of the files of a folder whose names are a number and the ending, by that number."""
    infos = filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    stems = {info.base_name.removesuffix(ending): info for info in infos if info.base_name.endswith(ending)}
    return {int(stem): info.path for stem, info in stems.items() if stem.isdigit()}
