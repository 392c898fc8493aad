"""The settings of a scenario's broker, read from the catalogue of settings for the broker in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.settings.rule_settings import pull_broker_config, send_broker_config, system_topics
from pipeline.settings.settings import BrokerSettings, PullSettings, Value
from udfs.broker.pull_message_processor import PullBrokerConfig
from udfs.broker.send_message import SendBrokerConfig
from udfs.broker.topic_config import SystemTopics

# settings of the recording broker that differ from the defaults
_BASE: Mapping[str, Value] = {
    "brokerName": "broker-a",
    "brokerClusterName": "DefaultCluster",
    "brokerIP1": "127.0.0.1",
    "mappedFileSizeCommitLog": 64 * 1024 * 1024,
}


@dataclass(frozen=True, slots=True)
class ScenarioSettings:
    """The settings for `udfs.broker.memory_broker`."""

    settings: BrokerSettings

    @classmethod
    def of(cls, base: Mapping[str, Value]) -> ScenarioSettings:
        """Return the settings of the recording broker, with those of a scenario in their place."""
        return cls(BrokerSettings({**_BASE, **base}))

    def value(self, name: str) -> Any:
        """Return the value of a setting by the broker's own name."""
        return self.settings.value(name)

    def changed(self, values: Mapping[str, Value]) -> ScenarioSettings:
        """Return the settings with changed values."""
        return ScenarioSettings(BrokerSettings({**self.settings.given, **values}))

    def scan(self) -> PullSettings:
        """Return the settings of a pull's scan."""
        return self.settings.pull_settings()

    def pulls(self) -> PullBrokerConfig:
        """Return the settings of a pull's answer, without those of the scan."""
        return pull_broker_config(self.settings)

    def sends(self) -> SendBrokerConfig:
        """Return the settings of sending."""
        return send_broker_config(self.settings)

    def system_topics(self) -> SystemTopics:
        """Return the settings of the topics that the broker starts with."""
        return system_topics(self.settings)
