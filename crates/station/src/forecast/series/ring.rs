//! The newest points of a series, in 26 bytes each.
//!
//! The five intervals of a point would take three quarters of its memory. So the intervals are not
//! stored. They are computed when they are read, from the calibration before the oldest point and
//! from the forecasts and values since then. The computed intervals are identical to the issued
//! ones.

use std::collections::VecDeque;
use std::sync::Arc;

use barograph_forecast::{Battery, BatteryConfig, Failure, IntervalCalibration, Outcome, Quantity};

use super::state::{IssuedForecast, SeriesPoint, clamp_interval, seconds};
use super::{LEVELS, POINTS_MAX};

/// The names of a battery's methods by index; clones share one list.
#[derive(Clone, Debug)]
pub(super) struct Methods(Arc<[&'static str]>);

/// The newest [`POINTS_MAX`] points. The memory of this buffer grows with the number of points.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    kept: VecDeque<PackedPoint>,
    /// The battery's calibration before the oldest point.
    before: IntervalCalibration,
    methods: Methods,
}

/// A point in memory. It is aligned to two bytes, because an alignment of eight bytes would add six
/// bytes of padding.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(2))]
struct PackedPoint {
    time_unix_ns: i64,
    /// The value, or the `after_s` of a failure.
    number: f64,
    /// Forecast for a value without a gap; the forecast after a gap is computed from it.
    ungapped_forecast: f64,
    /// [`VALUE`], [`REFUSED`], or one more than the index in [`Failure::ALL`].
    kind: u8,
    /// Index in [`Methods`], or [`UNISSUED`].
    method: u8,
}

impl Methods {
    /// The methods of batteries made from `config`.
    pub(super) fn of(config: &BatteryConfig) -> Self {
        let mut battery = Battery::new(config);
        battery.update(0.0).expect("0 is a value that every battery takes");
        let names: Arc<[_]> = battery.method_forecasts().iter().map(|(method, _)| method.0).collect();
        assert!(names.len() <= usize::from(UNISSUED), "a battery has some dozens of methods");
        Self(names)
    }

    fn index_of(&self, method: &str) -> u8 {
        let index = self.0.iter().position(|known| *known == method);
        u8::try_from(index.expect("a battery's forecast names one of its methods")).expect("checked in `of`")
    }
}

impl Ring {
    pub(super) fn new(config: &BatteryConfig, methods: &Methods) -> Self {
        let before = IntervalCalibration::new(&config.levels);
        Self { kept: VecDeque::new(), before, methods: methods.clone() }
    }

    /// Adds the newest point. If the buffer is full, removes the oldest point. `ungapped_forecast`
    /// is the forecast for least absolute error for a value without a gap.
    pub(super) fn push(&mut self, point: &SeriesPoint, ungapped_forecast: Option<f64>) {
        if self.kept.len() == POINTS_MAX
            && let Some(oldest) = self.kept.pop_front()
        {
            oldest.update_calibration(&mut self.before);
        }
        let (kind, number) = match point.outcome {
            Outcome::Value(value) => (if point.refused { REFUSED } else { VALUE }, value),
            Outcome::Failed { failure, after_s } => (code(failure), after_s),
        };
        let issued = point.issued.as_ref();
        self.kept.push_back(PackedPoint {
            time_unix_ns: point.time_unix_ns,
            number,
            ungapped_forecast: ungapped_forecast.unwrap_or(0.0),
            kind,
            method: issued.map_or(UNISSUED, |issued| self.methods.index_of(issued.method)),
        });
    }

    /// The points, oldest first, each with the intervals issued for it.
    pub(super) fn points(&self, quantity: &Quantity) -> impl Iterator<Item = SeriesPoint> + '_ {
        let mut calibration = self.before.clone();
        let quantity = quantity.clone();
        self.kept.iter().map(move |kept| {
            let time_s = Some(seconds(kept.time_unix_ns));
            let issued = kept.ungapped_forecast().map(|ungapped_forecast| IssuedForecast {
                forecast: calibration.forecast(ungapped_forecast, time_s),
                method: self.methods.0[usize::from(kept.method)],
                intervals: LEVELS.map(|level| {
                    clamp_interval(calibration.interval(ungapped_forecast, level, time_s), &quantity)
                }),
            });
            kept.update_calibration(&mut calibration);
            let (outcome, refused) = (kept.outcome(), kept.kind == REFUSED);
            SeriesPoint { time_unix_ns: kept.time_unix_ns, outcome, refused, issued }
        })
    }

    /// The newest value, if there is one.
    pub(super) fn last_value(&self) -> Option<f64> {
        self.kept.iter().rev().find(|kept| kept.is_value()).map(|kept| kept.number)
    }

    /// The least of the values kept.
    pub(super) fn least_value(&self) -> Option<f64> {
        self.kept.iter().filter(|kept| kept.is_value()).map(|kept| kept.number).reduce(f64::min)
    }

    /// Mean time between the newest points (s), if it is above 0.
    pub(super) fn period_s(&self) -> Option<f64> {
        let newest = self.kept.len().checked_sub(1)?;
        let gaps = GAPS.min(newest);
        let spanned = self.kept[newest].time_unix_ns.saturating_sub(self.kept[newest - gaps].time_unix_ns);
        (spanned > 0).then(|| spanned as f64 / 1e9 / gaps as f64)
    }

    /// Whether the newest point is the time of a refused connection.
    pub(super) fn is_refused(&self) -> bool {
        self.kept.back().is_some_and(|kept| kept.kind == REFUSED)
    }
}

impl PackedPoint {
    fn ungapped_forecast(&self) -> Option<f64> {
        (self.method != UNISSUED).then_some(self.ungapped_forecast)
    }

    fn is_value(&self) -> bool {
        matches!(self.kind, VALUE | REFUSED)
    }

    fn outcome(&self) -> Outcome {
        if self.is_value() {
            return Outcome::Value(self.number);
        }
        Outcome::Failed { failure: Failure::ALL[usize::from(self.kind - 1)], after_s: self.number }
    }

    /// Updates `calibration` with this point, as the battery updated its own calibration. A failure
    /// changes nothing.
    fn update_calibration(&self, calibration: &mut IntervalCalibration) {
        if self.is_value() {
            calibration.learn(self.ungapped_forecast(), self.number, Some(seconds(self.time_unix_ns)));
        }
    }
}

fn code(failure: Failure) -> u8 {
    let index = Failure::ALL.iter().position(|known| *known == failure);
    index.and_then(|index| u8::try_from(index + 1).ok()).expect("`ALL` has every failure, nine of them")
}

/// Kind of a point with a value.
const VALUE: u8 = 0;
/// Kind of a point with the time of a refused connection as its value; no failure has this code.
const REFUSED: u8 = u8::MAX;
/// Method of a point without a forecast; no method has this index.
const UNISSUED: u8 = u8::MAX;

/// Maximum number of gaps from which the mean period is computed: enough to average out jitter, few
/// enough to follow a change.
const GAPS: usize = 8;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::forecast::series::{Measurement, ObserveResult, SeriesTable};
    use barograph_forecast::{Name, SeriesId};
    use proptest::prelude::*;

    fn outcomes() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            6 => (0.0..1.0).prop_map(Outcome::Value),
            1 => (-5.0..1e6).prop_map(Outcome::Value),
            1 => Just(Outcome::Value(0.0)),
            1 => (0usize..9, 0.0..60.0)
                .prop_map(|(index, after_s)| Outcome::Failed { failure: Failure::ALL[index], after_s }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn stored_points_are_restored_bit_for_bit(
            outcomes in proptest::collection::vec(outcomes(), 0..1500),
            quantity in prop_oneof![Just("rtt"), Just("cpu_available"), Just("own")],
        ) {
            let series = SeriesId {
                source: Name::new("here").unwrap(),
                target: Name::new("there").unwrap(),
                quantity: Quantity::new(quantity).unwrap(),
            };
            let mut series_table = SeriesTable::new(1);
            let mut issued = Vec::new();
            for (index, outcome) in (0_i64..).zip(outcomes) {
                // A gap after every fiftieth point.
                let time_unix_ns = 1_000_000_000 * (index + 40 * (index / 50));
                // Every third value is marked.
                let detail = if index % 3 == 0 { r#"{"n":1,"refused":true}"# } else { "" }.to_string();
                let measurement = Measurement { series: series.clone(), time_unix_ns, outcome, detail };
                let observed = series_table.observe(&measurement);
                let (least, most) = crate::forecast::series::bounds(&series.quantity);
                if matches!(outcome, Outcome::Value(value) if value < least || most < value) {
                    prop_assert_eq!(observed, ObserveResult::Impossible);
                    continue;
                }
                let ObserveResult::New(point) = observed else { panic!("{outcome:?} is refused") };
                let is_value = matches!(outcome, Outcome::Value(_));
                prop_assert_eq!(point.refused, is_value && index % 3 == 0);
                issued.push(point);
            }
            let kept: Vec<SeriesPoint> = series_table.get(&series).into_iter().flat_map(|one| one.points()).collect();
            let newest = &issued[issued.len().saturating_sub(POINTS_MAX)..];
            prop_assert_eq!(kept.as_slice(), newest);
        }
    }

    #[test]
    fn a_point_takes_26_bytes_and_capacity_grows_with_the_series() {
        assert_eq!(size_of::<PackedPoint>(), 26);
        let config = BatteryConfig::default();
        let mut ring = Ring::new(&config, &Methods::of(&config));
        assert_eq!(ring.kept.capacity(), 0);
        for time_unix_ns in 0..3 * POINTS_MAX as i64 {
            let point =
                SeriesPoint { time_unix_ns, outcome: Outcome::Value(1.0), refused: false, issued: None };
            ring.push(&point, None);
            let most = (2 * ring.kept.len()).clamp(4, POINTS_MAX);
            assert!(ring.kept.capacity() <= most, "{} for {}", ring.kept.capacity(), ring.kept.len());
        }
    }
}
