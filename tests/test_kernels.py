"""The compiled code as a whole: no access outside a buffer, and sums that are zlib's."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store_format.crc32 import crc32_of_ranges


@given(st.binary(max_size=300), st.data())
def test_sums_of_ranges_are_those_of_zlib(raw: bytes, data: st.DataObject) -> None:
    starts = data.draw(st.lists(st.integers(0, len(raw)), max_size=6))
    lengths = [data.draw(st.integers(0, len(raw) - start)) for start in starts]
    sums = crc32_of_ranges(np.frombuffer(raw, np.uint8), np.array(starts, np.int64), np.array(lengths, np.int64))
    assert sums.tolist() == [zlib.crc32(raw[start : start + length]) for start, length in zip(starts, lengths, strict=True)]


def test_sums_of_every_length_and_alignment_are_those_of_zlib() -> None:
    raw = np.arange(200, dtype=np.uint8)
    pairs = [(start, length) for start in range(17) for length in range(120)]
    sums = crc32_of_ranges(raw, *np.array(pairs, np.int64).T)
    assert sums.tolist() == [zlib.crc32(raw[start : start + length]) for start, length in pairs]


def test_no_kernel_reads_outside_its_buffer(tmp_path: Path) -> None:
    script = Path(__file__).with_name("bounds_checked.py")
    checked = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(script.parents[1])}
    run = subprocess.run([sys.executable, script], env=checked, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout.rpartition(":")[2]) > 1000
