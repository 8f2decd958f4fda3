import asyncio

import pytest

from barograph import AdaptiveTimeout, Timeout, Timeouts
from conftest import ANSWER_TIMEOUT, SHORT, Watched

FOREVER = 60.0


def run(coroutine):
    """Runs it, within a limit, and sees that no task is left behind."""

    async def main():
        result = await asyncio.wait_for(coroutine, 50)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(main())


class Service:
    """Stalls on the calls whose numbers are in `stalls`, and counts those that were cancelled."""

    def __init__(self, *stalls):
        self.stalls, self.calls, self.cancelled = stalls, 0, 0

    async def __call__(self):
        number = self.calls
        self.calls += 1
        try:
            if number in self.stalls:
                await asyncio.sleep(FOREVER)
            return number
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def test_an_idempotent_call_is_cancelled_and_retried(link):
    service = Service(0, 1)
    assert run(link.cuts(0, 1).call(service, idempotent=True)) == 2
    assert (service.calls, service.cancelled) == (3, 2)
    assert link.ends == [("timed_out", 0), ("timed_out", 1), ("answered", 2)]
    assert all(0.99 * SHORT <= seconds < ANSWER_TIMEOUT for seconds in link.times[:2])


def test_a_call_that_is_not_idempotent_is_not_retried(link):
    service = Service(0)
    with pytest.raises(Timeout) as cut:
        run(link.cuts(0).call(service))
    assert (service.calls, service.cancelled, link.ends) == (1, 1, [("timed_out", 0)])
    assert cut.value.decision.timeout == SHORT and 0.99 * SHORT <= cut.value.seconds
    assert (cut.value.number, cut.value.tries) == (0, 2) and "fixed by the caller" in str(cut.value)
    assert isinstance(cut.value, TimeoutError)


def test_a_call_that_is_not_idempotent_fails_before_the_limit():
    link = AdaptiveTimeout(limit=60)

    async def main():
        for _ in range(40):
            # On a busy machine a short sleep may be cut off; then it is slept again.
            await link.call(lambda: asyncio.sleep(0.002), idempotent=True)
        with pytest.raises(Timeout) as cut:
            await link.call(lambda: asyncio.sleep(FOREVER))
        assert cut.value.seconds < 8.0
        assert link.timeout(tries=1) == 60.0

    run(main())


def test_the_last_attempt_raises_timeout(link):
    service = Service(0, 1)
    with pytest.raises(Timeout) as cut:
        run(link.cuts(0, 1).call(service, tries=2, idempotent=True))
    assert service.calls == 2 and (cut.value.number, cut.value.tries) == (1, 2)


def test_other_errors_are_raised_unchanged_and_not_retried(link):
    async def refused():
        raise ConnectionRefusedError("no")

    with pytest.raises(ConnectionRefusedError):
        run(link.call(refused, idempotent=True))

    async def inner_timeout():
        raise TimeoutError("of something else")

    with pytest.raises(TimeoutError, match="of something else") as error:
        run(link.call(inner_timeout, idempotent=True))
    assert not isinstance(error.value, Timeout)
    assert link.ends == [("failed", 0), ("failed", 0)]


def test_the_timeout_of_an_inner_link_is_not_retried(link):
    inner = Watched.make("static", seconds=0.05)
    service = Service(0, 1, 2)

    async def inside():
        async with inner.attempt():
            await service()

    with pytest.raises(Timeout) as cut:
        run(link.call(inside, idempotent=True))
    assert (cut.value.decision.timeout, cut.value.number, cut.value.tries) == (0.05, 0, 3)
    assert service.calls == 1 and inner.ends == [("timed_out", 0)] and link.ends == [("failed", 0)]


def test_cancelling_a_task_raises_cancelled_error():
    link = Watched.make("static", seconds=FOREVER)

    async def main():
        task = asyncio.create_task(link.call(Service(0), idempotent=True))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert link.ends == [("superseded", 0)]


def test_thousands_of_cancelled_calls_leave_no_tasks():
    link = Watched.make("static", seconds=FOREVER)

    async def main():
        tasks = [asyncio.create_task(link.call(Service(0))) for _ in range(2000)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)

    run(main())
    assert link.ends == [("superseded", 0)] * 2000


def test_an_attempt_context_works_like_asyncio_timeout(link):
    async def main():
        async with link.attempt(bytes=10) as attempt:
            assert attempt.timeout == attempt.decision.timeout == ANSWER_TIMEOUT
        with pytest.raises(Timeout):
            async with link.attempt():
                await asyncio.sleep(FOREVER)

    link.cuts(1)
    run(main())
    assert link.ends == [("answered", 0), ("timed_out", 0)]


def test_connect_time_is_not_part_of_an_attempt(link):
    async def main():
        async with link.attempt(connects=True) as attempt:
            await asyncio.sleep(1.5 * SHORT)  # longer than the timeout, which has not begun
            attempt.connected()
        with pytest.raises(Timeout):
            async with link.attempt(connects=True) as attempt:
                attempt.started()
                await asyncio.sleep(FOREVER)

    link.cuts(0, 1)
    run(main())
    assert link.ends == [("answered", 0), ("timed_out", 0)]
    assert link.times[0] < link.set_ups[0] and len(link.set_ups) == 1 and SHORT < link.set_ups[0]


def test_a_link_learns_from_awaited_calls():
    link = AdaptiveTimeout()
    answers = []
    link.on_answer = answers.append

    async def main():
        for _ in range(20):
            # On a busy machine a short sleep may be cut off; then it is slept again.
            await link.call(lambda: asyncio.sleep(0.002), idempotent=True)

    run(main())
    assert link.decide().forecast < 1.0 and link.timeout() < 45.0
    assert len(answers) == 20 and all(0.001 < seconds for seconds in answers)


def test_a_clock_that_stands_still_causes_no_error(link, monkeypatch):
    monkeypatch.setattr("barograph._attempt.time.monotonic", lambda: 5.0)
    attempt = link.attempt_blocking()
    with attempt:
        attempt.connected()
    assert link.ends == [("answered", 0)] and 0 < link.times[0] < 1e-3 and len(link.set_ups) == 1


def test_the_time_of_an_attempt_begins_on_entry(link):
    link.cuts(0)
    attempt = link.attempt()  # where no loop runs yet
    blocking = link.attempt_blocking()
    with pytest.raises(RuntimeError, match="enter it first"):
        print(attempt.timeout)
    assert link.decided == 0

    async def main():
        await asyncio.sleep(1.2 * SHORT)
        async with attempt:
            await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="only once"):
            async with attempt:
                pass

    run(main())
    with blocking:
        assert blocking.timeout == ANSWER_TIMEOUT
    assert link.ends == [("answered", 0)] * 2 and max(link.times) < SHORT


def test_an_error_in_on_answer_is_reported_and_the_answer_returned(link, monkeypatch):
    told = []
    monkeypatch.setattr("sys.unraisablehook", lambda about: told.append((about.exc_value, about.object)))

    def on_answer(_):
        raise error

    error, link.on_answer = ValueError("nobody asked"), on_answer
    assert run(link.call(Service())) == 0
    assert link.call_blocking(lambda _: 7) == 7
    assert link.ends == [("answered", 0)] * 2 and told == [(error, on_answer)] * 2


def test_the_factory_of_links_can_request_other_links():
    def make(host):
        made.append(host)
        if len(made) == 1:
            timeouts.link("of the maker")
        return AdaptiveTimeout(host=host)

    made, timeouts = [], Timeouts(make)
    link = timeouts.link("a")
    assert timeouts.link("a") is link and list(timeouts.links()) == ["of the maker", "a"]
