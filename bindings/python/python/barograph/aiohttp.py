"""A client session for aiohttp whose timeouts set themselves, one for each target.

    async with barograph.aiohttp.session() as session:

An attempt lasts from sending the request, with the connection set up, until the headers of the response are
there. aiohttp's own `timeout` still bounds setting up connections and, in `total`, everything together. Only
requests with an idempotent method and a body that can be sent again are tried again; others are cut off early,
and the caller is told.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

try:
    import aiohttp
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
    from aiohttp.payload import BytesPayload
except ImportError as missing:
    raise ImportError("barograph.aiohttp needs aiohttp 3.12 or later: pip install 'barograph[aiohttp]'") from missing

from barograph._attempt import AsyncAttempt, Timeout
from barograph._http import is_idempotent, length
from barograph._link import exchange, is_to_repeat
from barograph._timeouts import Timeouts


class ResponseTimeout(aiohttp.ServerTimeoutError, Timeout):
    """No answer within the timeout of the last try; both aiohttp's and barograph's."""


def session(timeouts: Timeouts | None = None, **settings: Any) -> aiohttp.ClientSession:
    """An `aiohttp.ClientSession`, which takes the `settings`, with adaptive timeouts."""
    middlewares = (*settings.pop("middlewares", ()), AdaptiveMiddleware(timeouts, traced=True))
    traces = [*(settings.pop("trace_configs", None) or ()), trace_config()]
    return aiohttp.ClientSession(middlewares=middlewares, trace_configs=traces, **settings)


class AdaptiveMiddleware:
    """A middleware that cuts off requests and tries again; `session` adds it innermost.

    In a session that has the `trace_config()` too, say `traced`: then setting up a connection is no part of
    an attempt.
    """

    def __init__(self, timeouts: Timeouts | None = None, *, traced: bool = False) -> None:
        self.timeouts = Timeouts() if timeouts is None else timeouts
        self._traced = traced

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        link = self.timeouts.link(f"{request.url.host}:{request.url.port}")
        is_repeatable = is_idempotent(request.method) and (not request.body or isinstance(request.body, BytesPayload))
        size = length(request.headers.get("Content-Length"))
        for about in exchange(size, link.tries, repeatable=is_repeatable):
            attempt = link.attempt(**about, connects=self._traced)
            before = UNDER_WAY.set(attempt)
            try:
                async with attempt:
                    return await handler(request)
            except Timeout as cut:
                if not (is_repeatable and is_to_repeat(cut, attempt)):
                    raise attempt.as_error(ResponseTimeout, cut.seconds) from cut
            finally:
                UNDER_WAY.reset(before)
        raise AssertionError("the last try returns or raises")


def trace_config() -> aiohttp.TraceConfig:
    """Tells the attempt under way when its connection is there."""

    async def connected(*_: object) -> None:
        if (attempt := UNDER_WAY.get()) is not None:
            attempt.connected()

    async def reused(*_: object) -> None:
        if (attempt := UNDER_WAY.get()) is not None:
            attempt.started()

    config = aiohttp.TraceConfig()
    config.on_connection_create_end.append(connected)
    config.on_connection_reuseconn.append(reused)
    return config


UNDER_WAY: ContextVar[AsyncAttempt | None] = ContextVar("barograph attempt", default=None)
"""aiohttp traces in the task of the request, so this is the attempt that a trace is about."""

__all__ = ["AdaptiveMiddleware", "ResponseTimeout", "session", "trace_config"]
