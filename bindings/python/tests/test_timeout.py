import math
import random
import threading

import pytest

from barograph import AdaptiveTimeout, Host, Timeouts

BAD_TIMES = [0.0, -1.0, math.nan, math.inf, -math.inf, 1e30, 1e-12]


def test_a_link_starts_with_a_long_timeout_and_learns():
    link = AdaptiveTimeout()
    first = link.decide()
    assert (first.timeout, first.forecast, first.error, first.help) == (45.0, None, None, 0.5)
    assert first.reason == "no response recorded yet" and "timeout=45" in repr(first)
    for _ in range(100):
        link.answered(0.02)
    then = link.decide()
    assert then.timeout < 0.4 and 0.015 < then.forecast < 0.025
    assert link.timeout() == then.timeout


def test_later_attempts_have_longer_timeouts_and_the_last_has_the_limit():
    link = AdaptiveTimeout(tries=3, limit=90)
    for _ in range(100):
        link.answered(0.02)
    assert link.timeout(number=0) < link.timeout(number=1, elapsed=0.1) < link.timeout(number=2) == 90.0
    assert (link.timeout(tries=1), link.limit, link.tries) == (90.0, 90.0, 3)
    assert AdaptiveTimeout(limit=7).timeout() == 7.0


def test_every_strategy_decides_and_learns():
    assert AdaptiveTimeout("static", seconds=5).timeout() == 5.0
    assert AdaptiveTimeout("static", seconds=5, limit=2).timeout() == 2.0
    assert AdaptiveTimeout("nws", start=9).timeout() == 9.0
    assert AdaptiveTimeout("rfc6298").timeout() == 3.0
    for strategy in ("default", "nws", "nws-escalating", "quantile", "rfc6298"):
        link = AdaptiveTimeout(strategy)
        before = link.timeout()
        for _ in range(50):
            link.answered(0.1, bytes=1000)
        link.connected(0.01)
        link.timed_out(1.0, number=1, elapsed=0.2)
        link.superseded(0.1)
        link.failed(0.1)
        assert link.timeout(bytes=1000) < before, strategy


def test_the_default_k_of_the_papers_timeout_is_2():
    links = [AdaptiveTimeout("nws"), AdaptiveTimeout("nws", k=2.0), AdaptiveTimeout("nws", k=1.0)]
    for seconds in (1.0, 2.0, 1.5, 3.0):
        for link in links:
            link.answered(seconds)
    default, two, one = (link.decide() for link in links)
    assert default.timeout == two.timeout == pytest.approx(two.forecast + 2 * two.error)
    assert one.timeout == pytest.approx(one.forecast + one.error)


def test_a_quantile_timeout_is_reached_by_its_share_of_first_attempts():
    links = [AdaptiveTimeout("quantile"), AdaptiveTimeout("quantile", share=0.9, start=7)]
    assert [link.timeout() for link in links] == [45.0, 7.0]
    for link in links:
        times = random.Random(1)
        for _ in range(400):
            link.answered(1.0 + times.random())
    p99, p90 = (link.decide() for link in links)
    assert 1.6 < p90.timeout < 2.0 and p90.timeout < p99.timeout < 2.3
    assert p90.expected_timeouts == pytest.approx(0.1) and p99.expected_timeouts == pytest.approx(0.01)
    assert p99.reason == "a quantile of the forecast response time"
    assert links[0].timeout(number=1) == pytest.approx(4 * p99.timeout)


@pytest.mark.parametrize("end", ["answered", "timed_out", "superseded", "failed", "connected"])
@pytest.mark.parametrize("bad", BAD_TIMES)
def test_an_invalid_time_is_rejected_and_changes_nothing(end, bad):
    link = AdaptiveTimeout()
    link.answered(0.5)
    before = link.save()
    with pytest.raises(ValueError, match="not ") as error:
        getattr(link, end)(bad)
    assert str(error.value).endswith(f"not {bad!r}".replace("nan", "NaN").replace("e+", "e"))
    assert link.save() == before


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: AdaptiveTimeout("guess"), "strategy must be one of .* not 'guess'"),
        (lambda: AdaptiveTimeout("static"), "needs seconds"),
        (lambda: AdaptiveTimeout("static", seconds=0), "seconds must be .* not 0"),
        (lambda: AdaptiveTimeout(seconds=1), "'default' does not take seconds"),
        (lambda: AdaptiveTimeout(k=1), "'default' does not take k"),
        (lambda: AdaptiveTimeout("nws", k=-1), "k must be .* not -1"),
        (lambda: AdaptiveTimeout("nws", k=math.nan), "k must be .* not NaN"),
        (lambda: AdaptiveTimeout("quantile", share=1.0), "share must be from 0.005 to 0.995, not 1"),
        (lambda: AdaptiveTimeout("quantile", share=math.nan), "share must be .* not NaN"),
        (lambda: AdaptiveTimeout(share=0.9), "'default' does not take share"),
        (lambda: AdaptiveTimeout("rfc6298", host=Host()), "does not take host"),
        (lambda: AdaptiveTimeout(budget=1.5), "budget must be .* not 1.5"),
        (lambda: AdaptiveTimeout(budget=math.nan), "budget must be .* not NaN"),
        (lambda: AdaptiveTimeout(tries=0), "tries must be at least 1, not 0"),
        (lambda: AdaptiveTimeout(limit=math.inf), "limit must be .* not inf"),
        (lambda: AdaptiveTimeout(start=-3), "start must be .* not -3"),
        (lambda: AdaptiveTimeout().timeout(number=3, tries=3), "number must be below tries"),
        (lambda: AdaptiveTimeout().timeout(tries=0), "tries must be at least 1"),
        (lambda: AdaptiveTimeout().timeout(elapsed=-1.0), "elapsed must be .* not -1"),
        (lambda: AdaptiveTimeout().attempt_blocking(tries=0), "tries must be at least 1"),
        (lambda: AdaptiveTimeout().call_blocking(abs, tries=0, idempotent=True), "tries must be at least 1"),
        (lambda: AdaptiveTimeout().start_from(0.0, 1.0), "forecast must be .* not 0"),
        (lambda: AdaptiveTimeout().start_from(1.0, -1.0), "error must be .* not -1"),
        (lambda: AdaptiveTimeout("nws").start_from(1.0, 1.0), "only the strategy 'default'"),
        (lambda: AdaptiveTimeout("nws").save(), "only the strategy 'default'"),
        (lambda: AdaptiveTimeout.load(b"what?"), "saved timeout"),
        (lambda: AdaptiveTimeout.load(b""), "saved timeout"),
        (lambda: Timeouts(targets_max=0), "targets_max must be at least 1"),
    ],
)
def test_invalid_arguments_raise_value_error_with_a_reason(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_message_sizes_beyond_64_bits_raise_overflow_error():
    with pytest.raises(OverflowError):
        AdaptiveTimeout().timeout(bytes=-1)
    assert AdaptiveTimeout().timeout(bytes=2**64 - 1) > 0


def test_learned_state_survives_save_and_load():
    link = AdaptiveTimeout()
    for _ in range(50):
        link.answered(0.02)
    again = AdaptiveTimeout.load(link.save(), tries=5)
    assert again.decide().forecast == pytest.approx(link.decide().forecast, rel=0.01)
    assert again.tries == 5 and isinstance(again, AdaptiveTimeout)


def test_a_cold_link_starts_from_a_forecast():
    link = AdaptiveTimeout(host=Host())
    link.start_from(0.1, 0.01)
    assert link.decide().forecast == pytest.approx(0.1, rel=0.2) and link.timeout() < 45.0
    warm = AdaptiveTimeout()
    for _ in range(20):
        warm.answered(2.0)
    before = warm.timeout()
    warm.start_from(0.1, 0.01)
    assert warm.timeout() == before


def test_threads_can_share_a_link():
    link, errors = AdaptiveTimeout(), []

    def work():
        try:
            for _ in range(500):
                link.answered(0.05)
                link.decide()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and link.decide().forecast == pytest.approx(0.05, rel=0.1)


def test_each_target_has_one_link_and_the_number_of_links_is_bounded():
    timeouts = Timeouts(lambda host: AdaptiveTimeout(host=host, limit=9), targets_max=2)
    a = timeouts.link("a:1")
    timeouts.link("b:1")
    assert timeouts.link("a:1") is a and a.limit == 9.0
    timeouts.link("c:1")
    assert list(timeouts.links()) == ["a:1", "c:1"] and len(timeouts) == 2
    assert "b:1" not in timeouts and timeouts.link("b:1") is not None
