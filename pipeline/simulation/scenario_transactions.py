"""The transactions of a scenario's producers: their fields, and what cannot be.

Not the broker's own; the settings of its check carry their own names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pipeline.generate.workload_fields import Reader
from pipeline.settings.settings import BrokerSettings
from pipeline.simulation import scenario_fields as own
from pipeline.simulation.scenario_fields import ScenarioError
from udfs.broker.transaction_check import CheckSettings
from udfs.simulation.group_plan import SECOND, Transactions
from udfs.simulation.service_time import CONSTANT, Takes
from udfs.simulation.world import MS

# the broker's settings that count for transactions only, with the least values that make sense here
CHECK_SETTINGS = {"transactionCheckInterval": 1000, "transactionTimeOut": 0, "transactionCheckMax": 0}
# each transaction is a row, and so is each message of the backlog beside them
MOST_MESSAGES = 1_000_000
# 0.7 + 0.2 + 0.1 is a little more than 1
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsPart:
    """How producers end their transactions; docs/simulate.md explains each field."""

    commits: float
    rolls_back: float = 0.0
    takes: Takes = field(default_factory=lambda: Takes(CONSTANT, 0.0))
    decides: Takes | None = None
    then_commits: float = 1.0

    @property
    def unknown(self) -> float:
        """The share that the producer does not know of by itself."""
        left = 1.0 - self.commits - self.rolls_back
        return left if left > _ROUNDING else 0.0


READERS: dict[str, Reader] = {
    "commits": own.share,
    "rolls_back": own.share,
    "takes": own.transaction_time,
    "decides": own.transaction_time,
    "then_commits": own.share,
}


def check_transactions(part: TransactionsPart, given: Collection[str], path: str) -> None:
    """Whether the shares go together, and all that is said counts.

    Args:
        part: what was read.
        given: the fields that the file has.
        path: of the file.

    Raises:
        ScenarioError: they do not.
    """
    where = f"{path}, transactions"
    if part.commits + part.rolls_back > 1 + _ROUNDING:
        both = f"{part.commits:g} and {part.rolls_back:g}"
        raise ScenarioError(f"{where}, rolls_back", "a share that is 1 at most together with commits", both)
    if "decides" in given and not part.unknown:
        expected = "commits and rolls_back of less than 1 together beside it, as the rest is decided later"
        raise ScenarioError(f"{where}, decides", expected, f"{part.commits:g} and {part.rolls_back:g}")
    if "then_commits" in given and part.decides is None:
        raise ScenarioError(f"{where}, then_commits", "decides beside it", "none")


def check_sent(given: Mapping[str, Any], rate: Sequence[tuple[int, float]], ends: int, backlog: int, path: str) -> None:
    """Whether what is said of messages can be sent in transactions.

    Args:
        given: the fields of messages that the file has.
        rate: of the messages, as (from, messages a second).
        ends: when the last one may come, microseconds.
        backlog: messages that are there at the start.
        path: of the file.

    Raises:
        ScenarioError: it cannot.
    """
    where = f"{path}, messages"
    if given.get("recorded"):
        raise ScenarioError(f"{where}, recorded", "a rate, as recorded messages were committed already", "true")
    if given.get("delay"):
        raise ScenarioError(f"{where}, delay", "none, as producers take the level off what they send in transactions", repr(given["delay"]))
    sent = expected_messages(rate, ends)
    if sent + backlog > MOST_MESSAGES:
        expected = f"{MOST_MESSAGES:,} at most with the backlog, where they are sent in transactions"
        raise ScenarioError(f"{where}, rate", expected, f"{sent + backlog:,.0f}")


def expected_messages(rate: Sequence[tuple[int, float]], ends: int) -> float:
    """How many messages come by a time, on average.

    Args:
        rate: as (from, messages a second).
        ends: microseconds.
    """
    steps = [*((begin, a_second) for begin, a_second in rate if begin < ends), (ends, 0.0)]
    return sum(a_second * (end - begin) / SECOND for (begin, a_second), (end, _) in pairwise(steps))


def check_settings(given: Mapping[str, Any], settings: BrokerSettings, *, has_transactions: bool, path: str) -> None:
    """Whether the settings of the broker's check count, and can be.

    Raises:
        ScenarioError: there are no transactions, or one is too small.
    """
    for name, least in CHECK_SETTINGS.items():
        where = f"{path}, broker, {name}"
        if name in given and not has_transactions:
            raise ScenarioError(where, "[transactions] beside it", repr(given[name]))
        if settings.value(name) < least:
            raise ScenarioError(where, f"{least} or more" if least else "a number that is not below 0", repr(given[name]))


def transactions_of(part: TransactionsPart, settings: BrokerSettings) -> Transactions:
    """The part as a plan has it."""
    return Transactions(
        commits=part.commits,
        rolls_back=1.0 - part.commits if not part.unknown else part.rolls_back,
        takes=part.takes,
        decides=part.decides,
        then_commits=part.then_commits,
        settings=CheckSettings(
            transaction_time_out=settings.value("transactionTimeOut"), transaction_check_max=settings.value("transactionCheckMax")
        ),
        check_interval=settings.value("transactionCheckInterval") * MS,
    )
