"""Checks of what must hold for every simulated run, whatever its plan. Each check yields the faults that it finds in a run's events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from tests.models.simulated_events import FAR, Events, Row, sent_at_rates
from udfs.consumer.push_consumer import ConsumeFromWhere
from udfs.simulation.group_plan import SECOND, Rates
from udfs.simulation.lag_sample import BROKER_OFFSET, CONSUMER_OFFSET, REACHED_OFFSET
from udfs.simulation.world import LOST, RECONSUME_LATER, SUCCESS, TOO_LATE

Faults = Iterator[str]
FIRST_RETRY_LEVEL = 3
# a batch that ends after the run is not among the run's events; no batch takes longer than this
LONGEST_BATCH = 60 * SECOND
# a client that did not try to pull a queue for this long gives the queue up, and takes it again
PULL_MAX_IDLE_TIME = 120 * SECOND


def processed(run: Events) -> dict[int, dict[int, int]]:
    """When each message of each queue was first done: consumed, sent back or given up."""
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for row in run.rows:
        done = row.result == SUCCESS or (row.result == RECONSUME_LATER and (not run.plan.orderly or row.tries >= run.most_tries))
        if done:
            found[row.queue][row.offset] = min(row.ended, found[row.queue].get(row.offset, FAR))
    return found


def done_before(run: Events, queue: int, begin: int, times: dict[int, int]) -> NDArray[np.int64]:
    """For each offset from `begin` on, the time by which all wanted messages up to it were done; FAR for never."""
    end = int(run.outcome.lag[-1, queue, BROKER_OFFSET])
    topic = queue < len(run.plan.queues)
    each = [times.get(offset, FAR) if not topic or run.wants(queue, offset) else -FAR for offset in range(begin, end)]
    return np.maximum.accumulate(np.array(each, np.int64)) if each else np.zeros(0, np.int64)


def may_be_untold(run: Events, ended: int) -> bool:
    """Whether the batch of a client that lost a queue at `ended` may have ended after the run, and is not among the events."""
    return ended <= run.outcome.stopped_at < ended + LONGEST_BATCH


def no_message_is_lost(run: Events) -> Faults:
    """Each message that the group wants was consumed or is a dead letter. For groups that broadcast, `each_client_has_all` checks this."""
    if run.plan.broadcasts:
        return
    reached = {row.origin for row in run.rows if row.result == SUCCESS} | {(one.queue, one.offset) for one in run.dead}
    for queue, sent in enumerate(run.sent):
        begin = run.begin_of(queue)
        for offset in range(begin, sent.first + len(sent.wanted)) if begin is not None else ():
            if run.wants(queue, offset) and (queue, offset) not in reached:
                yield f"message {offset} of queue {queue}"


def nothing_else_is_given(run: Events) -> Faults:
    """A listener gets only messages that exist and that the group wants, after they were stored and could have arrived."""
    network, dispatch = run.plan.broker.network, run.plan.broker.dispatch
    for row in run.rows:
        if not run.wants(*row.origin):
            yield f"{row} is not the group's"
        elif row.queue < len(run.plan.queues) and (row.queue, row.offset) != row.origin:
            yield f"{row} comes from elsewhere"
        stored = run.sent[row.first_queue].stored
        if stored is not None and row.pulled < stored[row.first_offset - run.sent[row.first_queue].first] + dispatch + network:
            yield f"{row} was pulled before it could be"
        if not row.pulled <= row.started <= row.ended:
            yield f"{row} is out of time"
        if row.tries > run.most_tries:
            yield f"{row} was tried too often"


def as_many_come_as_the_plan_says(run: Events) -> Faults:
    """The ends of the queues match the number of planned messages."""
    messages = run.plan.messages
    if not isinstance(messages, Rates):
        expected = [sent.first + len(sent.wanted) for sent in run.sent]
    else:
        expected = [int(one + 1e-6) for one in sent_at_rates(messages)]
    for queue, (sent, found) in enumerate(zip(expected, run.outcome.lag[-1, :, BROKER_OFFSET].tolist(), strict=False)):
        far = 6 * sent**0.5 + 6 if isinstance(messages, Rates) and not messages.even else 0
        if abs(sent - found) > far:
            yield f"queue {queue}: {found}, not {sent}"


def no_offset_passes_what_is_not_done(run: Events) -> Faults:
    """The committed offset is never past a message that is not done. For groups that broadcast, `each_client_has_all` checks offsets."""
    if run.plan.broadcasts:
        return
    done = processed(run)
    for queue in run.queues.values():
        begin = run.begin_of(queue)
        if begin is None:
            continue
        by = done_before(run, queue, begin, done[queue])
        for time, committed in zip(run.outcome.times.tolist(), run.outcome.lag[:, queue, CONSUMER_OFFSET].tolist(), strict=True):
            if committed > begin + len(by):
                yield f"queue {queue}: {committed} is committed at {time}, past its end"
            elif committed > begin and by[committed - begin - 1] >= time:
                yield f"queue {queue}: {committed} is committed at {time}"


def orderly_queues_are_in_order(run: Events) -> Faults:
    """An orderly listener gets a message only when all before it are done, and one message or batch at a time."""
    if not run.plan.orderly:
        return
    done = processed(run)
    by_batch = sorted(run.rows, key=lambda row: (row.queue, row.started, row.ended, row.client, row.offset))
    for queue, rows in groupby(by_batch, key=lambda row: row.queue):
        batches = [list(batch) for _, batch in groupby(rows, key=lambda row: (row.started, row.ended, row.client))]
        yield from _one_at_a_time(run, [batch[0] for batch in batches])
        begin = run.begin_of(queue)
        if begin is None:
            continue
        by = done_before(run, queue, begin, done[queue])
        for batch in batches:
            first = min(row.offset for row in batch)
            if first > begin and by[first - begin - 1] > batch[0].started:
                yield f"{batch[0]} came before one ahead of it was done with"


def _one_at_a_time(run: Events, batches: list[Row]) -> Faults:
    """A listener gets one batch at a time, except for the batch of a client that died, or stood still and lost its lock."""
    last = None
    for batch in batches:
        if last is not None and batch.started < last.ended and not _may_overlap(run, last):
            yield f"{batch} began while {last} was not at its end"
        last = batch if last is None or batch.ended > last.ended else last


def _may_overlap(run: Events, batch: Row) -> bool:
    stalls = run.clients[batch.client].stalls
    return batch.result == LOST or any(begin <= batch.ended and batch.started <= end for begin, end in stalls)


def results_fit_the_holds(run: Events) -> Faults:
    """A listener gets messages only of queues that its client has; results count only while the client has the queue."""
    for row in run.rows:
        hold, gone = run.hold_of(row), run.end_of(row.client)
        if hold is None or row.pulled < hold.begins:
            yield f"{row}: the client has not the queue"
            continue
        dropped = hold.dropped and hold.ends <= min(row.ended, gone - 1)
        if (row.result == LOST) != (row.started < gone <= row.ended):
            yield f"{row}: the client was there until {gone}"
        elif row.result != LOST and dropped != (row.result == TOO_LATE) and not (run.plan.orderly and row.result == TOO_LATE):
            yield f"{row}: the client had the queue in {hold}"


def each_hold_gives_a_run(run: Events) -> Faults:
    """While a client has a queue, it gets all messages from its first one on, in order, and none twice."""
    batch = min(run.plan.consumer.pull_batch_size, run.plan.broker.count_in_memory)
    for (client, queue, hold), rows in run.by_hold.items():
        who = f"client {client}, queue {queue}"
        given = Counter((row.offset, row.tries) for row in rows)
        # a message that an orderly listener may fail no more times comes again with its batch, if others in the batch may fail again
        once = not run.plan.orderly or run.plan.consumer.consume_message_batch_max_size == 1
        if once and max(given.values()) > 1:
            yield f"{who}: {given.most_common(1)} in {hold}"
        offsets = [offset for offset, _ in groupby(rows, key=lambda row: row.offset)]
        whole = range(offsets[0], offsets[-1] + 1)
        wanted = [one for one in whole if queue >= len(run.plan.queues) or run.wants(queue, one)]
        if offsets != wanted and not may_be_untold(run, hold.ends):
            yield f"{who}: {offsets} in {hold}, not {wanted}"
        for one in ("pulled", "started"):
            firsts = [min(getattr(row, one) for row in of_one) for _, of_one in groupby(rows, key=lambda row: row.offset)]
            if firsts != sorted(firsts):
                yield f"{who}: {one} out of order in {hold}"
        pulls = Counter(pulled for _, pulled in {(row.offset, row.pulled) for row in rows})
        if max(pulls.values()) > batch and run.plan.broker.network:  # without network time several pulls share a moment
            yield f"{who}: {pulls.most_common(1)} in a pull of {batch}"


def most_at_once(spans: Iterable[tuple[int, int]]) -> int:
    """The greatest number of spans [begin, end) that share a moment."""
    moments = sorted(moment for begin, end in spans for moment in ((begin, 1), (end, -1)))
    busy = most = 0
    for _, change in moments:
        busy += change
        most = max(most, busy)
    return most


def clients_keep_to_their_limits(run: Events) -> Faults:
    """A client has no more batches than threads, no more messages of a queue than flow control allows, and none while it stands still."""
    consumer = run.plan.consumer
    batches = defaultdict(set)
    for row in run.rows:
        same = row.offset if consumer.consume_message_batch_max_size == 1 else -1
        batches[row.client].add((row.queue, same, row.started, row.ended))
        stalls = run.clients[row.client].stalls
        if any(begin <= time < end for begin, end in stalls for time in (row.pulled, row.started)):
            yield f"{row}: the client stands still"
        if not run.clients[row.client].joins <= row.pulled:
            yield f"{row}: the client has not joined"
    for client, spans in batches.items():
        if (most := most_at_once((begin, end) for _, _, begin, end in spans)) > consumer.consume_thread_min:
            yield f"client {client}: {most} batches at once"
    room = consumer.pull_threshold_for_queue + min(consumer.pull_batch_size, run.plan.broker.count_in_memory)
    for (client, queue, _), rows in run.by_hold.items():
        each = [list(of_one) for _, of_one in groupby(rows, key=lambda row: row.offset)]
        if (most := most_at_once((one[0].pulled, max(row.ended for row in one)) for one in each)) > room:
            yield f"client {client}, queue {queue}: {most} messages at once"


def what_fails_comes_again(run: Events) -> Faults:
    """Each failed try is followed by another try after its delay, or by a dead letter. Nothing else comes to the retry topic."""
    if run.plan.broadcasts:
        return
    failed: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for row in run.rows:
        if row.result == RECONSUME_LATER:
            failed[*row.origin, row.tries].append(row.ended)
    given_up = Counter((one.queue, one.offset) for one in run.dead)
    last = Counter({key[:2]: len(ended) for key, ended in failed.items() if key[2] == run.most_tries})
    late = Counter(row.origin for row in run.rows if run.plan.orderly and row.result == TOO_LATE and row.tries == run.most_tries)
    for origin in given_up | last:
        if not last[origin] <= given_up[origin] <= last[origin] + late[origin]:
            yield f"message {origin}: {given_up[origin]} dead letters of {last[origin]} last tries"
    yield from (f"{one} after {run.most_tries} tries" for one in run.dead if one.tries != run.most_tries + 1)
    if not run.plan.orderly:
        yield from _retries(run, failed)


def _retries(run: Events, failed: Mapping[tuple[int, int, int], list[int]]) -> Faults:
    plan = run.plan
    copies: dict[tuple[int, int], tuple[tuple[int, ...], int]] = {}
    for row in run.rows:
        if row.queue >= len(plan.queues):
            of, pulled = copies.setdefault((row.queue, row.offset), ((*row.origin, row.tries), FAR))
            if of != (*row.origin, row.tries):
                yield f"{row} was {of} before"
            broker = plan.brokers[(row.queue - len(plan.queues)) // plan.broker.retry_queue_nums]
            if broker != plan.queues[row.first_queue].brokerName:
                yield f"{row}: sent back to {broker}"
            copies[row.queue, row.offset] = of, min(pulled, row.pulled)
    came = defaultdict(list)
    for of, pulled in copies.values():
        came[of].append(pulled)
    for (queue, offset, tries), ended in failed.items():
        again = sorted(came.pop((queue, offset, tries + 1), []))
        if len(again) != (len(ended) if tries < run.most_tries else 0):
            yield f"message {queue, offset}: try {tries} failed {len(ended)} times and came {len(again)} times again"
        delay = plan.broker.delays[min(FIRST_RETRY_LEVEL + tries, len(plan.broker.delays)) - 1]
        for time, pulled in zip(sorted(ended), again, strict=False):
            due = ((time - plan.broker.network) // 1000 + delay) * 1000
            if pulled < due + plan.broker.dispatch + plan.broker.network:
                yield f"message {queue, offset}: try {tries} failed at {time} and came again at {pulled}"
    yield from (f"{of} came to the retry topic without having failed" for of in came)
    for queue in range(len(plan.queues), len(run.queues)):
        end = run.outcome.lag[-1, queue, BROKER_OFFSET]
        if {offset for one, offset in copies if one == queue} != set(range(end)):
            yield f"retry queue {queue} ends at {end}"


def each_client_has_all(run: Events) -> Faults:
    """Each client of a group that broadcasts gets all messages from its first one on; the group's reached offset is past none of them."""
    if not run.plan.broadcasts:
        return
    first = run.plan.consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    for (client, queue), holds in run.holds.items():
        sent, committed = run.sent[queue], run.plan.committed[queue]
        rows = [row for row in run.rows if (row.client, row.queue) == (client, queue) and row.result in (SUCCESS, RECONSUME_LATER)]
        had = {row.offset: row.ended for row in rows}
        begin = max(committed, sent.first) if committed >= 0 or first else min(had, default=sent.first + len(sent.wanted))
        wanted = [one for one in range(begin, sent.first + len(sent.wanted)) if run.wants(queue, one)]
        if len(holds) > 1 and not any(end - begin > PULL_MAX_IDLE_TIME for begin, end in run.clients[client].stalls):
            yield f"client {client} took queue {queue} more than once"
        if run.end_of(client) == FAR and wanted != sorted(had):
            yield f"client {client}, queue {queue}: {sorted(had)}, not {wanted}"
        by = done_before(run, queue, begin, had)
        here = (run.outcome.times > holds[0].begins) & (run.outcome.times < run.end_of(client))
        for time, reached in zip(run.outcome.times[here].tolist(), run.outcome.lag[here, queue, REACHED_OFFSET].tolist(), strict=True):
            if reached > begin + len(by) or (reached > begin and by[reached - begin - 1] >= time):
                yield f"client {client} has not reached {reached} of queue {queue} at {time}"


def it_ends_with_all_done(run: Events) -> Faults:
    """A run ends when all is consumed and committed, and its figures match its events."""
    outcome, last = run.outcome, run.outcome.lag[-1]
    if not outcome.consumed_all:
        yield "it was cut"
    if not run.plan.broadcasts and (np.maximum(last[:, CONSUMER_OFFSET], 0) < last[:, BROKER_OFFSET]).any():
        yield f"it ended with {last.tolist()}"
    results = Counter(row.result for row in run.rows)
    dead = results[RECONSUME_LATER] if run.plan.broadcasts else len(run.dead)
    back = 0 if run.plan.broadcasts or run.plan.orderly else results[RECONSUME_LATER] - len(run.dead)
    figures = {"succeeded": results[SUCCESS], "dead": dead, "sent_back": back}
    yield from (f"{name}: {outcome.counts[name]}, not {count}" for name, count in figures.items() if outcome.counts[name] != count)
    given: dict[tuple[int, ...], list[Row]] = defaultdict(list)
    for row in run.rows:
        given[row.queue, row.offset, row.client if run.plan.broadcasts else -1].append(row)
    twice = sum(len(rows) - 1 for rows in given.values())
    untold = outcome.counts["delivered"] - len(run.rows)
    if not run.plan.orderly and not twice <= outcome.counts["duplicates"] <= twice + untold:
        yield f"duplicates: {outcome.counts['duplicates']}, not {twice}"
    if untold and not any(may_be_untold(run, hold.ends) for holds in run.holds.values() for hold in holds):
        yield f"{untold} messages were given of which nothing was told"


CHECKS: tuple[Callable[[Events], Faults], ...] = (
    no_message_is_lost,
    nothing_else_is_given,
    as_many_come_as_the_plan_says,
    no_offset_passes_what_is_not_done,
    orderly_queues_are_in_order,
    results_fit_the_holds,
    each_hold_gives_a_run,
    clients_keep_to_their_limits,
    what_fails_comes_again,
    each_client_has_all,
    it_ends_with_all_done,
)


def faults_of(run: Events) -> dict[str, list[str]]:
    """The findings of each check, by its name. Checks without findings are left out."""
    found = {check.__name__: list(check(run)) for check in CHECKS}
    return {name: faults for name, faults in found.items() if faults}
