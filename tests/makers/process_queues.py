"""Process queues in the form of the recorded ones."""

from __future__ import annotations

from typing import Any

from udfs.consumer.offset_tree import MessageExt
from udfs.consumer.process_queue import ProcessQueue


def message(offset: int) -> MessageExt:
    """A message with a body of the recorded size."""
    return MessageExt(offset, offset % 7 + 1)


def state_of(queue: ProcessQueue) -> dict[str, Any]:
    consuming = list(queue.consuming)
    return {
        "msgCount": queue.msg_count,
        "msgSize": queue.msg_size,
        "maxSpan": queue.max_span(),
        "treeOffsets": list(queue.msg_tree_map),
        "hasTempMessage": queue.has_temp_message(),
        "consumingCount": len(consuming),
        "consumingMin": consuming[0] if consuming else 0,
        "consumingMax": consuming[-1] if consuming else 0,
        "msgAccCnt": queue.msg_acc_cnt,
    }
