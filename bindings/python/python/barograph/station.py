"""A link and a Barograph station: start from its forecast, feed it what was measured.

Blocking, with the standard library alone; in asyncio use `asyncio.to_thread`. A station on another host wants
its token for what is fed.
"""

from __future__ import annotations

import json
import math
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Iterable
from typing import Any

from barograph import _native


class StationError(OSError):
    """The station could not be reached, refused, or answered what is no answer."""


def start_from_station(
    link: _native.AdaptiveTimeout,
    url: str,
    source: str,
    target: str,
    *,
    quantity: str = "response_time",
    wait: float = 10.0,
) -> bool:
    """Starts `link` from the station's forecast of `quantity` from `source` to `target`, if it has one.

    The link gets the mean forecast and its root mean squared error. Returns False if the station has none, or
    does not know its error yet. The forecast is ignored if `link` has responses of its own. `wait` bounds each
    wait for the station, in seconds.
    """
    query = urllib.parse.urlencode({"source": source, "target": target, "quantity": quantity})
    try:
        answer = ask(f"{base(url)}/v1/forecast?{query}", None, None, wait)
    except Unknown:
        return False
    forecast = forecast_in(answer, quantity)
    if forecast is not None:
        link.start_from(*forecast)
    return forecast is not None


def feed_station(
    url: str,
    target: str,
    seconds: float | Iterable[float],
    *,
    source: str | None = None,
    quantity: str = "response_time",
    token: str | None = None,
    wait: float = 10.0,
) -> int:
    """Hands times to the station, at most 1000, and returns how many it stored: all or, with an error, none.

    Without `source` the source is the station's host. A repeated call after an error may store the times twice;
    `Feed` does not.
    """
    times = [seconds] if isinstance(seconds, (int, float)) else list(seconds)
    about = {"target": target, "quantity": quantity} | ({} if source is None else {"source": source})
    return post(url, {"records": [about | {"value": checked(value)} for value in times]}, token, wait)


class Feed:
    """Keeps the times of answers until `flush` hands them to a station, each of them once.

    `link.on_answer = Feed(url, "client-7", "db:5432")`, and `flush()` now and then from wherever waiting does
    no harm. `origin` is this program's name; only one feed at a time may have it. At most 1000 times are
    kept, as many as a request may hold: beyond, the oldest is dropped and counted in `dropped`, as is what a
    station says that it did not store. Where the clock was set back before this program began, the station
    keeps what it is handed, but forecasts from it only once the clock is past the last feed of that origin.
    """

    def __init__(
        self,
        url: str,
        origin: str,
        target: str,
        *,
        source: str | None = None,
        quantity: str = "response_time",
        token: str | None = None,
        wait: float = 10.0,
    ) -> None:
        self._url, self._origin, self._token, self._wait = base(url), origin, token, wait
        self._about = {"target": target, "quantity": quantity} | ({} if source is None else {"source": source})
        # Above every number of an earlier run: microseconds pass faster than answers come. And apart from
        # nearly all of them even where the clock was set back: a run covers as many microseconds as it has
        # answers. A station takes numbers up to 2^53, which nanoseconds have passed.
        self._next = time.time_ns() // 1000
        self._kept: deque[dict[str, Any]] = deque(maxlen=RECORDS_MAX)
        self._lock = threading.Lock()
        self.dropped = 0

    def __call__(self, seconds: float) -> None:
        """Keeps the time of an answer."""
        value = checked(seconds)
        with self._lock:
            self.dropped += len(self._kept) == RECORDS_MAX
            record = {"seq": self._next, "value": value, "time_s": time.time()}
            self._kept.append(self._about | record)
            self._next += 1

    def __len__(self) -> int:
        return len(self._kept)

    def flush(self) -> int:
        """Hands over what is kept and returns how many were stored; on an error all stay kept for the next time."""
        with self._lock:
            records = list(self._kept)
        if not records:
            return 0
        stored = post(self._url, {"origin": self._origin, "records": records}, self._token, self._wait)
        with self._lock:
            self.dropped += max(len(records) - stored, 0)
            # Only what was handed over goes: others may have come, or pushed it out, meanwhile.
            while self._kept and self._kept[0]["seq"] <= records[-1]["seq"]:
                self._kept.popleft()
        return stored


class Unknown(StationError):
    """The station knows no such series."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A station never redirects, and a token must not follow to elsewhere."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def base(url: str) -> str:
    """The station's address without what follows it."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"expected the URL of a station, http://… or https://…, not {url!r}")
    return f"{parts.scheme}://{parts.netloc}"


def forecast_in(answer: dict[str, Any], quantity: str) -> tuple[float, float] | None:
    """The forecast and its error in seconds, if the answer has one that was scored."""
    try:
        for series in answer["forecasts"]:
            mean, unit = series["mean"], series["unit"]
            if unit != "s":
                raise StationError(f"{quantity} is in {unit}, not in seconds")
            if mean["mse"] is None:
                return None
            value, mse = float(mean["value"]), float(mean["mse"])
            if not (0.0 < value < math.inf and 0.0 <= mse < math.inf):
                raise StationError(f"a time of {value} s with a squared error of {mse} is not a valid forecast")
            return value, math.sqrt(mse)
    except (KeyError, TypeError, ValueError) as error:
        raise StationError(f"the station's response is not a forecast: {error!r}") from error
    return None


def post(url: str, body: dict[str, Any], token: str | None, wait: float) -> int:
    """Hands records over, and returns how many the station stored."""
    if RECORDS_MAX < len(body["records"]):
        raise ValueError(f"at most {RECORDS_MAX} times a request, not {len(body['records'])}")
    return int(ask(f"{base(url)}/v1/measurements", json.dumps(body).encode(), token, wait)["stored"])


def ask(url: str, body: bytes | None, token: str | None, wait: float) -> Any:
    """The station's JSON answer to a GET, or to a POST of `body`."""
    headers = {"Content-Type": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    request = urllib.request.Request(url, data=body, headers=headers)
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=wait) as response:
            text = response.read(ANSWER_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        with error:
            kind = Unknown if error.code == 404 else StationError
            raise kind(f"the station answered {error.code}: {sentence(error)}") from None
    except OSError as error:
        raise StationError(f"no answer from the station at {url}: {error}") from error
    if ANSWER_BYTES_MAX < len(text):
        raise StationError(f"the station's response is longer than {ANSWER_BYTES_MAX} bytes")
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise StationError(f"the station's response is not JSON: {error}") from error
    if not isinstance(answer, dict):
        raise StationError("the station's response is not a JSON object")
    return answer


def sentence(error: urllib.error.HTTPError) -> str:
    """What the station says is wrong."""
    text = error.read(SENTENCE_BYTES_MAX)
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace")


def checked(seconds: float) -> float:
    """A time that a station takes."""
    if not 0.0 < seconds < math.inf:
        raise ValueError(f"a time must be positive and finite, in seconds, not {seconds}")
    return float(seconds)


RECORDS_MAX = 1000
"""The most records that a station takes in one request (docs/spec/api.md)."""

ANSWER_BYTES_MAX = 1 << 20
"""One series takes under a kilobyte."""

SENTENCE_BYTES_MAX = 4096
"""Errors are one sentence."""

__all__ = ["Feed", "StationError", "feed_station", "start_from_station"]
