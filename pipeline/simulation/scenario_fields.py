"""Read the fields that only scenarios of simulations have (durations, stalls, changing rates), and find a field's line in the file.

Not the broker's own. The readers of workload files read the other fields.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NoReturn

from pipeline.generate import workload_fields as read
from pipeline.generate.workload_fields import Reader, WorkloadError
from pipeline.settings.settings import camel_case
from udfs.consumer.push_consumer import ConsumeFromWhere, MessageModel, PushConsumer
from udfs.simulation.group_plan import SECOND
from udfs.simulation.half_messages import LONGEST_TRANSACTION
from udfs.simulation.service_time import CONSTANT, EXPONENTIAL, LOGNORMAL, LONGEST, UNIFORM, Takes

_LONGEST_RUN = 400 * 86_400 * SECOND
_TABLE = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_.\-\"' ]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*[\"']?([A-Za-z0-9_\-]+)[\"']?(?:\s*\.\s*[\"']?([A-Za-z0-9_\-]+)[\"']?)?\s*=")


class ScenarioError(WorkloadError):
    """An invalid scenario."""


def refuse(where: str, expected: str, found: object) -> NoReturn:
    """Raise ScenarioError for a field: its place, the expected value and the one found."""
    raise ScenarioError(where, expected, repr(found))


def micros(value: object, where: str) -> int:
    """Return a duration in microseconds."""
    length = round(read.duration(value, where) * SECOND)
    return length if length <= _LONGEST_RUN else refuse(where, "400 days or less", value)


def positive_micros(value: object, where: str) -> int:
    """Return a duration above 0 in microseconds."""
    return micros(value, where) or refuse(where, "a duration above 0", value)


def share(value: object, where: str) -> float:
    """Return a share, from 0 to 1."""
    found: float = read.number(0.0, 1.0)(value, where)
    return found


def _time_at_random(longest: int, limit: str) -> Reader:
    """Return the reader of a duration of at most `longest` microseconds.

    The field is a duration, [least, greatest], { mean } (exponential) or { median, sigma } (lognormal).
    """

    def taken(value: object, where: str) -> float:
        found = micros(value, where)
        return float(found) if found <= longest else refuse(where, limit, value)

    def reader(value: object, where: str) -> Takes:
        if isinstance(value, list) and len(value) == 2:
            least, most = (taken(one, where) for one in value)
            return Takes(UNIFORM, least, most) if least <= most else refuse(where, "the lesser duration first", value)
        if isinstance(value, dict) and value.keys() == {"mean"}:
            return Takes(EXPONENTIAL, taken(value["mean"], f"{where}, mean"))
        if isinstance(value, dict) and value.keys() == {"median", "sigma"}:
            sigma: float = read.number(0.0, 5.0)(value["sigma"], f"{where}, sigma")
            return Takes(LOGNORMAL, taken(value["median"], f"{where}, median"), sigma)
        if isinstance(value, dict):
            refuse(where, "{ mean = ... } or { median = ..., sigma = ... }", value)
        return Takes(CONSTANT, taken(value, where))

    return reader


takes = _time_at_random(LONGEST, "15 minutes or less (consumeTimeout)")
transaction_time = _time_at_random(LONGEST_TRANSACTION, "a day or less")


def rates(value: object, where: str) -> tuple[tuple[int, float], ...]:
    """Return the steps (from, messages a second) of a field: a number, or [[from, messages a second], ...]."""
    if not isinstance(value, list):
        return ((0, read.number(0.0, 1e7)(value, where)),)
    steps = []
    for number, step in enumerate(value):
        at = f"{where}[{number}]"
        if not isinstance(step, list) or len(step) != 2:
            refuse(at, "[from, messages a second]", step)
        steps.append((micros(step[0], at), float(read.number(0.0, 1e7)(step[1], at))))
    times = [begin for begin, _ in steps]
    return tuple(steps) if times and times == sorted(set(times)) else refuse(where, "steps of ascending times", value)


def stalls(value: object, where: str) -> tuple[tuple[int, int], ...]:
    """Return the stalls (from, to) of a field [[from, to], ...]."""
    if not isinstance(value, list):
        refuse(where, "[[from, to], ...]", value)
    found = []
    for number, one in enumerate(value):
        at = f"{where}[{number}]"
        if not isinstance(one, list) or len(one) != 2 or micros(one[0], at) >= micros(one[1], at):
            refuse(at, "[from, to]", one)
        found.append((micros(one[0], at), micros(one[1], at)))
    return tuple(found)


def one_of(*names: str) -> Reader:
    """Return the reader of a field that must be one of these texts."""

    def reader(value: object, where: str) -> str:
        if value not in names:
            expected = f"one of {', '.join(names)}"
            if isinstance(value, str):
                raise read.unknown_name(where, expected, value, names)
            refuse(where, expected, value)
        return str(value)

    return reader


# settings of DefaultMQPushConsumer ---------------------------------------------------------------------------------------------------

_LIMITS = {"max_reconsume_times": (-1, 10_000), "pull_threshold_size_for_queue": (1, 1024), "consume_thread_min": (1, 1000)}
_LIMITS |= {"consume_message_batch_max_size": (1, 1024), "pull_batch_size": (1, 1024), "pull_interval": (0, 65_535)}
# settings of features that are not simulated
_LEFT_OUT = {"consume_timeout", "post_subscription_when_pull", "pull_threshold_for_topic", "pull_threshold_size_for_topic"}
_NAMES = {camel_case(one.name): one.name for one in fields(PushConsumer) if one.name not in _LEFT_OUT}
_NO_EFFECT = "consumeThreadMax"  # batches wait in an unbounded queue, so a client never has more threads than consumeThreadMin


def consumer(value: object, where: str) -> PushConsumer:
    """Return the settings of a push consumer; the field has the names of DefaultMQPushConsumer."""
    if not isinstance(value, dict):
        refuse(where, "settings of DefaultMQPushConsumer", value)
    given: dict[str, Any] = {}
    for name, one in value.items():
        at = f"{where}, {name}"
        if name == _NO_EFFECT:
            read.whole_number(1, 1000)(one, at)
            continue
        if name not in _NAMES:
            raise read.unknown_name(where, f"one of {', '.join(_NAMES)}", name, list(_NAMES))
        field = _NAMES[name]
        if field == "consume_from_where":
            given[field] = ConsumeFromWhere(one_of(*ConsumeFromWhere.__members__)(one, at))
        elif field == "message_model":
            given[field] = MessageModel(one_of(*MessageModel.__members__)(one, at))
        else:
            given[field] = read.whole_number(*_LIMITS.get(field, (1, 65_535)))(one, at)
    return PushConsumer(**given)


# where it stands -----------------------------------------------------------------------------------------------------------------------


def with_line(error: WorkloadError, path: str, text: str) -> ScenarioError:
    """Return the error with the line of its field added; `error.where` is `path, table[2], field`."""
    names = [part.strip() for part in error.path.removeprefix(path).split(",") if part.strip()]
    line = line_of(text, [*names, error.found.strip("'")])  # the found value may be the name of an unknown field
    where = f"{path}, line {line}" if line else path
    return ScenarioError(", ".join([where, *names]), error.expected, error.found, hint=error.hint)


def line_of(text: str, names: Sequence[str]) -> int | None:
    """Return the line of a field in a TOML text, or of the innermost of its tables that the text has; None if it has none.

    `names` are the tables from the outermost in, an element of a list with its number in brackets, then the field.
    """
    found, depth = None, 0
    table: list[str] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            name = header[2].strip()
            seen[name] = seen.get(name, -1) + 1
            table = [f"{name}[{seen[name]}]" if header[1] == "[[" else name]
            here = table
        elif key := _KEY.match(line):
            here = [*table, *(part for part in key.groups() if part)]
        else:
            continue
        same = 0
        while same < min(len(here), len(names)) and here[same] in (names[same], names[same].partition("[")[0]):
            same += 1
        if same == len(here) and same > depth:
            found, depth = number, same
    return found


def parsed(text: str, path: str) -> dict[str, Any]:
    """Return the tables of a TOML text; raise ScenarioError with the decoder's message, which has line and column, if it is none."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(path, "TOML", str(error)) from error
