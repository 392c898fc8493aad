"""Types of the fields that only scenarios of simulations have (durations, stalls, changing rates), and the line of a field in its file.

This is no rule of the broker. The other fields have the types of workload files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import Field, fields
from enum import Enum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainValidator, TypeAdapter, create_model

from pipeline.files.toml_text import parsed_toml
from pipeline.generate import workload_fields as f
from pipeline.generate.workload_fields import WorkloadError
from pipeline.settings.settings import camel_case
from udfs.consumer.push_consumer import PushConsumer
from udfs.simulation.group_plan import SECOND
from udfs.simulation.half_messages import LONGEST_TRANSACTION
from udfs.simulation.service_time import CONSTANT, EXPONENTIAL, LOGNORMAL, LONGEST, UNIFORM, Takes

_LONGEST_RUN = 400 * 86_400 * SECOND
_TABLE = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_.\-\"' ]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*[\"']?([A-Za-z0-9_\-]+)[\"']?(?:\s*\.\s*[\"']?([A-Za-z0-9_\-]+)[\"']?)?\s*=")
_Rate = Annotated[float, f.number(0.0, 1e7)]
_RATE = TypeAdapter(_Rate)
_Sigma = Annotated[float, f.number(0.0, 5.0)]


class ScenarioError(WorkloadError):
    """An invalid scenario."""


def micros(value: object) -> int:
    """Return a duration in microseconds."""
    length = round(f.duration(value) * SECOND)
    if length > _LONGEST_RUN:
        raise f.refused("400 days or less")
    return length


def _positive_micros(value: object) -> int:
    length = micros(value)
    if not length:
        raise f.refused("a duration above 0")
    return length


def _time_at_random(longest: int, limit: str) -> PlainValidator:
    """Return the validator of a duration of at most `longest` microseconds.

    The field is a duration, [least, greatest], { mean } (exponential) or { median, sigma } (lognormal).
    """

    def taken(value: object) -> float:
        found = micros(value)
        if found > longest:
            raise f.refused(limit)
        return float(found)

    time = Annotated[float, PlainValidator(taken)]
    ends = TypeAdapter(tuple[time, time])
    tables = {EXPONENTIAL: create_model("Mean", mean=time), LOGNORMAL: create_model("Median", median=time, sigma=_Sigma)}

    def check(value: object) -> Takes:
        if isinstance(value, list) and len(value) == 2:
            least, most = ends.validate_python(value)
            if least > most:
                raise f.refused("the lesser duration first")
            return Takes(UNIFORM, least, most)
        if isinstance(value, dict):
            for shape, table in tables.items():
                if value.keys() == table.model_fields.keys():
                    return Takes(shape, *table.model_validate(value).model_dump().values())
            raise f.refused("{ mean = ... } or { median = ..., sigma = ... }")
        return Takes(CONSTANT, taken(value))

    return PlainValidator(check)


def _items(expected: str, length: int | None = None) -> BeforeValidator:
    """Return the validator of a list, before its items are read; `length` is its length if it has one."""

    def check(value: object) -> object:
        if not isinstance(value, list) or length not in {None, len(value)}:
            raise f.refused(expected)
        return value

    return BeforeValidator(check)


def _stall(ends: tuple[int, int]) -> tuple[int, int]:
    if ends[0] >= ends[1]:
        raise f.refused("[from, to]")
    return ends


def _rates(value: object) -> tuple[tuple[int, float], ...]:
    """Return the steps (from, messages a second) of a number, or of [[from, messages a second], ...]."""
    if not isinstance(value, list):
        return ((0, _RATE.validate_python(value)),)
    steps = _STEPS.validate_python(value)
    times = [begin for begin, _ in steps]
    if not times or times != sorted(set(times)):
        raise f.refused("steps of ascending times")
    return steps


Share = Annotated[float, f.number(0.0, 1.0)]
Micros = Annotated[int, PlainValidator(micros)]
PositiveMicros = Annotated[int, PlainValidator(_positive_micros)]
ListenerTime = Annotated[Takes, _time_at_random(LONGEST, "15 minutes or less (consumeTimeout)")]
TransactionTime = Annotated[Takes, _time_at_random(LONGEST_TRANSACTION, "a day or less")]
_STEPS = TypeAdapter(tuple[Annotated[tuple[Micros, _Rate], _items("[from, messages a second]", 2)], ...])
Rates = Annotated[tuple[tuple[int, float], ...], PlainValidator(_rates)]
_Stall = Annotated[tuple[Micros, Micros], _items("[from, to]", 2), AfterValidator(_stall)]
Stalls = Annotated[tuple[_Stall, ...], _items("[[from, to], ...]")]


# settings of DefaultMQPushConsumer ---------------------------------------------------------------------------------------------------

_LIMITS = {"max_reconsume_times": (-1, 10_000), "pull_threshold_size_for_queue": (1, 1024), "consume_thread_min": (1, 1000)}
_LIMITS |= {"consume_message_batch_max_size": (1, 1024), "pull_batch_size": (1, 1024), "pull_interval": (0, 65_535)}
# settings of features that are not simulated
_LEFT_OUT = {"consume_timeout", "post_subscription_when_pull", "pull_threshold_for_topic", "pull_threshold_size_for_topic"}
_NAMES = {camel_case(one.name): one for one in fields(PushConsumer) if one.name not in _LEFT_OUT}
_NO_EFFECT = "consumeThreadMax"  # batches wait in an unbounded queue, so a client never has more threads than consumeThreadMin


def _type_of(setting: Field[Any]) -> Any:
    """Return the type of a consumer's setting in a scenario file: the name of a constant, or a whole number within limits."""
    if isinstance(setting.default, Enum):
        return Annotated[Any, f.one_of([*type(setting.default).__members__], type(setting.default))]
    return Annotated[int, f.whole_number(*_LIMITS.get(setting.name, (1, 65_535)))]


_SETTINGS: dict[str, Any] = {name: (_type_of(one), one.default) for name, one in _NAMES.items()}
_SETTINGS[_NO_EFFECT] = (Annotated[int, f.whole_number(1, 1000)], 1)
_Consumer = create_model("_Consumer", __base__=f.FileTable, **_SETTINGS)


def consumer(value: object) -> PushConsumer:
    """Return the settings of a push consumer; the field has the names of DefaultMQPushConsumer."""
    found = _Consumer.model_validate(value).model_dump(exclude={_NO_EFFECT})
    return PushConsumer(**{_NAMES[name].name: one for name, one in found.items()})


# line of a field -----------------------------------------------------------------------------------------------------------------------


def with_line(error: WorkloadError, path: str, text: str) -> ScenarioError:
    """Return the error with the line of its field added; `error.where` is `path, table[2], field`."""
    names = [part.strip() for part in error.path.removeprefix(path).split(",") if part.strip()]
    line = line_of(text, [*names, error.found.strip("'")])  # the found value may be the name of an unknown field
    where = f"{path}, line {line}" if line else path
    return ScenarioError(", ".join([where, *names]), error.expected, error.found, hint=error.hint)


def line_of(text: str, names: Sequence[str]) -> int | None:
    """Return the line of a field in a TOML text; if the text lacks the field, the line of its innermost table in the text, or None.

    `names` has the tables from the outermost to the innermost, then the field. An element of a list has its number in brackets.
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
    """Return the tables of a TOML text.

    Raises:
        ScenarioError: the text is no TOML (the decoder's message has line and column), or is nested too deeply.
    """
    try:
        return parsed_toml(text)
    except ValueError as error:  # also for a number with too many digits
        raise ScenarioError(path, "TOML", str(error)) from error
    except RecursionError as error:
        raise ScenarioError(path, *f.TOO_DEEP) from error
