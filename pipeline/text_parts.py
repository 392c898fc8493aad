"""Text parts that executors wrote -> one file, as a stream."""

from __future__ import annotations

import os
import shutil
import tempfile

from pipeline.store_files import local_path


def join_parts(folder: str, out: str) -> None:
    """Join the part files of a folder, in order of name, into `out`; the file appears whole or not at all."""
    target = local_path(out)
    names = sorted(name for name in os.listdir(folder) if name.startswith("part-"))
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".pullsim-")
    try:
        with os.fdopen(handle, "wb") as joined:
            for name in names:
                with open(os.path.join(folder, name), "rb") as part:
                    shutil.copyfileobj(part, joined, 1 << 20)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
