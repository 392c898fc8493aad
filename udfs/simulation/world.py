"""The state of a simulation as arrays for the compiled loop, with the meaning of rows and columns.

Not the broker's own. A row of `slots` is a client's state of a queue (PullRequest, ProcessQueue and the entry of its offset table); its
messages are in a section of `ring`. Queues of the topic come first, then those of the group's retry topic. No array grows inside the loop:
the loop stops when an array may be too small, and `group_engine` enlarges it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

MS: Final = 1000  # microseconds
NEVER: Final = 2**62
BEFORE: Final = -NEVER  # arrival of a message of the backlog: its time is unknown
NONE: Final = -1

# columns of `slots`
(
    QUEUE,
    CLIENT,
    DROPPED,
    NEXT_OFFSET,
    MSG_COUNT,
    MSG_SIZE,
    QUEUE_OFFSET_MAX,
    REACHED,  # offset in the client's offset table, NONE for none
    HEAD,  # place in the slot's ring of the first message that is not consumed
    TAIL,
    EVENTS,  # number of events in the heap that name the slot
    ANSWERED_AT,  # when the pull in progress is answered; an answer event of another time was replaced
    AS_OF,  # time at which the broker answers it
    ASKED_AT,  # when the pull reached the broker
    QUEUED,  # batches that wait for a thread
    WORKING,  # batches that a thread is consuming
    LAST_PULL,
    NEXT_SLOT,  # next slot of the same client
    IN_USE,
    # of an orderly consumer
    LOCKED,
    LOCKED_AT,
    FIXED,  # whether it has queried the group's committed offset since it got the lock (`previously_locked`)
    AT_WORK,  # whether a consumer is running or waits for a thread (`is_consumed`)
    BEGAN,  # when the consumer took its first batch, NONE before
    TAKEN,  # number of messages that the listener has
    ENDS,  # when the listener finishes with them
    FAILED,
) = range(27)
SLOT_COLUMNS: Final = 27

# columns of `clients`
ALIVE, THREADS, BUSY, FIFO_HEAD, FIFO_TAIL, STALLED_UNTIL, FIRST_SLOT, STARTED_BATCHES, WORKED, DONE_MESSAGES = range(10)
CLIENT_COLUMNS: Final = 10

# columns of `queues`
(
    BACKLOG_END,
    COMING,
    FIRST_TIME,
    HINT,
    COMMITTED,
    POSITION,
    BEGUN,  # offset behind the last message that a listener had, or the greatest offset at which a client began
    FIRST_SKIPPED,  # first of the queue's rows of `skipped`, NONE for none
    TRIMMED,
    END,
    RETRY_BASE,
) = range(11)
QUEUE_COLUMNS: Final = 11

# columns of `skipped`: ranges of offsets below BEGUN that no listener had
SKIPPED_FROM, SKIPPED_TO, NEXT_SKIPPED = range(3)
SKIPPED_COLUMNS: Final = 3

# columns of `ring`
OFFSET, NEXT_IN_FIFO, PULLED, STARTED, BATCH, IS_DONE, BODY, TRY = range(8)
RING_COLUMNS: Final = 8

# columns of `retries` (messages of the retry topic) and of `pending` (messages that wait in the queue of their delay level)
RETRY_TIME, RETRY_QUEUE, RETRY_OFFSET, RETRY_TRIES = range(4)
RETRY_COLUMNS: Final = 4
PENDING_STORED, PENDING_QUEUE, PENDING_OFFSET, PENDING_TRIES, PENDING_INTO, PENDING_NEXT = range(6)
PENDING_COLUMNS: Final = 6

# columns of `levels`
LEVEL_FIRST, LEVEL_LAST = range(2)
LEVEL_COLUMNS: Final = 2

# positions in `counters`
(
    HEAP,  # events in the heap
    FREE,  # first free row of `pending`
    WAITING,  # rows of `pending` in use
    CONSUMED_ROWS,
    DEAD_ROWS,
    PULLS,
    PULLS_FOUND,
    FLOW_CONTROL,
    DELIVERED,
    DUPLICATES,
    SUCCEEDED,
    SENT_BACK,
    DEAD,
    NOT_COUNTED,  # listeners' results that came too late: the queue was dropped or the client has stopped
    EVENTS_DONE,
    NOW,
    ASKING,  # slot whose request `group_run` must answer
    QUESTION,  # kind of that request's event
) = range(18)
COUNTERS: Final = 18

# positions in `cfg`
(
    QUEUES,
    RETRY_QUEUES,
    NETWORK,
    DISPATCH,
    PULL_BATCH,
    CONSUME_BATCH,
    MOST_MESSAGES,
    MOST_MIB,
    MOST_SPAN,
    PULL_INTERVAL,
    FLOW_DELAY,
    SUSPEND,
    SWEEP,
    PERSIST,
    RING,  # room of a slot in `ring`, messages, a power of two
    BYTES_MEMORY,
    COUNT_MEMORY,
    ENTRIES_A_FILE,
    BUCKET,
    BODY_LEAST,
    BODY_MOST,
    OVERHEAD,
    SEED,
    SERVICE,
    TELLS,  # whether rows of `consumed` and `dead` are written
    RETRY_NUMS,
    ORDERLY,
    MOST_TRIES,
    SUSPENDED,
    EXCEPTION_DELAY,
    BROADCAST,
    DELAY,  # delay of the messages' delay level, ms, NONE without one
) = range(32)
SETTINGS: Final = 32

# columns of `local`: offsets of each client of a broadcasting group for each queue
STORED, LOCAL_POSITION, LOCAL_STARTED = range(3)
LOCAL_COLUMNS: Final = 3

# positions in `shares`
MATCHING, FAILING, POISON, SERVICE_A, SERVICE_B = range(5)
SHARES: Final = 5

# columns of `consumed`
(
    C_QUEUE,
    C_OFFSET,
    C_FIRST_QUEUE,
    C_FIRST_OFFSET,
    C_TRY,
    C_CLIENT,
    C_PULLED,
    C_STARTED,
    C_ENDED,
    C_RESULT,
) = range(10)
CONSUMED_COLUMNS: Final = 10
SUCCESS, RECONSUME_LATER, TOO_LATE, LOST = range(4)
RESULTS: Final = ("CONSUME_SUCCESS", "RECONSUME_LATER", "DROPPED", "LOST")

# columns of `dead`
D_TIME, D_QUEUE, D_OFFSET, D_TRIES = range(4)
DEAD_COLUMNS: Final = 4


class World(NamedTuple):
    """The arrays of a simulation; int64 if not noted.

    Attributes:
        heap: (n, 2): time and key of each event.
        cum: (queues, buckets + 1): number of messages that come before each bucket of time; all 0 for recorded messages.
        times: arrival of each recorded message, queue after queue.
        flags: uint8: MATCHES_* of each recorded message.
        sizes: (n, 2) int32: bytes of record and body of each recorded message.
        local: (clients, queues, LOCAL_COLUMNS) for a broadcasting group, else empty: the offset in the client's file (STORED), the offset
            it has reached, and the greatest offset passed to its listener; NONE for none.
        skipped: (n, SKIPPED_COLUMNS): ranges of offsets; `passed` says what for.
        levels: (levels, 2): first and last row of `pending` for each delay level.
        level_of_try: delay level after each try, NONE for a dead letter.
        delays: delay of each level, ms.
        cfg: settings, at the positions above.
        shares: float64: shares, at the positions above.
    """

    heap: NDArray[np.int64]
    slots: NDArray[np.int64]
    clients: NDArray[np.int64]
    queues: NDArray[np.int64]
    ring: NDArray[np.int64]
    cum: NDArray[np.int64]
    times: NDArray[np.int64]
    flags: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    skipped: NDArray[np.int64]
    retries: NDArray[np.int64]
    pending: NDArray[np.int64]
    local: NDArray[np.int64]
    levels: NDArray[np.int64]
    level_of_try: NDArray[np.int64]
    delays: NDArray[np.int64]
    counters: NDArray[np.int64]
    consumed: NDArray[np.int64]
    dead: NDArray[np.int64]
    cfg: NDArray[np.int64]
    shares: NDArray[np.float64]
