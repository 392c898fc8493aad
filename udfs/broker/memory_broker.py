"""A broker in memory, on a virtual clock: its settings, tables, store, and the pulls that it holds.

The rules are in the other modules; this one combines them and keeps the time. An operation takes no time. `advance` runs what is due in
the order of time: sweeps of held pulls, and deliveries of delayed messages. Every change of state that a pull depends on is reported to
`note` with its time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from store_format.config.config_rows import SubscriptionGroupConfig
from store_format.layout import BLANK_SIZE, CQ_STORE_UNIT_SIZE, LMQ_PREFIX
from store_format.log.append import NOT_APPENDED
from store_format.log.put_message import SCHEDULE_TOPIC, InnerMessage, PutMessageRule, PutMessageStatus, PutSettings
from store_format.record.message import Host, Message
from store_format.remoting.headers import PullMessageRequestHeader
from store_format.store.lookup import NUMBER_FORMAT, ThrownError
from store_format.store.multi_dispatch import MultiDispatchRule
from udfs.broker.broker_rules import BrokerRules
from udfs.broker.consumer_manager import ConsumerManager
from udfs.broker.consumer_offset_manager import ConsumerOffsetManager
from udfs.broker.memory_store import EMPTY_LOG, HEAD_DELETED, LogExtent, MemoryStore
from udfs.broker.multi_dispatch import MultiDispatchSettings, notified
from udfs.broker.offset_moved_event import OffsetMovedEvent
from udfs.broker.pull_message_processor import Caller, GetMessageResult, PullBrokerConfig, PullMessageProcessor, PullResponse
from udfs.broker.rebalance_lock import RebalanceLockManager
from udfs.broker.schedule import parse_delay_level
from udfs.broker.send_message import SendBrokerConfig, SendMessageProcessor, message_timeup, uniq_key
from udfs.broker.subscription_group import SubscriptionGroupManager
from udfs.broker.topic_config import SystemTopics, TopicConfigManager
from udfs.filters.bloom_filter import BitsArray, BloomFilter
from udfs.filters.consumer_filter_manager import ConsumerFilterManager
from udfs.filters.message_filter import ExpressionMessageFilter, is_true
from udfs.filters.retry_rules import RetryRules
from udfs.pull.codes import BrokerRole
from udfs.pull.pull_request_hold import Arrival, HeldRequest, Notified, is_swept, notify_message_arriving, sweep_interval
from udfs.pull.scan_settings import ScanSettings

# Start of every scenario, ms: far from the least and greatest times that a scenario may name.
EPOCH_MS = 1_600_000_000_000
BROKER_HOST = Host(address=bytes([127, 0, 0, 1]), port=10911)
CLIENT_HOST = Host(address=bytes([127, 0, 0, 1]), port=40000)
CLIENT = "/127.0.0.1:<clientPort>"
Value = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """The settings of a broker, and the rules of its version.

    `value` returns a setting by the broker's own name. `changed` returns these settings with some of them replaced. `by_boundary` is the
    value of LOOK_UPS, `text_operators` that of TEXT_OPERATORS, `multi_dispatch` that of MULTI_DISPATCH,
    `put_message` that of PUT_MESSAGE.
    """

    value: Callable[[str], Any]
    changed: Callable[[Mapping[str, Value]], MemorySettings]
    scan: Callable[[], ScanSettings]
    pulls: Callable[[], PullBrokerConfig]
    sends: Callable[[], SendBrokerConfig]
    system_topics: Callable[[], SystemTopics]
    rules: BrokerRules
    retry_rules: RetryRules
    by_boundary: bool
    text_operators: bool
    multi_dispatch: MultiDispatchRule
    put_message: PutMessageRule


@dataclass(slots=True, kw_only=True)
class PullCall:
    """A pull request on a connection, and its answer; times in ms.

    A client waits for no answer to a `oneway` pull. `is_lite` tells whether it is a LITE_PULL_MESSAGE, `has_bad_number` whether a field of
    the header was no number of its type.
    `thrown` is the Java class of the exception that the answer reports.
    """

    header: PullMessageRequestHeader
    has_bad_number: bool = False
    client: str
    sent_at: int
    oneway: bool = False
    response: PullResponse | None = None
    is_lite: bool = False
    thrown: str | None = None
    answered_at: int | None = None

    def answer(self, response: PullResponse | None, thrown: str | None, now: int) -> None:
        """Set the answer; a second answer is ignored."""
        if self.answered_at is None:
            self.response, self.thrown, self.answered_at = response, thrown, now


Note = Callable[[int, str, dict[str, Any]], None]
HeldPull = HeldRequest[PullCall]


@dataclass(slots=True, kw_only=True)
class MemoryBroker:
    """A broker in memory that begins with the commit log `log`; `now` is the virtual clock, ms.

    `note` is called for each change with time in ms, kind and fields.

    Raises:
        ValueError: a broker does not start with these settings.
    """

    settings: MemorySettings
    note: Note
    log: LogExtent = EMPTY_LOG
    now: int = EPOCH_MS
    store: MemoryStore = field(init=False)
    groups: SubscriptionGroupManager = field(init=False)
    topics: TopicConfigManager = field(init=False)
    consumers: ConsumerManager = field(init=False)
    filters: ConsumerFilterManager = field(init=False)
    offsets: ConsumerOffsetManager = field(init=False)
    locks: RebalanceLockManager = field(default_factory=RebalanceLockManager)
    held: dict[tuple[str, int], tuple[HeldPull, ...]] = field(default_factory=dict)
    pushed: dict[str, list[str]] = field(default_factory=dict)
    heartbeat_fingerprints: dict[str | None, int] = field(default_factory=dict)
    _delayed: list[tuple[int, int, Message]] = field(default_factory=list)
    _next_sweep: int = 0
    _uniq_keys: int = 0
    _max_message_size: int | None = None  # of the encoder, which the first message makes

    def __post_init__(self) -> None:
        value = self.settings.value
        if value("mappedFileSizeCommitLog") <= BLANK_SIZE or value("mappedFileSizeConsumeQueue") < CQ_STORE_UNIT_SIZE:
            raise ValueError("mappedFileSizeCommitLog must have room for a BLANK record, mappedFileSizeConsumeQueue for an entry")
        self.store = MemoryStore(
            commit_log_file_size=value("mappedFileSizeCommitLog"),
            consume_queue_file_size=value("mappedFileSizeConsumeQueue"),
            delays=parse_delay_level(value("messageDelayLevel")),
            log=self.log,
        )
        bloom = BloomFilter.create_by_fn(value("maxErrorRateOfBloomFilter"), value("expectConsumerNumUseFilter"))
        self.filters = ConsumerFilterManager(bloom, text_operators=self.settings.text_operators)
        enable_lmq = value("enableLmq")
        self.offsets = ConsumerOffsetManager(enable_lmq=enable_lmq)
        self.groups = SubscriptionGroupManager(
            updated=self._note_group,
            enable_lmq=enable_lmq,
            needs_valid_names=self.settings.rules.groups_need_valid_names,
        )
        self.topics = TopicConfigManager(
            updated=lambda one: self.note(self.now, "topic_config", {"topic": one.topicName, **asdict(one)}), enable_lmq=enable_lmq
        )
        self.topics.start(self.settings.system_topics(), later=self.settings.rules.half_messages_are_pulled)
        self.consumers = ConsumerManager(
            filters=self.filters,
            notify=lambda client, group: self.pushed.setdefault(client, []).append(group),
            notify_consumer_ids_changed_enable=lambda: bool(self.settings.value("notifyConsumerIdsChangedEnable")),
            tells_broadcasting=self.settings.rules.broadcasting_groups_are_notified,
        )
        self._next_sweep = self.now + self._interval()

    # what changes -------------------------------------------------------------------------------------------------------------------

    def _note_group(self, config: SubscriptionGroupConfig) -> None:
        forbidden = sorted(topic for group, topic in self.groups.forbidden if group == config.groupName)
        row = {"consumerGroup": config.groupName, **asdict(config)} | ({"forbiddenTopics": forbidden} if forbidden else {})
        self.note(self.now, "subscription_group", row)

    def set(self, changed: Mapping[str, Value]) -> None:
        """Change settings while the broker runs."""
        self.settings = self.settings.changed(changed)
        for name, value in changed.items():
            self.note(self.now, "setting", {"name": name, "value": str(value)})

    @property
    def role(self) -> BrokerRole:
        """The setting brokerRole."""
        return BrokerRole[self.settings.value("brokerRole")]

    def sending(self) -> SendMessageProcessor:
        """Return the processor of sent messages, with the current settings."""
        value, rules = self.settings.value, self.settings.rules
        return SendMessageProcessor(
            config=self.settings.sends(),
            topics=self.topics,
            groups=self.groups,
            new_uniq_key=self._new_uniq_key(),
            holds_lock=lambda group: not self.locks.is_lock_all_expired(group, self.now),
            rejects=rules.slaves_reject_sends and self.role == BrokerRole.SLAVE and not value("enableSlaveActingMaster"),
            rules=rules,
        )

    def _new_uniq_key(self) -> Callable[[], str] | None:
        """Return the function that makes the next UNIQ_KEY, None if the broker makes none."""
        if not self.settings.rules.messages_get_properties:
            return None

        def make() -> str:
            self._uniq_keys += 1
            return uniq_key(self._uniq_keys)

        return make

    # time ---------------------------------------------------------------------------------------------------------------------------

    def _interval(self) -> int:
        value = self.settings.value
        short = value("shortPollingTimeMills")
        return max(sweep_interval(long_polling_enable=value("longPollingEnable"), short_polling_time_mills=short), 1)

    def advance(self, until: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Advance the clock to `until`, or to the first moment at which `stop` returns True."""
        while not stop():
            self._pass_idle_sweeps(until)
            moment = min(self._next_sweep, self._delayed[0][0] if self._delayed else self._next_sweep)
            if moment > until:
                self.now = max(self.now, until)
                return
            self.now = max(self.now, moment)
            if self._delayed and self._delayed[0][0] <= moment:
                due = message_timeup(heapq.heappop(self._delayed)[2])
                if due is not None:
                    self.put(due)
            else:
                self.sweep()

    def _pass_idle_sweeps(self, until: int) -> None:
        """Skip sweeps while no pull is held, up to the last one before `until` or before a delayed message is due."""
        if not self.held:
            interval, end = self._interval(), min(until, self._delayed[0][0] if self._delayed else until)
            self._next_sweep += max((end - self._next_sweep) // interval, 0) * interval

    def sweep(self) -> None:
        """Sweep the held pulls now (PullRequestHoldService.checkHoldRequest); the next sweep is one interval later."""
        self._next_sweep = self.now + self._interval()
        for topic, queue_id in list(self.held):
            if is_swept(topic, enable_lmq=self.groups.enable_lmq):
                max_offset = self.store.queue(topic, queue_id).max_offset
                self._notify(topic, queue_id, partial(notify_message_arriving, max_offset=max_offset, now=self.now))

    # messages -----------------------------------------------------------------------------------------------------------------------

    def put(self, inner: InnerMessage) -> Message | PutMessageStatus:
        """Store a message and dispatch it; return the stored message, or the status with which the store refuses it."""
        settings = PutSettings(
            max_message_size=self._adjusted_max_message_size(),
            max_delay_level=len(self.store.delays),
            is_slave=self.role == BrokerRole.SLAVE,
            ends_properties=self.settings.rules.messages_get_properties,
            rule=self.settings.put_message,
        )
        stored = self.store.put(inner, self.now, settings, self._multi_dispatch())
        if isinstance(stored, Message):
            self.dispatch(stored)
        return stored

    def _adjusted_max_message_size(self) -> int:
        """Return maxMessageSize as the encoder of messages has it (CommitLog.updateMaxMessageSize, 4.9.8)."""
        setting, least = self.settings.value("maxMessageSize"), self.settings.put_message.least_new_limit
        if self._max_message_size is None or (least is not None and setting >= least):
            self._max_message_size = setting
        return self._max_message_size

    def dispatch(self, message: Message) -> None:
        """Dispatch a stored message (ReputMessageService): write its queue entry and bit map, and wake held pulls."""
        topic, properties = message.topic.decode(), message.properties_map()
        self._note_message(message, properties)
        if message.physic_offset == NOT_APPENDED:
            return
        further = self._multi_dispatch()
        code = self.store.dispatch(message, self.now, further)
        if topic == SCHEDULE_TOPIC:
            heapq.heappush(self._delayed, (max(code, self.now), message.physic_offset, message))
        is_deaf = self.role == BrokerRole.SLAVE and not self.settings.rules.arrivals_wake_on_slaves
        if is_deaf or not self.settings.value("longPollingEnable"):
            return
        arrival = Arrival(
            tags_code=code,
            msg_store_time=message.store_timestamp,
            bit_map=self._bit_map(topic, properties),
            properties=properties,
        )
        self._notify_arrival(topic, message.queue_id, message.queue_offset, arrival)
        for (name, queue_id), offset in notified(message, further):
            self._notify_arrival(name, queue_id, offset, arrival)

    def _notify_arrival(self, topic: str, queue_id: int, queue_offset: int, arrival: Arrival) -> None:
        """Wake the pulls that are held for a queue, in which a message has arrived at an offset."""
        rule = partial(
            notify_message_arriving,
            max_offset=queue_offset + 1,
            now=self.now,
            arrival=arrival,
            newest_offset=lambda: self.store.queue(topic, queue_id).max_offset,
        )
        self._notify(topic, queue_id, rule)

    def _multi_dispatch(self) -> MultiDispatchSettings:
        value = self.settings.value
        return MultiDispatchSettings(
            enable_lmq=value("enableLmq"),
            enable_multi_dispatch=value("enableMultiDispatch"),
            rule=self.settings.multi_dispatch,
        )

    def delete_log_head(self) -> int:
        """Delete the first files of the commit log and return how many."""
        self.note(self.now, "commit_log_head", {"storeSize": HEAD_DELETED})
        return self.store.delete_log_head(self.settings.rules.files_deleted_at_once)

    def _note_message(self, message: Message, properties: Mapping[str, str]) -> None:
        row = {
            "topic": message.topic.decode(),
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "physicOffset": message.physic_offset,
            "storeSize": message.store_size,
            "tags": properties.get("TAGS"),
        }
        self.note(self.now, "message", row)

    def _bit_map(self, topic: str, properties: Mapping[str, str]) -> bytes | None:
        """Return the bit map of a message: the bits of the consumers whose expression it matches (CommitLogDispatcherCalcBitMap)."""
        consumers = self.filters.of_topic(topic)
        if not consumers or not self.settings.value("enableCalcFilterBitMap"):
            return None
        bits = BitsArray(self.filters.bloom_filter.m)
        for consumer in consumers.values():
            if consumer.bloomFilterData is not None and is_true(consumer, properties, text_operators=self.filters.text_operators):
                self.filters.bloom_filter.hash_to(consumer.bloomFilterData.bitPos or (), bits)
        return bytes(bits)

    # pulls --------------------------------------------------------------------------------------------------------------------------

    def pull(self, call: PullCall) -> None:
        """Process a pull that arrives: answer it or hold it."""
        try:
            self._process(call, first_pass=True)
        except ThrownError as error:
            if not call.oneway:
                call.answer(None, error.java_class, self.now)

    def _process(self, call: PullCall, *, first_pass: bool) -> None:
        header = call.header
        processor = PullMessageProcessor(
            config=self.settings.pulls(),
            rules=self.settings.rules,
            retry_rules=self.settings.retry_rules,
            now=self.now,
            groups=self.groups,
            topics=self.topics,
            consumers=self.consumers,
            filters=self.filters,
            offsets=self.offsets,
            get_message=self._get_message,
            suspend=lambda topic, queue_id, held: self._hold(topic, queue_id, replace(held, request=call)),  # type: ignore[arg-type]
            offset_moved=self._offset_moved,
            committed=lambda: self.note_offset(header.consumerGroup, header.topic, header.queueId, header.commitOffset),
            write=lambda response: call.answer(response, None, self.now),
        )

        def answer(response: PullResponse) -> None:
            if not (call.oneway and first_pass):
                call.answer(response, None, self.now)

        if call.has_bad_number and self.settings.rules.bad_numbers_throw and not processor.rejects():
            raise ThrownError(NUMBER_FORMAT)
        caller = Caller(address=CLIENT, channel=call.client, is_lite=call.is_lite)
        processor.process_request(header, caller, broker_allow_suspend=first_pass, answer=answer)

    def _get_message(
        self, topic: str, queue_id: int, offset: int, max_msg_nums: int, message_filter: ExpressionMessageFilter
    ) -> GetMessageResult | None:
        scan = self.settings.scan()
        if scan.rules.light_queues_are_limited and self._is_beyond_lmq_limit(topic):
            return None
        return self.store.get_message(topic, queue_id, offset, max_msg_nums, message_filter, scan)

    def _is_beyond_lmq_limit(self, topic: str) -> bool:
        """Return whether a pull of a topic gets null because there are too many light message queues (isLmqConsumeQueueNumExceeded)."""
        value = self.settings.value
        if not (topic.startswith(LMQ_PREFIX) and value("enableLmq") and value("enableMultiDispatch")):
            return False
        most: int = value("maxLmqConsumeQueueNum")
        return sum(name.startswith(LMQ_PREFIX) for name, _ in self.store.queues) > most

    def note_offset(self, group: str | None, topic: str | None, queue_id: int | None, offset: int | None) -> None:
        """Report to `note` that a group committed an offset."""
        queue_id = None if queue_id is None else self.offsets.queue_of(group, queue_id)
        self.note(self.now, "consumer_offset", {"consumerGroup": group, "topic": topic, "queueId": queue_id, "consumerOffset": offset})

    def _hold(self, topic: str, queue_id: int, held: HeldPull) -> None:
        self.held[topic, queue_id] = (*self.held.get((topic, queue_id), ()), held)

    def _notify(self, topic: str, queue_id: int, rule: Callable[[tuple[HeldPull, ...]], Notified[PullCall]]) -> None:
        """Apply a rule to the pulls held for one queue, and process the woken pulls again."""
        told = rule(self.held.pop((topic, queue_id), ()))
        if told.held:
            self.held[topic, queue_id] = told.held
        for one in told.woken:
            try:
                self._process(one.request, first_pass=False)
            except ThrownError:
                continue  # the broker does not catch it there, so the client gets no answer

    def _offset_moved(self, event: OffsetMovedEvent) -> None:
        self.note(self.now, "offset_moved_event", asdict(event))
        self.put(event.message(BROKER_HOST, self.now))
