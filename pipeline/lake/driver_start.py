"""What a start of the driver's JVM leaves for those after it: where Delta's jars are, and an archive of the classes that were loaded.

Without these each start asks for the jars' versions, and reads and checks some twenty thousand classes, which is half of its time. They
lie in the Python environment, so that they go with it; where that cannot be written to, every start is like the first.

Surprises: an archive is of one JVM with one class path, and the JVM leaves out by itself one of another, which it tells on its standard
output. But one that is damaged kills it, and options that do not go with an archive keep it from starting: whoever starts a JVM with an
archive must try without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

_FOLDER = Path(sys.prefix) / "var" / "pullsim"
_JARS_OF_SPARK = Path(pyspark.__file__).parent / "jars"
# the first bytes of a file that is whole, for they are written last
_ARCHIVE_MAGIC = (0xF00BABA8).to_bytes(4, sys.byteorder)
# variables of which a JVM takes options
OPTIONS_OF_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
# what may tell the JVM of jars, of a class path or of options
_TELLING = {
    *("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_SUBMIT_OPTS", "SPARK_DIST_CLASSPATH"),
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR", *OPTIONS_OF_JAVA),
}
_TELLING_SETTINGS = ("spark.jars", "spark.driver.extraClassPath", "spark.driver.userClassPathFirst", "spark.driver.defaultJavaOptions")
_PLAIN = re.compile(r"[\w./+-]+")
_VERSION = re.compile(r"-\d[^-]*\.jar$")


def is_plain_start(conf: Mapping[str, str]) -> bool:
    """Whether nobody tells the JVM of jars, a class path or options that what is kept here would hide, or not go with."""
    defaults = _JARS_OF_SPARK.parent / "conf" / "spark-defaults.conf"
    return not (_TELLING & os.environ.keys() or any(name.startswith(_TELLING_SETTINGS) for name in conf) or defaults.exists())


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
    archive = _archive()
    if archive is None:
        return ""
    if _is_whole(archive):
        return f"-XX:SharedArchiveFile={archive}"
    return f"-XX:ArchiveClassesAtExit={archive}" if leave and _has_place(archive) else ""


def forget_archive() -> None:
    """Remove the archive, with which the JVM did not start."""
    archive = _archive()
    with contextlib.suppress(OSError):
        if archive is not None:
            archive.unlink()


def _archive() -> Path | None:
    """That of this Java and these jars; None where Java is not found, or cannot add to an archive of its own classes."""
    home = _java_home()
    if home is None or not any((home / "lib").glob("*/classes.jsa")):
        return None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        jars = (f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in sorted(_JARS_OF_SPARK.glob("*.jar")))
        return _FOLDER / f"classes-{_digest(str(home), (home / 'release').read_text(), *jars)}.jsa"
    return None


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


def _java_home() -> Path | None:
    """The home of the Java that Spark starts."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    return None if found is None else Path(found).resolve().parent.parent


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
