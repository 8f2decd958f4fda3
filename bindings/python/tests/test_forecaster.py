import array
import math
import random
import threading
from datetime import timedelta
from decimal import Decimal

import numpy as np
import pytest

from barograph import Forecaster, TransferForecast

SERIES = [10.0, 12.0, 11.0, 10.5, 13.0, 9.0, 11.5]


def value_after(series):
    forecaster = Forecaster()
    forecaster.update(series)
    return forecaster.forecast().value


@pytest.mark.parametrize(
    "series",
    [
        tuple(SERIES),
        iter(SERIES),
        (value for value in SERIES),
        [Decimal(value) for value in SERIES],
        np.array(SERIES),
        np.array(SERIES, dtype="f4"),
        np.array(SERIES, dtype="f2"),
        np.array(SERIES, dtype=">f8"),
        np.repeat(np.array(SERIES), 2)[::2],
        array.array("d", SERIES),
        memoryview(array.array("f", SERIES)),
    ],
)
def test_every_type_of_series_gives_the_same_forecast(series):
    assert value_after(series) == value_after(SERIES)


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_integer_arrays_are_accepted(kind):
    assert value_after(np.arange(9, dtype=kind)) == value_after(list(range(9)))


def test_values_added_one_by_one_give_the_same_forecast_as_a_series():
    forecaster = Forecaster()
    for value in [10, 12.0, np.float64(11), np.float32(10.5), np.int64(13), np.array(9.0), Decimal("11.5")]:
        forecaster.update(value)
    assert forecaster.forecast().value == value_after(SERIES)
    assert forecaster.forecast().count == 7


def test_a_forecast_has_errors_after_the_first_scored_forecast():
    forecaster = Forecaster()
    assert forecaster.forecast() is None and forecaster.interval() is None
    assert forecaster.method_forecasts() == {} and forecaster.weights() == {}
    forecaster.update(10.0)
    first = forecaster.forecast("absolute")
    assert (first.value, first.mse, first.mae, first.rmse, first.recent_mse) == (10.0, None, None, None, None)
    forecaster.update(14.0)
    second = forecaster.forecast()
    assert (second.mse, second.mae, second.rmse, second.count) == (16.0, 4.0, 4.0, 2)
    assert second.method in forecaster.weights() and "rmse=4" in repr(second)
    assert math.isclose(sum(forecaster.weights("absolute").values()), 1.0)
    assert forecaster.method_forecasts().keys() == forecaster.weights().keys()
    assert "made_by='blend, " in repr(second) and 0 < second.weight <= 1
    assert forecaster.interval() is None, "calibrating"
    forecaster.update([10.0, 14.0, 12.0] * 3)
    interval = forecaster.interval(0.8)
    assert interval.level == 0.8 and interval.lower < interval.upper


def test_forecast_and_interval_change_after_a_gap():
    values = [float(i * 7 % 13) for i in range(60)]
    times = [i + 100.0 * (i // 20) for i in range(60)]
    forecaster = Forecaster()
    forecaster.update(values, times)
    usual, late = forecaster.interval(at=260.0), forecaster.interval(at=900.0)
    assert usual.upper - usual.lower != late.upper - late.lower
    assert forecaster.interval().lower == usual.lower
    # The first is NaN: nothing was issued before any value.
    as_list, as_tuple = (Forecaster().predict(values, times=of(times)) for of in (list, tuple))
    assert as_list[1:] == as_tuple[1:]
    with pytest.raises(ValueError, match="expected 2 times, one for each value, found 1"):
        forecaster.update([1.0, 2.0], [3.0])


def test_predict_returns_the_forecast_issued_before_each_value():
    by_hand, issued = Forecaster(), []
    for value in SERIES:
        forecast = by_hand.forecast("absolute")
        issued.append(math.nan if forecast is None else forecast.value)
        by_hand.update(value)
    at_once = Forecaster()
    predicted = at_once.predict(np.array(SERIES), loss="absolute")
    assert isinstance(predicted, np.ndarray) and predicted.dtype == np.float64
    np.testing.assert_array_equal(predicted, np.array(issued))
    predicted[0] = 0.0  # it is the caller's own
    assert at_once.forecast().value == by_hand.forecast().value
    as_list = Forecaster().predict(SERIES, "absolute")
    assert isinstance(as_list, list) and as_list[1:] == issued[1:] and math.isnan(as_list[0])
    assert Forecaster().predict([]) == [] and Forecaster().predict(np.array([])).shape == (0,)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e71])
@pytest.mark.parametrize("wrap", [list, np.array, iter])
def test_a_value_that_is_not_finite_is_rejected_with_its_index(bad, wrap):
    forecaster = Forecaster()
    forecaster.update(SERIES)
    for learn in (forecaster.update, forecaster.predict):
        with pytest.raises(ValueError, match="value 2: "):
            learn(wrap([1.0, 2.0, bad, 3.0]))
    with pytest.raises(ValueError, match="not a finite number|out of range"):
        forecaster.update(bad)
    assert forecaster.forecast().count == len(SERIES)


@pytest.mark.parametrize("bad", ["10", b"10", bytearray(2), None, object(), [1.0, "2"], [[1.0]], np.array([1j])])
def test_a_value_that_is_not_a_number_raises_type_error(bad):
    forecaster = Forecaster()
    with pytest.raises(TypeError):
        forecaster.update(bad)
    assert forecaster.forecast() is None


def test_a_series_with_two_dimensions_is_rejected():
    with pytest.raises(ValueError, match="one dimension, not 2"):
        Forecaster().update(np.zeros((2, 2)))


def test_an_error_of_an_iterator_is_raised_unchanged():
    def broken():
        yield 1.0
        raise OSError("the sensor is gone")

    forecaster = Forecaster()
    with pytest.raises(OSError, match="the sensor is gone"):
        forecaster.update(broken())
    assert forecaster.forecast() is None


@pytest.mark.parametrize("preset", ["full", "lean", "nws", "classic"])
@pytest.mark.parametrize("rule", [None, "blend", "two-level", "two-selectors", "flat", "mse", "mae"])
def test_every_preset_and_rule_forecasts(preset, rule):
    forecaster = Forecaster(preset, rule=rule, levels=[0.42])
    # An interval takes ten scored forecasts.
    forecaster.update(SERIES * 3)
    assert 9.0 <= forecaster.forecast().value <= 13.0 and forecaster.interval(0.42).level == 0.42


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Forecaster("best"), "preset must be .* not 'best'"),
        (lambda: Forecaster(rule="vote"), "rule must be .* not 'vote'"),
        (lambda: Forecaster(levels=[2.0]), "level must be from 0.01 to 0.999, not 2"),
        (lambda: Forecaster().forecast("cubed"), "loss must be .* not 'cubed'"),
        (lambda: Forecaster().interval(math.nan), "level must be from 0.01 to 0.999, not NaN"),
    ],
)
def test_invalid_arguments_raise_value_error_with_a_reason(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_threads_can_share_a_forecaster():
    forecaster, errors = Forecaster("nws"), []

    def work():
        try:
            for _ in range(20):
                forecaster.update(np.ones(100))
                assert forecaster.forecast().value == 1.0
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and forecaster.forecast().count == 4 * 20 * 100


def test_horizons_have_forecasts_errors_and_intervals_of_their_own():
    forecaster = Forecaster(horizons=[10, timedelta(minutes=5)])
    forecaster.update([float(i * 7919 % 101) for i in range(600)], [10.0 * i for i in range(600)])
    for horizon, basis in [(10, "own"), (30, "own"), (timedelta(seconds=200), "between"), (1000, "beyond")]:
        for of in ["mean", "value"]:
            forecast = forecaster.forecast("absolute", horizon=horizon, of=of)
            interval = forecaster.interval(horizon=horizon, of=of)
            assert forecast.basis == basis, (horizon, of)
            assert interval.lower <= forecast.value <= interval.upper
    assert forecaster.forecast(horizon=10).scored == 590
    assert forecaster.forecast(horizon=1).value == forecaster.forecast().value
    mean, value = (forecaster.interval(horizon=10, of=of) for of in ("mean", "value"))
    assert mean.upper - mean.lower < value.upper - value.lower
    assert Forecaster().forecast(horizon=10) is None


def test_quantiles_are_in_ascending_order():
    forecaster = Forecaster("nws", horizons=[5], quantiles="tracked")
    forecaster.update([float(i * i % 37) for i in range(300)], [10.0 * i for i in range(300)])
    for arguments in [{}, {"at": 3000.0}, {"horizon": 5}, {"horizon": timedelta(minutes=2), "of": "value"}]:
        low, middle, high = (forecaster.quantile(share, **arguments) for share in (0.1, 0.5, 0.9))
        assert 0.0 <= low <= middle <= high and low < high, arguments
    assert Forecaster().quantile(0.5) is None


def test_means_ahead_are_the_forecasts_and_intervals_of_each_horizon():
    forecaster = Forecaster(horizons=[10, timedelta(minutes=5)])
    assert forecaster.means_ahead() == [(None, None)] * 2
    forecaster.update([float(i * 7919 % 101) for i in range(600)], [10.0 * i for i in range(600)])
    for horizons in [None, [1, timedelta(seconds=200)], (30,)]:
        ahead = forecaster.means_ahead(horizons, level=0.8)
        expected = [10, timedelta(minutes=5)] if horizons is None else horizons
        assert len(ahead) == len(expected)
        for horizon, (forecast, interval) in zip(expected, ahead, strict=True):
            alone = forecaster.forecast("absolute", horizon=horizon)
            assert (forecast.value, forecast.basis) == (alone.value, alone.basis)
            ends = forecaster.interval(0.8, horizon=horizon)
            assert (interval.lower, interval.upper) == (ends.lower, ends.upper)


def test_an_old_value_has_a_wider_interval():
    forecaster = Forecaster(horizons=[timedelta(minutes=5)], quantiles="tracked")
    level, values = 50.0, []
    for i in range(600):
        level += i * 7919 % 101 / 50.0 - 1.0
        values.append(level)
    forecaster.update(values, [10.0 * i for i in range(600)])
    widths, highs = [], []
    for at in (6000.0, 6100.0, 6290.0, 20000.0):
        interval, median = forecaster.interval_aged(at), forecaster.forecast_aged(at, "absolute")
        assert interval.lower <= median.value <= interval.upper
        widths.append(interval.upper - interval.lower)
        highs.append(forecaster.quantile_aged(0.95, at) - median.value)
    assert widths == sorted(widths) and widths[0] < widths[-1]
    assert highs[0] < highs[-1]
    usual = forecaster.interval(at=6000.0)
    assert forecaster.interval_aged(at=6000.0).lower == usual.lower
    assert forecaster.forecast_aged(6000.0).value == forecaster.forecast(at=6000.0).value
    assert Forecaster().forecast_aged(1.0) is None and Forecaster().interval_aged(1.0) is None
    for call in (lambda: forecaster.interval_aged(1.0, 2.0), lambda: forecaster.quantile_aged(0.0, 1.0)):
        with pytest.raises(ValueError, match="must be from"):
            call()


def test_availability_is_the_probability_that_the_next_measurement_succeeds():
    forecaster = Forecaster("lean", availability=True)
    before = forecaster.availability()
    assert (before.probability, before.brier, before.probability_ahead(1.0)) == (None, None, None)
    # Outages of ten measurements.
    for n in range(600):
        forecaster.fail() if n % 100 >= 90 else forecaster.update(20.0)
    during = forecaster.availability()
    assert during.probability < 0.95 and "probability=0." in repr(during)
    assert math.isclose(during.probability_ahead(1), during.probability)
    assert during.probability < during.probability_ahead(500.0)
    assert during.probability_ahead(0.5) is None
    score = during.brier
    assert score.issued < 0.5 * score.climatology and score.count == 599 and "issued=0." in repr(score)
    probability = during.probability
    forecaster.update(20.0)
    assert forecaster.availability().probability > probability == during.probability
    assert forecaster.forecast().count == 541, "a failure is no value"
    assert Forecaster().availability() is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Forecaster(horizons=[0]), "horizon of 0 values"),
        (lambda: Forecaster(horizons=["10m"]), "a number of values or a timedelta"),
        (lambda: Forecaster(quantiles="all"), "'blended' or 'tracked'"),
        (lambda: Forecaster().forecast(horizon=-1), "a number of values or a timedelta"),
        (lambda: Forecaster().forecast(horizon=5, at=1.0), "either at or horizon"),
        (lambda: Forecaster().interval(horizon=5, of="median"), "'mean' or 'value'"),
        (lambda: Forecaster().quantile(1.0), "0.005 to 0.995"),
    ],
)
def test_horizons_and_shares_out_of_range_are_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def path_of(goodputs, rtt=0.16):
    goodput, delay = Forecaster(), Forecaster()
    for n, value in enumerate(goodputs):
        goodput.update(value, 60.0 * n)
        delay.update(rtt + 0.0001 * (n % 3), 60.0 * n)
    return goodput, delay


def test_a_transfer_takes_its_handshakes_its_slow_start_and_its_bytes():
    goodput, rtt = path_of([20e6 + 1e5 * (n % 7) for n in range(100)])
    transfer, now = TransferForecast(goodput, rtt), 6000.0
    # Two round trips of set-up, two of slow start, and 57 kB at 20 Mbit/s.
    assert math.isclose(transfer.forecast(100_000, now), 0.663, rel_tol=0.02)
    with_tls = TransferForecast(goodput, rtt, tls=True).forecast(100_000, now)
    assert math.isclose(with_tls - transfer.forecast(100_000, now), 0.16, rel_tol=0.01)
    times = [transfer.forecast(10**power, now) for power in range(3, 10)]
    assert times == sorted(times) and math.isclose(times[-1], 8e9 / 20.3e6, rel_tol=0.02)
    interval = transfer.interval(100_000, now)
    assert interval.level == 0.9 and interval.lower < transfer.forecast(100_000, now) < interval.upper
    assert transfer.quantile(100_000, 0.5, now) == transfer.forecast(100_000, now)


def test_a_goodput_with_slow_start_is_that_of_a_faster_path():
    goodput, rtt = path_of([6.453e6] * 100)
    plain, corrected = TransferForecast(goodput, rtt), TransferForecast(goodput, rtt, test_bytes=1 << 20)
    assert corrected.forecast(10**9, 6000.0) < 0.7 * plain.forecast(10**9, 6000.0)


def test_the_least_goodput_bounds_a_late_time():
    noise = random.Random(7)
    goodput, rtt = path_of([noise.uniform(1e6, 2e7) for _ in range(100)])
    loose, bounded = (TransferForecast(goodput, rtt, least=least) for least in (None, 5e6))
    late = bounded.quantile(10**8, 0.95, 6000.0)
    # A rate of half the least goodput, at most.
    assert late < loose.quantile(10**8, 0.95, 6000.0) and late < 8e8 / 2.4e6


def test_a_transfer_without_values_has_no_forecast():
    transfer = TransferForecast(Forecaster(), Forecaster())
    assert transfer.forecast(1000, 0.0) is None and transfer.interval(1000, 0.0) is None
    same = Forecaster()
    for call, message in (
        (lambda: TransferForecast(same, same), "two forecasters"),
        (lambda: transfer.quantile(1000, 1.0, 0.0), "0.005 to 0.995"),
        (lambda: transfer.interval(1000, 0.0, 0.999), "0.01 to 0.99"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
