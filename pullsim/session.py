"""The session of Spark that the calls share."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipeline.lake.session import LONG_JOBS, build_session, require_java, start_workers
from pipeline.terminal import progress_to_stderr


def session(*, s3: bool) -> SparkSession:
    """The active session of Spark, or a new one, which takes seconds and stays until the process ends.

    Args:
        s3: whether a new session opens paths on S3.

    Raises:
        RuntimeError: there is no Java, or the session does not start.
    """
    found = SparkSession.getActiveSession()
    if found is None:
        require_java()
        progress_to_stderr("starting Spark")
        found = build_session(conf=LONG_JOBS, functions=False, s3=s3)
        start_workers(found)
    return found
