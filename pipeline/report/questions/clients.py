"""Which clients each group has, as captured traffic shows them."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.question import CAPTURE, TOP, Answer, Missing, Question, ReportColumn, ReportFinding, with_broker
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone


def _queries(scope: Scope) -> Sequence[str]:
    return [
        f"""\
WITH named AS (
  SELECT *, coalesce(clientId, address) AS name FROM client {scope.groups()}
)
SELECT
  brokerName, consumerGroup,
  count(DISTINCT name) AS clients,
  count(DISTINCT CASE WHEN state = 'CONNECTED' THEN name END) AS connected,
  count(DISTINCT CASE WHEN state = 'SEEN' THEN name END) AS seen,
  count(DISTINCT CASE WHEN state IN ('UNREGISTERED', 'CLOSED') THEN name END) AS gone,
  sum(pulls) AS pulls,
  try_divide(max(pulls), sum(pulls)) AS busiestShare,
  max(messageModel) AS messageModel,
  max(lastMicros) DIV 1000 AS last,
  count(*) OVER () AS groups,
  count_if(count_if(state IN ('CONNECTED', 'SEEN')) = 0) OVER () AS groupsWithout,
  count_if(count_if(state = 'CONNECTED') = 0 AND count_if(state = 'SEEN') > 0) OVER () AS groupsUnsure
FROM named
GROUP BY brokerName, consumerGroup
ORDER BY connected = 0 AND seen = 0 DESC, clients DESC, brokerName, consumerGroup
LIMIT {TOP}"""
    ]


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    [rows] = found
    if not rows:
        return Missing("A store knows no clients, and no heartbeat or pull of the groups was captured.", [CAPTURE])
    columns = with_broker(
        scope,
        ReportColumn("consumerGroup", "Group", forms.name),
        ReportColumn("clients", "Clients", bar=True),
        ReportColumn("connected", "connected"),
        ReportColumn("seen", "without a heartbeat"),
        ReportColumn("gone", "left"),
        ReportColumn("pulls", "Pulls"),
        ReportColumn("busiestShare", "of the busiest", forms.share),
        ReportColumn("messageModel", "Model", forms.words),
        ReportColumn("last", "Last seen (UTC)", forms.moment),
    )
    note = "A client that comes back counts once, and is in two columns where it left before. pullsim clients has them one by one."
    if scope.only.is_timed:
        note += " Clients are those of all of the capture, whatever the chosen time."
    return Answer(_finding(rows), columns=columns, rows=rows, note=note)


def _finding(rows: Sequence[Row]) -> ReportFinding:
    groups, without = rows[0]["groups"], rows[0]["groupsWithout"]
    unsure = rows[0]["groupsUnsure"]
    if not without and unsure:
        text = Markup("Of <b>{}</b> of {} it is not known whether a client was left: clients pulled, and sent no heartbeat.")
        return ReportFinding(Tone.PLAIN, text.format(forms.count(unsure), forms.counted(groups, "group")))
    if not without:
        text = Markup("Each of the <b>{}</b> groups has a client at the end of the capture.")
        return ReportFinding(Tone.GOOD, text.format(forms.count(groups)))
    first = forms.name(rows[0]["consumerGroup"])
    if groups == 1:
        return ReportFinding(Tone.WARN, Markup("All clients of {} had left when the capture ended.").format(first))
    text = Markup("All clients of <b>{}</b> of {} groups had left when the capture ended, {} among them.")
    return ReportFinding(Tone.WARN, text.format(forms.count(without), forms.count(groups), first))


CLIENTS = Question(
    "clients",
    "Who consumes?",
    "The clients of each group while traffic was captured; groups whose clients have all left come first.",
    _queries,
    _answer,
)
