//! How soon does the forecast time follow a rate that fell?

use serde::Serialize;

use crate::table::{Table, cells, number};

/// What was forecast after a fall.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Fall {
    pub(super) host: String,
    /// Forecast time before the fall (s).
    pub(super) before_s: f64,
    /// Rate of the link when the transfer began (bit/s).
    pub(super) rate_bps: f64,
    /// Time of a transfer after the fall (s).
    pub(super) real_s: f64,
    pub(super) forecasts: Vec<ForecastAt>,
    /// From the fall until the forecast was within [`NEAR`] of the real time, and stayed so (s).
    pub(super) noticed_s: Option<f64>,
    /// From the fall until the asking station began a test to this host (s).
    pub(super) tested_s: Option<f64>,
}

/// Forecast time of a transfer (s), some time after the fall.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct ForecastAt {
    pub(super) after_s: f64,
    pub(super) forecast_s: Option<f64>,
}

impl ForecastAt {
    /// Whether the forecast is within a factor of [`NEAR`] of this time.
    pub(super) fn is_near(&self, time_s: f64) -> bool {
        self.forecast_s.is_some_and(|forecast_s| is_near(forecast_s, time_s))
    }
}

pub(super) fn is_near(forecast_s: f64, time_s: f64) -> bool {
    time_s <= NEAR * forecast_s && forecast_s <= NEAR * time_s
}

/// Time of the first forecast that is near the real time, as are all later ones. `None` if there is
/// none, or if the forecast was near already before the fall, so that it shows nothing.
pub(super) fn noticed_s(before_s: f64, forecasts: &[ForecastAt], real_s: f64) -> Option<f64> {
    if is_near(before_s, real_s) {
        return None;
    }
    let near = forecasts.iter().rev().take_while(|forecast| forecast.is_near(real_s));
    near.last().map(|forecast| forecast.after_s)
}

pub(super) fn table(falls: &[Fall]) -> Table {
    let mut table = Table::titled(
        "host | Mbit/s after | forecast before, s | real after, s | last forecast, s | tested after, s | noticed after, s",
    );
    for fall in falls {
        let last_s = fall.forecasts.last().and_then(|last| last.forecast_s);
        table.push(cells![
            fall.host,
            format!("{:.1}", fall.rate_bps / 1e6),
            format!("{:.2}", fall.before_s),
            format!("{:.2}", fall.real_s),
            number(last_s, 2),
            number(fall.tested_s, 0),
            number(fall.noticed_s, 0),
        ]);
    }
    table
}

/// Number of falls that were noticed within [`GOAL_S`].
pub(super) fn in_time(falls: &[Fall]) -> usize {
    falls.iter().filter(|fall| fall.noticed_s.is_some_and(|noticed_s| noticed_s <= GOAL_S)).count()
}

/// A forecast that is wrong by less than this factor shows the fall to a tenth.
pub(super) const NEAR: f64 = 2.0;

/// A fall must be noticed before most users have sent the next bytes there.
pub(super) const GOAL_S: f64 = 60.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(after_s: f64, forecast_s: f64) -> ForecastAt {
        ForecastAt { after_s, forecast_s: Some(forecast_s) }
    }

    #[test]
    fn a_fall_is_noticed_when_all_later_forecasts_are_near() {
        let forecasts = [at(1.0, 1.0), at(2.0, 8.0), at(3.0, 4.0), at(4.0, 6.0), at(5.0, 19.0)];
        assert_eq!(noticed_s(1.0, &forecasts, 10.0), Some(4.0));
        assert_eq!(noticed_s(1.0, &forecasts[..3], 10.0), None);
        assert_eq!(noticed_s(1.0, &forecasts[..2], 10.0), Some(2.0));
        assert_eq!(noticed_s(1.0, &[], 10.0), None);
    }

    #[test]
    fn a_fall_is_not_noticed_if_the_forecast_was_as_long_before() {
        assert_eq!(noticed_s(8.0, &[at(1.0, 9.0)], 10.0), None);
    }

    #[test]
    fn near_is_a_factor_of_two_on_both_sides() {
        assert!(is_near(5.0, 10.0) && is_near(20.0, 10.0));
        assert!(!is_near(4.9, 10.0) && !is_near(20.1, 10.0));
        assert!(!ForecastAt { after_s: 1.0, forecast_s: None }.is_near(10.0));
    }

    #[test]
    fn falls_that_were_noticed_late_or_never_miss_the_goal() {
        let fall = |noticed_s| Fall {
            host: "a".to_owned(),
            before_s: 1.0,
            rate_bps: 6e6,
            real_s: 13.0,
            forecasts: vec![at(1.0, 12.5)],
            noticed_s,
            tested_s: None,
        };
        let falls = [Some(59.0), Some(61.0), None].map(fall);
        assert_eq!(in_time(&falls), 1);
        let table = table(&falls).to_string();
        assert!(
            table.lines().nth(2).is_some_and(|line| line.contains("12.50") && line.contains("59")),
            "{table}"
        );
        assert!(table.lines().last().is_some_and(|line| line.trim_end().ends_with("– |")), "{table}");
    }
}
