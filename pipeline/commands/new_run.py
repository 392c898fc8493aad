"""The id and the time of a new run. Below the command line, both are values."""

from __future__ import annotations

import datetime as dt
import uuid


def run_id() -> str:
    """The id for a new run."""
    return uuid.uuid4().hex


def now() -> dt.datetime:
    """The time of the wall clock."""
    return dt.datetime.now(dt.UTC)
