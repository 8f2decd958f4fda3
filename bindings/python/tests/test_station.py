import math
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from barograph import AdaptiveTimeout
from barograph.station import Feed, StationError, feed_station, start_from_station
from conftest import FORECAST


def test_a_cold_link_starts_from_the_forecast_of_the_station(station):
    link = AdaptiveTimeout()
    assert start_from_station(link, station.url + "/", "here & now", "db:5432")
    assert station.queries == [{"source": "here & now", "target": "db:5432", "quantity": "response_time"}]
    assert link.decide().forecast == pytest.approx(0.25, rel=0.2) and link.timeout() < 45.0


@pytest.mark.parametrize("target", ["unknown", "none"])
def test_without_a_forecast_the_link_stays_cold(station, target):
    link = AdaptiveTimeout()
    assert not start_from_station(link, station.url, "here", target)
    assert link.timeout() == 45.0


def test_a_forecast_without_a_known_error_is_not_used(station):
    station.mean = FORECAST | {"mse": None}
    link = AdaptiveTimeout()
    assert not start_from_station(link, station.url, "here", "there")
    assert link.timeout() == 45.0


@pytest.mark.parametrize(
    ("instead", "says"),
    [
        ((500, {"error": "the archive is gone"}), "500: the archive is gone"),
        ((502, b"<html>"), "502: <html>"),
        ((200, b"what?"), "not JSON"),
        ((200, b"[]"), "not a JSON object"),
        ((200, b" " * 2_000_000), "longer than"),
        ((200, {"forecasts": 7}), "not a forecast"),
        ((200, {"forecasts": [{"unit": "s", "mean": {"mse": "x", "value": []}}]}), "not a forecast"),
        ((200, {"forecasts": [{"unit": "s", "mean": FORECAST | {"value": -1}}]}), "-1"),
        ((200, {"forecasts": [{"unit": "s", "mean": FORECAST | {"value": math.nan}}]}), "nan"),
        ((200, {"forecasts": [{"unit": "bit/s", "mean": FORECAST}]}), "bit/s, not in seconds"),
        ((302, b""), "302"),
    ],
)
def test_invalid_answers_of_a_station_raise_station_error(station, instead, says):
    station.instead = instead
    link = AdaptiveTimeout()
    with pytest.raises(StationError, match=says):
        start_from_station(link, station.url, "here", "there")
    assert link.timeout() == 45.0
    if instead[0] == 302:
        with pytest.raises(StationError, match="302"):
            feed_station(station.url, "there", 0.1, token="secret")


def test_an_unreachable_station_or_an_invalid_url_raises_an_error(station):
    with pytest.raises(StationError, match="no answer from the station"):
        start_from_station(AdaptiveTimeout(), "http://127.0.0.1:1", "here", "there")
    for url in ("file:///etc/passwd", "127.0.0.1:10132", "http://"):
        with pytest.raises(ValueError, match="expected the URL of a station"):
            start_from_station(AdaptiveTimeout(), url, "here", "there")


def test_response_times_are_sent_to_the_station(station):
    assert feed_station(station.url, "db:5432", 0.25) == 1
    assert feed_station(station.url, "db:5432", [0.5, 1], source="here", token="secret") == 2
    plain = {"origin": None, "target": "db:5432", "quantity": "response_time"}
    here = plain | {"source": "here"}
    assert station.stored == [plain | {"value": 0.25}, here | {"value": 0.5}, here | {"value": 1.0}]
    assert station.tokens == [None, "Bearer secret"]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_invalid_times_are_not_sent_to_the_station(station, bad):
    with pytest.raises(ValueError, match=f"not {bad}"):
        feed_station(station.url, "there", [0.1, bad])
    with pytest.raises(ValueError, match="at most 1000"):
        feed_station(station.url, "there", [0.1] * 1001)
    with pytest.raises(ValueError, match=f"not {bad}"):
        Feed(station.url, "me", "there")(bad)
    assert station.stored == []


def test_a_feed_sends_each_response_time_once(station):
    link = AdaptiveTimeout()
    link.on_answer = feed = Feed(station.url, "me", "there")
    for _ in range(3):
        with link.attempt_blocking():
            pass
    station.instead = (503, {"error": "try again"})
    with pytest.raises(StationError, match="503: try again"):
        feed.flush()
    station.instead = None
    assert len(feed) == 3 and feed.flush() == 3 and feed.flush() == 0
    numbers = [record["seq"] for record in station.stored]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    assert {record["origin"] for record in station.stored} == {"me"}
    assert all(abs(record["time_s"] - time.time()) < 60 for record in station.stored)


def test_a_feed_is_bounded(station):
    feed = Feed(station.url, "me", "there")
    for number in range(1, 1006):
        feed(float(number))
    assert (len(feed), feed.dropped) == (1000, 5) and feed.flush() == 1000
    assert station.stored[0]["value"] == 6.0 and len(feed) == 0


def test_measurements_that_the_station_did_not_store_are_counted(station):
    feed = Feed(station.url, "me", "there")
    for _ in range(3):
        feed(0.1)
    station.lacks = 2
    assert (feed.flush(), feed.dropped, len(feed)) == (1, 2, 0)


def test_sequence_numbers_are_unique_after_the_clock_was_set_back(station, monkeypatch):
    for now in (1_800_000_000_005_000_000, 1_800_000_000_000_000_000):  # five milliseconds back
        monkeypatch.setattr("barograph.station.time.time_ns", lambda now=now: now)
        feed = Feed(station.url, "me", "there")
        for _ in range(1000):
            feed(0.1)
        assert feed.flush() == 1000
    assert len({record["seq"] for record in station.stored}) == 2000


def test_start_and_feed_work_with_a_real_station(tmp_path, capfd):
    target = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[3] / "target"))
    binary = next((path for kind in ("debug", "release") if (path := target / kind / "barograph").exists()), None)
    if binary is None:
        assert "TESTS_MUST_RUN" not in os.environ, "target has no barograph, and TESTS_MUST_RUN is set"
        with capfd.disabled():
            print("SKIPPED: a link and a real station: target has no barograph", file=sys.stderr)
        pytest.skip("target has no barograph")
    command = [binary, "up", "--listen", "127.0.0.1:0", "--state", tmp_path, "--host", "here", "--no-default-targets"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            url = url_of_station(tmp_path, process)
            feed = Feed(url, "me", "db:5432", source="here")
            for number in range(50):
                feed(0.2 + number % 2 * 0.01)
            assert feed.flush() == 50
            assert feed_station(url, "other", [0.1, 0.2]) == 2
            link = AdaptiveTimeout()
            deadline = time.monotonic() + 20
            while not start_from_station(link, url, "here", "db:5432") and time.monotonic() < deadline:
                time.sleep(0.05)
            assert 0.19 < link.decide().forecast < 0.22
            assert not start_from_station(AdaptiveTimeout(), url, "here", "nobody:1")
        finally:
            process.terminate()


def url_of_station(state, process):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        try:
            url = (state / "url").read_text().strip()
            urllib.request.urlopen(url + "v1/station", timeout=1).close()
            return url
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the station did not come up")
