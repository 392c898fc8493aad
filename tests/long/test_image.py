"""The image of conf/kubernetes, without docker: the lines of its Dockerfile, carried out in an empty folder, and its entry point there.

    ./run long -k test_image

Not as in an image: the system, its Python and its Java are those of this machine, the line that installs Debian's packages is left out, and
paths below /opt lie in the folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.runs.packaged import build_wheel
from tests.truth.places import PROJECT

pytestmark = pytest.mark.spark

KUBERNETES = PROJECT / "conf" / "kubernetes"


@dataclass(frozen=True)
class Image:
    """What the lines of a Dockerfile made: the folder in the place of /, the variables, and the entry point."""

    root: Path
    variables: dict[str, str]
    entry_point: list[str]

    def run(self, *arguments: str, expected: int = 0, **variables: str) -> str:
        """What a container of the image prints."""
        call = [*self.entry_point, *arguments]
        place, environment = self.root / "opt" / "pullsim", self.variables | variables
        run = subprocess.run(call, cwd=place, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert run.returncode == expected, run.stdout[-2000:] + run.stderr[-4000:]
        return run.stdout + run.stderr


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile, each with its value."""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition(" ")
            yield name, value


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    root, context = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("context")
    build_wheel(context / "dist")
    (context / "conf").symlink_to(PROJECT / "conf")
    venv.create(root / "python", with_pip=True)
    (root / "home").mkdir()
    java = shutil.which("java")
    assert java is not None
    path = f"{root}/python/bin:{Path(java).parent}:{os.defpath}"
    variables = {"PATH": path, "HOME": f"{root}/home"}
    # without the cache pip fetches half a gigabyte
    fetched = {"PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip")}
    entry_point: list[str] = []
    for name, value in instructions((KUBERNETES / "Dockerfile").read_text("utf-8")):
        inside = re.sub(r"(?<![\w.])/opt/", f"{root}/opt/", value).replace(" --no-cache-dir", "")
        if name == "COPY":
            copy(context, inside.split())
        elif name == "RUN" and "apt-get" not in value:
            subprocess.run(["sh", "-c", inside], cwd=root, env=variables | fetched, check=True, timeout=900)
        elif name == "ENV":
            variables |= dict(one.split("=", 1) for one in inside.split())
        elif name == "ENTRYPOINT":
            words = re.findall(r'"([^"]*)"', inside)
            entry_point = words[words.index("--") + 1 :]  # tini passes signals on
    return Image(root, variables, entry_point)


def copy(context: Path, words: Sequence[str]) -> None:
    """Copy files of the context into a folder."""
    *sources, target = words
    Path(target).mkdir(parents=True, exist_ok=True)
    for source in sources:
        found = [*context.glob(source)]
        assert found, source
        for path in found:
            shutil.copy(path, target)


def test_the_image_has_what_the_manifest_names(image: Image) -> None:
    text = (KUBERNETES / "import-job.yaml").read_text("utf-8")
    paths = set(re.findall(r"/opt/[\w./-]+", text))
    assert paths
    for path in paths:
        assert (image.root / path.lstrip("/")).exists(), path
    assert len([*(image.root / "opt" / "spark" / "jars").glob("*delta-*.jar")]) == 2


def test_a_command_runs_in_a_container(image: Image) -> None:
    assert "pullsim" in image.run("pullsim", "--version")


def test_the_driver_imports_with_executors_of_its_own(image: Image, small_store: Path, tmp_path: Path) -> None:
    """The arguments that Spark gives to the driver's container, on local-cluster in place of a cluster's pods."""
    arguments = ("--properties-file", "spark-defaults-cluster.conf", "--conf", "spark.jars.packages=", "--conf", "spark.ui.enabled=false")
    master = ("--master", "local-cluster[1,1,1024]", "--conf", "spark.driver.host=127.0.0.1")
    command = ("import", str(small_store), "--lake", str(tmp_path / "lake"), "--broker-name", "b")
    main = f"local://{image.root}/opt/pullsim/main.py"
    printed = image.run("driver", *arguments, *master, main, *command, SPARK_DRIVER_BIND_ADDRESS="127.0.0.1")
    assert "imported broker b" in printed


def test_the_executor_starts_and_looks_for_its_driver(image: Image) -> None:
    """Its class is there, and takes the options; there is no driver here."""
    given = {
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "pod",
    }
    printed = image.run("executor", expected=1, **given)
    assert "Failed to connect to /127.0.0.1:1" in printed
    assert "Unrecognized options" not in printed
