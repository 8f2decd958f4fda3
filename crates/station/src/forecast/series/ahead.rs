//! Forecasts of a series further ahead than the next value, and of values that are old
//! (docs/spec/ahead.md).

use barograph_forecast::{
    BatteryConfig, Failure, Forecaster, ForecasterConfig, Horizon, HorizonConfig, HorizonForecast, HorizonOf,
    Objective, QUANTILE_SHARES, QuantileMethod,
};

use super::LEVELS;
use super::state::{SeriesState, seconds};

/// Horizons (s) that are kept for every series; forecasts for other horizons are interpolated.
///
/// A transfer lasts a minute, a batch of transfers an hour. From one horizon to the next there is a
/// factor of at most five, so that an interpolated interval is near the interval that a kept
/// horizon would have. Each horizon takes 11 KB of memory and 0.4 µs a value.
pub const HORIZONS_S: [f64; 4] = [60.0, 300.0, 900.0, 3600.0];

/// Maximum number of series with [`HORIZONS_S`]; their horizons take 0.4 GB. Series beyond this
/// number have only the forecast of the next value, so that a station that keeps the series of a
/// whole mesh has room for all of them.
pub(super) const SERIES_WITH_HORIZONS_MAX: usize = 10_000;

/// Maximum number of series of goodput from which times of transfers are learned. Each takes 0.1 MB
/// of memory after 800 values, at most 0.3 MB. Times of the others are forecast from quantiles of
/// the rate.
pub(super) const SERIES_WITH_TRANSFERS_MAX: usize = 1000;

/// Parts of the forecasters of a series table.
#[derive(Clone, Debug)]
pub(super) struct ForecasterConfigs {
    pub(super) with_horizons: ForecasterConfig,
    pub(super) next_value_only: ForecasterConfig,
    /// With all horizons, and with the times of transfers.
    pub(super) with_transfers: ForecasterConfig,
}

impl ForecasterConfigs {
    pub(super) fn new() -> Self {
        let with_horizons = forecaster_config();
        let next_value_only = ForecasterConfig { horizons: Vec::new(), ..with_horizons.clone() };
        let with_transfers = ForecasterConfig { transfers: true, ..with_horizons.clone() };
        Self { with_horizons, next_value_only, with_transfers }
    }
}

/// Parts of a forecaster with all horizons.
fn forecaster_config() -> ForecasterConfig {
    let horizons = HORIZONS_S.map(|seconds| HorizonConfig::sampled(Horizon::Seconds(seconds)));
    ForecasterConfig {
        battery: BatteryConfig { levels: LEVELS.to_vec(), ..BatteryConfig::default() },
        horizons: horizons.to_vec(),
        // The other method takes 9 KB for each series.
        quantiles: Some(QuantileMethod::Tracked),
        availability: true,
        transfers: false,
    }
}

/// Creates the forecaster of one series from [`forecaster_config`].
pub(super) fn forecaster(config: &ForecasterConfig) -> Forecaster {
    Forecaster::new(config).expect("all of HORIZONS_S are in range")
}

/// Whether a failure means that the target did not answer. A failure of this host, or of a target
/// that declines, is no outcome: it shows nothing about the target or the path.
pub(super) fn is_no_answer(failure: Failure) -> bool {
    !matches!(failure, Failure::Local | Failure::Declined)
}

impl SeriesState {
    /// Whether the series keeps [`HORIZONS_S`].
    pub(super) fn has_horizons(&self) -> bool {
        self.forecaster.horizons().next().is_some()
    }

    /// Whether the times of transfers are learned from the series.
    pub(super) fn has_transfers(&self) -> bool {
        self.forecaster.learns_transfers()
    }

    /// Forecasts at every horizon, quantiles and availability. Their intervals and quantiles may
    /// contain values that are impossible for the quantity; those of
    /// [`SeriesState::interval_over`] and [`SeriesState::quantile_over`] do not.
    #[must_use]
    pub fn forecaster(&self) -> &Forecaster {
        &self.forecaster
    }

    /// The interval of `of` at `horizon` at `level`, limited to possible values as in
    /// [`SeriesState::interval`]; `None` as for [`Forecaster::interval_over`].
    #[must_use]
    pub fn interval_over(&self, horizon: Horizon, of: HorizonOf, level: f64) -> Option<(f64, f64)> {
        self.clamped(self.forecaster.interval_over(horizon, of, level))
    }

    /// The quantile of `share` of `of` at `horizon`, limited to possible values; `None` as for
    /// [`Forecaster::quantile_over`].
    #[must_use]
    pub fn quantile_over(&self, horizon: Horizon, of: HorizonOf, share: f64) -> Option<f64> {
        self.forecaster.quantile_over(horizon, of, share).map(|quantile| self.clamped_value(quantile))
    }

    /// The quantiles of `shares` of `of` at `horizon`, each equal to that of
    /// [`SeriesState::quantile_over`]. Those of [`QUANTILE_SHARES`] take little longer together
    /// than one.
    #[must_use]
    pub fn quantiles_over(&self, horizon: Horizon, of: HorizonOf, shares: &[f64]) -> Vec<Option<f64>> {
        let kept_index = |share: &f64| QUANTILE_SHARES.iter().position(|kept| kept == share);
        let is_any_kept = shares.iter().any(|share| kept_index(share).is_some());
        let kept = if is_any_kept { self.forecaster.quantiles_over(horizon, of) } else { None };
        let quantile = |share: &f64| match kept.zip(kept_index(share)) {
            Some((kept, index)) => Some(self.clamped_value(kept[index])),
            None => self.quantile_over(horizon, of, *share),
        };
        shares.iter().map(quantile).collect()
    }

    /// The forecast of the value at `time_unix_ns`, however old the newest value is; `None` before
    /// the first value.
    #[must_use]
    pub fn forecast_aged(&self, objective: Objective, time_unix_ns: i64) -> Option<HorizonForecast> {
        self.forecaster.forecast_aged(objective, seconds(time_unix_ns))
    }

    /// The interval at `level` of the value at `time_unix_ns`, limited to possible values. The
    /// interval widens with the age of the newest value. `None` as for
    /// [`Forecaster::interval_aged`].
    #[must_use]
    pub fn interval_aged(&self, level: f64, time_unix_ns: i64) -> Option<(f64, f64)> {
        self.clamped(self.forecaster.interval_aged(level, seconds(time_unix_ns)))
    }

    /// The quantile of `share` of the value at `time_unix_ns`, limited to possible values; `None`
    /// as for [`Forecaster::quantile_aged`].
    #[must_use]
    pub fn quantile_aged(&self, share: f64, time_unix_ns: i64) -> Option<f64> {
        let quantile = self.forecaster.quantile_aged(share, seconds(time_unix_ns));
        quantile.map(|quantile| self.clamped_value(quantile))
    }

    /// Probability that the measurement at `horizon` gives a value, 0 to 1. `None` if every
    /// measurement so far gave a value, and for a horizon in seconds of a series without a period.
    #[must_use]
    pub fn availability_over(&self, horizon: Horizon) -> Option<f64> {
        let availability = self.forecaster.availability().filter(|_| self.failures() != 0)?;
        match horizon {
            Horizon::Steps(steps) => availability.probability_ahead(f64::from(steps)),
            Horizon::Seconds(seconds) => {
                availability.probability_ahead((seconds / self.period_s()?).max(1.0))
            }
        }
    }
}
