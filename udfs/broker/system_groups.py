"""The consumer groups of the broker itself.

Broker source (4.9.3): SubscriptionGroupManager.init, MixAll.isSysConsumerGroup.
"""

from __future__ import annotations

from typing import Final

CID_RMQ_SYS_PREFIX: Final = "CID_RMQ_SYS_"
SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)


# beside SYSTEM_GROUPS, groups whose pulls rejectPullConsumerEnable lets pass
_OTHER_PULLING: Final = ("DEFAULT_CONSUMER", "SCHEDULE_CONSUMER", "__MONITOR_CONSUMER")


def is_sys_consumer_group_pull_message(group: str) -> bool:
    """Return whether a group pulls for the broker's own purposes: MixAll.isSysConsumerGroupPullMessage (5.5.0)."""
    return group in SYSTEM_GROUPS or group in _OTHER_PULLING or is_sys_consumer_group(group)


def is_sys_consumer_group(group: str) -> bool:
    """Return whether a group is one of the broker's own: MixAll.isSysConsumerGroup."""
    return group.startswith(CID_RMQ_SYS_PREFIX)
