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

# how the recording broker differs from a fresh one
_BASE: Mapping[str, Value] = {
    "brokerName": "broker-a",
    "brokerClusterName": "DefaultCluster",
    "brokerIP1": "127.0.0.1",
    "mappedFileSizeCommitLog": 64 * 1024 * 1024,
}


@dataclass(frozen=True, slots=True)
class ScenarioSettings:
    """Settings as `udfs.broker.memory_broker` asks for them."""

    settings: BrokerSettings

    @classmethod
    def of(cls, base: Mapping[str, Value]) -> ScenarioSettings:
        """The settings that a scenario names, over those of the recording broker."""
        return cls(BrokerSettings({**_BASE, **base}))

    def value(self, name: str) -> Any:
        """The value of a setting by the broker's own name."""
        return self.settings.value(name)

    def changed(self, values: Mapping[str, Value]) -> ScenarioSettings:
        """The settings with other values for some names."""
        return ScenarioSettings(BrokerSettings({**self.settings.given, **values}))

    def scan(self) -> PullSettings:
        """What the scan of a pull depends on."""
        return self.settings.pull_settings()

    def pulls(self) -> PullBrokerConfig:
        """What the answer to a pull depends on, beside the scan."""
        return pull_broker_config(self.settings)

    def sends(self) -> SendBrokerConfig:
        """What sending depends on."""
        return send_broker_config(self.settings)

    def system_topics(self) -> SystemTopics:
        """The topics that the broker starts with."""
        return system_topics(self.settings)
