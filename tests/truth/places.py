"""Where things lie: the project, the data beside the tests, and the shared golden data."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
TESTS = PROJECT / "tests"
DATA = TESTS / "data"
# absent in a clone that stands alone
SHARED = PROJECT.parent / "shared"
GOLDEN = SHARED / "golden"
