"""Count what a batch of a stream contains: requests by file and kind, settings, and, in one Spark job, the segments that they start in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.replay.replay import RequestProfile
from pipeline.replay.touched_segments import SOME_SEGMENTS, start_segment
from pipeline.rows.queue_batches import SCAN_ENTRIES
from pipeline.settings.settings import BrokerSettings, SettingsError
from pipeline.stream.request_stream import LINES_A_FILE

SettingsOf = Callable[[dict[str, Any] | None, str], BrokerSettings]

# not the file's number alone: with holding, released pulls come from other batches, and rows are numbered again
_OF_FILE = ["bad", "file", "config", "source", "sourceDigest"]
_OF_SEGMENT = ["topic", "queueId", "segment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a batch contains.

    Attributes:
        settings: for each configuration in the headers of the batch's files: the broker's settings, and the profile of its requests.
        refused: error message of each configuration that is invalid.
        framed: the configurations of files with frames, and whether these files have other requests too.
        digests: SHA-256 of the batch's files, by their number in the batch.
        answered: number of requests to be answered.
        bad: number of lines or files that cannot be answered.
        entries_a_file: number of entries of a queue file; the start segments of the requests were found with it.
    """

    settings: Mapping[str | None, tuple[BrokerSettings, RequestProfile]]
    refused: Mapping[str, str]
    framed: Mapping[str | None, bool]
    digests: Mapping[int, str]
    answered: int
    bad: int
    entries_a_file: int


def contents_of(rows: DataFrame, entries_a_file: int, settings_of: SettingsOf) -> Contents:
    """The contents of a batch.

    Args:
        rows: rows of STREAM_SCHEMA without heartbeats; rows with an `error` cannot be answered.
        entries_a_file: entries of a queue file.
        settings_of: gives the broker's settings for the configuration in a file's header and the place of the header.
    """
    by_file, touched = _counted(rows, entries_a_file)
    return _contents(by_file, touched, entries_a_file, settings_of)


def contents_here(rows: pa.Table, entries_a_file: int, settings_of: SettingsOf) -> Contents:
    """As `contents_of`, for rows on the driver, without frames. It does not look for the segments that requests start in."""
    keyed = rows.select(["config", "source", "sourceDigest", "maxMsgNums"])
    keyed = keyed.append_column("bad", pc.is_valid(rows["error"])).append_column("file", pc.divide(rows["seq"], LINES_A_FILE))
    keyed = keyed.append_column("looks", pc.not_equal(rows["filterType"], "TAG"))
    counted = keyed.group_by(_OF_FILE).aggregate([([], "count_all"), ("maxMsgNums", "max"), ("looks", "any")])
    named = counted.rename_columns({"count_all": "count", "maxMsgNums_max": "maxMsgNums", "looks_any": "looks"})
    return _contents([row | {"framed": 0} for row in named.to_pylist()], None, entries_a_file, settings_of)


def _contents(by_file: Sequence[Mapping[str, Any]], touched: pa.Table | None, entries_a_file: int, settings_of: SettingsOf) -> Contents:
    settings: dict[str | None, tuple[BrokerSettings, RequestProfile]] = {}
    refused: dict[str, str] = {}
    framed: dict[str | None, bool] = {}
    good = [row for row in by_file if not row["bad"]]
    for config, of_config in groupby(sorted(good, key=_config), key=itemgetter("config")):
        files = list(of_config)
        if any(row["framed"] for row in files):
            framed[config] = any(row["framed"] < row["count"] for row in files)
        looks, far = any(row["looks"] for row in files), any((row["maxMsgNums"] or 0) > SCAN_ENTRIES for row in files)
        profile = RequestProfile(into_messages=looks, far=far, about=sum(row["count"] for row in files), touched=touched)
        try:
            settings[config] = (_settings_of_header(min(files, key=itemgetter("source")), settings_of), profile)
        except SettingsError as error:
            refused[str(config)] = str(error)
    answered = sum(row["count"] for row in good if row["config"] in settings)
    return Contents(
        settings=settings,
        refused=refused,
        framed=framed,
        digests={row["file"]: row["sourceDigest"] for row in good},
        answered=answered,
        bad=sum(row["count"] for row in by_file) - answered,
        entries_a_file=entries_a_file,
    )


def file_number() -> Column:
    """The number of a row's file in the batch."""
    return F.expr(f"seq DIV {LINES_A_FILE}")


def _counted(rows: DataFrame, entries_a_file: int) -> tuple[list[dict[str, Any]], pa.Table | None]:
    """Counts of the rows by file, and the segments that requests start in, in the columns of `touched_segments`.

    The segments are None if there are more than SOME_SEGMENTS.
    """
    usable = F.col("error").isNull() & F.col("frame").isNull() & (F.col("queueOffset") >= 0)
    keyed = rows.withColumns(
        {
            "bad": F.isnotnull("error"),
            "file": file_number(),
            **{name: F.when(usable, F.col(name)) for name in ("topic", "queueId")},
            "segment": F.when(usable, start_segment(entries_a_file)),
        }
    )
    counted = (
        F.count("*").alias("count"),
        F.max("maxMsgNums").alias("maxMsgNums"),
        F.expr("bool_or(filterType != 'TAG')").alias("looks"),
        F.count_if(F.col("frame").isNotNull()).alias("framed"),
    )
    both = keyed.groupingSets([_OF_FILE, _OF_SEGMENT], *_OF_FILE, *_OF_SEGMENT).agg(*counted, F.grouping("file").alias("bySegment"))
    found = both.limit(SOME_SEGMENTS + 1).toArrow()
    if len(found) > SOME_SEGMENTS:
        return keyed.groupBy(*_OF_FILE).agg(*counted).toArrow().to_pylist(), None
    by_segment = pc.equal(found["bySegment"], 1)
    touched = found.filter(pc.and_(by_segment, pc.is_valid(found["segment"])))
    return found.filter(pc.invert(by_segment)).to_pylist(), touched.select([*_OF_SEGMENT, "count", "maxMsgNums"])


def _config(row: Mapping[str, Any]) -> str:
    return row["config"] or ""


def _settings_of_header(row: Mapping[str, Any], settings_of: SettingsOf) -> BrokerSettings:
    header = None if row["config"] is None else json.loads(row["config"])
    return settings_of(header, f"{row['source']}, line 1")
