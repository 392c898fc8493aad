"""The broker's settings: the names and values that its configuration classes accept, with their defaults.

Broker source (4.9.3): BrokerConfig (common), MessageStoreConfig (store), NettyServerConfig and NettyClientConfig
(remoting), filled by BrokerStartup.createBrokerController through MixAll.properties2Object. Their names, types and
defaults are in conf/broker-defaults.json. What 4.9.8 and 5.5.0 added, changed and removed (null) is in conf/broker-changes.json; it was
read from the classes of these versions by reflection.

The broker is lenient; this module is strict. The broker silently ignores a name without a setter, and keeps the default
for a number or role that it cannot parse; it does not trim values (`32 ` is no number); and every text except `true`, in
any case, is false. This module raises a SettingsError for each of these, so an accepted value means the same in both.

Surprises, all seen on the real broker:
- BrokerStartup lowers accessMessageInMemoryMaxRatio by 10 for a SLAVE, but tests the role before it reads
  broker.conf, when it is still ASYNC_MASTER. So a slave's ratio is 40 like a master's, and this module lowers nothing.
- The brokerId of a master is 0, whatever its broker.conf has.
- MessageStoreConfig.getMappedFileSizeConsumeQueue rounds up to whole entries of 20 bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline.files.small_file import small_file
from pipeline.settings.resources import conf_text
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.errors import UnusableInputError, printable, shown
from store_format.store.written_by import WrittenBy
from udfs.filters.retry_rules import RetryRules
from udfs.pull.pull_rules import PullRules

Value = bool | int | float | str

# the setting of the option --rules
RULES_VERSION = "rulesVersion"
_BY_DEFAULT = "no option, file or header names another version"

_BOUNDS = {"int": 2**31, "long": 2**63}
_WHAT = {
    "int": "an int from -2147483648 to 2147483647",
    "long": "a long from -9223372036854775808 to 9223372036854775807",
    "double": "a number",
    "boolean": "true or false",
    "String": "a text",
}
_BOOLEANS = {"true": True, "false": False}
# as Integer.parseInt: an optional sign and digits, no blanks and no underscores
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DOUBLE = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?")
_LINE_END = re.compile(r"\r\n|\r|\n")
# the trace header's object `bloom` -> the BrokerConfig field; k and m follow from these two
_BLOOM = {"errorRate": "maxErrorRateOfBloomFilter", "expectConsumers": "expectConsumerNumUseFilter"}
_BLOOM_DERIVED = frozenset({"k", "m"})


class SettingsError(UnusableInputError, ValueError):
    """A setting, or a source of settings, that cannot be used; the message is a full sentence.

    Attributes:
        where: file and line, or the option.
        name: the setting's name, as the source spells it.
        expected: the expected value.
        found: the value found.
        hint: advice, or an empty string.
    """

    def __init__(self, where: str, name: str, expected: str, found: str, hint: str = "") -> None:
        super().__init__(where, name, expected, found, hint)
        self.where = where
        self.name = name
        self.expected = expected
        self.found = found
        self.hint = hint

    def __str__(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.where}: {self.name} must be {self.expected}, but is {self.found}{hint}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting of the broker, or of the section `pullsim`, which only the simulator has.

    Attributes:
        name: the broker's own name, from the setter.
        type: int, long, double, boolean, String or enum.
        default: the value of a new instance of the version; None if that is null or depends on the machine.
        values: the constants of an enum; empty for other types.
        rounds_up_to: the getter returns the next multiple of this number (1: the value itself).
    """

    name: str
    type: str
    default: Value | None
    values: tuple[str, ...] = ()
    rounds_up_to: int = 1

    def from_text(self, text: str, where: str) -> Value:
        """Return the value of `text` as properties2Object reads it; raise SettingsError if the broker would keep the default or guess."""
        value: Value = text
        if self.type in _BOUNDS and _INTEGER.fullmatch(text):
            value = int(text)
        elif self.type == "double" and _DOUBLE.fullmatch(text):
            value = float(text)
        elif self.type == "boolean":
            value = _BOOLEANS.get(text.lower(), text)
        return self.checked(value, where, "the broker does not trim values" if text != text.strip() else "")

    def checked(self, value: object, where: str, hint: str = "") -> Value:
        """Return `value` as the broker's getter returns it; raise SettingsError if it is not of this setting's type."""
        match value:
            case bool() if self.type == "boolean":
                return value
            case str() if self.type == "String" or value in self.values:
                return value
            case int() | float() if self.type == "double" and not isinstance(value, bool):
                return float(value)
            case int() if self.type in _BOUNDS and not isinstance(value, bool):
                answered = -(-value // self.rounds_up_to) * self.rounds_up_to
                if -_BOUNDS[self.type] <= value <= answered < _BOUNDS[self.type]:
                    return answered
        expected = _WHAT.get(self.type) or f"one of {', '.join(self.values)}"
        raise SettingsError(where, self.name, expected, shown(value), hint)


@cache
def load_catalogue(version: BrokerVersion = DEFAULT_VERSION) -> Mapping[str, Setting]:
    """Return name -> setting for all settings that a version knows; a name in two sections means the same in both."""
    sections = json.loads(conf_text("broker-defaults.json"))
    entries = {name: entry for section in sections.values() for name, entry in section.items()}
    for later, changes in json.loads(conf_text("broker-changes.json")).items():
        if BrokerVersion(later).place <= version.place:
            entries |= changes
    return MappingProxyType(
        {
            name: Setting(
                name=name,
                type=entry["type"],
                default=entry["default"],
                values=tuple(entry.get("values", ())),
                rounds_up_to=entry.get("roundsUpTo", 1),
            )
            for name, entry in entries.items()
            if entry is not None
        }
    )


def section_of(name: str) -> str:
    """Return the broker's class that has a setting of 4.9.3, or the section of the catalogue."""
    sections: dict[str, dict[str, Any]] = json.loads(conf_text("broker-defaults.json"))
    return next(section for section, entries in sections.items() if name in entries)


@cache
def _known_somewhere() -> Mapping[str, Setting]:
    """Return name -> setting for the settings of all versions, as in the first version that knows the name."""
    known: dict[str, Setting] = {}
    for version in BrokerVersion:
        known = dict(load_catalogue(version)) | known
    return MappingProxyType(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """The settings that getMessage and the answer to a pull depend on; each field is the broker's setting in snake_case.

    Attributes:
        broker_role: ASYNC_MASTER, SYNC_MASTER or SLAVE.
        offset_check_in_slave: whether a slave corrects the next offset as a master does.
        access_message_in_memory_max_ratio: percent of the memory; messages further from the log's end count as on disk.
        max_transfer_bytes_on_message_in_memory: cap of a batch while an entry counts as in memory, bytes.
        max_transfer_count_on_message_in_memory: cap of a batch while an entry counts as in memory, messages.
        max_transfer_bytes_on_message_in_disk: cap of a batch once an entry counts as on disk, bytes.
        max_transfer_count_on_message_in_disk: cap of a batch once an entry counts as on disk, messages.
        disk_fall_recorded: whether the broker records the distance to the log's end.
        total_physical_memory_size: memory of the broker's machine, bytes (StoreUtil.TOTAL_PHYSICAL_MEMORY_SIZE).
        readable: RunningFlags.isReadable; if false, the store answers null.
        filter_support_retry: whether messages of %RETRY% topics are filtered by their group's expression for the original topic.
        enable_consume_queue_ext: whether queues have extensions.
        max_error_rate_of_bloom_filter: error rate of the bit maps in extensions, percent.
        expect_consumer_num_use_filter: number of consumers for which a bit map is made.
        enable_lmq: whether light message queues exist.
        enable_multi_dispatch: whether a message may go to several light message queues.
        max_lmq_consume_queue_num: greatest number of light message queues.
        broker_id: brokerId, 0 for a master.
        slave_read_enable: whether the broker suggests a slave for slow pulls.
        max_filter_message_size: bytes of the smallest window; 16000 is built in if the version lacks the setting.
        travel_cq_file_num_when_get_message: queue files that a pull reads while it finds nothing; 1 if the version lacks the setting.
        max_total_msg_size: most bytes of a batch, if the version has this limit.
        rules_version: version of the broker whose rules hold.
    """

    broker_role: str
    offset_check_in_slave: bool
    access_message_in_memory_max_ratio: int
    max_transfer_bytes_on_message_in_memory: int
    max_transfer_count_on_message_in_memory: int
    max_transfer_bytes_on_message_in_disk: int
    max_transfer_count_on_message_in_disk: int
    disk_fall_recorded: bool
    total_physical_memory_size: int
    readable: bool
    filter_support_retry: bool
    enable_consume_queue_ext: bool
    max_error_rate_of_bloom_filter: int
    expect_consumer_num_use_filter: int
    enable_lmq: bool
    enable_multi_dispatch: bool
    max_lmq_consume_queue_num: int
    broker_id: int
    slave_read_enable: bool
    max_filter_message_size: int
    travel_cq_file_num_when_get_message: int
    max_total_msg_size: int
    rules_version: str

    @property
    def rules(self) -> PullRules:
        """The rules of getMessage in the broker's version."""
        return PullRules.of(BrokerVersion(self.rules_version))

    @property
    def retry_rules(self) -> RetryRules:
        """The rules of filterSupportRetry in the broker's version."""
        return RetryRules.of(BrokerVersion(self.rules_version))


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings of one broker: the values of its sources, and the defaults of its version for all others.

    Attributes:
        given: the values of the sources by name.
        version_source: what names the version, a text for people.
    """

    given: Mapping[str, Value]
    version_source: str = field(default=_BY_DEFAULT, compare=False)

    @classmethod
    def from_sources(
        cls,
        *,
        stored: Mapping[str, str] | None = None,
        header: object = None,
        header_where: str = "the config of the header",
        properties: str | Path | None = None,
        options: Sequence[str] = (),
        written_by: WrittenBy | None = None,
    ) -> BrokerSettings:
        """Return the settings of all sources; in the order of the arguments, a later source replaces an earlier one.

        Args:
            stored: the settings of an import, as texts; None if they are unknown.
            header: the `config` object of a trace's first line, values typed as in JSON; None if there is none.
            header_where: name of the header in an error.
            properties: path of a broker.conf, in the format of java.util.Properties.
            options: texts `name=value`, the values of `--set`.
            written_by: the version that the files of the store show; the version of any other source replaces it.

        The settings of an import and of a header may be those of any version; a setting that the version of the rules lacks has no effect.
        If the properties have a name that only a later version knows, the rules are those of that version, unless an option names another.

        Raises:
            SettingsError: a name is unknown, a value has a wrong type, or a source cannot be read.
        """
        known = _known_somewhere()
        given: dict[str, Value] = {} if written_by is None else {RULES_VERSION: written_by.version.value}
        source = _BY_DEFAULT if written_by is None else written_by.evidence
        chosen = dict(_option_values([text for text in options if text.partition("=")[0] == RULES_VERSION], known))
        for where, values in (
            ("the import names it", dict(_option_values([f"{name}={text}" for name, text in (stored or {}).items()], known))),
            (f"{header_where} names it", {} if header is None else dict(_header_values(header, header_where))),
            ("an option names it", chosen),
        ):
            given |= values
            source = where if RULES_VERSION in values else source
        version = BrokerVersion(given.get(RULES_VERSION, DEFAULT_VERSION.value))
        if properties is not None and not chosen and (later := _told_by(Path(properties), version)) != version:
            source = f"{properties} has settings that {version.value} lacks"
            version, given[RULES_VERSION] = later, later.value
        catalogue = load_catalogue(version)
        from_file = dict(_properties_values(Path(properties), catalogue)) if properties is not None else {}
        from_options = dict(_option_values(options, catalogue))
        given |= from_file | from_options
        # a master sets its id to 0 when it starts, whatever broker.conf has; the id of a header or an option is used as given
        if "brokerId" in from_file.keys() - from_options.keys() and given.get("brokerRole") != "SLAVE":
            given["brokerId"] = 0
        return cls(given, source)

    @property
    def version(self) -> BrokerVersion:
        """The version of the broker whose rules hold."""
        return BrokerVersion(self.given.get(RULES_VERSION, DEFAULT_VERSION.value))

    @property
    def told_version(self) -> str:
        """The version whose rules hold, and what names it, a text for people."""
        return f"the rules are those of broker {self.version.value}: {self.version_source}"

    def under(self, version: BrokerVersion) -> BrokerSettings:
        """Return the settings with the rules of a version; a setting that this version lacks has no effect."""
        return BrokerSettings({**self.given, RULES_VERSION: version.value})

    def value(self, name: str) -> Any:
        """Return the effective value, typed as in the catalogue; None if no source has it and the default depends on the machine.

        A setting that the version lacks has the default of the version that knows it; the rule decides whether it uses the setting.
        """
        setting = load_catalogue(self.version).get(name)
        return _known_somewhere()[name].default if setting is None else self.given.get(name, setting.default)

    def explicit(self, name: str) -> Any:
        """Return the value if a source has one, else None; callers then take the sizes of a store's files from the files."""
        return self.given.get(_known_somewhere()[name].name)

    @property
    def broker_name(self) -> str | None:
        """The broker's name if a source has one, else None (by default a broker takes the name of its host)."""
        name: str | None = self.explicit("brokerName")
        return name

    def pull_settings(self) -> PullSettings:
        """Return the settings of the pull path."""
        return PullSettings(**{field.name: self.value(camel_case(field.name)) for field in fields(PullSettings)})

    def as_dict(self) -> dict[str, Value]:
        """Return the values of the sources for JSON, sorted by name; passed as `header` they give equal settings."""
        return dict(sorted(self.given.items()))

    def as_texts(self) -> dict[str, str]:
        """Return the values of the sources as texts."""
        return {name: str(value) for name, value in self.as_dict().items()}


def _header_values(config: object, where: str) -> Iterator[tuple[str, Value]]:
    if not isinstance(config, dict):
        raise SettingsError(where, "config", "an object of settings", shown(config))
    for name, value in config.items():
        if name != "bloom":
            yield name, _setting(name, where, _known_somewhere()).checked(value, where)
        elif isinstance(value, dict) and all(isinstance(number, int) for number in value.values()):
            yield from _bloom_values(value, f"{where}, bloom")
        else:
            raise SettingsError(where, name, "an object of integers", shown(value))


def _bloom_values(bloom: Mapping[str, int], where: str) -> Iterator[tuple[str, Value]]:
    for name in bloom.keys() - _BLOOM_DERIVED:
        if name not in _BLOOM:
            raise SettingsError(where, shown(name), f"one of {', '.join(sorted(_BLOOM.keys() | _BLOOM_DERIVED))}", "unknown")
        yield _BLOOM[name], _setting(_BLOOM[name], where, load_catalogue()).checked(bloom[name], where)


def _told_by(path: Path, version: BrokerVersion) -> BrokerVersion:
    """Return the first version from `version` on that knows the most names of a properties file."""
    import javaproperties  # noqa: PLC0415 (it loads parsers of XML and of the web's protocols)

    try:
        names = javaproperties.loads(small_file(path).decode("latin-1")).keys()
    except (OSError, UnusableInputError, javaproperties.InvalidUEscapeError):  # `_properties_values` reports what is wrong
        return version
    later = [one for one in BrokerVersion if one.place >= version.place]
    return max(later, key=lambda one: (len(names & load_catalogue(one).keys()), -one.place))


def _properties_values(path: Path, catalogue: Mapping[str, Setting]) -> Iterator[tuple[str, Value]]:
    import javaproperties  # noqa: PLC0415 (likewise)

    line = 1
    try:
        for element in javaproperties.parse(small_file(path)):
            if isinstance(element, javaproperties.KeyValue):
                where = f"{path}, line {line}"
                yield element.key, _setting(element.key, where, catalogue).from_text(element.value, where)
            line += len(_LINE_END.findall(element.source))
    except OSError as error:
        raise SettingsError(str(path), "the properties file", "readable", error.strerror or repr(error)) from error
    except javaproperties.InvalidUEscapeError as error:
        where = f"{path}, line {line}"
        raise SettingsError(where, "an escape", r"\uXXXX with four hex digits", printable(error.escape)) from error


def _option_values(options: Sequence[str], catalogue: Mapping[str, Setting]) -> Iterator[tuple[str, Value]]:
    for option in options:
        where = f"--set {option}"
        name, equals, text = option.partition("=")
        if not equals:
            raise SettingsError(where, "the option", "name=value", shown(option))
        yield name, _setting(name, where, catalogue).from_text(text, where)


def _setting(name: str, where: str, catalogue: Mapping[str, Setting]) -> Setting:
    if name not in catalogue:
        known = _versions_that_know(name)
        hint = f"{' and '.join(known)} know it" if known else f"the nearest known name is {nearest(name, catalogue, 1)[0]}"
        versions = [one.value for one in BrokerVersion if load_catalogue(one) is catalogue]
        raise SettingsError(where, shown(name), f"a setting that broker {(versions or [DEFAULT_VERSION.value])[0]} knows", "unknown", hint)
    return catalogue[name]


def _versions_that_know(name: str) -> list[str]:
    return [version.value for version in BrokerVersion if name in load_catalogue(version)]


def camel_case(snake_case: str) -> str:
    """Return a name in snake_case as the broker's name in camelCase."""
    first, *others = snake_case.split("_")
    return first + "".join(word.capitalize() for word in others)


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the `count` known names most similar to `name`, the most similar first; case does not matter."""
    spelled = {one.lower(): one for one in known}
    return [spelled[one] for one in get_close_matches(name.lower(), spelled, n=count, cutoff=0.0)]
