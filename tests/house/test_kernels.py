"""The compiled code as a whole: no access outside a buffer, and the same checksums as zlib."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import store_format
import udfs
from store_format.record import carryless
from store_format.record.crc32 import crc32_of_ranges
from tests.runs.sampling import slow_proof
from tests.truth.places import PROJECT, TESTS


@pytest.fixture(params=[True, False], ids=["by folding", "by tables"])
def either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param and not carryless.AVAILABLE:
        pytest.skip("this processor has no carry-less multiplication, or numba may not use it")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(carryless, "AVAILABLE", request.param)
        yield


def expected(raw: bytes, pairs: Iterable[tuple[int, int]]) -> list[int]:
    return [zlib.crc32(raw[start : start + length]) for start, length in pairs]


@pytest.mark.usefixtures("either_way")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300), st.data())
def test_sums_of_ranges_are_those_of_zlib(raw: bytes, data: st.DataObject) -> None:
    starts = data.draw(st.lists(st.integers(0, len(raw)), max_size=6))
    lengths = [data.draw(st.integers(0, len(raw) - start)) for start in starts]
    sums = crc32_of_ranges(np.frombuffer(raw, np.uint8), np.array(starts, np.int64), np.array(lengths, np.int64))
    assert sums.tolist() == expected(raw, zip(starts, lengths, strict=True))


@pytest.mark.usefixtures("either_way")
def test_sums_of_every_length_and_alignment_are_those_of_zlib() -> None:
    raw = np.random.default_rng(7).integers(0, 256, 400, np.uint8)
    pairs = [(start, length) for start in range(17) for length in range(330)]
    assert crc32_of_ranges(raw, *np.array(pairs, np.int64).T).tolist() == expected(raw.tobytes(), pairs)


def test_sums_of_bytes_that_do_not_lie_together_are_those_of_zlib() -> None:
    raw = np.random.default_rng(8).integers(0, 256, 2000, np.uint8)[::2]
    pairs = [(0, 1000), (5, 700), (900, 100)]
    assert crc32_of_ranges(raw, *np.array(pairs, np.int64).T).tolist() == expected(raw.tobytes(), pairs)


def test_no_kernel_reads_outside_its_buffer(tmp_path: Path) -> None:
    script = TESTS / "runs" / "bounds_checked.py"
    checked = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(PROJECT)}
    run = subprocess.run([sys.executable, script], env=checked, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout.rpartition(":")[2]) > 1000


@pytest.mark.parametrize("told", [{"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_FEATURES": "+sse2"}], ids=str)
def test_no_instruction_is_used_that_numba_was_not_told_of(told: dict[str, str], tmp_path: Path) -> None:
    use = "print(crc32_of_ranges(np.arange(200, dtype=np.uint8), np.array([0]), np.array([200]))[0])"
    script = f"import numpy as np; from store_format.record.crc32 import crc32_of_ranges; {use}"
    environment = os.environ | told | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(PROJECT)}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    assert int(run.stdout) == zlib.crc32(bytes(range(200)))


CONSTANT = "import numpy as np\nLIMIT = np.int64({0})\nTABLE = np.array([{0}])\n"
CALLED = "from store_format.compiled import {1}\n@{1}\ndef called(x):\n    return x + {0}\n"
CALLER = """import constant, called as other
from called import called
from constant import LIMIT, TABLE
from store_format.compiled import compiled
@compiled
def kernel(x):
    return called(x), other.called(x), LIMIT, constant.LIMIT, TABLE[0]
print(kernel(100), kernel.stats.cache_hits)
"""


@pytest.mark.parametrize("decorator", ["inner", pytest.param("compiled", marks=slow_proof), pytest.param("bare", marks=slow_proof)])
def test_a_kernel_is_compiled_again_if_what_it_uses_of_another_module_changes(decorator: str, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(CALLER)
    environment = os.environ | {"PYTHONPATH": f"{PROJECT}{os.pathsep}{tmp_path}", "PYTHONDONTWRITEBYTECODE": "1"}
    told = []
    for value in (1, 1, 2, 2):
        (tmp_path / "constant.py").write_text(CONSTANT.format(value))
        (tmp_path / "called.py").write_text(CALLED.format(value, decorator))
        run = subprocess.run(
            [sys.executable, "-c", "import kernel"], env=environment, capture_output=True, text=True, check=True, timeout=300
        )
        told.append(run.stdout.strip())
    one, two = ((f"({100 + value}, {100 + value}, {value}, {value}, {value})") for value in (1, 2))
    assert told == [f"{one} Counter()", f"{one} Counter({{(int64,): 1}})", f"{two} Counter()", f"{two} Counter({{(int64,): 1}})"]


def test_kernels_use_only_kernels_above_them() -> None:
    """What is below a kernel is not there when its use of other modules is noted."""
    for package in (store_format, udfs):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(("store_format.", "udfs."))]
    kernels = [one for module in modules for one in vars(module).values() if getattr(one, "py_func", None)]
    used = [(one.py_func, one.py_func.__globals__.get(name)) for one in kernels for name in one.py_func.__code__.co_names]
    inside = [(one, other.py_func) for one, other in used if getattr(getattr(other, "py_func", None), "__module__", "") == one.__module__]
    below = [(one, other) for one, other in inside if other.__code__.co_firstlineno > one.__code__.co_firstlineno]
    assert (below, len(inside) > 100) == ([], True)
