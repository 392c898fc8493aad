"""What a start of the driver's JVM leaves for those after it: where Delta's jars are, and an archive of the classes that were loaded.

Without these each start asks for the jars' versions, and reads and checks some twenty thousand classes, which is half of its time. They
lie in the Python environment, so that they go with it; where that cannot be written to, every start is like the first.

Surprise: an archive is of one JVM with one class path. The JVM leaves another one's out by itself, and tells of it on its standard output.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sys
from pathlib import Path

import pyspark

_FOLDER = Path(sys.prefix) / "var" / "pullsim"
_JARS_OF_SPARK = Path(pyspark.__file__).parent / "jars"
# the first bytes of a file that is whole, for they are written last
_ARCHIVE_MAGIC = (0xF00BABA8).to_bytes(4, sys.byteorder)
_PLAIN = re.compile(r"[\w./+-]+")
_VERSION = re.compile(r"-\d[^-]*\.jar$")


def known_jars(packages: str) -> list[str]:
    """The files of Maven packages, as they were kept; none if one of them is gone."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        jars = _kept_jars(packages).read_text().splitlines()
        if all(map(os.path.isfile, jars)):
            return jars
    return []


def keep_jars(packages: str, jars: str) -> None:
    """Keep the files that Spark found for packages, as in its setting spark.jars, but for those that it brings itself."""
    own = {_VERSION.sub("", path.name) for path in _JARS_OF_SPARK.glob("*.jar")}
    paths = [jar.removeprefix("file://") for jar in jars.split(",")]
    needed = [path for path in paths if _artifact(path) not in own]
    kept = _kept_jars(packages)
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(f".{os.getpid()}")
        unfinished.write_text("\n".join(needed))
        os.replace(unfinished, kept)


def _kept_jars(packages: str) -> Path:
    return _FOLDER / f"jars-{_digest(packages, pyspark.__version__)}.txt"


def _artifact(path: str) -> str:
    """Of a file that Ivy named: group_artifact-version.jar."""
    return _VERSION.sub("", os.path.basename(path).partition("_")[2])


def archive_option(*, leave: bool) -> str:
    """The option with which a JVM takes classes from the archive; where there is none, that with which it leaves one if it is to."""
    java = _java()
    if java is None:
        return ""
    archive = _FOLDER / f"classes-{_digest(java, pyspark.__version__)}.jsa"
    if _is_whole(archive):
        return f"-XX:SharedArchiveFile={archive}"
    return f"-XX:ArchiveClassesAtExit={archive}" if leave and _has_place(archive) else ""


def _has_place(archive: Path) -> bool:
    """Whether it can be written; those of other versions make room for it."""
    if not _PLAIN.fullmatch(str(archive)):  # Spark divides options at blanks, and takes quotes out of them
        return False
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        for other in archive.parent.glob("classes-*.jsa"):
            other.unlink()
    except OSError:
        return False
    return os.access(archive.parent, os.W_OK)


def _is_whole(archive: Path) -> bool:
    try:
        with archive.open("rb") as file:
            return file.read(len(_ARCHIVE_MAGIC)) == _ARCHIVE_MAGIC
    except OSError:
        return False


def _java() -> str | None:
    """What tells one Java from another: where the one that Spark starts is, and what its home says of it."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    if found is None:
        return None
    java = Path(found).resolve()
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return f"{java} {(java.parent.parent / 'release').read_text()}"
    return None


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
