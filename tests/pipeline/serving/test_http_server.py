"""The small HTTP server answers requests that name this machine, up to a number at once, from clients that send them in time."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pipeline.serving import http_server as module
from pipeline.serving.http_server import serving


def told(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"told"]


def answer(port: int, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/", headers={"Host": host})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("listen", ["0", "LOCALHOST:0", "127.0.0.1:0"])
def test_a_name_of_another_site_that_leads_to_this_machine_is_not_answered(listen: str) -> None:
    with serving(listen, told, "it") as authority:
        port = int(authority.rpartition(":")[2])
        own = [answer(port, host) for host in (f"127.0.0.1:{port}", "localhost", "LocalHost:1", "127.3.2.1", "[::1]:8099")]
        others = [answer(port, host) for host in ("evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil.example:80")]
    assert (own, others) == ([200] * 5, [403] * 4)


def test_a_port_that_is_open_to_others_answers_by_each_name() -> None:
    with serving("0.0.0.0:0", told, "it") as authority:
        assert answer(int(authority.rpartition(":")[2]), "pullsim.example") == 200


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_client_that_sends_byte_after_byte_is_cut_off(begin: bytes) -> None:
    with (
        serving("0", told, "it", request_seconds=0.3) as authority,
        socket.create_connection(("127.0.0.1", int(authority.rpartition(":")[2])), timeout=10) as client,
    ):
        client.sendall(begin)
        client.settimeout(0.05)
        start = time.monotonic()
        while time.monotonic() < start + 10:
            try:
                client.sendall(b"x")
                assert client.recv(1) == b"", "it is no request"
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert 0.2 < time.monotonic() - start < 5


def test_an_answer_may_take_longer_than_the_request() -> None:
    def slow(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        time.sleep(0.7)
        return told(environ, start_response)

    with serving("0", slow, "it", request_seconds=0.5) as authority:
        assert answer(int(authority.rpartition(":")[2]), "localhost") == 200


def test_clients_that_send_nothing_take_no_more_threads_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 1)
    with serving("0", told, "it") as authority:
        port = int(authority.rpartition(":")[2])
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10),
            pytest.raises((http.client.RemoteDisconnected, ConnectionError)),
        ):
            answer(port, "localhost")
        end = time.monotonic() + 10
        while time.monotonic() < end:
            try:
                assert answer(port, "localhost") == 200
                break
            except (http.client.RemoteDisconnected, ConnectionError):
                time.sleep(0.01)
        else:
            pytest.fail("the thread of the client that left is not free again")
