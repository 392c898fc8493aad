"""The configurations of consumer groups, and when the broker creates one.

Broker source (4.9.3): SubscriptionGroupManager (init, findSubscriptionGroupConfig, updateSubscriptionGroupConfig), MixAll,
LmqSubscriptionGroupManager.findSubscriptionGroupConfig.
Rule: a look-up of an unknown group creates it with the defaults if autoCreateSubscriptionGroup is set; in 5.5.0 only if its name is valid.
Surprises: a pull that fails a later check has created the group too. A group whose name begins with CID_RMQ_SYS_ is created whatever the
setting is. Seven groups exist from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from store_format.config.config_rows import SubscriptionGroupConfig
from store_format.store.lookup import NULL_POINTER, ThrownError
from store_format.store.multi_dispatch import is_light_queue
from udfs.broker.system_groups import SYSTEM_GROUPS, is_sys_consumer_group
from udfs.broker.topic_validator import is_valid_group


@dataclass(slots=True, kw_only=True)
class SubscriptionGroupManager:
    """The configurations of groups by name.

    Attributes:
        subscription_group_table: name -> configuration.
        updated: called with each configuration that is created or replaced, or whose group's forbidden topics change.
        enable_lmq: enableLmq at the broker's start, with which each group of light message queues has the defaults.
        needs_valid_names: whether only groups with valid names are created.
        forbidden: (group, topic) of the subscriptions that an administrator has forbidden (forbiddenTable of 5.x).
    """

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(
        default_factory=lambda: {name: SubscriptionGroupConfig(groupName=name) for name in SYSTEM_GROUPS}
    )
    updated: Callable[[SubscriptionGroupConfig], None] = lambda _config: None
    enable_lmq: bool = False
    needs_valid_names: bool = False
    forbidden: set[tuple[str, str]] = field(default_factory=set)

    def update_subscription_group_config(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace the configuration of a group; ignored for a group of light message queues."""
        if self._is_of_light_queues(config.groupName):
            return
        self.subscription_group_table[config.groupName] = config
        self.updated(config)

    def find_subscription_group_config(self, group: str | None, *, auto_create: bool) -> SubscriptionGroupConfig | None:
        """Return the configuration of a group, created if that is allowed; else None.

        Raises:
            ThrownError: the name is missing; the broker's map throws on null.
        """
        if group is None:
            raise ThrownError(NULL_POINTER)
        if self._is_of_light_queues(group):
            return SubscriptionGroupConfig(groupName=group)
        config = self.subscription_group_table.get(group)
        may_be_created = is_valid_group(group) or not self.needs_valid_names
        if config is None and may_be_created and (auto_create or is_sys_consumer_group(group)):
            config = SubscriptionGroupConfig(groupName=group)
            self.update_subscription_group_config(config)
        return config

    def contains_subscription_group(self, group: str | None) -> bool:
        """Return whether a group has a configuration; one of light message queues needs none (5.5.0)."""
        return group is not None and (self._is_of_light_queues(group) or group in self.subscription_group_table)

    def update_forbidden(self, group: str, topic: str, *, readable: bool) -> None:
        """Forbid the registered clients of a group to pull a topic, or allow it again (updateForbidden of 5.5.0)."""
        if readable:
            self.forbidden.discard((group, topic))
        else:
            self.forbidden.add((group, topic))
        if group in self.subscription_group_table:
            self.updated(self.subscription_group_table[group])

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Return whether the registered clients of a group may not pull a topic (getForbidden of 5.5.0)."""
        return (group, topic) in self.forbidden

    def _is_of_light_queues(self, group: str) -> bool:
        return is_light_queue(group, enable_lmq=self.enable_lmq)
