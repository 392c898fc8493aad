"""The process from which Spark forks its Python workers on this machine; it imports once what all workers need.

Spark starts a worker for each Python step of each task that runs at the same time. A worker that imports by itself takes seconds to begin.
"""

from __future__ import annotations

import gc
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process that forks must not have threads

import pandas  # noqa: F401
import pyarrow  # noqa: F401
from pyspark.daemon import manager

import pipeline.importing.import_store
import pipeline.replay.replay_job  # noqa: F401
import udfs.sql_functions  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # a worker collects garbage after every task: a tenth of a second if it goes through all modules
    manager()
