"""The steps of a scenario that pull, send other requests, and advance the clock."""

from __future__ import annotations

from typing import Any

from pipeline.scenarios.scenario_file import Step
from pipeline.scenarios.scenario_requests import pull_answer, request
from pipeline.scenarios.scenario_run import Run, ext_of
from store_format.remoting.headers import RequestCode
from udfs.broker.memory_broker import PullCall
from udfs.pull.codes import ResponseCode

_PULL_WAIT_MS = 12_000
_DRAIN_WAIT_MS = 5_000
_AWAIT_MS = 20_000
_SYNC_TICK_MS = 100
_IMMEDIATE_MS, _AT_ONCE_MS, _WOKEN_MS = 150, 500, 700
_DRAINED_MAX = 80
UNSUPPORTED = {"error": "UNSUPPORTED", "message": "this request cannot be answered yet"}


def send_request(run: Run, step: Step) -> None:
    """The steps `pull` and `request`."""
    code = step.get("code", int(RequestCode.PULL_MESSAGE))
    pulls = {int(RequestCode.PULL_MESSAGE), *([int(RequestCode.LITE_PULL_MESSAGE)] if run.broker.settings.rules.lite_pull_pulls else [])}
    if step["op"] == "request" and code not in pulls:
        told = request(run.broker, run.client(step), code, ext_of(step.get("ext")), step.get("body"))
        step["result"] = dict(UNSUPPORTED) if told is None else told | {"timing": "immediate"}
        step["opaqueEchoed"] = True
        return
    is_lite = code == RequestCode.LITE_PULL_MESSAGE
    call = run.call(run.client(step), step.get("ext"), oneway=bool(step.get("oneway")), is_lite=is_lite)
    if step.get("id") is not None:
        run.calls[str(step["id"])] = call
        return
    longest = _PULL_WAIT_MS if step.get("noResponseMs") is None else step["noResponseMs"]
    run.wait(call, longest)
    step["result"] = _no_response(longest) if call.answered_at is None else _timed(call)
    if step["op"] == "request":
        step["opaqueEchoed"] = True


def _no_response(waited: int) -> dict[str, Any]:
    return {"noResponse": True, "waitedMs": waited, "connectionClosed": False}


def _timed(call: PullCall) -> dict[str, Any]:
    took = (call.answered_at or 0) - call.sent_at
    if took < _AT_ONCE_MS:
        return pull_answer(call) | {"timing": "immediate"}
    return pull_answer(call) | {"timing": "held", "heldSeconds": _seconds(took)}


def _seconds(ms: int) -> int:
    """Return ms in seconds, rounded as Java's Math.round does."""
    return (ms + 500) // 1000


def drain(run: Run, step: Step) -> None:
    """The step `drain`."""
    client, ext = run.client(step), dict(step["ext"])
    told: list[dict[str, Any]] = []
    for _ in range(_DRAINED_MAX):
        call = run.call(client, ext)
        run.wait(call, _DRAIN_WAIT_MS)
        if call.answered_at is None:
            break
        given = pull_answer(call)
        header = given["ext"] or {}
        following = header.get("nextBeginOffset")
        told.append(
            {
                "queueOffset": ext["queueOffset"],
                "code": given["code"],
                "codeName": given["codeName"],
                "nextBeginOffset": None if following is None else int(following),
                "suggestWhichBrokerId": header.get("suggestWhichBrokerId"),
                "bodyLength": given["bodyLength"],
                "messageOffsets": given.get("messageOffsets", []),
            }
        )
        if given["code"] == ResponseCode.PULL_NOT_FOUND or following is None:
            break
        ext["queueOffset"] = int(following)
    step["result"] = told


def await_answer(run: Run, step: Step) -> None:
    """The step `await`."""
    call, began = run.calls[step["id"]], run.broker.now
    run.wait(call, _AWAIT_MS)
    if call.answered_at is None:
        step["result"] = _no_response(_AWAIT_MS)
        return
    took, after = call.answered_at - call.sent_at, call.answered_at - began
    told = pull_answer(call)
    if step.get("timingVolatile") is not None:
        told["timing"] = "held"
    elif took < _IMMEDIATE_MS:
        told["timing"] = "immediate"
    elif after <= _WOKEN_MS:
        told["timing"] = "woken"
    else:
        told |= {"timing": "tick", "heldSeconds": _seconds(took)}
    step["result"] = told


def expect_no_response(run: Run, step: Step) -> None:
    """The step `expectNoResponse`."""
    call = run.calls[step["id"]]
    run.wait(call, step["ms"])
    step["result"] = {"responded": call.answered_at is not None}


def sleep(run: Run, step: Step) -> None:
    """The step `sleep`."""
    run.broker.advance(run.broker.now + step["ms"])


def sync_hold_tick(run: Run, _step: Step) -> None:
    """The step `syncHoldTick`."""
    run.broker.sweep()
    run.broker.advance(run.broker.now + _SYNC_TICK_MS)


def hold_count(run: Run, step: Step) -> None:
    """The step `holdCount`."""
    step["result"] = {"held": len(run.broker.held.get((step["topic"], step["queueId"]), ()))}
