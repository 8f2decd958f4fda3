"""The native half of barograph. Times are seconds."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal, Self, SupportsFloat, SupportsIndex, final, overload

import numpy
from numpy.typing import NDArray

__all__ = [
    "AdaptiveTimeout",
    "Availability",
    "BrierScore",
    "Decision",
    "Forecast",
    "Forecaster",
    "Host",
    "Interval",
    "LossClassifier",
    "LossDiagnosis",
    "TransferForecast",
    "write_unraisable",
]

_Preset = Literal["full", "lean", "nws", "classic"]
_Rule = Literal["blend", "two-level", "two-selectors", "mse", "mae"]
_Loss = Literal["squared", "absolute"]
_Of = Literal["mean", "value"]
_Horizon = SupportsIndex | timedelta
_Quantiles = Literal["blended", "tracked"]
_Strategy = Literal["default", "nws", "nws-escalating", "quantile", "rfc6298", "static"]
_Number = SupportsFloat | SupportsIndex

@final
class Forecaster:
    """A battery of forecasters over one series, and the rule that chooses among them.

    Without a rule each preset has its own: blend for full and lean, two-level for nws, two-selectors for
    classic (the command line has two-level for classic). The intervals of `levels` (0.01 to 0.999) are
    calibrated each on its own, beside the usual ones. `horizons` are kept, each with forecasts, errors and
    intervals of its own: a number of values or a timedelta. Other horizons are interpolated. `quantiles`
    gives quantiles: "blended" is more exact, "tracked" faster and smaller. `availability` forecasts whether
    the next measurement succeeds.
    """

    def __new__(
        cls,
        preset: _Preset = "full",
        rule: _Rule | None = None,
        levels: Sequence[float] = (),
        horizons: Sequence[_Horizon] = (),
        quantiles: _Quantiles | None = None,
        availability: bool = False,
    ) -> Self: ...
    def update(
        self, series: _Number | Iterable[_Number], times: _Number | Iterable[_Number] | None = None
    ) -> None:
        """Learns a value, or all of a sequence, an array of one dimension or an iterator, in order.

        If one of them is no finite number, ValueError names it and nothing is learnt. `times` is when each was
        measured (s). Values after gaps in time have their own forecasts and intervals.
        """

    @overload
    def predict(  # type: ignore[overload-overlap]
        self, series: NDArray[Any], loss: _Loss = "squared", times: Iterable[_Number] | None = None
    ) -> NDArray[numpy.float64]: ...
    @overload
    def predict(
        self, series: Iterable[_Number], loss: _Loss = "squared", times: Iterable[_Number] | None = None
    ) -> list[float]:
        """Learns a series, and gives for each value the forecast issued before it was seen (NaN for none)."""

    def forecast(
        self, loss: _Loss = "squared", at: float | None = None, horizon: _Horizon | None = None, of: _Of = "mean"
    ) -> Forecast | None:
        """The forecast of the next value, or of one at the time `at` (s); None before the first.

        It is the mean, or with `loss="absolute"` the median. With `horizon`, a number of values or a timedelta,
        it is the forecast of the mean of the values until then, or with `of="value"` of the value then; None
        also for a timedelta before five times between values are known.
        """

    def interval(
        self, level: float = 0.9, at: float | None = None, horizon: _Horizon | None = None, of: _Of = "mean"
    ) -> Interval | None:
        """The range around the median that holds the next value with probability `level` (0.01 to 0.999).

        None until ten forecasts were scored. With `horizon` and `of`, it holds what `forecast` forecasts for them.
        """

    def quantile(
        self, share: float, at: float | None = None, horizon: _Horizon | None = None, of: _Of = "mean"
    ) -> float | None:
        """The number that the next value stays below with probability `share` (0.005 to 0.995).

        None until ten forecasts were scored, and without `quantiles`. With `horizon` and `of`, it is a quantile of
        what `forecast` forecasts for them.
        """

    def means_ahead(
        self, horizons: Sequence[_Horizon] | None = None, level: float = 0.9
    ) -> list[tuple[Forecast | None, Interval | None]]:
        """For each of `horizons`, by default the kept ones, the median forecast of the mean until then, and the
        interval at `level` that holds that mean; all after the same values.
        """

    def forecast_aged(self, at: float, loss: _Loss = "squared") -> Forecast | None:
        """The forecast of the value at the time `at` (s), however old the newest value is; None before the first.

        Soon after the newest value, and after gaps like earlier ones, it is `forecast(at=at)`, else the forecast
        of the value at the horizon that ends at `at`.
        """

    def interval_aged(self, at: float, level: float = 0.9) -> Interval | None:
        """The range that holds the value at the time `at` (s) with probability `level` (0.01 to 0.999).

        It widens with the age of the newest value. None until ten forecasts were scored.
        """

    def quantile_aged(self, share: float, at: float) -> float | None:
        """The number that the value at the time `at` (s) stays below with probability `share` (0.005 to 0.995).

        None until ten forecasts were scored, and without `quantiles`.
        """

    def fail(self) -> None:
        """Learns that a measurement failed. Only the availability changes."""

    def availability(self) -> Availability | None:
        """The forecast of whether the next measurement succeeds, as it is now; None without `availability`."""

    def method_forecasts(self) -> dict[str, float]:
        """Every method with its own forecast of the next value; empty before the first value."""

    def weights(self, loss: _Loss = "squared") -> dict[str, float]:
        """Every method with its weight (0 to 1, sum 1); empty before the first value."""

@final
class Forecast:
    """A forecast in the series' unit, and the errors of those issued so far (None until one is scored)."""

    @property
    def value(self) -> float: ...
    @property
    def mse(self) -> float | None: ...
    @property
    def mae(self) -> float | None: ...
    @property
    def recent_mse(self) -> float | None: ...
    @property
    def recent_mae(self) -> float | None: ...
    @property
    def rmse(self) -> float | None: ...
    @property
    def method(self) -> str: ...
    @property
    def weight(self) -> float | None: ...
    @property
    def made_by(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def scored(self) -> int: ...
    @property
    def basis(self) -> Literal["own", "between", "beyond"]: ...

@final
class Interval:
    """A prediction interval, in the series' unit."""

    @property
    def level(self) -> float: ...
    @property
    def lower(self) -> float: ...
    @property
    def upper(self) -> float: ...

@final
class TransferForecast:
    """Forecasts the time (s) of a transfer over a new TCP connection.

    `goodput` (bit/s) and `rtt` (s) are the forecasters of a path, both learned with times. With `tls` the
    handshake of TLS 1.3 takes a round trip more. `test_bytes` is the size of the tests that measured the
    goodput, if their goodputs include slow start. `least` (bit/s) is the least goodput that was measured: it
    bounds late times.
    """

    def __new__(
        cls,
        goodput: Forecaster,
        rtt: Forecaster,
        *,
        tls: bool = False,
        test_bytes: int | None = None,
        least: float | None = None,
    ) -> Self: ...
    def forecast(self, bytes: int, at: float) -> float | None:
        """The forecast time (s) of a transfer of `bytes` that starts at the time `at` (s).

        None without values, and if the transfer would take longer than a year.
        """

    def quantile(self, bytes: int, share: float, at: float) -> float | None:
        """The time (s) that the share `share` (0.005 to 0.995) of such transfers takes at most.

        0.5 is the forecast. None as for `forecast`, and until both series have intervals.
        """

    def interval(self, bytes: int, at: float, level: float = 0.9) -> Interval | None:
        """The range that holds the time (s) of such a transfer with probability `level` (0.01 to 0.99).

        None as for `quantile`.
        """

@final
class Availability:
    """A forecast of whether measurements succeed."""

    @property
    def probability(self) -> float | None:
        """The probability that the next measurement succeeds, 0 to 1; None before the first one."""

    def probability_ahead(self, steps: float) -> float | None:
        """The probability that the measurement `steps` ahead succeeds; 1 is the next one.

        None before the first measurement, and if `steps` is below 1 or not finite.
        """

    @property
    def brier(self) -> BrierScore | None:
        """The Brier scores of the issued probabilities, 0 (best) to 1; None before one was scored."""

@final
class BrierScore:
    """Mean squared differences between a probability and the outcome, 1 or 0."""

    @property
    def issued(self) -> float:
        """Score of the issued probabilities."""

    @property
    def climatology(self) -> float:
        """Score of the share of successes so far, for the same outcomes."""

    @property
    def count(self) -> int:
        """Number of scored outcomes."""

@final
class Host:
    """What the links of this host learn together."""

    def __new__(cls) -> Self: ...

@final
class LossClassifier:
    """Finds out whether the packets of a window were lost by the receiving host or by the network.

    `model` is the text of a model that `barograph classify fit --method default` wrote, instead of the shipped
    one; ValueError says why a text is no such model.
    """

    def __new__(cls, model: str | None = None) -> Self: ...
    @staticmethod
    def paper() -> LossClassifier:
        """The classifier of the paper (Dickens §3), which uses the pattern of losses alone."""

    def diagnose(
        self,
        packets: int,
        runs: Sequence[int],
        *,
        burst: int | None = None,
        delay: float | None = None,
        host_drops: int | None = None,
        marks: int | None = None,
    ) -> LossDiagnosis:
        """The cause of the losses of a window of `packets` packets (1 to 2**24), best of 20 000 or more.

        `runs` are the numbers of packets that were received, lost, received, lost, and so on; the rest was
        received. Evidence that is None is not known: the packets that the sender sends at once, the one-way
        delay (s) just before the losses above the path's minimum, the packets that the receiving socket
        dropped, and the packets that arrived marked as congested.
        """

@final
class LossDiagnosis:
    """The cause of the losses of a window, and the evidence for it."""

    @property
    def verdict(self) -> str:
        """The cause: "cpu", "network", "hybrid" or "inconclusive"."""

    @property
    def p_cpu(self) -> float:
        """The probability that a lost packet was lost by the host's CPU, 0 to 1; the rest is the network's."""

    @property
    def lost(self) -> int:
        """Number of packets that were lost: the sum of the next three."""

    @property
    def lost_host(self) -> int:
        """Number of packets lost by the host."""

    @property
    def lost_network(self) -> int:
        """Number of packets lost by the network."""

    @property
    def lost_unknown(self) -> int:
        """Number of packets lost by an unknown cause."""

    @property
    def evidence(self) -> list[str]:
        """The evidence that was used and doubts about it, with the words of `barograph classify`."""

@final
class Decision:
    """A timeout, what it is based on, and why it is not another."""

    @property
    def timeout(self) -> float:
        """How long the attempt may take."""

    @property
    def forecast(self) -> float | None:
        """The forecast of the response time."""

    @property
    def error(self) -> float | None:
        """The forecast's typical error."""

    @property
    def expected_timeouts(self) -> float | None:
        """The share of such attempts that is expected to run into this timeout, 0 to 1."""

    @property
    def help(self) -> float | None:
        """How likely a retry is to be a fresh draw rather than to meet the same slowness, 0 to 1."""

    @property
    def reason(self) -> str:
        """Why, in a few words."""

class AdaptiveTimeout:
    """Decides how long an attempt on one link may take, and learns how attempts ended.

    `k` is for the strategies nws (default 2), `share` for quantile (the share of first attempts that should
    end before their timeout, 0.005 to 0.995, default 0.99), `seconds` for static, `budget` (the largest
    share of attempts that may be cut off) and `host` for default, `start` (the timeout while nothing is
    known, 45 s) for default, nws and quantile. No timeout is longer than `limit`, by default two hours.
    """

    def __new__(
        cls,
        strategy: _Strategy = "default",
        *,
        k: float | None = None,
        share: float | None = None,
        seconds: float | None = None,
        budget: float | None = None,
        tries: int = 3,
        limit: float | None = None,
        start: float | None = None,
        host: Host | None = None,
        saved: bytes | None = None,
    ) -> Self: ...
    @property
    def tries(self) -> int:
        """How many attempts an exchange makes, unless it says otherwise."""

    @property
    def limit(self) -> float:
        """The longest that any attempt may take."""

    def timeout(self, bytes: int = 0, number: int = 0, tries: int | None = None, elapsed: float = 0.0) -> float:
        """How long an attempt may take.

        It is the `number`th (from 0) of `tries` of an exchange that moves `bytes` and began `elapsed` ago.
        """

    def decide(self, bytes: int = 0, number: int = 0, tries: int | None = None, elapsed: float = 0.0) -> Decision:
        """As `timeout`, with the grounds."""

    def answered(
        self, seconds: float, bytes: int = 0, number: int = 0, tries: int | None = None, elapsed: float = 0.0
    ) -> None:
        """The answer came after so long."""

    def timed_out(
        self, seconds: float, bytes: int = 0, number: int = 0, tries: int | None = None, elapsed: float = 0.0
    ) -> None:
        """The attempt was cut off after so long, because its timeout had passed."""

    def superseded(
        self, seconds: float, bytes: int = 0, number: int = 0, tries: int | None = None, elapsed: float = 0.0
    ) -> None:
        """The attempt was given up after so long for another reason than its timeout."""

    def failed(
        self, seconds: float, bytes: int = 0, number: int = 0, tries: int | None = None, elapsed: float = 0.0
    ) -> None:
        """The attempt failed after so long: refused, reset, broken."""

    def connected(self, seconds: float) -> None:
        """Setting up a connection took so long, which is no part of any attempt."""

    def start_from(self, forecast: float, error: float) -> None:
        """Starts from a forecast made elsewhere, and its error; ignored once there are answers of its own."""

    def save(self) -> bytes:
        """All that the link has learned."""

def write_unraisable(error: BaseException, object: object) -> None:
    """Hands `error`, which cannot be raised, to `sys.unraisablehook`; Python code alone cannot."""
