"""A real HTTP server that stalls when told, a stand-in for a station, and a link that remembers what it was told."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from barograph import AdaptiveTimeout, Decision

STALL_MAX = 20.0
"""Stalls end when the test does; this bounds them should it not."""


ANSWER_TIMEOUT = 20.0
"""Seconds that attempts have which are to be answered: a busy machine answers within them too."""

SHORT = 0.5
"""Seconds that attempts have which are to be cut off; one that is answered may still be, within them."""


class Server(http.server.ThreadingHTTPServer):
    """Answers every request at once, but for those whose numbers (from 0) are in `stalls`.

    With `stalls_body` the headers of such an answer still come at once.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.stalls: set[int] = set()
        self.stalls_body = False
        self.body_stall = 2 * SHORT
        self.requests: list[tuple[str, str, bytes]] = []
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.port = int(self.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def handle_error(self, *_: Any) -> None:
        """A client that cut off the connection is what these tests are about."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append((self.command, self.path, body))
        is_stalled = number in self.server.stalls
        if is_stalled and not self.server.stalls_body:
            self.server.over.wait(STALL_MAX)
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.flush()
        if is_stalled and self.server.stalls_body:
            self.server.over.wait(self.server.body_stall)
        if self.command != "HEAD":
            self.wfile.write(b"well")

    do_GET = do_POST = do_PUT = do_HEAD = answer

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


FORECAST = {"value": 0.25, "mse": 0.0004, "mae": 0.015, "recent_mse": 0.0004, "recent_mae": 0.015, "method": "m"}


class Station(http.server.ThreadingHTTPServer):
    """Speaks the two requests of docs/spec/api.md, or answers `instead` (status, body)."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Requests)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.mean, self.unit, self.instead = FORECAST, "s", None
        self.queries, self.stored, self.tokens, self.lacks = [], [], [], 0


class Requests(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path, _, query = self.path.partition("?")
        assert path == "/v1/forecast"
        query = dict(urllib.parse.parse_qsl(query))
        self.server.queries.append(query)
        series = {"unit": self.server.unit, "time_s": 1.0, "count": 9, "level": 0.9, "mean": self.server.mean}
        if query["target"] == "unknown":
            self.answer(404, {"error": "no such series"})
        else:
            self.answer(200, {"forecasts": [query | series] if query["target"] != "none" else []})

    def do_POST(self):
        assert self.path == "/v1/measurements" and self.headers["Content-Type"] == "application/json"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.tokens.append(self.headers["Authorization"])
        if self.server.instead is None:
            self.server.stored += [record | {"origin": body.get("origin")} for record in body["records"]]
        self.answer(201, {"stored": len(body["records"]) - self.server.lacks})

    def answer(self, status, value):
        status, value = self.server.instead or (status, value)
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 302:
            self.send_header("Location", self.server.url + "/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def station():
    station = Station()
    thread = threading.Thread(target=station.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield station
    station.shutdown()
    thread.join()
    station.server_close()


class Watched(AdaptiveTimeout):
    """Remembers what was recorded, as (how, number) and as seconds.

    Of its attempts those whose places (from 0) are in `cut` have a SHORT timeout.
    """

    cut: frozenset[int]
    decided: int
    ends: list[tuple[str, int]]
    times: list[float]
    set_ups: list[float]
    short: AdaptiveTimeout

    @classmethod
    def make(cls, *args: Any, **settings: Any) -> Watched:
        link = cls(*args, **settings)
        link.ends, link.times, link.set_ups = [], [], []
        link.cut, link.decided = frozenset(), 0
        link.short = AdaptiveTimeout("static", seconds=SHORT)
        return link

    def cuts(self, *places: int) -> Watched:
        """These attempts, counted from 0, are to be cut off."""
        self.cut = frozenset(places)
        return self

    def decide(self, bytes: int = 0, number: int = 0, tries: int | None = None, elapsed: float = 0.0) -> Decision:
        place, self.decided = self.decided, self.decided + 1
        link = self.short if place in self.cut else super()
        return link.decide(bytes, number, tries, elapsed)

    def _remember(self, how: str, seconds: float, number: int) -> None:
        self.ends.append((how, number))
        self.times.append(seconds)

    def answered(self, seconds: float, bytes: int = 0, number: int = 0, *more: Any) -> None:  # type: ignore[override]
        super().answered(seconds, bytes, number, *more)
        self._remember("answered", seconds, number)

    def timed_out(self, seconds: float, bytes: int = 0, number: int = 0, *more: Any) -> None:  # type: ignore[override]
        super().timed_out(seconds, bytes, number, *more)
        self._remember("timed_out", seconds, number)

    def superseded(self, seconds: float, bytes: int = 0, number: int = 0, *more: Any) -> None:  # type: ignore[override]
        super().superseded(seconds, bytes, number, *more)
        self._remember("superseded", seconds, number)

    def failed(self, seconds: float, bytes: int = 0, number: int = 0, *more: Any) -> None:  # type: ignore[override]
        super().failed(seconds, bytes, number, *more)
        self._remember("failed", seconds, number)

    def connected(self, seconds: float) -> None:
        super().connected(seconds)
        self.set_ups.append(seconds)


@pytest.fixture
def link() -> Watched:
    """A link that cuts off the attempts that it is told to, which should be those that stall."""
    return Watched.make("static", seconds=ANSWER_TIMEOUT, tries=3)
