"""Transports for httpx whose timeouts set themselves, one for each target.

    client = httpx.AsyncClient(transport=AsyncAdaptiveTransport())

An attempt lasts from sending the request, with the connection set up, until the headers of the response are
there. Its timeout takes the place of the client's `read` and `write` for so long; the client's own hold for
setting up connections and for the body of the response. The async transport cuts an attempt off when its
timeout has passed. The blocking one can bound only each operation on the socket, by what is left of the timeout
when the request's body and the response's headers are begun: a peer that sends its headers in driblets is not
cut off as long as each comes in time. Only requests with an idempotent method and a body
that can be sent again are tried again; others are cut off early, and the caller is told. Give `Timeouts` that
make links with a `limit` to bound the last try.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

try:
    import anyio  # by which httpx itself runs on asyncio and on trio
    import httpx
except ImportError as missing:
    raise ImportError("barograph.httpx needs httpx: pip install 'barograph[httpx]'") from missing

from barograph._attempt import CLOCK_TICK, Attempt, Timeout
from barograph._http import is_idempotent, length
from barograph._link import exchange
from barograph._timeouts import Timeouts


class ReadTimeout(httpx.ReadTimeout, Timeout):
    """No answer within the timeout of the last try; both httpx's and barograph's."""


class AdaptiveTransport(httpx.BaseTransport):
    """For `httpx.Client`: around `wrapped`, an `httpx.HTTPTransport` unless told."""

    def __init__(self, timeouts: Timeouts | None = None, *, wrapped: httpx.BaseTransport | None = None) -> None:
        self.timeouts = Timeouts() if timeouts is None else timeouts
        self._wrapped = httpx.HTTPTransport() if wrapped is None else wrapped

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        link = self.timeouts.link(target(request.url))
        own = request.extensions
        try:
            repeatable = is_repeatable(request)
            for about in exchange(size(request), link.tries, repeatable=repeatable):
                attempt = Sent(Attempt(link, **about), request, own, repeatable)
                request.extensions = attempt.extensions(attempt.traced)
                try:
                    response = self._wrapped.handle_request(request)
                except BaseException as error:
                    attempt.ended_by(error)
                else:
                    return attempt.answered(response)
        finally:
            request.extensions = own
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        self._wrapped.close()

    def __enter__(self) -> Self:
        self._wrapped.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._wrapped.__exit__(exc_type, exc_value, traceback)


class AsyncAdaptiveTransport(httpx.AsyncBaseTransport):
    """For `httpx.AsyncClient`: around `wrapped`, an `httpx.AsyncHTTPTransport` unless told."""

    def __init__(self, timeouts: Timeouts | None = None, *, wrapped: httpx.AsyncBaseTransport | None = None) -> None:
        self.timeouts = Timeouts() if timeouts is None else timeouts
        self._wrapped = httpx.AsyncHTTPTransport() if wrapped is None else wrapped

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        link = self.timeouts.link(target(request.url))
        own = request.extensions
        try:
            repeatable = is_repeatable(request)
            for about in exchange(size(request), link.tries, repeatable=repeatable):
                scope = anyio.CancelScope()
                attempt = Sent(Attempt(link, **about), request, own, repeatable, scope)
                request.extensions = attempt.extensions(attempt.async_traced)
                try:
                    with scope:
                        response = await self._wrapped.handle_async_request(request)
                except BaseException as error:
                    attempt.ended_by(error)
                else:
                    if not scope.cancelled_caught:
                        return attempt.answered(response)
                    attempt.cut_off(None)
        finally:
            request.extensions = own
        raise AssertionError("the last try returns or raises")

    async def aclose(self) -> None:
        await self._wrapped.aclose()

    async def __aenter__(self) -> Self:
        await self._wrapped.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._wrapped.__aexit__(exc_type, exc_value, traceback)


class Sent:
    """An attempt as httpx carries it out."""

    def __init__(
        self,
        attempt: Attempt,
        request: httpx.Request,
        own: Any,
        repeatable: bool,
        scope: anyio.CancelScope | None = None,
    ) -> None:
        self._attempt = attempt.begin()
        self._scope = scope
        self._is_final = attempt.is_last or not repeatable
        self._request = request
        self._own = dict(own)
        self._own_timeout = dict(own.get("timeout", {}))
        self._timeout = {**self._own_timeout, "read": attempt.timeout, "write": attempt.timeout}
        self._connects = False

    def extensions(self, trace: Callable[..., Any]) -> dict[str, Any]:
        """What makes the transport keep to the attempt's timeout and say when it begins."""
        return {**self._own, "timeout": self._timeout, "trace": trace}

    def traced(self, event: str, info: dict[str, Any]) -> None:
        self._notice(event)
        if (trace := self._own.get("trace")) is not None:
            trace(event, info)

    async def async_traced(self, event: str, info: dict[str, Any]) -> None:
        self._notice(event)
        if (trace := self._own.get("trace")) is not None:
            await trace(event, info)

    def _notice(self, event: str) -> None:
        if event.startswith("connection.connect_"):
            self._connects = True
        elif event.endswith(".send_request_headers.started"):
            # Through a proxy it comes twice, and the later is ours.
            self._attempt.connected() if self._connects else self._attempt.started()
            if self._scope is not None:
                self._scope.deadline = anyio.current_time() + self._attempt.timeout
        elif event.endswith((".send_request_body.started", ".receive_response_headers.started")):
            # Operations have timeouts of their own: each gets what is left. 0 would say "do not wait at all".
            left = max(self._attempt.timeout - self._attempt.seconds, LEAST)
            self._timeout.update(read=left, write=left)

    def answered(self, response: httpx.Response) -> httpx.Response:
        self._attempt.end("answered")
        # The body is read under the client's own timeouts; its reader looks them up here.
        self._timeout.clear()
        self._timeout.update(self._own_timeout)
        return response

    def ended_by(self, error: BaseException) -> None:
        """Records the end, and raises unless there is to be another attempt."""
        if not isinstance(error, (httpx.ReadTimeout, httpx.WriteTimeout)) or not self._attempt.has_run_out():
            self._attempt.ended_by(error)
            raise error
        self.cut_off(error)

    def cut_off(self, error: BaseException | None) -> None:
        """Records that the timeout passed, and raises unless there is to be another attempt."""
        attempt, seconds = self._attempt, self._attempt.seconds
        attempt.end("timed_out", seconds)
        if self._is_final:
            cut = attempt.as_error(ReadTimeout, seconds)
            cut.request = self._request
            raise cut from error


def target(url: httpx.URL) -> str:
    """Host and port, as a name for the link."""
    return f"{url.host}:{url.port or PORTS.get(url.scheme, 0)}"


def size(request: httpx.Request) -> int:
    """How many bytes the request moves as far as is known."""
    return length(request.headers.get("content-length"))


def is_repeatable(request: httpx.Request) -> bool:
    """Whether the request may be sent again, and its body can."""
    return is_idempotent(request.method) and isinstance(request.stream, httpx.ByteStream)


PORTS = {"http": 80, "https": 443}

LEAST = max(CLOCK_TICK, 1e-3)
"""Seconds for an operation when none are left: sockets wait in whole milliseconds."""

__all__ = ["AdaptiveTransport", "AsyncAdaptiveTransport", "ReadTimeout"]
