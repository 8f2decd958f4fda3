#![allow(clippy::unwrap_used)]
use super::*;
use barograph_forecast::{
    Battery, BatteryConfig, Failure, Horizon, HorizonBasis, HorizonOf, Interval, Name, Objective, Quantity,
};

/// Arrival later than every label of these tests.
const SUBMITTED: Arrival = Arrival::Submitted { at_unix_ns: 1_000_000_000_000_000 };

fn measurement(target: &str, second: i64, outcome: Outcome) -> Measurement {
    let series = SeriesId {
        source: Name::new("here").unwrap(),
        target: Name::new(target).unwrap(),
        quantity: Quantity::RTT,
    };
    Measurement { series, time_unix_ns: second * 1_000_000_000, outcome, detail: String::new() }
}

#[test]
fn the_first_point_has_no_forecast_and_the_second_has_an_issued_forecast() {
    let mut series_table = SeriesTable::new(10);
    let ObserveResult::New(first) = series_table.observe(&measurement("a", 1, Outcome::Value(5.0))) else {
        panic!()
    };
    assert_eq!(first.issued, None);
    let before =
        series_table.get(&measurement("a", 0, Outcome::Value(0.0)).series).unwrap().forecasts().unwrap();
    let ObserveResult::New(second) = series_table.observe(&measurement("a", 2, Outcome::Value(9.0))) else {
        panic!()
    };
    assert_eq!(second.issued.unwrap().forecast, before.median.value);
}

#[test]
fn failures_are_points_but_never_values() {
    let mut series_table = SeriesTable::new(10);
    series_table.observe(&measurement("a", 1, Outcome::Value(5.0)));
    let failed = Outcome::Failed { failure: Failure::TimedOut, after_s: 3.0 };
    let ObserveResult::New(point) = series_table.observe(&measurement("a", 2, failed)) else { panic!() };
    assert_eq!(point.outcome, failed);
    let series_state = series_table.get(&measurement("a", 0, failed).series).unwrap();
    assert_eq!((series_state.count(), series_state.failures()), (1, 1));
    assert_eq!(series_state.last_value(), Some(5.0));
    assert_eq!(series_state.forecasts().unwrap().time_unix_ns, 1_000_000_000);
    assert_eq!(series_state.last().outcome, failed);
}

#[test]
fn late_and_infinite_values_do_not_change_a_series() {
    let mut series_table = SeriesTable::new(10);
    series_table.observe(&measurement("a", 5, Outcome::Value(5.0)));
    assert_eq!(
        series_table.observe_from(&measurement("a", 4, Outcome::Value(1.0)), SUBMITTED),
        ObserveResult::Late
    );
    assert_eq!(
        series_table.observe(&measurement("a", 6, Outcome::Value(f64::NAN))),
        ObserveResult::Impossible
    );
    assert_eq!(
        series_table.observe(&measurement("ghost", 6, Outcome::Value(1e71))),
        ObserveResult::Impossible
    );
    assert_eq!(
        series_table.observe(&measurement("a", 6, Outcome::Value(-1.0))),
        ObserveResult::Impossible,
        "no time is"
    );
    assert_eq!(series_table.len(), 1, "a value that is not taken makes no series");
    let series_state = series_table.get(&measurement("a", 0, Outcome::Value(0.0)).series).unwrap();
    assert_eq!((series_state.count(), series_state.points().count()), (1, 1));
    assert_eq!(series_table.late(), 1);
    assert!(matches!(
        series_table.observe_from(&measurement("a", 5, Outcome::Value(1.0)), SUBMITTED),
        ObserveResult::New(_)
    ));
    assert!(
        matches!(series_table.observe(&measurement("a", 1, Outcome::Value(1.0))), ObserveResult::New(_)),
        "a clock set back"
    );
}

#[test]
fn a_clock_that_was_ahead_does_not_make_later_values_late() {
    let mut series_table = SeriesTable::new(1);
    let mut feed = |second: i64, now_s: i64| {
        let measurement = measurement("a", second, Outcome::Value(1.0));
        series_table.observe_from(&measurement, Arrival::Submitted { at_unix_ns: now_s * 1_000_000_000 })
    };
    let is_new = |observed| matches!(observed, ObserveResult::New(_));
    let year = 365 * 86_400;
    assert!(is_new(feed(100, 100)));
    assert!(is_new(feed(20 * year, 20 * year)), "the clock jumps ahead");
    assert!(is_new(feed(104, 104)), "and back");
    assert!(is_new(feed(105, 105)));
    assert_eq!(feed(103, 106), ObserveResult::Late);
}

#[test]
fn the_number_of_series_is_bounded_and_refusals_are_counted() {
    let mut series_table = SeriesTable::new(2);
    series_table.observe(&measurement("a", 1, Outcome::Value(1.0)));
    series_table.observe(&measurement("b", 1, Outcome::Value(1.0)));
    assert_eq!(series_table.observe(&measurement("c", 1, Outcome::Value(1.0))), ObserveResult::Refused);
    assert!(matches!(series_table.observe(&measurement("a", 2, Outcome::Value(1.0))), ObserveResult::New(_)));
    assert_eq!((series_table.len(), series_table.refused(), series_table.room()), (2, 1, 0));
}

#[test]
fn series_from_or_to_a_removed_station_are_refused_until_readmission() {
    let mut series_table = SeriesTable::new(9);
    let to = measurement("gone", 1, Outcome::Value(1.0));
    let SeriesId { source, target, quantity } = to.series.clone();
    let from =
        Measurement { series: SeriesId { source: target.clone(), target: source, quantity }, ..to.clone() };
    let other = measurement("a", 1, Outcome::Value(1.0));
    for measurement in [&to, &from, &other] {
        series_table.observe(measurement);
    }
    series_table.remove_station(&target, 1_000_000_000);
    assert_eq!(
        [&to, &from].map(|measurement| series_table.observe(measurement)),
        [ObserveResult::Removed, ObserveResult::Removed]
    );
    assert_eq!((series_table.len(), series_table.refused()), (1, 0));
    series_table.admit_station(&target);
    let ObserveResult::New(point) = series_table.observe(&to) else { panic!() };
    assert_eq!(point.issued, None, "from the beginning");
}

#[test]
fn a_removed_station_returns_with_what_it_measures_two_minutes_later() {
    const S: i64 = 1_000_000_000;
    let mut series_table = SeriesTable::new(9);
    let to = |second| measurement("gone", second, Outcome::Value(1.0));
    let gone = to(1).series.target;
    let from = |second| {
        let SeriesId { source, target, quantity } = to(second).series;
        Measurement { series: SeriesId { source: target, target: source, quantity }, ..to(second) }
    };
    let is_new = |result| matches!(result, ObserveResult::New(_));
    series_table.remove_station(&gone, 1_000 * S);
    // A label may be ahead of its arrival, and a record may arrive after the removal of its
    // station.
    for arrival in [Arrival::Own, Arrival::Forwarded] {
        assert_eq!(series_table.observe_from(&from(1_055), arrival), ObserveResult::Removed);
    }
    // A host outside the mesh may measure the station, and may continue after its removal.
    assert!(is_new(series_table.observe(&to(1_121))));
    assert!(series_table.is_removed(&gone), "the station itself is away");
    let (shown, hidden) = (to(1).series, from(1).series);
    assert!(!series_table.hides(&shown, 0), "it has values in the table");
    assert!(!series_table.hides(&hidden, 1_121 * S) && series_table.hides(&hidden, 1_120 * S));
    assert!(is_new(series_table.observe_from(&from(1_121), Arrival::Forwarded)));
    assert!(!series_table.is_removed(&gone) && is_new(series_table.observe(&from(1))));
}

#[test]
fn an_application_may_use_the_name_of_a_removed_station_and_does_not_bring_it_back() {
    let mut series_table = SeriesTable::new(9);
    let at = |second| measurement("gone", second, Outcome::Value(1.0));
    let gone = at(1).series.target;
    series_table.observe_from(&at(1), SUBMITTED);
    series_table.remove_station(&gone, 1_000_000_000_000);
    for arrival in [SUBMITTED, Arrival::Numbered] {
        assert_eq!(series_table.observe_from(&at(1_000), arrival), ObserveResult::Removed);
        assert!(matches!(series_table.observe_from(&at(1_001), arrival), ObserveResult::New(_)));
    }
    assert!(matches!(series_table.observe_from(&at(2_000), SUBMITTED), ObserveResult::New(_)));
    assert!(series_table.is_removed(&gone));
}

#[test]
fn the_series_of_a_removed_station_stay_if_a_target_has_its_name() {
    let mut series_table = SeriesTable::new(9);
    let to = measurement("gone", 1, Outcome::Value(1.0));
    series_table.observe(&to);
    series_table.remove_target_station(&to.series.target, 1_000_000_000);
    assert!(matches!(series_table.observe(&to), ObserveResult::New(_)) && series_table.len() == 1);
    series_table.remove_station(&to.series.target, 2_000_000_000);
    assert_eq!((series_table.observe(&to), series_table.len()), (ObserveResult::Removed, 0));
    series_table.set_targets(|name| *name == to.series.target);
    assert!(matches!(series_table.observe(&to), ObserveResult::New(_)));
    assert!(series_table.is_removed(&to.series.target));
    series_table.set_targets(|_| false);
    assert_eq!((series_table.observe(&to), series_table.len()), (ObserveResult::Removed, 0));
}

#[test]
fn series_are_counted_by_source() {
    let mut series_table = SeriesTable::new(3);
    let name = |text: &str| Name::new(text).unwrap();
    let from = |source: &str, target: &str, value: f64| {
        let mut measurement = measurement(target, 1, Outcome::Value(value));
        measurement.series.source = name(source);
        measurement
    };
    for measurement in [from("a", "x", 1.0), from("a", "x", 2.0), from("a", "y", 1.0), from("b", "x", 1.0)] {
        series_table.observe(&measurement);
    }
    series_table.observe(&from("c", "x", f64::NAN));
    series_table.observe(&from("d", "x", 1.0));
    let counts =
        |series_table: &SeriesTable| ["a", "b", "c", "d"].map(|source| series_table.count_of(&name(source)));
    assert_eq!(counts(&series_table), [2, 1, 0, 0]);
    series_table.remove_station(&name("x"), 0);
    assert_eq!(counts(&series_table), [1, 0, 0, 0], "those of other sources to it are gone, too");
    assert_eq!(["a", "b"].map(|source| series_table.has_source(&name(source))), [true, false]);
    series_table.remove_station(&name("a"), 0);
    assert_eq!((counts(&series_table), series_table.is_empty()), ([0; 4], true));
}

#[test]
fn an_impossible_value_does_not_count_as_a_refused_series() {
    let mut series_table = SeriesTable::new(1);
    let impossible = measurement("a", 1, Outcome::Value(-1.0));
    assert_eq!(series_table.observe(&impossible), ObserveResult::Impossible);
    assert!(matches!(series_table.observe(&measurement("a", 1, Outcome::Value(1.0))), ObserveResult::New(_)));
    assert_eq!(series_table.observe(&impossible), ObserveResult::Impossible);
    assert_eq!(series_table.refused(), 0);
    assert_eq!(series_table.observe(&measurement("b", 1, Outcome::Value(-1.0))), ObserveResult::Refused);
    assert_eq!(series_table.refused(), 1);
}

#[test]
fn points_are_bounded_and_the_oldest_are_dropped_first() {
    let mut series_table = SeriesTable::new(1);
    for second in 0..600 {
        series_table.observe(&measurement("a", second, Outcome::Value(second as f64)));
    }
    let series_state = series_table.get(&measurement("a", 0, Outcome::Value(0.0)).series).unwrap();
    assert_eq!(series_state.points().count(), POINTS_MAX);
    assert_eq!(series_state.points().next().unwrap().outcome, Outcome::Value(88.0));
    assert_eq!(series_state.count(), 600);
}

#[test]
fn selection_filters_and_orders_by_quantity_then_target() {
    let mut series_table = SeriesTable::new(9);
    for target in ["b", "a"] {
        series_table.observe(&measurement(target, 1, Outcome::Value(1.0)));
        let mut other = measurement(target, 1, Outcome::Value(1.0));
        other.series.quantity = Quantity::CONNECT;
        series_table.observe(&other);
    }
    let names = |selector: &Selector| -> Vec<String> {
        series_table.select(selector).iter().map(|(s, _)| format!("{} {}", s.quantity, s.target)).collect()
    };
    assert_eq!(names(&Selector::default()), ["connect a", "connect b", "rtt a", "rtt b"]);
    let only = Selector { target: Some(Name::new("a").unwrap()), ..Selector::default() };
    assert_eq!(names(&only), ["connect a", "rtt a"]);
}

#[test]
fn intervals_stay_within_the_range_of_possible_values() {
    let mut series_table = SeriesTable::new(2);
    let mut shares = measurement("a", 0, Outcome::Value(0.0));
    shares.series.quantity = Quantity::CPU_AVAILABLE;
    for second in 0..60 {
        let value = f64::from(u8::from(second % 7 == 0));
        for series in [&shares, &measurement("a", 0, Outcome::Value(0.0))] {
            let outcome = Outcome::Value(value);
            series_table.observe(&Measurement { outcome, time_unix_ns: second, ..series.clone() });
        }
    }
    let (lower, upper) = series_table.get(&shares.series).unwrap().interval(0.99).unwrap();
    assert!(0.0 <= lower && lower <= upper && upper <= 1.0, "{lower} to {upper}");
    let rtt = measurement("a", 0, Outcome::Value(0.0)).series;
    assert!(series_table.get(&rtt).unwrap().interval(0.99).unwrap().0 >= 0.0);
    assert_eq!(bounds(&Quantity::new("own").unwrap()), (f64::NEG_INFINITY, f64::INFINITY));
    assert_eq!(bounds(&Quantity::GOODPUT), (0.0, 1e13));
    assert_eq!(bounds(&Quantity::new("connect_loaded").unwrap()), (0.0, 3600.0));
    assert_eq!(bounds(&Quantity::MEMORY_FREE), (0.0, f64::INFINITY));
}

/// Returns the largest percentage of values outside their intervals among any 30 successive values,
/// for a series with a heavy tail. From value 1000 on, the tail is longer by `factor`, and each
/// value is greater by `shift`.
fn most_outside_percent(factor: f64, shift: f64) -> u64 {
    let mut series_table = SeriesTable::new(1);
    let mut state = 1_u64;
    let mut outside = vec![0];
    for second in 0..5000 {
        // A linear congruential generator (Knuth, TAOCP 2 §3.3.4): the same series in every run.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let tail = -0.001 * (1.0 - (state >> 11) as f64 / (1_u64 << 53) as f64).ln();
        let value = if second < 1000 { 0.02 + tail } else { 0.02 + tail * factor + shift };
        series_table.observe(&measurement("a", second, Outcome::Value(value)));
        let series_state = series_table.get(&measurement("a", 0, Outcome::Value(0.0)).series).unwrap();
        outside.push(series_state.outside());
    }
    outside.windows(31).map(|window| (window[30] - window[0]) * 100 / 30).max().unwrap()
}

#[test]
fn only_a_restless_link_puts_35_percent_of_values_outside_intervals() {
    // deploy/prometheus/rules.yml alerts above 35 %.
    let (calm, shifted, restless) =
        (most_outside_percent(1.0, 0.0), most_outside_percent(1.0, 0.04), most_outside_percent(10.0, 0.0));
    assert!(calm < 35 && restless > 35, "{calm} % and {restless} %");
    assert!(shifted < 35, "{shifted} %: forecasts follow a new level within some values");
}

#[test]
fn restarted_scores_begin_at_zero() {
    let mut series_table = SeriesTable::new(1);
    for (second, value) in (0..40).zip([1.0, 1.1].into_iter().cycle()) {
        series_table.observe(&measurement("a", second, Outcome::Value(value)));
    }
    let scores = |series_table: &SeriesTable| {
        let series_state = series_table.get(&measurement("a", 0, Outcome::Value(0.0)).series).unwrap();
        (series_state.scored(), series_state.outside())
    };
    assert_eq!(
        scores(&series_table).0,
        29,
        "ten errors come before the first interval, and the first value has none"
    );
    series_table.restart_scores();
    series_table.observe(&measurement("a", 50, Outcome::Value(1000.0)));
    assert_eq!(scores(&series_table), (1, 1));
    let last_error =
        series_table.get(&measurement("a", 0, Outcome::Value(0.0)).series).unwrap().last_error().unwrap();
    assert!((998.0..1000.0).contains(&last_error), "{last_error}");
}

#[test]
fn levels_are_found_by_value() {
    assert_eq!(level_index(0.9), Some(2));
    assert_eq!(level_index(0.91), None);
    assert_eq!(level_index(f64::NAN), None);
}

#[test]
fn series_of_one_member_leave_room_reserved_for_other_members() {
    let name = |text: &str| Name::new(text).unwrap();
    let observe = |series_table: &mut SeriesTable, source: &str, target: i64| {
        let mut measurement = measurement(&format!("t{target}"), target, Outcome::Value(1.0));
        measurement.series.source = name(source);
        let is_within_quota = series_table.is_within_quota(&measurement.series.source);
        is_within_quota && matches!(series_table.observe(&measurement), ObserveResult::New(_))
    };
    let of_all = |of: [&str; 4]| of.map(|of| (name(of), if of == "loud" { 1 } else { 12 })).into();
    let reserved: BTreeMap<Name, usize> = of_all(["a", "b", "c", "loud"]);
    for is_first in [false, true] {
        let mut series_table = SeriesTable::new(40);
        if !is_first {
            series_table.reserve(reserved.clone());
        }
        // A quarter of all series is ten.
        let invented = (0..40).filter(|target| observe(&mut series_table, "loud", *target)).count();
        assert_eq!(invented, if is_first { 10 } else { 4 });
        series_table.reserve(reserved.clone());
        for of in ["a", "b", "c"] {
            assert!((0..12).all(|target| observe(&mut series_table, of, target)), "{of}, {is_first}");
        }
        assert_eq!((series_table.count_of(&name("loud")), series_table.len()), (4, 40));
        assert!(!observe(&mut series_table, "a", 12), "it has what it needs");
    }
}

/// A series table with `count` values of one series, ten seconds apart, around 0.02.
fn with_values(count: u32) -> SeriesTable {
    let mut series_table = SeriesTable::new(1);
    for n in 0..count {
        series_table.observe(&measurement("a", 10 * i64::from(n), Outcome::Value(value(n))));
    }
    series_table
}

/// A value in seconds around 0.02; 101 different values come one after the other.
fn value(n: u32) -> f64 {
    0.02 + 1e-4 * f64::from(n * 7919 % 101)
}

fn only_state(series_table: &SeriesTable) -> &SeriesState {
    series_table.get(&measurement("a", 0, Outcome::Value(0.0)).series).unwrap()
}

#[test]
fn forecasts_of_the_next_value_are_those_of_a_battery_alone() {
    let mut series_table = SeriesTable::new(1);
    let mut battery = Battery::new(&BatteryConfig { levels: LEVELS.to_vec(), ..BatteryConfig::default() });
    for n in 0..600 {
        // A gap after every fiftieth point.
        let second = i64::from(10 * n + 300 * (n / 50));
        let time_s = second as f64;
        let issued = battery.forecast_at(Objective::Absolute, time_s).map(|median| median.value);
        let interval = battery.interval_at(0.9, time_s).map(|ends| (ends.lower, ends.upper));
        let is_failure = n % 40 == 39;
        let outcome = match is_failure {
            true => Outcome::Failed { failure: Failure::TimedOut, after_s: 1.0 },
            false => Outcome::Value(value(n)),
        };
        let ObserveResult::New(point) = series_table.observe(&measurement("a", second, outcome)) else {
            panic!("{n}")
        };
        assert_eq!(point.issued.map(|issued| issued.forecast.to_bits()), issued.map(f64::to_bits), "{n}");
        assert_eq!(point.issued.and_then(|issued| issued.intervals[2]), interval, "{n}");
        if !is_failure {
            battery.update_at(value(n), time_s).unwrap();
        }
    }
}

#[test]
fn every_horizon_of_a_series_has_forecasts_of_its_own_and_others_are_interpolated() {
    let series_table = with_values(3000);
    let state = only_state(&series_table);
    let over = |seconds| {
        state.forecaster().forecast_over(Horizon::Seconds(seconds), HorizonOf::Mean, Objective::Absolute)
    };
    for seconds in HORIZONS_S {
        let forecast = over(seconds).unwrap();
        assert_eq!(forecast.basis, HorizonBasis::Own, "{seconds}");
        assert!(forecast.scored > 10 && (forecast.value - 0.025).abs() < 3e-3, "{seconds}: {forecast:?}");
        let (lower, upper) = state.interval_over(Horizon::Seconds(seconds), HorizonOf::Mean, 0.9).unwrap();
        assert!(lower <= forecast.value && forecast.value <= upper, "{seconds}");
        let tail = state.quantile_over(Horizon::Seconds(seconds), HorizonOf::Value, 0.9).unwrap();
        assert!(0.02 < tail && tail < 0.04, "{seconds}: {tail}");
    }
    assert!(matches!(over(1800.0).unwrap().basis, HorizonBasis::Between { .. }));
    assert!(matches!(over(86_400.0).unwrap().basis, HorizonBasis::Beyond { .. }));
}

#[test]
fn several_quantiles_are_those_one_by_one_and_are_possible_values() {
    let series_table = with_values(1000);
    let (state, shares) = (only_state(&series_table), [0.9, 0.03, 0.5, 0.01, 0.995]);
    for horizon in [Horizon::Steps(1), Horizon::Seconds(60.0), Horizon::Seconds(200.0)] {
        for of in [HorizonOf::Mean, HorizonOf::Value] {
            let one_by_one = shares.map(|share| state.quantile_over(horizon, of, share));
            assert!(one_by_one.iter().all(Option::is_some), "{horizon:?}");
            assert_eq!(state.quantiles_over(horizon, of, &shares), one_by_one, "{horizon:?} {of:?}");
            assert_eq!(state.quantiles_over(horizon, of, &[0.03]), one_by_one[1..2], "no kept share");
        }
    }
    // No share of the CPU is above 1.
    let (mut series_table, quantity) = (SeriesTable::new(1), Quantity::new("cpu_available").unwrap());
    let mut of_cpu = measurement("a", 0, Outcome::Value(1.0));
    of_cpu.series.quantity = quantity;
    for n in 0..50_u32 {
        of_cpu.time_unix_ns += 10_000_000_000;
        of_cpu.outcome = Outcome::Value(1.0 - 0.01 * f64::from(n % 2));
        series_table.observe(&of_cpu);
    }
    let state = series_table.get(&of_cpu.series).unwrap();
    let all = state.quantiles_over(Horizon::Steps(1), HorizonOf::Value, &[0.95, 0.99]);
    assert!(all.iter().all(|quantile| quantile.is_some_and(|quantile| quantile <= 1.0)), "{all:?}");
}

#[test]
fn series_beyond_a_number_have_no_horizons_until_others_are_removed() {
    let mut series_table = SeriesTable::new(9);
    series_table.with_horizons_max = 2;
    let of = |target: &str| measurement(target, 1, Outcome::Value(1.0));
    let has_horizons = |series_table: &SeriesTable, target| {
        series_table.get(&of(target).series).unwrap().forecaster().horizons().count() == HORIZONS_S.len()
    };
    for target in ["a", "b", "c"] {
        series_table.observe(&of(target));
    }
    assert_eq!(["a", "b", "c"].map(|target| has_horizons(&series_table, target)), [true, true, false]);
    series_table.remove_station(&of("a").series.target, 0);
    for target in ["d", "e"] {
        series_table.observe(&of(target));
    }
    assert_eq!(["c", "d", "e"].map(|target| has_horizons(&series_table, target)), [false, true, false]);
}

#[test]
fn the_forecast_from_an_old_value_stays_and_its_interval_widens() {
    let mut series_table = SeriesTable::new(1);
    let (mut level, mut random) = (0.02, 1_u64);
    for n in 0..3000_i64 {
        // A random walk: the generator of `most_outside_percent`.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        level += if random >> 63 == 0 { 1e-5 } else { -1e-5 };
        series_table.observe(&measurement("a", 10 * n, Outcome::Value(level)));
    }
    let state = only_state(&series_table);
    let at = |age_s: i64| (29_990 + age_s) * 1_000_000_000;
    let width = |age_s| {
        let (lower, upper) = state.interval_aged(Interval::DEFAULT_LEVEL, at(age_s)).unwrap();
        let forecast = state.forecast_aged(Objective::Absolute, at(age_s)).unwrap().value;
        assert!(lower <= forecast && forecast <= upper, "{age_s}");
        assert!(state.quantile_aged(0.9, at(age_s)).unwrap() <= 3600.0, "{age_s}");
        upper - lower
    };
    let [next, minute, hour, week] = [10, 60, 3600, 7 * 86_400].map(width);
    assert!(next < minute && minute < hour && hour <= week, "{next} {minute} {hour} {week}");
}

#[test]
fn failures_of_the_target_are_learnt_as_availability_and_failures_of_this_host_are_not() {
    let mut series_table = with_values(100);
    let next = Horizon::Steps(1);
    assert_eq!(only_state(&series_table).availability_over(next), None, "every measurement gave a value");
    let mut fail = |second, failure| {
        let outcome = Outcome::Failed { failure, after_s: 1.0 };
        series_table.observe(&measurement("a", second, outcome));
        only_state(&series_table).availability_over(next).unwrap()
    };
    let up = fail(1000, Failure::Local);
    assert!(0.98 < up, "{up}");
    assert_eq!(fail(1010, Failure::Declined), up);
    let down = (102..140).map(|n| fail(10 * n, Failure::TimedOut)).last().unwrap();
    let hour = only_state(&series_table).availability_over(Horizon::Seconds(3600.0)).unwrap();
    assert!(down < 0.2 && down < hour, "{down} {hour}");
}

/// Run by hand: `cargo test -p barograph-station -- --ignored --nocapture resident`.
#[test]
#[ignore = "prints what depends on the computer"]
fn resident_memory_of_full_series_is_printed() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
    };
    // Keep each series table, so that the next one cannot reuse its memory.
    let mut kept = Vec::new();
    for series in [300, 2000] {
        let before = resident();
        let mut series_table = SeriesTable::new(series);
        for index in 0..series {
            for second in 0..POINTS_MAX as i64 {
                let value = 0.02 + 0.001 * f64::from((second * 7919 % 101) as i32);
                series_table.observe(&measurement(
                    &format!("station-{index}"),
                    10 * second,
                    Outcome::Value(value),
                ));
            }
        }
        let kib = resident() - before;
        let (_, state) = series_table.select(&Selector::default())[0];
        eprintln!("forecaster: {} B", state.forecaster().size_bytes());
        eprintln!("{series} series of {POINTS_MAX} points: {kib} KiB, {} B each", kib * 1024 / series);
        kept.push(series_table);
    }
}
