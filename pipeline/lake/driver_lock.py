"""Lets one driver at a time write to a lake on S3: an object in the lake's folder names the process that writes.

Spark commits to a Delta log on S3 by a look and a PUT, so two drivers that commit the same version at once lose rows without an error.
The object is created by a PUT that fails if it exists (If-None-Match), and changed by a PUT that fails if another process has changed
it (If-Match). Its process renews it every RENEW_SECONDS, and at its end writes that the lake is released. A DELETE has no condition, so the
object stays. A process that waits for the lake and sees no change for DEAD_SECONDS takes the other one for dead, and takes the object over.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import S3Store

from pipeline.files.object_store import S3, require_keys, s3_access
from pipeline.lake.lake_errors import LakeConflictError, LakeError
from store_format.errors import first_line, printable

# a process that waits for longer than WAIT_SECONDS gives up
RENEW_SECONDS, DEAD_SECONDS, WAIT_SECONDS = 10.0, 45.0, 60.0
_LOOK_SECONDS = 0.5
NAME = ".pullsim-writer"
_SHOWN_MAX, _READ_MAX = 300, 4096
_CONNECT, _REQUEST = timedelta(seconds=3), timedelta(seconds=30)
_RELEASED = {"released": True}


@dataclass
class _Object:
    """The object of a lake that this process has, until it releases it or another process takes it over.

    Attributes:
        root: path of the lake.
        store: the bucket, an object store of obstore.
        key: name of the object in the bucket.
        named: description of this process, which the object has.
        token: random text in the object, by which this process knows its own writes.
        tag: the object's ETag; None before it is taken, and once it is lost.
        runs: number of runs of this process that write to the lake.
    """

    root: str
    store: Any
    key: str
    named: dict[str, Any]
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    tag: str | None = None
    runs: int = 0
    changing: threading.RLock = field(default_factory=threading.RLock)
    ended: threading.Event = field(default_factory=threading.Event)

    def take(self) -> None:
        """Create the object, or take over a released object or the object of a dead process."""
        started = since = time.monotonic()
        seen: str | None = None
        while True:
            tag, found = self.found()
            now = time.monotonic()
            if tag != seen:
                seen, since = tag, now
            is_free = tag is None or found == _RELEASED
            if found.get("token") == self.token:  # the answer to the PUT was lost
                self.tag = tag
            elif is_free or now - since >= DEAD_SECONDS:
                self.tag = self.put(self.content(), "create" if tag is None else {"e_tag": tag})
            if self.tag is not None:
                break
            is_alive = not is_free and now - since < DEAD_SECONDS / 2
            if now - started >= WAIT_SECONDS + (0 if is_alive else DEAD_SECONDS):
                raise LakeConflictError(
                    f"{self.root}: expected no other process that writes to this lake on S3, found {_told(found)}; "
                    "start this again when the other one has ended"
                )
            time.sleep(_LOOK_SECONDS)
        if self.root not in _checked:
            self.require_conditions()
            _checked.add(self.root)
        threading.Thread(target=self.keep, daemon=True).start()

    def content(self) -> bytes:
        return json.dumps(self.named | {"token": self.token}).encode()

    def put(self, content: bytes, mode: Any) -> str | None:
        """Write the object under a condition; return its ETag, or None if the condition does not hold."""
        try:
            tag: str | None = obstore.put(self.store, self.key, content, mode=mode)["e_tag"]
        except (AlreadyExistsError, PreconditionError):
            return None
        except (BaseError, FileNotFoundError, NotImplementedError) as error:
            if mode != "create" and isinstance(error, FileNotFoundError | NotFoundError):
                return None
            raise self.refused(f"takes a PUT of {NAME} under a condition", first_line(error)[:_SHOWN_MAX]) from error
        if not tag:
            raise self.refused(f"gives the ETag of a PUT of {NAME}", "none")
        return tag

    def require_conditions(self) -> None:
        """Check that the bucket refuses to create the object a second time, and to change it by a wrong ETag."""
        wrong_tag = {"e_tag": f'"{uuid.uuid4().hex}"'}
        for condition, mode in (("If-None-Match where the object exists", "create"), ("If-Match and a wrong ETag", wrong_tag)):
            if self.put(self.content(), mode) is not None:
                lost = "drivers that write to this lake at once would lose rows"
                raise self.refused(f"refuses a PUT with {condition}", f"that it takes one; {lost}")

    def found(self) -> tuple[str | None, dict[str, Any]]:
        """The object's ETag and its JSON; no ETag if there is no object."""
        try:
            got = obstore.get(self.store, self.key)
            tag = got.meta["e_tag"]
            content = bytes(got.bytes()) if got.meta["size"] <= _READ_MAX else b""
        except (FileNotFoundError, NotFoundError):
            return None, {}
        except BaseError as error:
            raise self.refused(f"lets this process read {NAME}", first_line(error)[:_SHOWN_MAX]) from error
        if not tag:
            raise self.refused(f"gives the ETag of {NAME}", "none")
        try:
            said = json.loads(content)
        except (ValueError, RecursionError):
            said = {}
        return tag, said if isinstance(said, dict) else {}

    def refused(self, expected: str, found: str) -> LakeError:
        return LakeError(f"{self.root}: expected a bucket that {expected}, found {found}")

    def keep(self) -> None:
        """Renew the object until it is released or lost."""
        while not self.ended.wait(RENEW_SECONDS):
            with self.changing, suppress(LakeError):  # S3 does not answer now
                self.renew()

    def renew(self) -> None:
        """Write the object again, which changes its ETag; find out whether another process has taken the object over."""
        if self.tag is None or self.ended.is_set():
            return
        self.named["renewed"] = self.named.get("renewed", 0) + 1
        self.tag = self.put(self.content(), {"e_tag": self.tag}) or self.own_tag()

    def own_tag(self) -> str | None:
        """The ETag of the object, if this process wrote it last: the answer to a PUT may have been lost."""
        tag, found = self.found()
        return tag if found.get("token") == self.token else None

    def free(self) -> None:
        """Release the object, unless another process has taken it over."""
        with self.changing:
            if self.ended.is_set():
                return
            self.ended.set()
            with suppress(LakeError):  # other processes then take this one for dead
                if (tag := self.own_tag()) is not None:
                    self.put(json.dumps(_RELEASED).encode(), {"e_tag": tag})
            self.tag = None


def _told(found: dict[str, Any]) -> str:
    """The process that an object names."""
    try:
        run = f"{found['what']} {found['runId']}, process {found['process']} on {found['host']}"
    except KeyError:
        return f"an object {NAME} that names no process"
    return printable(run)[:_SHOWN_MAX]


# by the path of the lake; a lock is held while a run of this process waits for the lake
_held: dict[str, _Object] = {}
_taking: dict[str, threading.Lock] = {}
# lakes whose bucket refuses a PUT if the condition does not hold
_checked: set[str] = set()


@dataclass(frozen=True, slots=True)
class WritesAlone:
    """The right of a run to write to a lake on S3, which the runs of a process share."""

    held: _Object

    def require(self) -> None:
        """Check that this process still has the lake.

        Raises:
            LakeConflictError: another process has taken it over.
        """
        with self.held.changing:
            self.held.renew()
            if self.held.tag is None:
                raise LakeConflictError(
                    f"{self.held.root}: expected to be the only process that writes to the lake, found that another one took it over "
                    f"after this one stood still for {DEAD_SECONDS:.0f} s; nothing of this run is visible, start it again"
                )

    def release(self) -> None:
        """End the run; with the last run of the process, the lake is free."""
        with self.held.changing:
            self.held.runs -= 1
            if not self.held.runs:
                self.held.free()


def write_alone(root: str, run_id: str, what: str) -> WritesAlone:
    """Take the lake `root` on S3 for a run; waits while a run of another process has it.

    Raises:
        LakeConflictError: a process that is alive has the lake for longer than WAIT_SECONDS.
        LakeError: the bucket takes no PUT under a condition, or ignores the condition.
        ObjectStoreError: the keys are missing.
    """
    require_keys(root)
    with _taking.setdefault(root, threading.Lock()):
        held = _held.get(root)
        if held is not None:
            with held.changing:
                if held.tag is not None:
                    held.runs += 1
                    return WritesAlone(held)
        named = {"runId": run_id, "what": what, "process": os.getpid(), "host": socket.gethostname()}
        bucket, _, folder = root.removeprefix(S3).partition("/")
        held = _held[root] = _Object(root, _bucket(bucket), "/".join(filter(None, (folder, NAME))), named, runs=1)
        try:
            held.take()
        except BaseException:  # also Ctrl-C
            held.free()
            raise
        return WritesAlone(held)


def _bucket(name: str) -> S3Store:
    access = s3_access()
    values = {
        "aws_endpoint": access.endpoint,
        "aws_region": access.region,
        "aws_access_key_id": access.key,
        "aws_secret_access_key": access.secret,
        "aws_session_token": access.token,
    }
    given: Any = {option: value for option, value in values.items() if value}
    is_plain = (access.endpoint or "").startswith("http://")
    return S3Store(
        name,
        config=given,
        client_options={"allow_http": is_plain, "connect_timeout": _CONNECT, "timeout": _REQUEST},
        retry_config={"max_retries": 3, "retry_timeout": _REQUEST},
    )


@atexit.register
def _free_all() -> None:
    for held in list(_held.values()):
        held.free()
