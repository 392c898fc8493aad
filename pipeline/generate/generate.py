"""Generates a store: puts the messages of a workload one by one as a broker would, and shuts the store down.

Broker source (4.9.3): BrokerController's start and shutdown, as far as they touch files; TopicConfigManager, SubscriptionGroupManager,
ConsumerOffsetManager and ScheduleMessageService for the files under config/.
Rule: the same workload and seed give the same bytes, names and times of files; no clock is read. The memory used does not depend on the
number of messages.
Surprises: delayed messages stay in the queues of their levels; none is delivered. A file that the broker names by its wall clock is named
by the time of the message.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pipeline.files.whole_folder import whole_folder
from pipeline.generate.store_writer import WrittenStore, new_store, shut_down
from pipeline.generate.workload import GroupLoad, Workload
from pipeline.generate.workload_fields import WorkloadError
from pipeline.generate.workload_tables import WorkloadTables, tables_of
from pipeline.generate.written_config import config_files
from pipeline.settings.rule_settings import system_topics
from pipeline.settings.settings import BrokerSettings
from store_format.config.config_rows import SubscriptionGroupConfig, TopicConfig
from store_format.errors import StoreError
from store_format.index.index_file import IndexSizes
from store_format.log.append import MessageColumns
from store_format.log.put_message import PUT_MESSAGE, SCHEDULE_TOPIC, PutSettings
from store_format.made.made_messages import MessageMaker
from store_format.store.store_settings import StoreSettings
from udfs.broker.schedule import DelayLevelError, parse_delay_level
from udfs.broker.system_groups import SYSTEM_GROUPS

STRETCH = 32_768  # number of messages that are made and written at once
STRETCH_BYTES = 16 << 20
_PROGRESS_EVERY = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """The result of `run_generate`: the store's folder, its numbers of messages and queues, and the end of its log."""

    store: str
    messages: int
    queues: int
    log_end: int


def run_generate(
    store: str,
    workload: Workload,
    *,
    seed: int | None = None,
    messages: int | None = None,
    settings: BrokerSettings | None = None,
    where: str = "the workload",
    progress: Callable[[str], None] = lambda _: None,
) -> Generated:
    """Write the store of a workload.

    The folder `store` is created; one that exists must be empty. `seed`, `messages` and `settings` override those of the workload; `where`
    is the name of the workload's file, for errors.

    Raises:
        OutputError: the folder is a URI or not empty, or cannot be made.
        StoreError: a broker could not write the workload or files of these sizes, or the disk is full. There is no folder then.
        SettingsError: the broker does not know a setting of the workload.
    """
    if messages is not None:
        workload = workload.model_copy(update={"messages": messages, "duration": None})
    if workload.messages is None and workload.duration is None:
        raise WorkloadError(where, "messages or duration", "neither", hint="--messages says it too")
    if seed is not None:
        workload = workload.model_copy(update={"seed": seed})
    broker = BrokerSettings.from_sources(header=dict(workload.settings), header_where=f"{where}, settings")
    broker = BrokerSettings({**broker.given, **(settings.given if settings else {})})
    sizes, put = written_settings(broker)
    made = tables_of(workload, put, sizes.commit_log_size, broker.value("brokerClusterName"), where)
    with whole_folder(store, uuid.uuid4().hex) as folder:
        writer = new_store(folder, sizes, put)
        for topic, queue_id in made.queues:
            writer.queue_number(topic, queue_id)
        total, told = 0, 0
        for stretch in _ahead(made, workload.count):
            writer.append(stretch)
            total += len(stretch)
            if total - told >= _PROGRESS_EVERY:
                progress(f"{total:,} of {workload.count:,} messages written")
                told = total
        shut_down(writer, _config(workload, writer, broker))
    return Generated(store=store, messages=total, queues=len(writer.dispatcher.queues), log_end=writer.log_end)


def written_settings(broker: BrokerSettings) -> tuple[StoreSettings, PutSettings]:
    """The settings of a new store, and the settings that decide which messages its broker refuses.

    Raises:
        StoreError: the broker cannot read its delay levels, is a slave, or has enableMultiDispatch.
    """
    value = broker.value
    try:
        delays = parse_delay_level(value("messageDelayLevel"))
    except DelayLevelError as error:
        raise StoreError("messageDelayLevel", "levels that the broker reads", str(error)) from error
    if value("brokerRole") == "SLAVE" or value("enableMultiDispatch"):
        raise StoreError("the settings", "a master without enableMultiDispatch", "another broker", hint="leave these settings out")
    sizes = StoreSettings(
        commit_log_size=value("mappedFileSizeCommitLog"),
        consume_queue_size=value("mappedFileSizeConsumeQueue"),
        ext_size=value("mappedFileSizeConsumeQueueExt"),
        index_sizes=IndexSizes(hash_slot_num=value("maxHashSlotNum"), index_num=value("maxIndexNum")),
        delays=delays,
        message_index_enable=value("messageIndexEnable"),
        enable_consume_queue_ext=value("enableConsumeQueueExt"),
    )
    rule = PUT_MESSAGE.of(broker.version).value
    return sizes, PutSettings(max_message_size=value("maxMessageSize"), max_delay_level=len(delays), rule=rule)


def _ahead(made: WorkloadTables, count: int) -> Iterator[MessageColumns]:
    """The messages in parts; a thread makes the next part while the caller writes the current one."""
    rows, room = max(STRETCH, made.max_rows), max(STRETCH_BYTES, made.max_bytes)
    maker = MessageMaker(made.tables, messages=count, rows=rows, buffer_bytes=room)
    with ThreadPoolExecutor(1) as beside:
        coming = beside.submit(maker.next_stretch)
        while (stretch := coming.result()) is not None:
            coming = beside.submit(maker.next_stretch)
            yield stretch


# config/ ----------------------------------------------------------------------------------------------------------------------------


def _config(workload: Workload, writer: WrittenStore, broker: BrokerSettings) -> dict[str, bytes]:
    """The files under config/, as the broker writes them when it shuts down."""
    ends = {key: queue.max_offset for key, queue in writer.dispatcher.queues.items()}
    levels = sorted(queue_id + 1 for topic, queue_id in ends if topic == SCHEDULE_TOPIC)
    return config_files(
        topics=_topics(workload, broker),
        groups=[SubscriptionGroupConfig(groupName=name) for name in (*SYSTEM_GROUPS, *(group.name for group in workload.groups))],
        offsets=_offsets(workload, ends),
        delay_offsets=dict.fromkeys(levels, 0),
        versions=(len(workload.topics) + len(workload.groups), len(workload.groups)),
        timestamp=workload.start,
    )


def _topics(workload: Workload, broker: BrokerSettings) -> Sequence[TopicConfig]:
    """The topics that the broker creates when it starts, the workload's topics, and a retry topic for each group."""
    made = {load.name: load.queues for load in workload.topics} | {f"%RETRY%{group.name}": 1 for group in workload.groups}
    mine = [TopicConfig(topicName=name, readQueueNums=queues, writeQueueNums=queues) for name, queues in made.items()]
    named = BrokerSettings({"brokerName": "broker-a", **broker.given})
    return [*system_topics(named).configs(), *mine]


def _offsets(workload: Workload, ends: dict[tuple[str, int], int]) -> dict[str, dict[int, int]]:
    queues = {load.name: load.queues for load in workload.topics}

    def committed(group: GroupLoad, topic: str) -> dict[int, int]:
        return {queue_id: max(ends.get((topic, queue_id), 0) - group.lag, 0) for queue_id in range(queues[topic])}

    table = {f"{topic}@{group.name}": committed(group, topic) for group in workload.groups for topic in group.topics}
    return table | {f"%RETRY%{group.name}@{group.name}": {0: 0} for group in workload.groups}
