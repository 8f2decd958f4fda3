//! Time of a transfer from the forecasters of a path's goodput and round-trip time.

use super::{SettledRate, TransferModel, transfer_interval_shares};
use crate::{Forecaster, Interval};

/// Forecast of the rate of a transfer, from a series of goodputs.
#[derive(Clone, Copy, Debug)]
pub struct GoodputForecast<'a> {
    /// The series, in bit/s, learned with times.
    pub forecaster: &'a Forecaster,
    /// When the transfer starts, in seconds from the origin of the times of the series.
    pub now_s: f64,
    /// Size (bytes) of the tests that measured the series and round-trip time (s), if the goodputs
    /// include slow start; `None` if they are rates after slow start.
    pub test: Option<(u64, f64)>,
    /// The least goodput that was measured, if known (bit/s); bounds low rates.
    pub least_bit_s: Option<f64>,
}

impl GoodputForecast<'_> {
    /// The mean rate after slow start over `horizon_s` seconds from now: the rate (bit/s) that the
    /// share `share` of the measured means does not exceed; at 0.5, the forecast. It comes from
    /// [`Forecaster::transfer_rate`], or else from [`Forecaster::quantile_ahead`].
    ///
    /// `None` without a value, if the forecast is 0, and for a share other than 0.5 until the
    /// series is calibrated.
    #[must_use]
    pub fn rate_bit_s(&self, share: f64, horizon_s: f64) -> Option<f64> {
        let goodput_bit_s = self.goodput_bit_s(share, horizon_s)?;
        let Some((bytes, rtt_s)) = self.test else { return Some(goodput_bit_s) };
        let settled = SettledRate::of_test(bytes, goodput_bit_s, rtt_s)?;
        // A path that the test did not fill may be faster than any number.
        let is_unbounded = settled.is_lower_bound && 0.5 < share;
        Some(if is_unbounded { f64::INFINITY } else { settled.rate_bit_s })
    }

    /// As [`Self::rate_bit_s`], in the unit of the series: slow start may be included.
    fn goodput_bit_s(&self, share: f64, horizon_s: f64) -> Option<f64> {
        let ahead = |share| {
            let learned = self.forecaster.transfer_rate(share, self.now_s, horizon_s);
            learned.or_else(|| self.forecaster.quantile_ahead(share, self.now_s, horizon_s))
        };
        let forecast = ahead(0.5).filter(|forecast| 0.0 < *forecast)?;
        let bound = ahead(share)?;
        if 0.5 <= share {
            return Some(bound);
        }
        let measured = LEAST_SHARE * self.least_bit_s.unwrap_or(0.0);
        Some(bound.max(measured).max(FORECAST_SHARE * forecast).min(forecast))
    }
}

/// Forecast of the time of a transfer, from the series of goodput and round-trip time of a path.
///
/// The rate is the mean over the transfer's own time. A late transfer has both a low rate and a
/// long round-trip time: delays are long when rates are low, so they are not combined as if they
/// were independent.
#[derive(Clone, Copy, Debug)]
pub struct TransferForecast<'a> {
    /// Set-up and slow start.
    pub model: TransferModel,
    /// Forecast of the rate.
    pub goodput: GoodputForecast<'a>,
    /// The round-trip times, in seconds, with times of the same origin as those of the goodput.
    pub rtt: &'a Forecaster,
}

impl TransferForecast<'_> {
    /// The time (s) that the share `share` of transfers of `bytes` takes at most; at 0.5, the
    /// forecast. It grows with the bytes.
    ///
    /// `None` without values, and for a share other than 0.5 until both series are calibrated. Also
    /// `None` for a share outside [`QUANTILE_RANGE`](crate::QUANTILE_RANGE), and if the transfer
    /// would take longer than a year.
    #[must_use]
    pub fn quantile(&self, bytes: u64, share: f64) -> Option<f64> {
        let ahead = |share| self.rtt.quantile_ahead(share, self.goodput.now_s, 0.0);
        let rtt_s = ahead(share)?.max(FORECAST_SHARE * ahead(0.5)?);
        self.model.time_over(bytes, rtt_s, share, |horizon_s| self.goodput.rate_bit_s(1.0 - share, horizon_s))
    }

    /// The forecast time of a transfer of `bytes` (s); `None` as for [`Self::quantile`].
    #[must_use]
    pub fn forecast(&self, bytes: u64) -> Option<f64> {
        self.quantile(bytes, 0.5)
    }

    /// The interval that holds the time of the share `level` of the transfers of `bytes` (s), with
    /// the ends of [`transfer_interval_shares`]. `None` as for [`Self::quantile`], and for a level
    /// outside 0 to 0.99.
    #[must_use]
    pub fn interval(&self, bytes: u64, level: f64) -> Option<Interval> {
        if !(0.0..=0.99).contains(&level) {
            return None;
        }
        let [early, late] = transfer_interval_shares(level);
        Some(Interval { level, lower: self.quantile(bytes, early)?, upper: self.quantile(bytes, late)? })
    }
}

/// Share of the least measured goodput that a low quantile may reach. Symmetric intervals and
/// quantiles that extrapolate reach rates near 0, with times of days, although no such rate was
/// measured. Half leaves room for a path that becomes slower than it ever was.
const LEAST_SHARE: f64 = 0.5;
/// Share of the forecast that a low quantile may reach. A rate or a round trip of 0 would give no
/// time at all.
const FORECAST_SHARE: f64 = 1e-3;
