"""The report as pages of a local web server: made again when the lake has changed, narrowed by the address, with names to click on.

Rule: only GET and HEAD are answered.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs

from pipeline.embedded.database import EmbeddedLake
from pipeline.embedded.questions import errors_told
from pipeline.lake.lake_errors import UnknownNameError
from pipeline.report.build import report
from pipeline.report.page import Live, page
from pipeline.report.report_json import as_json
from pipeline.report.scope import Filters, ReportArgumentError, require_span
from pipeline.settings.quantities import milliseconds
from store_format.errors import UnusableInputError

JSON_PATH: Final = "/report.json"
# number of pages kept, those shown last: people go back to them
_KEPT: Final = 16
_REFRESH_MIN, _REFRESH_MAX = 2, 86_400
_FIELDS_MAX = 20
_NAMES: Final = ("broker", "group", "topic", "from", "to", "refresh")
_HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)
_HTML, _JSON, _TEXT = "text/html", "application/json", "text/plain"


@dataclass
class LiveReport:
    """The WSGI application.

    Attributes:
        lake: path of the lake.
        now: gives the wall clock.
    """

    lake: str
    now: Callable[[], dt.datetime]
    _made: OrderedDict[tuple[object, ...], str] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        status, kind, text = self._answer(environ)
        body = text.encode("utf-8", "replace")
        start_response(status, [("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body))), *_HEADERS])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, environ: Mapping[str, Any]) -> tuple[str, str, str]:
        """Return status, content type and body."""
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return "405 Method Not Allowed", _TEXT, "only GET is answered\n"
        if environ["PATH_INFO"] == "/favicon.ico":  # browsers ask for it by themselves
            return "204 No Content", _TEXT, ""
        if environ["PATH_INFO"] not in {"/", JSON_PATH}:
            return "404 Not Found", _TEXT, f"the report is at / and {JSON_PATH}\n"
        kind = _JSON if environ["PATH_INFO"] == JSON_PATH else _HTML
        try:
            asked = _asked(environ.get("QUERY_STRING", ""))
            return "200 OK", kind, self._text(kind, asked)
        except ReportArgumentError as error:
            return "400 Bad Request", _TEXT, f"{error}\n"
        except UnknownNameError as error:
            return "404 Not Found", _TEXT, f"{error}\n"
        except UnusableInputError as error:
            return "500 Internal Server Error", _TEXT, f"{error}\n"

    def _text(self, kind: str, asked: Mapping[str, str]) -> str:
        """Return the report of the lake's newest version. One is made at a time, so a report that many clients request is made once."""
        only = _filters(asked)
        with self._lock, errors_told():
            lake = EmbeddedLake(self.lake)
            key = (lake.at.version, kind, *asked.items())
            if key not in self._made:
                is_json = kind == _JSON
                found = report(lake.asked, only=only, named=self.lake, made=self.now(), progress=lambda _: None, has_state=is_json)
                self._made[key] = as_json(found) if is_json else page(found, Live(asked))
                while len(self._made) > _KEPT:
                    self._made.popitem(last=False)
            self._made.move_to_end(key)
            return self._made[key]


def _asked(query: str) -> dict[str, str]:
    """Return the known fields of an address that have a value, in the order of _NAMES."""
    try:
        fields = parse_qs(query, max_num_fields=_FIELDS_MAX, errors="replace")
    except ValueError as error:
        raise ReportArgumentError(f"expected at most {_FIELDS_MAX} fields, found {error}") from error
    return {name: fields[name][-1] for name in _NAMES if name in fields}


def _filters(asked: Mapping[str, str]) -> Filters:
    since, until = (_time(name, asked[name]) if name in asked else None for name in ("from", "to"))
    require_span(since, until, named=("from", "to"))
    refresh = asked.get("refresh", str(_REFRESH_MAX))
    if not (refresh.isdecimal() and len(refresh) <= len(str(_REFRESH_MAX)) and _REFRESH_MIN <= int(refresh) <= _REFRESH_MAX):
        raise ReportArgumentError(f"refresh: expected seconds from {_REFRESH_MIN} to {_REFRESH_MAX}, found {refresh!r}")
    return Filters(broker=asked.get("broker"), group=asked.get("group"), topic=asked.get("topic"), since=since, until=until)


def _time(name: str, text: str) -> int:
    try:
        return int(text) if text.isdecimal() else milliseconds(dt.datetime.fromisoformat(text))
    except ValueError as error:
        raise ReportArgumentError(f"{name}: expected ms since 1970 or a time such as 2024-05-01T12:00:00 (UTC), found {text!r}") from error
