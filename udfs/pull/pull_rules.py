"""The rules of getMessage that differ between versions of the broker: a table of variants for each, and the values of one version.

Broker source: DefaultMessageStore.getMessage and GetMessageResult of 4.9.3, 4.9.8 and 5.5.0; each variant names its own place.
Surprise: some rules change only diskFallBehind, suggestPullingFromSlave and msgCount4Commercial; a comparison of statuses misses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from store_format.broker_version import DEFAULT_VERSION, BrokerVersion, Rule, Variant, values_of

_V3, _V8, _V5 = BrokerVersion.V4_9_3, BrokerVersion.V4_9_8, BrokerVersion.V5_5_0
_GET_MESSAGE: Final = "DefaultMessageStore.getMessage"

PULL_RULES: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        "overflow_badly_goes_to_max": Rule(
            term="OFFSET_OVERFLOW_BADLY",
            variants=(
                Variant(
                    _V3,
                    False,
                    "an offset above max goes back to 0 where min is 0, else to max",
                    f"{_GET_MESSAGE}, the test offset > maxOffset",
                ),
                Variant(
                    _V8,
                    True,
                    "an offset above max goes to max, also where min is 0",
                    f"{_GET_MESSAGE}, the test offset > maxOffset (since 4.9.4)",
                ),
            ),
        ),
        "fullness_test_comes_first": Rule(
            term="isTheBatchFull",
            variants=(
                Variant(
                    _V3,
                    False,
                    "before isTheBatchFull, maxPhyOffsetPulling is updated, and an entry of a removed file is skipped",
                    f"{_GET_MESSAGE}, the loop over the queue's bytes",
                ),
                Variant(
                    _V5,
                    True,
                    (
                        "isTheBatchFull comes first: the entry that ends the batch does not update maxPhyOffsetPulling, and an entry "
                        "of a removed file can end the batch"
                    ),
                    f"{_GET_MESSAGE}, the loop over ConsumeQueueInterface.iterateFrom",
                ),
            ),
        ),
        "every_scan_records_fall_behind": Rule(
            term="recordDiskFallBehindSize after OFFSET_FOUND_NULL",
            variants=(
                Variant(
                    _V3,
                    False,
                    "if the scan reads no entry, nothing is recorded and no slave is suggested",
                    f"{_GET_MESSAGE}, where bufferConsumeQueue is not null",
                ),
                Variant(
                    _V5,
                    True,
                    (
                        "if the scan reads no entry, maxPhyOffsetPulling is 0: the whole log is recorded, and a slave is suggested "
                        "if the log exceeds the memory"
                    ),
                    f"{_GET_MESSAGE}, after the loop over queue files",
                ),
            ),
        ),
        "overflow_one_records_zero": Rule(
            term="recordDiskFallBehindSize after OFFSET_OVERFLOW_ONE",
            variants=(
                Variant(_V3, False, "a pull at max records nothing", _GET_MESSAGE),
                Variant(_V5, True, "a pull at max records diskFallBehind 0", f"{_GET_MESSAGE}, after the counts of found and missed pulls"),
            ),
        ),
        "size_per_count": Rule(
            term="msgCount4Commercial",
            variants=(
                Variant(
                    _V3,
                    64 * 1024,
                    "a message counts its blocks of 64 KiB",
                    "GetMessageResult.addMessage, BrokerStatsManager.SIZE_PER_COUNT",
                ),
                Variant(_V5, 4 * 1024, "a message counts its blocks of 4 KiB", "GetMessageResult.addMessage, commercialSizePerMsg"),
            ),
        ),
        "lists_are_made_for_max_msg_nums": Rule(
            term="new GetMessageResult",
            variants=(
                Variant(
                    _V3,
                    True,
                    "a scan allocates lists for maxMsgNums messages; it throws if the number is negative or too large",
                    f"{_GET_MESSAGE}, GetMessageResult(int)",
                ),
                Variant(
                    _V5,
                    False,
                    "lists grow as needed: any maxMsgNums is accepted, and a number below 1 takes one message",
                    f"{_GET_MESSAGE}, GetMessageResult()",
                ),
            ),
        ),
        "window_and_size_are_settings": Rule(
            term="maxFilterMessageSize, travelCqFileNumWhenGetMessage, maxTotalMsgSize",
            variants=(
                Variant(
                    _V3,
                    False,
                    "the window is at least 16000 bytes, a pull reads one queue file, and the sum of sizes has no limit of its own",
                    f"{_GET_MESSAGE}, maxFilterMessageCount",
                ),
                Variant(
                    _V5,
                    True,
                    "settings decide the window and how many queue files a pull reads while it finds nothing; a batch has at most "
                    "maxTotalMsgSize bytes, from 100 bytes to 128 MiB",
                    f"{_GET_MESSAGE}, MessageStoreConfig, MAX_PULL_MSG_SIZE",
                ),
            ),
        ),
        "light_queues_are_limited": Rule(
            term="isLmqConsumeQueueNumExceeded",
            variants=(
                Variant(
                    _V3,
                    True,
                    "with enableLmq and enableMultiDispatch, pulls of light queues get null once there are more than maxLmqConsumeQueueNum",
                    f"{_GET_MESSAGE}, isLmqConsumeQueueNumExceeded",
                ),
                Variant(_V5, False, "pulls do not look at the number of light queues", _GET_MESSAGE),
            ),
        ),
        "lists_queue_offsets": Rule(
            term="messageQueueOffset, filterMessageCount, coldDataSum",
            variants=(
                Variant(_V3, False, "the result has no such fields", "GetMessageResult"),
                Variant(
                    _V5,
                    True,
                    "the result lists queue offsets, counts messages that isMatchedByCommitLog refused, and sums cold data",
                    "GetMessageResult.addMessage, setFilterMessageCount, setColdDataSum",
                ),
            ),
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRules:
    """The values of PULL_RULES in one version; each field has the name of its rule there."""

    overflow_badly_goes_to_max: bool
    fullness_test_comes_first: bool
    every_scan_records_fall_behind: bool
    overflow_one_records_zero: bool
    size_per_count: int
    lists_are_made_for_max_msg_nums: bool
    window_and_size_are_settings: bool
    light_queues_are_limited: bool
    lists_queue_offsets: bool

    @classmethod
    def of(cls, version: BrokerVersion) -> PullRules:
        """Return the values of a version."""
        return cls(**values_of(PULL_RULES, version))


DEFAULT_RULES: Final = PullRules.of(DEFAULT_VERSION)
