"""The settings of a scenario's broker, read from the catalogue of settings for the broker in memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pipeline.settings.rule_settings import pull_broker_config, send_broker_config, system_topics
from pipeline.settings.settings import BrokerSettings, Value
from store_format.log.put_message import PUT_MESSAGE
from store_format.store.lookup_by_time import LOOK_UPS
from store_format.store.multi_dispatch import MULTI_DISPATCH
from udfs.broker.broker_rules import BrokerRules
from udfs.broker.memory_broker import MemorySettings
from udfs.filters.retry_rules import RetryRules
from udfs.filters.sql92_rules import TEXT_OPERATORS

# settings of the recording broker that differ from the defaults
_BASE: Mapping[str, Value] = {
    "brokerName": "broker-a",
    "brokerClusterName": "DefaultCluster",
    "brokerIP1": "127.0.0.1",
    "mappedFileSizeCommitLog": 64 * 1024 * 1024,
}


def memory_settings(changed: Mapping[str, Value]) -> MemorySettings:
    """Return the settings of the recording broker; the values in `changed` replace its own."""
    settings = BrokerSettings({**_BASE, **changed})
    return MemorySettings(
        value=settings.value,
        changed=lambda values: memory_settings({**changed, **values}),
        scan=settings.pull_settings,
        pulls=partial(pull_broker_config, settings),
        sends=partial(send_broker_config, settings),
        system_topics=partial(system_topics, settings),
        rules=BrokerRules.of(settings.version),
        retry_rules=RetryRules.of(settings.version),
        by_boundary=LOOK_UPS.of(settings.version).value,
        text_operators=TEXT_OPERATORS.of(settings.version).value,
        multi_dispatch=MULTI_DISPATCH.of(settings.version).value,
        put_message=PUT_MESSAGE.of(settings.version).value,
    )
