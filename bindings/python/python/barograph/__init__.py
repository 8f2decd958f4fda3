"""Forecasts with their own error, and timeouts that set themselves.

`Forecaster` is a battery of forecasting methods over one series; `TransferForecast` forecasts the time of a
transfer from two of them; `AdaptiveTimeout` learns how long one link takes to answer and says how long to wait
for it; `LossClassifier` finds out whether packets were lost by the receiving host or by the network. Times are
seconds; clocks are monotonic.
"""

from barograph._attempt import Attempt, AsyncAttempt, BlockingAttempt, Timeout
from barograph._link import AdaptiveTimeout
from barograph._native import (
    Availability,
    BrierScore,
    Decision,
    Forecast,
    Forecaster,
    Host,
    Interval,
    LossClassifier,
    LossDiagnosis,
    TransferForecast,
)
from barograph._timeouts import Timeouts

__all__ = [
    "AdaptiveTimeout",
    "AsyncAttempt",
    "Attempt",
    "Availability",
    "BlockingAttempt",
    "BrierScore",
    "Decision",
    "Forecast",
    "Forecaster",
    "Host",
    "Interval",
    "LossClassifier",
    "LossDiagnosis",
    "Timeout",
    "Timeouts",
    "TransferForecast",
]
