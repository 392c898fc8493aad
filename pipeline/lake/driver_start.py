"""Make later starts of the driver's JVM faster: remember the paths of Delta's jars, and keep an archive of the loaded classes.

Without them, each start resolves the jars' versions, and reads and verifies about twenty thousand classes, which takes half of its time.
Both files are in the Python environment, and are removed with it. If it is not writable, every start is as slow as the first.

Surprises: an archive belongs to one JVM and one class path. A JVM ignores the archive of another JVM or class path, and says so on its
standard output. But a damaged archive, or an option that cannot be combined with archives, keeps the JVM from starting. So if a start with
an archive fails, the start must be repeated without the archive.
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
# first bytes of a complete archive; the JVM writes them last
_ARCHIVE_MAGIC = (0xF00BABA8).to_bytes(4, sys.byteorder)
# environment variables from which a JVM takes options
OPTIONS_OF_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
# environment variables and settings that may give the JVM jars, a class path or options
_JVM_VARIABLES = {
    *("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_SUBMIT_OPTS", "SPARK_DIST_CLASSPATH"),
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR", *OPTIONS_OF_JAVA),
}
_JVM_SETTINGS = ("spark.jars", "spark.driver.extraClassPath", "spark.driver.userClassPathFirst", "spark.driver.defaultJavaOptions")
_PLAIN = re.compile(r"[\w./+-]+")
JAVA_LEAST = 17
_JAVA_VERSION = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_VERSION = re.compile(r"-\d[^-]*\.jar$")


def is_plain_start(conf: Mapping[str, str]) -> bool:
    """Whether no setting, variable or file gives the JVM jars, a class path or options that may conflict with the kept files."""
    defaults = _JARS_OF_SPARK.parent / "conf" / "spark-defaults.conf"
    return not (_JVM_VARIABLES & os.environ.keys() or any(name.startswith(_JVM_SETTINGS) for name in conf) or defaults.exists())


def known_jars(packages: str) -> list[str]:
    """Paths of the jars of Maven packages, as `keep_jars` kept them; empty if a jar is missing."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        jars = _kept_jars(packages).read_text().splitlines()
        if all(map(os.path.isfile, jars)):
            return jars
    return []


def keep_jars(packages: str, jars: str) -> None:
    """Keep the paths of the jars that Spark found for packages.

    If the jar of a package is missing, nothing is kept: the JVM of this process was started for other packages, and has only their jars.

    Args:
        packages: the setting spark.jars.packages.
        jars: the setting spark.jars after the start; jars that are part of Spark are left out.
    """
    own = {_VERSION.sub("", path.name) for path in _JARS_OF_SPARK.glob("*.jar")}
    paths = [jar.removeprefix("file://") for jar in jars.split(",")]
    if not {"{}_{}-{}.jar".format(*package.split(":")) for package in packages.split(",")} <= set(map(os.path.basename, paths)):
        return
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
    """The artifact in a file name that Ivy made: group_artifact-version.jar."""
    return _VERSION.sub("", os.path.basename(path).partition("_")[2])


def archive_option(*, leave: bool) -> str:
    """The JVM option that uses the class archive; if there is no archive and `leave` is true, the option that writes one at exit.

    Empty if neither is possible.
    """
    archive = _archive()
    if archive is None:
        return ""
    if _is_whole(archive):
        return f"-XX:SharedArchiveFile={archive}"
    return f"-XX:ArchiveClassesAtExit={archive}" if leave and _has_place(archive) else ""


def forget_archive() -> None:
    """Remove the class archive, after a JVM did not start with it."""
    archive = _archive()
    with contextlib.suppress(OSError):
        if archive is not None:
            archive.unlink()


def _archive() -> Path | None:
    """Path of the class archive for this Java and these jars; None if Java is not found, or has no archive of its own classes."""
    home = _java_home()
    if home is None or not any((home / "lib").glob("*/classes.jsa")):
        return None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        jars = (f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in sorted(_JARS_OF_SPARK.glob("*.jar")))
        return _FOLDER / f"classes-{_digest(str(home), (home / 'release').read_text(), *jars)}.jsa"
    return None


def _has_place(archive: Path) -> bool:
    """Whether the archive can be written; removes archives of other versions."""
    if not _PLAIN.fullmatch(str(archive)):  # Spark splits options at blanks, and removes quotes
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


def java_fault() -> str | None:
    """What is wrong with the Java that Spark would start: it is missing or too old; None if nothing is known to be wrong."""
    given, home = os.environ.get("JAVA_HOME"), _java_home()
    if given and not os.access(f"{given}/bin/java", os.X_OK):
        return f"none in JAVA_HOME={given}"
    if home is None:
        return "none"
    with contextlib.suppress(OSError, UnicodeDecodeError):  # java may be a script without a release file
        found = _JAVA_VERSION.search((home / "release").read_text())
        # before Java 9 the version began with 1.
        if found and int(found[1]) < JAVA_LEAST:
            return f"version {found[1]} in {home}"
    return None


def _java_home() -> Path | None:
    """The home of the Java that Spark starts."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    return None if found is None else Path(found).resolve().parent.parent


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
