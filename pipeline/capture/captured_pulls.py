"""The captured pulls of a broker with their numbers, and the query for their answers."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake.lake import LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema import capture_tables as ct
from udfs.pull.codes import ResponseCode

SOURCES_MAX = 1000
# SQL: ms at which the broker processed a pull; a held pull is processed again when it wakes
PROCESSED_AT = "IF(held, coalesce(answerMicros, arrivalMicros), arrivalMicros) DIV 1000"
SEQUENCES = 1 << 53  # more than the sequence numbers of a source
OF_REQUEST = ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "filterType", "expression", "timestamp")


def captured_pulls(broker: OpenedBroker) -> DataFrame:
    """The broker's rows of pull_request with `seq`, a number that orders them by file and by place in the file.

    Raises:
        LakeError: there are no rows, or rows of more than SOURCES_MAX files.
    """
    pulls = broker.table(ct.PULL_REQUEST)
    sources = [row["sourceDigest"] for row in pulls.select("sourceDigest").distinct().orderBy("sourceDigest").collect()]
    if not sources:
        others = broker.lake.table(ct.PULL_REQUEST).select("brokerName").distinct().orderBy("brokerName").collect()
        raise no_captured_pulls(broker, [row["brokerName"] for row in others])
    require_few_sources(broker, sources)
    return pulls_of(pulls, sources)


def no_captured_pulls(broker: OpenedBroker, others: Sequence[str]) -> LakeError:
    """The error about a broker without captured pulls; `others` are the brokers of the lake that have some."""
    found = f"captured pulls of {', '.join(map(repr, others))} only" if others else "none"
    return LakeError(
        f"{broker.lake.root}: expected captured pulls of broker {broker.name!r}, found {found}; "
        f"give --requests FILE, or capture some with `pullsim capture FILE.pcap --lake {broker.lake.root} --broker {broker.name}`"
    )


def require_few_sources(broker: OpenedBroker, sources: Sequence[str]) -> None:
    """Check the number of captured files that the pulls of a broker are from.

    Raises:
        LakeError: they are more than SOURCES_MAX.
    """
    if len(sources) > SOURCES_MAX:
        raise LakeError(f"{broker.lake.root}: expected captured pulls of at most {SOURCES_MAX} files, found {len(sources)}")


def pulls_of(pulls: DataFrame, sources: Sequence[str]) -> DataFrame:
    """The rows of pull_request from some files, with `seq` as in `captured_pulls`; `sources` are at most SOURCES_MAX digests."""
    ranks = pulls.sparkSession.createDataFrame(list(enumerate(sources)), "rank BIGINT, sourceDigest STRING")
    return pulls.join(F.broadcast(ranks), "sourceDigest").withColumn("seq", F.col("rank") * SEQUENCES + F.col("sequence"))


def answered_query(given: Sequence[str]) -> str:
    """The query that makes the answers to checked pulls (`asked`, with `timestamp`) from the store's answers (`given`).

    Args:
        given: the columns of the store's answers.
    """
    of_pull = ("seq", "requestId", *OF_REQUEST, "refusedCode", "checkError")
    own = [name for name in given if name not in {*of_pull, "error", "code"}]
    error = "coalesce(g.error, p.checkError)"
    # an answer has no status if the store throws or answers null
    code = f"CAST(coalesce(p.refusedCode, g.code, CASE WHEN {error} IS NULL THEN {int(ResponseCode.SYSTEM_ERROR)} END) AS INT)"
    columns = [
        *(f"p.{name}" for name in of_pull),
        "CASE WHEN p.held THEN p.arrivalMicros DIV 1000 END AS heldMillis",
        "CASE WHEN p.held THEN p.timestamp END AS wokenMillis",
        *(f"g.{name}" for name in own),
        f"{error} AS error",
        f"{code} AS code",
    ]
    return f"SELECT {', '.join(columns)} FROM {{asked}} p LEFT JOIN {{given}} g ON p.seq = g.seq"
