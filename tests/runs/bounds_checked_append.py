"""Calls the kernels that make and write messages, with buffers of just the needed size. test_append.py runs it with NUMBA_BOUNDSCHECK=1."""

from __future__ import annotations

import numpy as np

from pipeline.generate.generate import written_settings
from pipeline.generate.workload import workload_of
from pipeline.generate.workload_tables import tables_of
from pipeline.settings.settings import BrokerSettings
from store_format.log.append import encode, number, place
from store_format.made.made_messages import MessageMaker

PRODUCERS = ["10.0.0.1:1", "[2001:db8::1]:65535"]
WORKLOAD = {
    "messages": 1500,
    "store_host": "[::1]:10911",
    "topics": [
        {
            "name": "T",
            "queues": 3,
            "skew": 2,
            "body": [0, 50],
            "tags": {"a": 1, "": 1},
            "keys": {"count": [0, 3]},
            "delay_levels": {"0": 1, "18": 1, "99": 1},
            "transactions": {"none": 1, "rollback": 1, "commit": 1},
            "producers": PRODUCERS,
            "properties": {"ключ": ["значение"], "p": {"": 1, "q": 1}},
        },
        {"name": "B", "body": 0, "batch": [1, 7], "unique_keys": False},
    ],
}


def main() -> None:
    _, put = written_settings(BrokerSettings({}))
    made = tables_of(workload_of(WORKLOAD, "here"), put, 4096, "DefaultCluster", "here")
    table = np.zeros(len(made.queues), np.int64)
    seen, end = 0, 0
    for rows in (made.max_rows, 11, 64):
        room = made.max_bytes * (1 if rows == made.max_rows else 3)
        maker = MessageMaker(made.tables, messages=1500, rows=max(rows, made.max_rows), buffer_bytes=room)
        while (stretch := maker.next_stretch()) is not None:
            placed = place(stretch.record_sizes(), stretch.batch, 4096, end)
            queue_offsets = number(stretch, placed.offsets, table)
            first = int(placed.offsets[0])
            out = np.zeros(placed.log_end - first, np.uint8)
            encode(stretch, slice(0, len(stretch)), placed.offsets, queue_offsets, out, first)
            seen, end = seen + len(stretch), placed.log_end
    print(f"messages seen: {seen}")


if __name__ == "__main__":
    main()
