"""Read and check a scenario file, which docs/simulate.md describes. Unknown fields and wrong values are errors before anything runs.

This is no rule of the broker. Settings of client and broker have RocketMQ's names.
"""

from __future__ import annotations

import copy
import itertools
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

from pydantic import InstanceOf, PlainValidator, StrictBool

from pipeline.files.small_file import small_file
from pipeline.generate import workload_fields as f
from pipeline.generate.workload_fields import WorkloadError
from pipeline.settings.settings import BrokerSettings, SettingsError
from pipeline.simulation import scenario_fields as own
from pipeline.simulation.scenario_fields import ScenarioError
from udfs.broker.transaction_check import CheckSettings
from udfs.consumer.push_consumer import MessageModel, PushConsumer
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX
from udfs.filters.tags import SubscriptionParseError, split_tags
from udfs.simulation.group_plan import SECOND, Transactions
from udfs.simulation.service_time import CONSTANT, Takes
from udfs.simulation.world import MS

# the broker's settings that only transactions use, with their least values in a simulation
CHECK_SETTINGS = {"transactionCheckInterval": 1000, "transactionTimeOut": 0, "transactionCheckMax": 0}
# a run with transactions has a row for each transaction and for each message of the backlog
MOST_MESSAGES = 1_000_000
# shares that add up to 1 may leave a rest: 1.0 - 0.18 - 0.82 is 1.1e-16
_ROUNDING = 1e-9
BEGINS = ("committed", "first", "last", "never")
# the broker's settings that a simulation reads
BROKER_SETTINGS = (
    "messageDelayLevel",
    "longPollingEnable",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInMemory",
    "mappedFileSizeConsumeQueue",
    "notifyConsumerIdsChangedEnable",
    *CHECK_SETTINGS,
)
_NO_TIME = Takes(CONSTANT, 0.0)
STRATEGIES = ("AVG", "AVG_BY_CIRCLE", "CONFIG", "MACHINE_ROOM", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY")


class MessagesPart(f.FileTable):
    """The messages that arrive; docs/simulate.md explains each field."""

    recorded: StrictBool = False
    begins: f.Time | None = None
    rate: own.Rates = ()
    lasts: own.PositiveMicros | None = None
    queues: Annotated[int, f.whole_number(1, 10_000)] | None = None
    brokers: f.NotEmpty[f.Text] = ("broker-a",)
    backlog: Annotated[int, f.whole_number(0, 10**10)] = 0
    skew: Annotated[float, f.number(0.0, 100.0)] = 0.0
    even: StrictBool = False
    tags: f.Shares = ()
    body: Annotated[f.Range, f.span(0, 4 << 20)] = (200, 200)
    delay: Annotated[int, f.whole_number(0, 1000)] = 0


class TransactionsPart(f.FileTable):
    """How the producers end their transactions; docs/simulate.md explains each field."""

    commits: own.Share
    rolls_back: own.Share = 0.0
    takes: own.TransactionTime = _NO_TIME
    decides: own.TransactionTime | None = None
    then_commits: own.Share = 1.0


class ListenerPart(f.FileTable):
    """How long a listener takes for a message, and how often it fails; docs/simulate.md explains each field."""

    takes: own.ListenerTime = _NO_TIME
    fails: own.Share = 0.0
    poison: own.Share = 0.0
    orderly: StrictBool = False


class ClientsPart(f.FileTable):
    """Clients with the same behaviour; docs/simulate.md explains each field."""

    name: f.Text = ""
    count: Annotated[int, f.whole_number(1, 10_000)] = 1
    joins: own.Micros = 0
    every: own.Micros = 0
    leaves: own.Micros | None = None
    crashes: own.Micros | None = None
    silent: StrictBool = False
    stalls: own.Stalls = ()
    room: f.Text = ""
    queues: f.NotEmpty[Annotated[int, f.whole_number(0, 10_000)]] = ()


class GroupScenario(f.FileTable):
    """A whole scenario; times in microseconds."""

    group: f.GroupName
    topic: f.TopicName
    until: own.PositiveMicros
    clients: f.NotEmpty[ClientsPart]
    messages: MessagesPart
    question: f.Text = ""
    seed: Annotated[int, f.whole_number(0, 2**62)] = 1
    begin: Annotated[str, f.one_of(BEGINS)] = "first"
    subscription: f.Text = "*"
    strategy: Annotated[str, f.one_of(STRATEGIES)] = "AVG"
    rooms: f.NotEmpty[f.Text] = ()
    sample: own.PositiveMicros | None = None
    network: own.Micros = 200
    dispatch: own.Micros = 1000
    consumption: StrictBool = False
    transactions: TransactionsPart | None = None
    listener: ListenerPart = ListenerPart()
    consumer: Annotated[PushConsumer, PlainValidator(own.consumer)] = PushConsumer()
    broker: InstanceOf[BrokerSettings] = BrokerSettings({})

    @property
    def sampled_every(self) -> int:
        """Interval between samples of lag: the scenario's `sample`; without it a 500th of the simulated time, at least a second."""
        return self.sample or max(SECOND, -(-self.until // 500))

    @property
    def messages_end(self) -> int:
        """Time after which no message of a rate comes."""
        return min(self.until, self.messages.lasts or self.until)


@dataclass(frozen=True, slots=True)
class Variant:
    """One scenario of a file, with one combination of the values of `--vary`: `given` has the text of each field that `--vary` sets."""

    number: int
    given: Mapping[str, str]
    scenario: GroupScenario


def _broker(given: Any, where: str) -> BrokerSettings:
    found = BrokerSettings.from_sources(header=given, header_where=where)
    for name in given:
        if name not in BROKER_SETTINGS:
            raise ScenarioError(f"{where}, {name}", f"a setting that a simulation reads: {', '.join(BROKER_SETTINGS)}", repr(name))
    return found


# the fields that only messages of a rate use
_OF_RATES = ("lasts", "queues", "brokers", "backlog", "skew", "even", "tags", "body", "delay")
# greatest number of samples of lag in one run
_MOST_LOOKS = 100_000


def scenario_text(path: str) -> str:
    """Return the text of a scenario file.

    Raises:
        ScenarioError: the file cannot be read.
    """
    try:
        return small_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(path, "a text file that can be read", getattr(error, "strerror", None) or str(error)) from error


def read_scenario(text: str, path: str, varied: Sequence[str] = ()) -> list[Variant]:
    """Return the variants of a scenario file, one for each combination of the values of `--vary`.

    `varied` are the options `--vary`, as texts `name=a,b,c`; `path` is for errors.

    Raises:
        ScenarioError: a field is unknown or has a wrong value, or fields contradict each other.
        SettingsError: the broker has no setting of a name.
    """
    tables = own.parsed(text, path)
    return [_variant(tables, number, given, path, text) for number, given in enumerate(_combinations(varied))]


def read_variant(text: str, path: str, varied: Sequence[str], number: int) -> Variant:
    """Return the variant with a number, as `read_scenario` does; arguments and errors are the same."""
    given = next(itertools.islice(_combinations(varied), number, None))
    return _variant(own.parsed(text, path), number, given, path, text)


def _variant(tables: Mapping[str, Any], number: int, given: Mapping[str, str], path: str, text: str) -> Variant:
    with located(path, text):
        return Variant(number, given, _scenario(_with(tables, given), path))


@contextmanager
def located(path: str, text: str) -> Iterator[None]:
    """Add the line of the file to the errors that are raised inside this context."""
    try:
        yield
    except WorkloadError as error:
        raise own.with_line(error, path, text) from error
    except RecursionError as error:
        raise ScenarioError(path, *f.TOO_DEEP) from error
    except SettingsError as error:
        line = own.line_of(text, ["broker", error.name.strip("'")])
        where = f"{path}, line {line}, broker" if line else f"{path}, broker"
        raise SettingsError(where, error.name, error.expected, error.found, error.hint) from error


def _combinations(varied: Sequence[str]) -> Iterator[dict[str, str]]:
    choices: dict[str, list[str]] = {}
    for one in varied:
        name, equals, values = one.partition("=")
        if not equals or not name or not values:
            raise ScenarioError(f"--vary {one}", "name=value,value,...", repr(one))
        of_name = choices.setdefault(name.strip(), [])
        of_name += [value.strip() for value in _parts(values)]
        if len(set(of_name)) < len(of_name):
            raise ScenarioError(f"--vary {one}", "each value once", repr(one))
    for combination in itertools.product(*choices.values()):
        yield dict(zip(choices, combination, strict=True))


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between commas outside brackets."""
    depth = begin = 0
    for at, char in enumerate(text):
        depth += (char in "[{") - (char in "]}")
        if char == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def _with(tables: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the tables with the values of a variant. A name in `given` may have the number of a list's element, 0 by default."""
    changed = copy.deepcopy(dict(tables))
    for name, text in given.items():
        *path, last = name.split(".")
        inner: Any = changed
        for part in path:
            if isinstance(inner, list):
                if not part.isdecimal() or int(part) >= len(inner):
                    raise ScenarioError(f"--vary {name}", f"a number from 0 to {len(inner) - 1}", repr(part))
                inner = inner[int(part)]
            elif isinstance(inner, dict):
                inner = inner.setdefault(part, {})
        inner = inner[0] if isinstance(inner, list) and inner else inner
        if not isinstance(inner, dict):
            raise ScenarioError(f"--vary {name}", "a field of the scenario", repr(name))
        inner[last] = _value(text)
    return changed


def _value(text: str) -> Any:
    """Return the TOML value of a text, the text itself if it is no TOML value."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:  # the decoder's error, also for a number with too many digits
        return text


def _scenario(tables: dict[str, Any], path: str) -> GroupScenario:
    scenario = GroupScenario.of(tables | {"broker": _broker(tables.get("broker", {}), f"{path}, broker")}, path)
    _check_messages(scenario, path)
    _check_effects(scenario, tables["messages"], path)
    _check_settings(tables.get("broker", {}), scenario.broker, has_transactions=scenario.transactions is not None, path=path)
    if scenario.transactions:
        _check_transactions(scenario.transactions, tables["transactions"], path)
        _check_sent(tables["messages"], scenario.messages.rate, scenario.messages_end, scenario.messages.backlog, path)
    if scenario.consumer.message_model is MessageModel.BROADCASTING:
        _check_broadcast(scenario, path)
    clients = [part.model_copy(update={"name": part.name or f"client{number or ''}"}) for number, part in enumerate(scenario.clients)]
    scenario = scenario.model_copy(update={"clients": tuple(clients)})
    for number, part in enumerate(scenario.clients):
        where = f"{path}, clients[{number}]"
        if any((part.name, part.room) == (other.name, other.room) for other in scenario.clients[:number]):
            raise ScenarioError(f"{where}, name", "a name that no other table of clients has", repr(part.name))
        _check_clients(scenario, part, where)
    if scenario.until > _MOST_LOOKS * scenario.sampled_every:
        expected = f"{_MOST_LOOKS:,} samples at most, one each {scenario.until / SECOND / _MOST_LOOKS:g} s"
        raise ScenarioError(f"{path}, sample", expected, f"{scenario.sampled_every / SECOND:g} s")
    rooms = scenario.strategy.startswith("MACHINE_ROOM")
    if rooms and scenario.messages.recorded:
        raise ScenarioError(f"{path}, strategy", "a strategy without machine rooms for recorded messages", repr(scenario.strategy))
    if scenario.strategy == "MACHINE_ROOM" and not scenario.rooms:
        raise ScenarioError(f"{path}, strategy", "rooms, the machine rooms that the group consumes", "none")
    return scenario


def _check_messages(scenario: GroupScenario, path: str) -> None:
    messages = scenario.messages
    where = f"{path}, messages"
    if messages.recorded == bool(messages.rate):
        found = "both" if messages.recorded else "neither"
        raise ScenarioError(where, "recorded = true, for the messages of the lake, or a rate", found)
    if len(set(messages.brokers)) < len(messages.brokers):
        raise ScenarioError(f"{where}, brokers", "names that differ", repr(list(messages.brokers)))
    if scenario.topic == f"{RETRY_GROUP_TOPIC_PREFIX}{scenario.group}":
        raise ScenarioError(f"{path}, topic", "another topic than the group's own for retries", repr(scenario.topic))
    if scenario.begin == "committed" and not messages.recorded:
        raise ScenarioError(f"{path}, begin", "first, last or never, because no messages are recorded", "'committed'")
    try:
        wanted = split_tags(scenario.subscription)
    except SubscriptionParseError as error:
        raise ScenarioError(f"{path}, subscription", "tags with || between", repr(scenario.subscription)) from error
    if wanted is not None and not messages.recorded:
        tags = {tag for tag, weight in messages.tags if weight > 0}
        for tag in wanted:
            if tag not in tags:
                raise f.unknown_name(f"{path}, subscription", "tags that occur in messages, tags", tag, sorted(tags) or [""])


def _check_effects(scenario: GroupScenario, given: Mapping[str, Any], path: str) -> None:
    """Check that every field of the messages has an effect; raise ScenarioError if one has none."""
    recorded = scenario.messages.recorded
    expected = "only the field begins, because the lake has the recorded messages" if recorded else "recorded = true, which begins needs"
    for name in given:
        if name in _OF_RATES if recorded else name == "begins":
            raise ScenarioError(f"{path}, messages, {name}", expected, repr(given[name]))


def _check_broadcast(scenario: GroupScenario, path: str) -> None:
    if scenario.listener.orderly:
        expected = "a concurrent listener: orderly clients of a broadcasting group never pull, because no queue gets locked"
        raise ScenarioError(f"{path}, listener, orderly", expected, "true")
    if scenario.strategy != "AVG":
        expected = "no strategy, because each client of a broadcasting group consumes all queues"
        raise ScenarioError(f"{path}, strategy", expected, repr(scenario.strategy))
    if scenario.begin == "committed":
        expected = "first, last or never, because clients of a broadcasting group keep their offsets in files"
        raise ScenarioError(f"{path}, begin", expected, "'committed'")


def _check_clients(scenario: GroupScenario, part: ClientsPart, where: str) -> None:
    last = part.joins + part.every * (part.count - 1)
    if part.joins > scenario.until:
        raise ScenarioError(f"{where}, joins", f"a time before the end at {scenario.until / SECOND:g} s", f"{part.joins / SECOND:g} s")
    for name, time in (("leaves", part.leaves), ("crashes", part.crashes)):
        if time is not None and time <= last:
            raise ScenarioError(f"{where}, {name}", f"a time after the last one joins at {last / SECOND:g} s", f"{time / SECOND:g} s")
    if part.leaves is not None and part.crashes is not None:
        raise ScenarioError(f"{where}, crashes", "a client that leaves or crashes", "both")
    if any(begins < last for begins, _ in part.stalls):
        raise ScenarioError(f"{where}, stalls", f"stalls after the last one joins at {last / SECOND:g} s", repr(part.stalls))
    if scenario.strategy == "CONFIG" and not part.queues:
        raise ScenarioError(where, "queues, as the strategy is CONFIG", "none")


def _unknown(part: TransactionsPart) -> float:
    """Return the share of transactions whose result the producer does not know when the local transaction ends."""
    left = 1.0 - part.commits - part.rolls_back
    return left if left > _ROUNDING else 0.0


def _check_transactions(part: TransactionsPart, given: Collection[str], path: str) -> None:
    """Check that the shares of transactions add up, and that every field that is `given` has an effect."""
    where = f"{path}, transactions"
    if part.commits + part.rolls_back > 1 + _ROUNDING:
        both = f"{part.commits:g} and {part.rolls_back:g}"
        raise ScenarioError(f"{where}, rolls_back", "commits and rolls_back of 1 at most together", both)
    if "decides" in given and not _unknown(part):
        expected = "commits and rolls_back below 1 together, because only the rest is decided later"
        raise ScenarioError(f"{where}, decides", expected, f"{part.commits:g} and {part.rolls_back:g}")
    if "then_commits" in given and part.decides is None:
        raise ScenarioError(f"{where}, then_commits", "the field decides, which then_commits needs", "none")


def _check_sent(given: Mapping[str, Any], rate: Sequence[tuple[int, float]], ends: int, backlog: int, path: str) -> None:
    """Check that the messages, whose fields in the file are `given`, can be sent in transactions."""
    where = f"{path}, messages"
    if given.get("recorded"):
        raise ScenarioError(f"{where}, recorded", "a rate, because recorded messages are already committed", "true")
    if given.get("delay"):
        expected = "no delay, because producers remove the delay level of messages in transactions"
        raise ScenarioError(f"{where}, delay", expected, repr(given["delay"]))
    sent = expected_messages(rate, ends)
    if sent + backlog > MOST_MESSAGES:
        expected = f"{MOST_MESSAGES:,} messages at most with the backlog, if they are sent in transactions"
        raise ScenarioError(f"{where}, rate", expected, f"{sent + backlog:,.0f}")


def expected_messages(rate: Sequence[tuple[int, float]], ends: int) -> float:
    """Return how many messages come by the time `ends` (microseconds), on average; `rate` has (from, messages a second)."""
    steps = [*((begin, a_second) for begin, a_second in rate if begin < ends), (ends, 0.0)]
    return sum(a_second * (end - begin) / SECOND for (begin, a_second), (end, _) in pairwise(steps))


def _check_settings(given: Mapping[str, Any], settings: BrokerSettings, *, has_transactions: bool, path: str) -> None:
    """Check that the settings of the broker's transaction check have an effect, and are not too small."""
    for name, least in CHECK_SETTINGS.items():
        where = f"{path}, broker, {name}"
        if name in given and not has_transactions:
            raise ScenarioError(where, "a table [transactions], which it needs", repr(given[name]))
        if settings.value(name) < least:
            raise ScenarioError(where, f"{least} or more" if least else "a number that is not below 0", repr(given[name]))


def transactions_of(part: TransactionsPart, settings: BrokerSettings) -> Transactions:
    """Return the transactions of a plan."""
    return Transactions(
        commits=part.commits,
        rolls_back=part.rolls_back if _unknown(part) else 1.0 - part.commits,
        takes=part.takes,
        decides=part.decides,
        then_commits=part.then_commits,
        settings=CheckSettings(
            transaction_time_out=settings.value("transactionTimeOut"), transaction_check_max=settings.value("transactionCheckMax")
        ),
        check_interval=settings.value("transactionCheckInterval") * MS,
    )
