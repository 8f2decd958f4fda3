import socket
import urllib.request

import pytest
import requests

from barograph import Timeout
from conftest import Watched


def test_a_urllib_request_is_retried(server, link):
    server.stalls = {0, 1}

    def get(seconds):
        with urllib.request.urlopen(server.url, timeout=seconds) as response:
            return response.read()

    assert link.cuts(0, 1).call_blocking(get, idempotent=True) == b"well"
    assert link.ends == [("timed_out", 0), ("timed_out", 1), ("answered", 2)]
    assert len(server.requests) == 3


def test_a_call_that_is_not_idempotent_is_sent_once(server, link):
    server.stalls = {0}
    with pytest.raises(Timeout) as cut:
        link.cuts(0).call_blocking(lambda seconds: urllib.request.urlopen(server.url, b"x", seconds))
    assert len(server.requests) == 1 and link.ends == [("timed_out", 0)]
    assert isinstance(cut.value.__cause__, TimeoutError) and (cut.value.number, cut.value.tries) == (0, 2)


def test_the_requests_library_works_within_an_attempt(server, link):
    server.stalls = {1}
    link.cuts(1)
    with link.attempt_blocking() as attempt:
        assert requests.get(server.url, timeout=attempt.timeout).text == "well"
    with pytest.raises(Timeout) as cut, link.attempt_blocking() as attempt:
        requests.get(server.url, timeout=attempt.timeout)
    assert isinstance(cut.value.__cause__, requests.exceptions.ReadTimeout)
    assert link.ends == [("answered", 0), ("timed_out", 0)]


def test_a_socket_without_an_answer_times_out(link):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def ask(seconds):
            with socket.create_connection(listener.getsockname(), seconds) as connection:
                connection.sendall(b"?")
                return connection.recv(1)

        with pytest.raises(Timeout) as cut:
            link.cuts(0, 1).call_blocking(ask, tries=2, idempotent=True)
    assert cut.value.number == 1 and link.ends == [("timed_out", 0), ("timed_out", 1)]


def test_a_refused_connection_is_not_a_timeout(link):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = listener.getsockname()
    with pytest.raises(ConnectionRefusedError):
        try:
            raise TimeoutError("from before")
        except TimeoutError:
            link.call_blocking(lambda seconds: socket.create_connection(nobody, seconds), idempotent=True)
    assert link.ends == [("failed", 0)]


def test_a_timeout_error_before_the_timeout_of_the_link_is_raised_unchanged():
    link = Watched.make("static", seconds=20.0)

    def impatient(_):
        raise TimeoutError("after hardly anything")

    with pytest.raises(TimeoutError, match="after hardly anything") as error:
        link.call_blocking(impatient, idempotent=True)
    assert not isinstance(error.value, Timeout) and link.ends == [("superseded", 0)]


def test_an_interrupt_is_not_recorded_as_a_failure(link):
    with pytest.raises(KeyboardInterrupt), link.attempt_blocking():
        raise KeyboardInterrupt
    assert link.ends == [("superseded", 0)]


def test_a_cycle_of_error_causes_is_followed_to_a_limit(link):
    error = ValueError("round and round")
    error.__cause__ = RuntimeError()
    error.__cause__.__cause__ = error
    with pytest.raises(ValueError, match="round"), link.attempt_blocking():
        raise error
    assert link.ends == [("failed", 0)]
