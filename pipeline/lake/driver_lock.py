"""Lets one driver at a time write to a lake on S3: an object in the lake's folder names the process that writes.

Spark's commits to a Delta log on S3 are a look and a PUT, so two drivers that commit the same version at once lose rows without an error.
The object is created by a PUT that fails where it exists (If-None-Match), and changed by a PUT that fails where another process has changed
it (If-Match). Its process renews it every RENEW_SECONDS. A process that waits for the lake and sees no change for DEAD_SECONDS takes the
other one for dead, and takes the object over.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from pipeline.files.object_store import S3, s3_access
from pipeline.lake.committed import LakeConflictError, LakeError
from store_format.errors import printable

# a process that waits for longer than WAIT_SECONDS gives up
RENEW_SECONDS, DEAD_SECONDS, WAIT_SECONDS = 10.0, 45.0, 60.0
_LOOK_SECONDS = 0.5
NAME = ".pullsim-writer"
_SHOWN_MAX = 300
_CONNECT, _REQUEST = timedelta(seconds=3), timedelta(seconds=30)


@dataclass
class _Object:
    """The object of a lake that this process has, until it releases it or another process takes it over.

    Attributes:
        root: path of the lake.
        store: the bucket, an object store of obstore.
        key: name of the object in the bucket.
        named: what the object says of its process.
        tag: the object's ETag; None once it is lost.
        runs: number of runs of this process that write to the lake.
    """

    root: str
    store: Any
    key: str
    named: dict[str, Any]
    tag: str | None = None
    runs: int = 0
    changing: threading.RLock = field(default_factory=threading.RLock)
    ended: threading.Event = field(default_factory=threading.Event)

    def take(self) -> None:
        """Create the object, or take it over from a dead process."""
        content = json.dumps(self.named).encode()
        started = since = time.monotonic()
        seen: str | None = None
        while self.tag is None:
            with suppress(AlreadyExistsError):
                self.tag = self.put(content, "create")
                self.require_conditions(content)
                break
            tag, holder = self.found()
            now = time.monotonic()
            if tag is None or tag != seen:
                seen, since = tag, now
            if tag is not None and now - since >= DEAD_SECONDS:
                with suppress(PreconditionError):  # another process was faster
                    self.tag = self.put(content, {"e_tag": tag})
            elif now - started >= WAIT_SECONDS and now - since < DEAD_SECONDS / 2:
                raise LakeConflictError(
                    f"{self.root}: expected no other process that writes to this lake on S3, found {holder}; "
                    "start this again when the other one has ended"
                )
            else:
                time.sleep(_LOOK_SECONDS)
        threading.Thread(target=self.keep, daemon=True).start()

    def put(self, content: bytes, mode: Any) -> str:
        """Write the object under a condition; gives its ETag."""
        try:
            tag: str = obstore.put(self.store, self.key, content, mode=mode)["e_tag"] or ""
        except (AlreadyExistsError, PreconditionError):
            raise
        except (BaseError, NotImplementedError) as error:
            first = printable(str(error).split("\n", 1)[0])[:_SHOWN_MAX]
            raise LakeError(f"{self.root}: expected a bucket that takes a PUT of {NAME} under a condition, found {first}") from error
        return tag

    def require_conditions(self, content: bytes) -> None:
        """Check that the bucket refuses to create the object a second time."""
        with suppress(AlreadyExistsError):
            self.put(content, "create")
            obstore.delete(self.store, self.key)
            raise LakeError(
                f"{self.root}: expected a bucket that refuses a PUT with If-None-Match where the object exists, found that it takes one; "
                "drivers that write to this lake at once would lose rows"
            )

    def found(self) -> tuple[str | None, str]:
        """The object's ETag, and the process that it names; no ETag where there is no object."""
        try:
            got = obstore.get(self.store, self.key)
            tag, content = got.meta["e_tag"], bytes(got.bytes())
        except FileNotFoundError:
            return None, "none"
        try:
            named = json.loads(content)
            run = f"{named['what']} {named['runId']}, process {named['process']} on {named['host']}"
            return tag, printable(run)[:_SHOWN_MAX]
        except (ValueError, KeyError, TypeError):
            return tag, f"an object {NAME} that names no process"

    def keep(self) -> None:
        """Renew the object until it is released or lost."""
        while not self.ended.wait(RENEW_SECONDS):
            with self.changing, suppress(LakeError):  # S3 does not answer now
                self.renew()

    def renew(self) -> None:
        """Change the object, whose ETag is then another one; sees whether another process has taken it over."""
        if self.tag is None or self.ended.is_set():
            return
        self.named["renewed"] = self.named.get("renewed", 0) + 1
        try:
            self.tag = self.put(json.dumps(self.named).encode(), {"e_tag": self.tag})
        except (PreconditionError, FileNotFoundError):
            self.tag = None

    def free(self) -> None:
        """Remove the object, unless another process has taken it over."""
        self.ended.set()
        with suppress(BaseError):  # it is taken for dead then
            if self.tag is not None and self.found()[0] == self.tag:
                obstore.delete(self.store, self.key)
        self.tag = None


_held: dict[str, _Object] = {}
_taking = threading.Lock()


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
        LakeError: the bucket takes no PUT under a condition.
    """
    with _taking:
        held = _held.get(root)
        if held is not None:
            with held.changing:
                if held.tag is not None:
                    held.runs += 1
                    return WritesAlone(held)
        named = {"runId": run_id, "what": what, "process": os.getpid(), "host": socket.gethostname()}
        bucket, _, folder = root.removeprefix(S3).partition("/")
        held = _Object(root, _bucket(bucket), "/".join(filter(None, (folder, NAME))), named, runs=1)
        held.take()
        _held[root] = held
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
    for held in _held.values():
        held.free()
