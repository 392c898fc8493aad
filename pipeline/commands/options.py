"""The options that several commands share, and the checks of those that depend on one another."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from pipeline.settings.quantities import milliseconds
from pipeline.settings.slave_lag import NO_SLAVE_LAG, SlaveLag
from pipeline.terminal import progress_to_stderr

if TYPE_CHECKING:
    from pipeline.serving.metrics import Publish

P = ParamSpec("P")
R = TypeVar("R")
FORMATS = ("table", "json", "csv")
# the greatest LIMIT of Spark
ROW_LIMIT = click.IntRange(0, 2**31 - 1)


class FiniteNumber(click.FloatRange):
    """A number of an option, in a range. NaN, which click takes to be in each range, and the infinities are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number that the text of an option gives."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a finite number, found {value}", param, ctx)
        return number


def named(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Callback that refuses an empty path: as of a variable that the shell does not have, it would mean the current folder."""
    if value == "":
        raise click.BadParameter("expected a directory or a URI, found an empty text; is a variable of the shell not set?")
    return value


def lake_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --lake."""
    return click.option("--lake", required=True, callback=named, metavar="DIR", help="Directory of the Delta tables.")(command)


def broker_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --broker."""
    return click.option("--broker", metavar="NAME", help="Broker in the lake; needed if the lake holds more than one.")(command)


def format_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --format for rows."""
    return click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="Form of the rows.")(
        command
    )


def at_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --at."""
    moments = click.Choice(["snapshot", "request-time", "recorded-max"])
    return click.option("--at", type=moments, default="snapshot", show_default=True, help="What of the store a request sees.")(command)


def hold_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --hold."""
    text = "Let pulls that may be held wait for messages, as long polling does; needs --at request-time."
    return click.option("--hold", is_flag=True, help=text)(command)


def given_of(options: Mapping[str, object]) -> str:
    """The names of the options that are given, as in "--out and --vary"; "" if none is.

    Args:
        options: option -> its value; an option that is not given has None, False, "" or no values.
    """
    names = [name for name, value in options.items() if value is not None and value is not False and value not in ("", ())]
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def check_alone(option: str, options: Mapping[str, object], reason: str) -> None:
    """Check that none of the options is given beside `option`.

    Raises:
        click.UsageError: an option is given; the message names all given options, gives the reason, and says to leave them out.
    """
    if given := given_of(options):
        raise click.UsageError(f"{option} cannot be combined with {given}: {reason}; leave {given} out")


def check_needed(needed: str, options: Mapping[str, object], reason: str) -> None:
    """Check that none of the options is given; the caller found that `needed`, the option that they need, is not given.

    Raises:
        click.UsageError: an option is given; the message names all given options, gives the reason, and says to give `needed`.
    """
    if given := given_of(options):
        raise click.UsageError(f"{given} cannot be used without {needed}: {reason}; give {needed} too")


def check_hold(hold: bool, at: str, *, of_table: bool) -> None:
    """Raise if --hold is given without --at request-time, or for the table of captured pulls.

    Args:
        hold: whether --hold is given.
        at: value of --at.
        of_table: whether the pulls come from the table of captured pulls.

    Raises:
        click.UsageError: --hold cannot be combined with the other options.
    """
    if hold and at != "request-time":
        raise click.UsageError(f"--hold: expected --at request-time, found --at {at}; a pull needs a time at which it begins to wait")
    if hold and of_table:
        raise click.UsageError(
            "--hold: expected files in --requests, found the table of captured pulls; leave --hold out: a captured pull is answered as of "
            "its recorded wake-up"
        )


def _behind(_context: click.Context, _parameter: click.Parameter, value: str | None) -> SlaveLag:
    try:
        return NO_SLAVE_LAG if value is None else SlaveLag.of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def behind_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --behind, the slave lag, to a command."""
    text = "Slave lag, what the slave lacks of the store: bytes of the log, or a time with --at request-time."
    return click.option("--behind", callback=_behind, metavar="SIZE|TIME", help=text)(command)


def check_behind(behind: SlaveLag, at: str, *, others: Mapping[str, bool]) -> None:
    """Check that --behind can be combined with --at and other options.

    Args:
        behind: the slave lag.
        at: which part of the store a request sees.
        others: options that need a master's store, and whether they are given.

    Raises:
        click.UsageError: --behind cannot be combined with one of the options.
    """
    if behind == NO_SLAVE_LAG:
        return
    if at == "recorded-max":
        raise click.UsageError("--behind cannot be combined with --at recorded-max: a recorded maximum is the end of one queue only")
    if behind.millis and at != "request-time":
        raise click.UsageError(
            f"--behind with a time: expected --at request-time, found --at {at}; give --at request-time, or --behind as a size"
        )
    for name, given in others.items():
        if given:
            raise click.UsageError(f"--behind cannot be combined with {name}: {name} assumes a master's store")


def _filters(_context: click.Context, _parameter: click.Parameter, value: str | None) -> frozenset[str] | None:
    if value is None:
        return None
    kinds = frozenset(value.split(","))
    if unknown := kinds - {"null", "TAG", "SQL92"}:
        raise click.BadParameter(f"expected some of null, TAG and SQL92 with commas between, found {', '.join(sorted(map(repr, unknown)))}")
    return kinds


def filters_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --filters."""
    text = "Answer only requests with these filters: null,TAG,SQL92."
    return click.option("--filters", callback=_filters, metavar="KINDS", help=text)(command)


def moment(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Return the ms since 1970 (UTC) of a time that is the value of an option, None without a value; a callback for click."""
    if value is None:
        return None
    try:
        stamp = int(value) if value.lstrip("-").isdecimal() else milliseconds(dt.datetime.fromisoformat(value))
        if -(2**63) <= stamp < 2**63:
            return stamp
    except (ValueError, OverflowError):
        pass
    raise click.BadParameter(f"expected ms since 1970 or a time such as 2024-05-01T12:00:00 (UTC), found {value!r}")


def span_options(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Add the options --from and --to, parameters `since` and `until`.

    Args:
        what: the rows that they narrow, for help.
    """

    def add(command: Callable[P, R]) -> Callable[P, R]:
        until = click.option("--to", "until", callback=moment, metavar="TIME", help=f"Only {what} before then; ms, or a time in UTC.")
        since = click.option("--from", "since", callback=moment, metavar="TIME", help=f"Only {what} since then; ms, or a time in UTC.")
        return since(until(command))

    return add


def require_lasting_port(target: str | None, *, lasts: bool, otherwise: str) -> None:
    """Check that a command which ends by itself does not publish metrics at a port.

    Args:
        target: value of --metrics.
        lasts: whether the command runs until it is stopped.
        otherwise: what the user can do so that the command runs on, for the message.

    Raises:
        click.UsageError: the target is a port, and the command ends by itself.
    """
    from pipeline.serving.http_server import is_address

    if target is not None and not lasts and is_address(target):
        raise click.UsageError(
            f"--metrics {target}: expected a file, found a port, which answers only while the command runs; {otherwise}, or give a file"
        )


@contextmanager
def metrics_at(target: str | None) -> Iterator[Publish | None]:
    """Yield the function that publishes metrics at the target of --metrics; None without a target."""
    if target is None:
        yield None
        return
    from pipeline.serving.metrics import metrics_target

    with metrics_target(target, progress_to_stderr) as publish:
        yield publish
