"""Appends rows one by one to a Delta table on S3 with Spark; prints the numbers of the rows whose append succeeded.

The arguments are those of `append`. Two of these at once are two drivers that commit to one table.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pipeline.lake.session import INTERPRETED_PLANS, SHORT_JOBS, build_session


def append(path: str, first: int, rows: int, started: Path, count: int) -> list[int]:
    """Append the rows once `count` drivers have left a file in the folder `started`."""
    session = build_session(master="local[1]", conf=SHORT_JOBS | INTERPRETED_PLANS, s3=True, functions=False)
    session.range(1).count()
    (started / str(first)).touch()
    while len(list(started.iterdir())) < count:
        time.sleep(0.05)
    done = []
    for number in range(first, first + rows):
        try:
            session.range(number, number + 1, 1, 1).write.format("delta").mode("append").save(path)
        except Exception as error:
            if "RemoteFileChangedException" not in str(error):
                raise
        else:
            done.append(number)
    session.stop()
    return done


if __name__ == "__main__":
    print(json.dumps(append(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))))
