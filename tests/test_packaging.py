"""What a user installs or submits runs without the checkout: a wheel in an empty environment, a zip under spark-submit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from packaged import PROJECT, bare_python, build_wheel, dependencies
from sampling import slow_proof

from pipeline.session import SHORT_JOBS

pytestmark = pytest.mark.spark
ALL_EQUAL = re.compile(r"^(?P<compared>\d+) compared, 0 differ$", re.MULTILINE)

QUICK_START = SHORT_JOBS["spark.driver.extraJavaOptions"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}


@slow_proof  # the zip that spark-submit takes below is a wheel too
def test_a_wheel_in_an_empty_environment_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "env"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)], check=True)
    (site,) = home.glob("lib/*/site-packages")
    (site / "dependencies.pth").write_text(dependencies() + "\n")

    where = subprocess.run(
        [python, "-c", "import pipeline; print(pipeline.__file__)"],
        cwd=tmp_path,
        env=_clean_environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert where.stdout.startswith(str(site))

    done = subprocess.run(
        [home / "bin" / "pullsim", "demo"], cwd=tmp_path, env=_clean_environment(), check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    found = ALL_EQUAL.search(done.stdout)
    assert found, done.stdout
    assert int(found["compared"]) > 400
    assert "WARN" not in done.stderr


def test_spark_submit_runs_the_demo_on_executors_that_have_only_the_zip(wheel: Path, tmp_path: Path) -> None:
    archive = tmp_path / "pullsim.zip"
    shutil.copy(wheel, archive)
    shutil.copy(PROJECT / "pipeline" / "main.py", tmp_path / "main.py")
    pyspark = Path(dependencies()) / "pyspark"
    environment = _clean_environment() | {
        "SPARK_HOME": str(pyspark),
        "PYSPARK_PYTHON": str(bare_python(tmp_path)),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    submitted = [
        str(pyspark / "bin" / "spark-submit"),
        "--master",
        "local-cluster[2,1,1024]",
        "--properties-file",
        str(PROJECT / "conf" / "spark-defaults-cluster.conf"),
        "--conf",
        "spark.ui.enabled=false",
        "--conf",
        "spark.sql.shuffle.partitions=4",
        *(word for side in ("driver", "executor") for word in ("--conf", f"spark.{side}.extraJavaOptions={QUICK_START}")),
        "--py-files",
        str(archive),
        str(tmp_path / "main.py"),
        "demo",
        "--lake",
        str(tmp_path / "lake"),
    ]
    done = subprocess.run(submitted, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-4000:]
    assert ALL_EQUAL.search(done.stdout), done.stdout
