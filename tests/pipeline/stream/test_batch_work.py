"""What all batches of streams have in common."""

from __future__ import annotations

import gc
import threading
import weakref

from pipeline.stream.batch_work import BatchWork
from tests.runs.replaying import NOON


class Frame:
    """An object that refers to itself, as a DataFrame of Spark does."""

    def __init__(self) -> None:
        self.me = self


def test_nothing_that_a_batch_leaves_outlives_it() -> None:
    work = BatchWork(root="lake", now=lambda: NOON, stop=threading.Event())
    gc.disable()
    try:
        with work.at_work():
            left = weakref.ref(Frame())
            assert left() is not None
        assert left() is None
    finally:
        gc.enable()
