"""Python forecasts what Rust does: the vectors of crates/forecast, to the bit."""

import csv
import pathlib
from collections import Counter
from datetime import timedelta

from barograph import Forecaster, TransferForecast

VECTORS = pathlib.Path(__file__).parents[3] / "crates/forecast/tests/vectors"


def rows_of(name):
    with (VECTORS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def horizon_of(text):
    return timedelta(seconds=float(text[:-1])) if text.endswith("s") else int(text)


def figure_of(calls, figure):
    forecast, interval, quantile = calls
    match figure:
        case "mean":
            return (found := forecast("squared")) and found.value
        case "mse":
            return (found := forecast("squared")) and found.mse
        case "median":
            return (found := forecast("absolute")) and found.value
        case "mae":
            return (found := forecast("absolute")) and found.mae
        case "lower" | "upper":
            return (found := interval()) and getattr(found, figure)
        case share:
            return quantile(float(share))


def computed(row, rtt, transfer, now):
    what, horizon, figure = row["what"], row["horizon"], row["figure"]
    if what == "availability":
        return rtt.availability().probability_ahead(float(horizon))
    if what == "transfer":
        return transfer.quantile(int(horizon), float(figure), now)
    if what == "aged":
        at = now + float(horizon)
        calls = (
            lambda loss: rtt.forecast_aged(at, loss),
            lambda: rtt.interval_aged(at),
            lambda share: rtt.quantile_aged(share, at),
        )
    else:
        ahead = {} if what == "next" else {"horizon": horizon_of(horizon), "of": what}
        calls = (
            lambda loss: rtt.forecast(loss, **ahead),
            lambda: rtt.interval(**ahead),
            lambda share: rtt.quantile(share, **ahead),
        )
    return figure_of(calls, figure)


def test_forecasts_equal_those_of_rust_to_the_bit():
    kept = [30, timedelta(seconds=600)]
    goodput, rtt = (Forecaster(horizons=kept, quantiles="blended", availability=True) for _ in range(2))
    transfer = TransferForecast(goodput, rtt)
    expected = rows_of("forecasts.csv")
    compared = Counter()
    for count, row in enumerate(rows_of("series.csv"), start=1):
        now = float(row["time_s"])
        goodput.update(float(row["goodput_bit_s"]), now)
        if row["rtt_s"]:
            rtt.update(float(row["rtt_s"]), now)
        else:
            rtt.fail()
        for vector in expected:
            if int(vector["rows"]) == count:
                known = float(vector["value"]) if vector["value"] else None
                assert computed(vector, rtt, transfer, now) == known, vector
                compared[vector["what"]] += 1
    assert compared.total() == len(expected) and set(compared) == {
        "next", "mean", "value", "aged", "availability", "transfer"
    }
