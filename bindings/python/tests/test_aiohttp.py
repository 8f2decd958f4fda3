import asyncio

import aiohttp
import pytest
from aiohttp import web

import barograph
import barograph.aiohttp
from conftest import SHORT


class Site:
    """A real aiohttp server that stalls on the requests whose numbers are in `stalls`."""

    def __init__(self, *stalls, body_stalls=False):
        self.stalls, self.body_stalls, self.requests, self.paths = stalls, body_stalls, [], []

    async def __aenter__(self):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.port = self.runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}/"
        return self

    async def __aexit__(self, *_):
        await self.runner.cleanup()

    async def answer(self, request):
        path = request.path.strip("/")
        # By its number, or once by its path.
        number = path if path in self.stalls and path not in self.paths else len(self.requests)
        self.paths.append(path)
        self.requests.append((request.method, await request.text()))
        if request.path == "/moved":
            raise web.HTTPFound("/")
        response = web.StreamResponse(headers={"Content-Length": "4"})
        if number in self.stalls and not self.body_stalls:
            await asyncio.sleep(60)
        await response.prepare(request)
        if number in self.stalls:
            await asyncio.sleep(2 * SHORT)
        if request.method != "HEAD":
            await response.write(b"well")
        return response


def run(site, link, work, **settings):
    timeouts = barograph.Timeouts(lambda host: link)

    async def main():
        async with site, barograph.aiohttp.session(timeouts, **settings) as session:
            await work(session)
        assert list(timeouts.links()) in ([f"127.0.0.1:{site.port}"], ["127.0.0.1:1"])

    asyncio.run(asyncio.wait_for(main(), 50))


async def text(session, method, url, **settings):
    async with session.request(method, url, **settings) as response:
        return await response.text()


def test_a_get_is_retried(link):
    site = Site(0, 1)

    async def work(session):
        assert await text(session, "GET", site.url) == "well"

    run(site, link.cuts(0, 1), work)
    assert link.ends == [("timed_out", 0), ("timed_out", 1), ("answered", 2)]


def test_a_put_with_a_body_in_memory_is_retried(link):
    site = Site(0)

    async def work(session):
        assert await text(session, "PUT", site.url, data="body") == "well"
        assert await text(session, "PUT", site.url, json={"a": 1}) == "well"

    run(site, link.cuts(0), work)
    assert site.requests == [("PUT", "body"), ("PUT", "body"), ("PUT", '{"a": 1}')]


def test_a_post_is_sent_once(link):
    site = Site(0)

    async def work(session):
        with pytest.raises(barograph.Timeout) as cut:
            await text(session, "POST", site.url, data=b"body")
        assert isinstance(cut.value, aiohttp.ServerTimeoutError) and isinstance(cut.value, aiohttp.ClientError)
        assert cut.value.decision.timeout == SHORT and (cut.value.number, cut.value.tries) == (0, 2)

    run(site, link.cuts(0), work)
    assert site.requests == [("POST", "body")] and link.ends == [("timed_out", 0)]


def test_a_body_that_cannot_be_sent_again_is_sent_once(link):
    site = Site(0)

    async def body():
        yield b"body"

    async def work(session):
        with pytest.raises(barograph.Timeout):
            await text(session, "PUT", site.url, data=body())

    run(site, link.cuts(0), work)
    assert len(site.requests) == 1


def test_the_body_of_a_response_is_not_cut_off(link):
    site = Site(0, 1, body_stalls=True)

    async def work(session):
        assert await text(session, "GET", site.url) == "well"

    run(site, link.cuts(0), work)
    # On a busy machine the headers may have been late; whatever was answered had its body.
    assert link.ends[-1][0] == "answered" and link.times[-1] < 2 * SHORT


def test_only_new_connections_are_recorded_as_connect_times(link):
    site = Site()

    async def work(session):
        for _ in range(3):
            await text(session, "GET", site.url)

    run(site, link, work)
    assert link.ends == [("answered", 0)] * 3 and len(link.set_ups) == 1


def test_a_stall_on_a_reused_connection_is_cut_off(link):
    site = Site(1)

    async def work(session):
        for _ in range(2):
            assert await text(session, "GET", site.url) == "well"

    run(site, link.cuts(1), work)
    assert link.ends == [("answered", 0), ("timed_out", 0), ("answered", 1)]


def test_every_redirect_is_recorded_as_an_attempt(link):
    site = Site()

    async def work(session):
        assert await text(session, "GET", site.url + "moved") == "well"

    run(site, link, work)
    assert link.ends == [("answered", 0)] * 2


def test_the_middlewares_and_traces_of_the_caller_still_run(link):
    site, seen = Site(), []

    async def middleware(request, handler):
        seen.append("middleware")
        return await handler(request)

    async def started(*_):
        seen.append("trace")

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(started)

    async def work(session):
        await text(session, "GET", site.url)

    run(site, link, work, middlewares=(middleware,), trace_configs=[trace])
    assert sorted(seen) == ["middleware", "trace"] and link.ends == [("answered", 0)]


def test_a_refused_connection_raises_the_error_of_aiohttp(link):
    async def work(session):
        with pytest.raises(aiohttp.ClientConnectorError):
            await text(session, "GET", "http://127.0.0.1:1/")

    run(Site(), link, work)
    assert link.ends == [("failed", 0)]


def test_concurrent_requests_keep_separate_attempts(link):
    site = Site("stalls")

    async def work(session):
        # Which attempt gets which place at the server is up to both; a name it has of itself.
        names = ["stalls" if number == 3 else "" for number in range(8)]
        bodies = await asyncio.gather(*(text(session, "GET", site.url + name) for name in names))
        assert bodies == ["well"] * 8

    run(site, link.cuts(3), work)
    assert sorted(link.ends) == [("answered", 0)] * 7 + [("answered", 1), ("timed_out", 0)]


def test_the_middleware_works_without_the_session_helper(link):
    site = Site(0)

    async def main():
        middleware = barograph.aiohttp.AdaptiveMiddleware(barograph.Timeouts(lambda host: link.cuts(0)))
        async with site, aiohttp.ClientSession(middlewares=(middleware,)) as session:
            assert await text(session, "GET", site.url) == "well"

    asyncio.run(asyncio.wait_for(main(), 50))
    assert link.ends == [("timed_out", 0), ("answered", 1)]
