"""Lag over time: from the observations in lag_history, or else from offsets and queue ends in captured traffic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.charts import Chart, Series, Shape
from pipeline.report.question import CAPTURE, RECORD, SERIES, Answer, Missing, Question, ReportFinding, waiting
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone
from pipeline.report.window import Window

_FURTHEST = """\
), placed AS (
  SELECT *, dense_rank() OVER (ORDER BY peak DESC, brokerName, consumerGroup) AS place
  FROM (SELECT *, max(lag) OVER (PARTITION BY brokerName, consumerGroup) AS peak FROM lags)
)
SELECT brokerName, consumerGroup, bin, lag
FROM placed
WHERE place <= {series}
ORDER BY place, bin"""


def _queries(scope: Scope) -> Sequence[str]:
    if scope.observed is not None:
        return [_observed(scope, scope.observed)]
    return [] if scope.captured is None else [_captured(scope, scope.captured)]


def _observed(scope: Scope, window: Window) -> str:
    return f"""\
-- the last observation of each queue in each of {window.bins} bins of {window.width} ms
WITH observed AS (
  SELECT brokerName, consumerGroup, topic, queueId, (observedAt - {window.start}) DIV {window.width} AS bin, max_by(lag, observedAt) AS lag
  FROM lag_history
  {scope.rows(millis="observedAt")}
  GROUP BY ALL
), lags AS (
  SELECT brokerName, consumerGroup, bin, try_sum({waiting("lag")}) AS lag
  FROM observed
  GROUP BY brokerName, consumerGroup, bin
""" + _FURTHEST.format(series=SERIES)


def _captured(scope: Scope, window: Window) -> str:
    return f"""\
-- the last offset that went over the wire, and the end of the queue, at the end of each of {window.bins} bins of {window.width} ms
WITH told AS (
  SELECT
    brokerName, consumerGroup, topic, queueId, (micros DIV 1000 - {window.start}) DIV {window.width} AS bin,
    max_by(consumerOffset, struct(micros, sequence)) AS consumerOffset
  FROM offset_history
  WHERE consumerOffset IS NOT NULL AND micros IS NOT NULL {scope.rows("AND", micros="micros")}
    AND (coalesce(code, 0) = 0 OR origin = 'PULL_MESSAGE' AND code IN (19, 20, 21))
  GROUP BY ALL
), grid AS (
  SELECT brokerName, consumerGroup, topic, queueId, bin
  FROM (SELECT DISTINCT brokerName, consumerGroup, topic, queueId FROM told)
  LATERAL VIEW explode(sequence(-1L, {window.bins - 1}L)) bins AS bin
), grown AS (
  SELECT brokerName, topic, queueId, greatest(CAST(floor((at - {window.start}) / {window.width}) AS BIGINT), -1L) AS bin, max(end) AS end
  FROM (
    SELECT brokerName, topic, queueId, storeTimestamp AS at, queueOffset + 1 AS end FROM consume_queue WHERE storeTimestamp > 0
    UNION ALL
    SELECT brokerName, topic, queueId, answerMicros DIV 1000, recordedMaxOffset FROM pull_request WHERE recordedMaxOffset IS NOT NULL
  )
  WHERE at < {window.end} {scope.of_broker("AND")}
  GROUP BY ALL
), known AS (
  SELECT
    brokerName, consumerGroup, topic, queueId, bin,
    last(consumerOffset) IGNORE NULLS OVER queue AS consumerOffset,
    max(end) OVER queue AS brokerOffset
  FROM grid
  LEFT JOIN told USING (brokerName, consumerGroup, topic, queueId, bin)
  LEFT JOIN grown USING (brokerName, topic, queueId, bin)
  WINDOW queue AS (PARTITION BY brokerName, consumerGroup, topic, queueId ORDER BY bin)
), lags AS (
  SELECT brokerName, consumerGroup, bin, try_sum({waiting("try_subtract(brokerOffset, consumerOffset)")}) AS lag
  FROM known
  WHERE bin >= 0
  GROUP BY brokerName, consumerGroup, bin
""" + _FURTHEST.format(series=SERIES)


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    window = scope.observed or scope.captured
    if window is None:
        captured = "the captured traffic has no times that a calendar has" if scope.untimed else "no traffic was captured"
        return Missing(f"lag_history has no two observations, and {captured}.", [RECORD, CAPTURE])
    lags: dict[str, dict[int, int]] = defaultdict(dict)
    for row in found[0]:
        if row["lag"] is not None:
            lags[scope.label(row, "consumerGroup")][row["bin"]] = row["lag"]
    if not lags:
        return Missing("The capture shows no offset of any group whose queue's end is known.", [RECORD, CAPTURE])
    series = [Series(label, tuple(by_bin.get(number) for number in range(window.bins))) for label, by_bin in lags.items()]
    chart = Chart(Shape.LINES, "Messages behind", window, series)
    if scope.observed is not None:
        note = "As observed with pullsim lag --record: the last observation in each stretch."
    else:
        note = (
            "As captured: the offsets that clients committed or were told, against the ends of the queues then. A queue counts from the "
            "first offset on that went over the wire. Clients commit every five seconds, so that a group at the end seems a little behind."
        )
    return Answer(_finding(series[0], window, captured=scope.observed is None), chart, note=f"{note} Offsets past the end count as no lag.")


def _finding(worst: Series, window: Window, *, captured: bool) -> ReportFinding:
    known = [(number, value) for number, value in enumerate(worst.values) if value is not None]
    (_, first), (_, last) = known[0], known[-1]
    at, peak = max(known, key=lambda pair: (pair[1], -pair[0]))
    text = Markup("Within the {} that were {}, {} was the furthest behind: <b>{}</b> messages at {} UTC, {}<b>{}</b> in the end.")
    said = text.format(
        forms.duration(window.end - window.start),
        "captured" if captured else "observed",
        forms.name(worst.label),
        forms.count(peak),
        forms.clock(window.start + (at + 1) * window.width),
        # at the start of a capture, most offsets are not known
        "and " if captured else Markup("{} at first and ").format(forms.count(first)),
        forms.count(last),
    )
    return ReportFinding(Tone.WARN if last > (peak // 2 if captured else max(first, 0)) else Tone.PLAIN, said)


LAG_OVER_TIME = Question(
    "lag",
    "How did lag move?",
    "Messages behind of the groups that were the furthest behind at some time, all their topics and queues together.",
    _queries,
    _answer,
)
