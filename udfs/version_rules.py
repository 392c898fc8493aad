"""All rules that differ between versions of the broker, by name.

Each rule is defined in the room of its subject. The comparison of two versions, and the page that lists the rules, read them from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from store_format.broker_version import BrokerVersion, Rule
from store_format.config.fastjson_writer import TO_JSON
from store_format.index.index_dispatch import BUILD_INDEX
from store_format.index.index_file import INDEX_FILE_SHUTDOWN
from store_format.log.put_message import PUT_MESSAGE
from store_format.queue.consume_queue import CORRECT_MIN_OFFSET
from store_format.queue.entry_properties import DECODE_PROPERTIES
from store_format.record.message_version import MESSAGE_VERSION
from store_format.store.checkpoint import STORE_CHECKPOINT
from store_format.store.lookup_by_time import LOOK_UPS
from store_format.store.multi_dispatch import MULTI_DISPATCH
from store_format.store.recover_by_queues import RECOVER
from udfs.broker.broker_rules import BROKER_RULES
from udfs.filters.retry_rules import RETRY_RULES
from udfs.filters.sql92_rules import TEXT_OPERATORS
from udfs.pull.pull_rules import PULL_RULES

DECODES_BY_MAGIC_CODE: Final = "decodes_by_magic_code"
MIN_BY_SEARCH: Final = "min_by_search"
FILTER_RULES: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {**RETRY_RULES, DECODES_BY_MAGIC_CODE: DECODE_PROPERTIES, "text_operators": TEXT_OPERATORS}
)
QUEUE_RULES: Final[Mapping[str, Rule[Any]]] = MappingProxyType({MIN_BY_SEARCH: CORRECT_MIN_OFFSET})
FILE_RULES: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        "message_versions": MESSAGE_VERSION,
        "recovers_by_queues": RECOVER,
        "checkpoint_has_offsets": STORE_CHECKPOINT,
        "indexes_tags": BUILD_INDEX,
        "shutdown_writes_index_headers": INDEX_FILE_SHUTDOWN,
        "further_queues": MULTI_DISPATCH,
        "longest_message": PUT_MESSAGE,
    }
)
CONFIG_RULES: Final[Mapping[str, Rule[Any]]] = MappingProxyType({"config_text": TO_JSON})
LOOK_UP_RULES: Final[Mapping[str, Rule[Any]]] = MappingProxyType({"looks_up_by_boundary": LOOK_UPS})

RULES_BY_SUBJECT: Final[Mapping[str, Mapping[str, Rule[Any]]]] = MappingProxyType(
    {
        "The scan of a pull": PULL_RULES,
        "Filters": FILTER_RULES,
        "The bounds of queues": QUEUE_RULES,
        "Load, start and shutdown": FILE_RULES,
        "Look-ups": LOOK_UP_RULES,
        "The broker around its store": BROKER_RULES,
        "Config files": CONFIG_RULES,
    }
)
ALL_RULES: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {name: rule for rules in RULES_BY_SUBJECT.values() for name, rule in rules.items()}
)


def rules_between(earlier: BrokerVersion, later: BrokerVersion) -> tuple[str, ...]:
    """Return the names of the rules whose variants differ between two versions, in the order of ALL_RULES."""
    return tuple(name for name, rule in ALL_RULES.items() if rule.of(earlier) is not rule.of(later))


def said_of(name: str, versions: Iterable[BrokerVersion]) -> dict[str, dict[str, str]]:
    """Return the meaning and the source of a rule in each version, by the version's name; empty if there is no rule `name`."""
    variants = {version.value: ALL_RULES[name].of(version) for version in versions if name in ALL_RULES}
    return {version: {"says": variant.meaning, "source": variant.source} for version, variant in variants.items()}
