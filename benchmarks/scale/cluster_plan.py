"""What a cluster needs for a terabyte of commit log and ten thousand million requests, computed from the figures of one executor on S3.

Core-seconds are the seconds of that executor's one core, so that what the driver does alone, while the core waits, is counted too.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.figures import markdown_table
from benchmarks.scale.cases import KIB_MESSAGES, MILLION, ON_S3, SMALL_MESSAGES, Row

LOG_BYTES, REQUESTS = 10**12, 10**10
MESSAGE_BYTES = (1024, 200)
CORES = (16, 64, 256)
# dollars for an hour of a core with 4 GiB, a round price of the great clouds
PRICE = 0.05
_HOUR = 3600.0
_REQUESTS = 2 * MILLION


@dataclass(frozen=True, slots=True)
class Costs:
    """Core-seconds of the parts of the work, and what processes hold.

    Attributes:
        message: to import a message, whatever its size.
        byte: to import a byte of commit log.
        request: to answer a request.
        worker: memory in MiB of the largest Python worker.
        efficiency: of two executors against one, 1 where they need half of the time.
    """

    message: float
    byte: float
    request: float
    worker: float
    efficiency: float

    @classmethod
    def of(cls, rows: list[Row]) -> Costs:
        """What the figures say: two imports, of small messages and of larger ones, give the cost of a message and of a byte.

        Raises:
            KeyError: a figure is missing.
        """
        value = {(row.case, row.x, row.series): row.value for row in rows}
        small, larger = SMALL_MESSAGES, KIB_MESSAGES
        of_small, of_larger = value[ON_S3, "1", "import"], value[ON_S3, "1", "import of 1 KiB messages"]
        alike = small.messages / larger.messages  # so many of the larger import would have as many messages as the small one
        byte = max(of_larger * alike - of_small, 0.0) / (larger.log_bytes * alike - small.log_bytes)
        message = max(of_small - byte * small.log_bytes, 0.0) / small.messages
        workers = [row.value for row in rows if row.series.endswith("largest worker")]
        one, two = (value[ON_S3, number, "replay of 2 million"] for number in ("1", "2"))
        return cls(message, byte, one / _REQUESTS, max(workers), one / (2 * two))

    def import_hours(self, message_bytes: int) -> float:
        """Core-hours to import the log, of messages of that size."""
        return (LOG_BYTES / message_bytes * self.message + LOG_BYTES * self.byte) / _HOUR

    @property
    def replay_hours(self) -> float:
        """Core-hours to answer the requests."""
        return REQUESTS * self.request / _HOUR


def cluster_plan(rows: list[Row]) -> str:
    """The plan as a section of a page."""
    costs = Costs.of(rows)
    work = [(f"import of 1 TB, messages of {size:,} bytes", costs.import_hours(size)) for size in MESSAGE_BYTES]
    work.append((f"replay of {REQUESTS // 10**9} thousand million requests", costs.replay_hours))
    heads = ["", "core-hours", *(f"hours on {cores} cores" for cores in CORES), "dollars"]
    lines = [[name, f"{hours:,.0f}", *(f"{hours / cores:,.1f}" for cores in CORES), f"{hours * PRICE:,.2f}"] for name, hours in work]
    return _PLAN.format(
        table=markdown_table(heads, lines),
        worker=costs.worker,
        efficiency=costs.efficiency,
        price=PRICE,
        message=costs.message * 1e6,
        gibibyte=costs.byte * (1 << 30),
        request=costs.request * 1e6,
    )


_PLAN = """\
## A cluster for 1 TB

The plan is for a terabyte of commit log and ten thousand million requests, with the store and the lake on S3.
`benchmarks/scale/cluster_plan.py` computes it from the figures of one executor on S3: an import takes {message:.1f} core-microseconds a
message and {gibibyte:.1f} core-seconds a GiB of log. The answer to a request at a random offset takes {request:.1f} core-microseconds,
whatever the store's size. Core-seconds are the seconds of that executor's one core, so they include time in which only the driver works.

{table}
Measured were the figures of the tables above, on one machine with two cores and a server of S3 on it. Not measured: more than four
executors, a network between machines, Amazon's S3, and a log of more than a few gigabytes on S3. The hours assume that the work is spread
evenly: a request goes to one segment of one queue, a task has a part of a segment, and no task depends on another. Two executors, which
had to share the two cores with the driver and the server, had {efficiency:.0%} of twice the rate of one. The price is {price} dollars an
hour for a core with 4 GiB; replace it by your own price.

| setting | value | why |
| --- | --- | --- |
| cores an executor | 4 | executors hold nothing that is worth sharing, and larger ones have longer pauses |
| memory an executor | 4 GiB JVM, 4 GiB outside | one Python worker for each core; the largest measured had {worker:,.0f} MiB |
| memory of the driver | 8 GiB | the driver plans; its memory grows with files and partitions (see the queues above), not with entries |
| `spark.sql.shuffle.partitions` | 3 times the cores | requests are packed before they are shuffled, so partitions are small |
"""
