"""The clients and the subscriptions of each consumer group, as heartbeats register them.

Broker source (4.9.3): ConsumerManager, ConsumerGroupInfo, DefaultConsumerIdsChangeListener.
Rules: subscriptions belong to the group, not to the client, and the last heartbeat decides. A topic that is not in the heartbeat is
removed. A subscription is replaced only by one with a greater subVersion. A group is removed with its last connection. Each heartbeat
updates the filter data of expressions.
Surprises: a client is identified by its connection; its id is only stored. A second id on one connection replaces the first. Members are
notified of a new or a removed topic, but not of a new version of a subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from store_format.remoting.heartbeat import ConsumerData, HeartbeatSubscription
from udfs.filters.consumer_filter_manager import ConsumerFilterManager

Channel = str
CONSUME_ACTIVELY: Final = "CONSUME_ACTIVELY"  # ConsumeType of clients that pull of their own accord


@dataclass(slots=True, kw_only=True)
class ConsumerGroupInfo:
    """A group that has clients: client ids by connection, subscriptions by topic, values of the last heartbeat (None if it had none)."""

    consume_type: str | None
    message_model: str | None
    consume_from_where: str | None
    channel_info_table: dict[Channel, str | None] = field(default_factory=dict)
    subscription_table: dict[str | None, HeartbeatSubscription] = field(default_factory=dict)

    def update_channel(self, channel: Channel, client_id: str | None, data: ConsumerData) -> bool:
        """Register the connection of a heartbeat's consumer and return whether it is new."""
        self.consume_type, self.message_model, self.consume_from_where = data.consumeType, data.messageModel, data.consumeFromWhere
        is_new = channel not in self.channel_info_table
        self.channel_info_table[channel] = client_id
        return is_new

    def update_subscription(self, subscriptions: Iterable[HeartbeatSubscription]) -> bool:
        """Register a heartbeat's subscriptions and return whether a topic was added or removed."""
        updated = False
        named = set()
        for one in subscriptions:
            named.add(one.topic)
            old = self.subscription_table.get(one.topic)
            updated = updated or old is None
            if old is None or (one.subVersion or 0) > (old.subVersion or 0):
                self.subscription_table[one.topic] = one
        gone = self.subscription_table.keys() - named
        for topic in gone:
            del self.subscription_table[topic]
        return updated or bool(gone)


@dataclass(slots=True, kw_only=True)
class ConsumerManager:
    """The groups that have clients.

    Attributes:
        filters: the filter data that heartbeats register.
        notify: notifies a connection that its group changed (NOTIFY_CONSUMER_IDS_CHANGED).
        notify_consumer_ids_changed_enable: returns the broker's setting notifyConsumerIdsChangedEnable; called at each change.
        tells_broadcasting: whether the clients of a BROADCASTING group are notified.
    """

    filters: ConsumerFilterManager
    notify: Callable[[Channel, str], None]
    notify_consumer_ids_changed_enable: Callable[[], bool]
    tells_broadcasting: bool = True
    consumer_table: dict[str, ConsumerGroupInfo] = field(default_factory=dict)

    def get_consumer_group_info(self, group: str) -> ConsumerGroupInfo | None:
        """Return the group of this name, None if it has no clients."""
        return self.consumer_table.get(group)

    def register_consumer(
        self,
        group: str,
        channel: Channel,
        client_id: str | None,
        data: ConsumerData,
        now: int,
        *,
        tell: bool,
        keeps_subscriptions: bool = False,
    ) -> None:
        """Register a group of a heartbeat at `now` (ms).

        `tell` is notifyConsumerIdsChangedEnable of the group's configuration. With `keeps_subscriptions` the group's subscriptions stay
        (registerConsumerWithoutSub of 5.5.0).
        """
        info = self.consumer_table.get(group)
        if info is None:
            info = ConsumerGroupInfo(
                consume_type=data.consumeType, message_model=data.messageModel, consume_from_where=data.consumeFromWhere
            )
            self.consumer_table[group] = info
        is_new = info.update_channel(channel, client_id, data)
        if keeps_subscriptions:
            if is_new:
                self._change(group, info, tell=tell)
            return
        if info.update_subscription(data.subscriptionDataSet) or is_new:
            self._change(group, info, tell=tell)
        self.filters.register_all(group, data.subscriptionDataSet, now)

    def unregister_consumer(self, group: str, channel: Channel, now: int, *, tell: bool) -> None:
        """Remove a connection from a group: UNREGISTER_CLIENT. The arguments are those of `register_consumer`."""
        info = self.consumer_table.get(group)
        if info is None:
            return
        info.channel_info_table.pop(channel, None)
        self._drop_if_empty(group, info, now)
        self._change(group, info, tell=tell)

    def do_channel_close_event(self, channel: Channel, now: int) -> None:
        """Remove a closed connection from its groups; their members are notified whatever the group's own setting is."""
        for group, info in list(self.consumer_table.items()):
            if channel in info.channel_info_table:
                del info.channel_info_table[channel]
                self._drop_if_empty(group, info, now)
                self._change(group, info, tell=True)

    def _drop_if_empty(self, group: str, info: ConsumerGroupInfo, now: int) -> None:
        if not info.channel_info_table:
            del self.consumer_table[group]
            self.filters.unregister(group, now)

    def _change(self, group: str, info: ConsumerGroupInfo, *, tell: bool) -> None:
        is_told = self.tells_broadcasting or info.message_model != "BROADCASTING"
        if tell and is_told and self.notify_consumer_ids_changed_enable():
            for channel in info.channel_info_table:
                self.notify(channel, group)


def subscriptions_of(info: ConsumerGroupInfo) -> Mapping[str | None, HeartbeatSubscription]:
    """Return a group's subscriptions by topic, in the order of topics."""
    return dict(sorted(info.subscription_table.items(), key=lambda item: item[0] or ""))
