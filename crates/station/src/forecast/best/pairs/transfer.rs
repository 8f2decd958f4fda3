//! Time of a transfer in the direction of a series of goodputs.

use barograph_forecast::{Horizon, Name, Quantity, SeriesId, TransferForecast, TransferModel};
use barograph_mesh::ComposedQuantity;

use super::ForecastContext;
use crate::forecast::series::{SeriesState, SeriesTable};

/// Forecast of the time of a transfer of `bytes` in the direction of a series of goodputs, from
/// this series and the round trips of its path. The share `level` of the transfers, at most 0.99,
/// should take a time between the two ends.
///
/// The goodput counts at every age, and a round trip only while it is recent, whichever end
/// measured it, as for [`Pairs`](super::Pairs). `None` if the series has no goodputs, if a forecast
/// is missing, and if the transfer would take longer than a year.
pub(crate) fn series_transfer_time(
    series_table: &SeriesTable,
    (series, state): (&SeriesId, &SeriesState),
    bytes: u64,
    level: f64,
    now_unix_ns: i64,
) -> Option<TransferTime> {
    let rtt = recent_rtt(series_table, path_of(series)?, now_unix_ns)?.forecaster();
    let now_s = now_unix_ns as f64 / 1e9;
    let rtt_s = rtt.quantile_ahead(0.5, now_s, 0.0);
    let context = ForecastContext { what: ComposedQuantity::Goodput, now_unix_ns, horizon_s: 0.0, rtt_s };
    let (age, _) = context.age(state).filter(|(age, is_recent)| context.counts(*age, *is_recent))?;
    let goodput = context.goodput_forecast(state, context.least_bit_s(state, age));
    let transfer = TransferForecast { model: TransferModel::TCP, goodput, rtt };
    let forecast_s = transfer.forecast(bytes)?;
    let [early, late] = [0.5 - 0.5 * level, 0.5 + 0.5 * level];
    // A late end is missing although there is an early one if it is beyond a year.
    let ends_s = transfer.quantile(bytes, early).map(|lower_s| {
        let upper_s = transfer.quantile(bytes, late).unwrap_or(Horizon::SECONDS_MAX);
        (lower_s.min(forecast_s), upper_s.max(forecast_s))
    });
    Some(TransferTime { forecast_s, ends_s })
}

/// Whether [`series_transfer_time`] applies to a series: its values are rates of TCP.
pub(crate) fn is_goodput(series: &SeriesId) -> bool {
    path_of(series).is_some()
}

/// Forecast of the time of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TransferTime {
    /// The forecast time (s).
    pub(crate) forecast_s: f64,
    /// Ends of the interval (s); `None` until both series are calibrated.
    pub(crate) ends_s: Option<(f64, f64)>,
}

/// The host from which the bytes of a series of goodputs come, and the one that receives them.
fn path_of(series: &SeriesId) -> Option<(&Name, &Name)> {
    let SeriesId { source, target, quantity } = series;
    if *quantity == Quantity::GOODPUT {
        return Some((source, target));
    }
    (*quantity == Quantity::GOODPUT_DOWN).then_some((target, source))
}

/// The series of round trips of a path that has a recent value, measured by `from` or by `to`.
fn recent_rtt<'a>(
    series_table: &'a SeriesTable,
    (from, to): (&Name, &Name),
    now_unix_ns: i64,
) -> Option<&'a SeriesState> {
    let context = ForecastContext { what: ComposedQuantity::Rtt, now_unix_ns, horizon_s: 0.0, rtt_s: None };
    [(from, to), (to, from)].into_iter().find_map(|(source, target)| {
        let series = SeriesId { source: source.clone(), target: target.clone(), quantity: Quantity::RTT };
        series_table.get(&series).filter(|state| context.age(state).is_some_and(|(_, is_recent)| is_recent))
    })
}
