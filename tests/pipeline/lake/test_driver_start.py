"""What a start of the JVM leaves for later starts: the jars that it found, and an archive of classes, which counts only if it is whole."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline.lake import driver_start
from pipeline.lake.driver_start import archive_option, is_plain_start, keep_jars, known_jars
from pipeline.lake.session import _jvm_output, _started

PACKAGES = "io.delta:delta-spark_4.2_2.13:4.4.0"
OURS = "io.delta_delta-spark_4.2_2.13-4.4.0.jar"
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which all of it is kept."""
    found = tmp_path / "var" / "pullsim"
    monkeypatch.setattr(driver_start, "_FOLDER", found)
    return found


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A JAVA_HOME whose file `release` names the version."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch()
    (home / "release").write_text('JAVA_VERSION="17.0.15"')
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


def jar(folder: Path, name: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).touch()
    return str(folder / name)


def test_jars_are_known_until_one_is_gone(tmp_path: Path) -> None:
    assert known_jars(PACKAGES) == []
    paths = [jar(tmp_path / "ivy", name) for name in (OURS, "javax.annotation_javax.annotation-api-1.3.2.jar")]
    keep_jars(PACKAGES, ",".join(f"file://{path}" for path in paths))
    assert known_jars(PACKAGES) == paths
    assert known_jars("io.delta:delta-spark_4.2_2.13:4.5.0") == []
    os.unlink(paths[1])
    assert known_jars(PACKAGES) == []


def test_jars_that_spark_brings_are_left_out(tmp_path: Path) -> None:
    names = [OURS, "org.apache.parquet_parquet-hadoop-1.16.0.jar", "com.github.luben_zstd-jni-1.5.7-3.jar"]
    paths = [jar(tmp_path / "ivy", name) for name in names]
    keep_jars(PACKAGES, ",".join(paths))
    assert known_jars(PACKAGES) == paths[:1]


def test_jars_of_other_packages_are_not_kept(tmp_path: Path) -> None:
    """A second session of a process has the jars of the first one, whatever packages it names."""
    path = jar(tmp_path / "ivy", OURS)
    keep_jars(f"{PACKAGES},org.apache.hadoop:hadoop-aws:3.5.0", path)
    assert known_jars(f"{PACKAGES},org.apache.hadoop:hadoop-aws:3.5.0") == []


def leaving(java_home: Path) -> Path:
    """The archive that a JVM of this home leaves, by its option."""
    option, _, path = archive_option(leave=True).partition("=")
    assert option == "-XX:ArchiveClassesAtExit", java_home
    return Path(path)


def test_an_archive_is_taken_once_it_is_whole(java: Path) -> None:
    assert archive_option(leave=False) == ""
    archive = leaving(java)
    archive.write_bytes(bytes(100))  # the JVM ended meanwhile
    assert leaving(java) == archive
    archive.write_bytes((0xF00BABA8).to_bytes(4, "little") + bytes(96))
    assert archive_option(leave=False) == archive_option(leave=True) == f"-XX:SharedArchiveFile={archive}"


def test_another_java_has_another_archive_which_takes_the_place(java: Path) -> None:
    archive = leaving(java)
    archive.write_bytes((0xF00BABA8).to_bytes(4, "little"))
    (java / "release").write_text('JAVA_VERSION="21.0.1"')
    assert archive_option(leave=False) == ""
    assert archive.exists()
    assert leaving(java) != archive
    assert not archive.exists()


def test_nothing_is_left_where_nothing_can_be(java: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.parent.write_text("a file")
    assert archive_option(leave=True) == ""
    keep_jars(PACKAGES, jar(tmp_path, OURS))
    assert known_jars(PACKAGES) == []
    monkeypatch.setattr(driver_start, "_FOLDER", tmp_path / "a folder with blanks")
    assert archive_option(leave=True) == ""
    monkeypatch.setattr(driver_start, "_FOLDER", tmp_path / "free")
    (java / "lib" / "server" / "classes.jsa").unlink()
    assert archive_option(leave=True) == ""


@needs_java
def test_the_real_jvm_leaves_one_that_counts_as_whole(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    subprocess.run(["java", f"-XX:ArchiveClassesAtExit={archive}", "-version"], check=True, capture_output=True)
    assert driver_start._is_whole(archive)
    subprocess.run(["java", f"-XX:SharedArchiveFile={archive}", "-Xshare:on", "-version"], check=True, capture_output=True)


TELLING: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "an agent": ({"SPARK_SUBMIT_OPTS": "-javaagent:jmx.jar=1"}, {}),
    "options": ({"JAVA_TOOL_OPTIONS": "-Xss2m"}, {}),
    "a class path": ({"HADOOP_CONF_DIR": "/etc/hadoop"}, {}),
    "settings of a site": ({"SPARK_CONF_DIR": "/etc/spark"}, {}),
    "jars": ({}, {"spark.jars": "/data/aws.jar"}),
    "packages left out": ({}, {"spark.jars.excludes": "io.unitycatalog:unitycatalog-client"}),
}


@pytest.mark.parametrize("case", TELLING)
def test_nothing_is_hidden_that_others_tell(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    for name in driver_start._JVM_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert is_plain_start({"spark.driver.memory": "8g", "spark.driver.extraJavaOptions": "-Xss2m"})
    environment, conf = TELLING[case]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert not is_plain_start(conf)


class Builder:
    """A builder of sessions that fails with every archive, or always."""

    def __init__(self, *, fails: bool = False) -> None:
        self.told: list[str] = []
        self.fails = fails

    def config(self, *, map: dict[str, str]) -> Builder:  # noqa: A002
        self.told.append(map["spark.driver.extraJavaOptions"])
        return self

    def getOrCreate(self) -> str:
        if self.fails or "SharedArchiveFile" in self.told[-1]:
            raise RuntimeError("the JVM was killed")
        return "a session"


def test_a_damaged_archive_is_gone_at_the_second_try(java: Path) -> None:
    archive = leaving(java)
    archive.write_bytes((0xF00BABA8).to_bytes(4, "little"))
    option = archive_option(leave=False)
    builder = Builder()
    started: Any = _started(builder, {"spark.driver.extraJavaOptions": f"{option} -Xss2m"}, without=option)
    assert started == "a session"
    assert [told.strip() for told in builder.told] == [f"{option} -Xss2m", "-Xss2m"]
    assert not archive.exists()


def test_an_archive_stays_where_nothing_starts(java: Path) -> None:
    archive = leaving(java)
    archive.write_bytes((0xF00BABA8).to_bytes(4, "little"))
    option = archive_option(leave=False)
    with pytest.raises(RuntimeError):
        _started(Builder(fails=True), {"spark.driver.extraJavaOptions": option}, without=option)
    assert archive.exists()


@pytest.mark.parametrize("verbose", [False, True])
def test_what_the_jvm_prints_is_no_output_of_a_command(capfd: pytest.CaptureFixture[str], *, verbose: bool) -> None:
    with _jvm_output(verbose=verbose) as printed:
        subprocess.run(["sh", "-c", "echo archive refused; echo stack >&2"], check=True)
        said = "archive refused\nstack\n"
        assert printed() == ("" if verbose else said)
    subprocess.run(["sh", "-c", "echo a row; echo a step >&2"], check=True)
    assert capfd.readouterr() == ("a row\n", f"{said if verbose else ''}a step\n")
