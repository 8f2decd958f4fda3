import asyncio
import importlib
import sys

import httpx
import pytest

import barograph
from barograph.httpx import AdaptiveTransport, AsyncAdaptiveTransport
from conftest import ANSWER_TIMEOUT, SHORT


class Client:
    """The same questions to both of httpx's clients."""

    def __init__(self, is_async, link):
        timeouts = barograph.Timeouts(lambda host: link)
        self.is_async = is_async
        self.transport = AsyncAdaptiveTransport(timeouts) if is_async else AdaptiveTransport(timeouts)
        self.timeouts = timeouts

    def ask(self, *requests, timeout=ANSWER_TIMEOUT, **settings):
        """The status and body of the last of the requests, made one after the other by one client."""
        if not self.is_async:
            with httpx.Client(transport=self.transport, timeout=timeout) as client:
                answers = [client.request(*request, **settings) for request in requests]
            return answers[-1]

        async def main():
            async with httpx.AsyncClient(transport=self.transport, timeout=timeout) as client:
                answers = [await client.request(*request, **settings) for request in requests]
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return answers[-1]

        return asyncio.run(main())


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def client(request, link):
    return Client(request.param, link)


def test_a_get_is_retried(server, link, client):
    server.stalls = {0, 1}
    link.cuts(0, 1)
    answer = client.ask(("GET", server.url))
    assert (answer.status_code, answer.text) == (200, "well")
    assert link.ends == [("timed_out", 0), ("timed_out", 1), ("answered", 2)]
    assert list(client.timeouts.links()) == [f"127.0.0.1:{server.port}"]


def test_a_put_with_a_body_in_memory_is_retried(server, link, client):
    server.stalls = {0}
    link.cuts(0)
    assert client.ask(("PUT", server.url), content=b"body").status_code == 200
    assert server.requests == [("PUT", "/", b"body")] * 2


def test_a_post_is_sent_once(server, link, client):
    server.stalls = {0}
    link.cuts(0)
    with pytest.raises(barograph.Timeout) as cut:
        client.ask(("POST", server.url), content=b"body")
    assert isinstance(cut.value, httpx.ReadTimeout) and cut.value.request.method == "POST"
    assert cut.value.decision.timeout == SHORT and (cut.value.number, cut.value.tries) == (0, 2)
    assert len(server.requests) == 1 and link.ends == [("timed_out", 0)]


def test_a_body_that_cannot_be_sent_again_is_sent_once(server, link, client):
    server.stalls = {0}
    link.cuts(0)

    async def later():
        yield b"body"

    with pytest.raises(httpx.ReadTimeout):
        body = later() if client.is_async else iter([b"body"])
        client.ask(("PUT", server.url), content=body, headers={"Content-Length": "4"})
    assert len(server.requests) == 1


def test_the_body_of_a_response_uses_the_timeout_of_the_client(server, link, client):
    server.stalls, server.stalls_body = {0, 1}, True
    link.cuts(0)
    assert client.ask(("GET", server.url)).text == "well"
    # On a busy machine the headers may have been late; whatever was answered had its body.
    assert link.ends[-1][0] == "answered" and link.times[-1] < 2 * SHORT


def test_the_timeout_of_the_client_does_not_cut_off_the_wait_for_headers(server, link, client):
    server.stalls = {0}
    link.cuts(0)
    with pytest.raises(barograph.Timeout) as cut:
        client.ask(("POST", server.url), timeout=0.01)
    assert 0.99 * SHORT <= cut.value.seconds


def test_headers_that_arrive_byte_by_byte_are_cut_off(link):
    async def dribble(_, writer):
        # A byte at a time, each far sooner than the timeout.
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not over.is_set():
            writer.write(b"x")
            await asyncio.sleep(0.1)
        writer.close()
        closed.set()

    over, closed = asyncio.Event(), asyncio.Event()

    async def main():
        server = await asyncio.start_server(dribble, "127.0.0.1", 0)
        url = "http://{}:{}".format(*server.sockets[0].getsockname())
        transport = AsyncAdaptiveTransport(barograph.Timeouts(lambda host: link.cuts(0)))
        async with server, httpx.AsyncClient(transport=transport, timeout=ANSWER_TIMEOUT) as client:
            with pytest.raises(barograph.Timeout) as cut:
                await asyncio.wait_for(client.post(url), ANSWER_TIMEOUT)
            over.set()
            await asyncio.wait_for(closed.wait(), ANSWER_TIMEOUT)
        assert isinstance(cut.value, httpx.ReadTimeout) and 0.99 * SHORT <= cut.value.seconds < ANSWER_TIMEOUT / 2

    asyncio.run(main())
    assert link.ends == [("timed_out", 0)]


def test_cancelling_a_request_is_not_a_timeout(server, link):
    server.stalls = {0}

    async def main():
        transport = AsyncAdaptiveTransport(barograph.Timeouts(lambda host: link))
        async with httpx.AsyncClient(transport=transport) as client:
            with pytest.raises(TimeoutError) as cut:
                await asyncio.wait_for(client.get(server.url), SHORT)
        assert not isinstance(cut.value, barograph.Timeout)

    asyncio.run(main())
    assert link.ends == [("superseded", 0)]


def test_only_new_connections_are_recorded_as_connect_times(server, link, client):
    seen = []
    trace = seen.append

    async def async_trace(event, info):
        trace(event)

    client.ask(
        ("GET", server.url),
        ("GET", server.url),
        extensions={"trace": async_trace if client.is_async else lambda event, info: trace(event)},
    )
    assert link.ends == [("answered", 0)] * 2 and len(link.set_ups) == 1
    assert "http11.send_request_headers.started" in seen  # the caller's own trace is called too


def test_a_refused_connection_raises_the_error_of_httpx(server, link, client):
    with pytest.raises(httpx.ConnectError):
        client.ask(("GET", "http://127.0.0.1:1"))
    assert link.ends == [("failed", 0)]


def test_the_request_of_a_response_has_its_original_extensions(server, client):
    answer = client.ask(("GET", server.url), timeout=3.0)
    assert answer.request.extensions["timeout"]["read"] == 3.0 and "trace" not in answer.request.extensions


@pytest.mark.parametrize("name", ["httpx", "aiohttp"])
def test_without_its_library_a_helper_module_raises_import_error(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"barograph.{name}", raising=False)
    with pytest.raises(ImportError, match=rf"barograph\.{name} needs {name}.*pip install"):
        importlib.import_module(f"barograph.{name}")
