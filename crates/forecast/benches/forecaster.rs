//! Cost of forecasts further ahead, of quantiles and of availability: time for each value, and
//! bytes of state.
//!
//! `cargo bench -p barograph-forecast --bench forecaster` prints one row for each set of parts.
//! Times are wall-clock times of one thread per value, without reading a forecast; the first row is
//! the battery alone. Each time is the best of many runs, because other work on the machine can
//! only increase a time.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::Instant;

use barograph_forecast::{Forecaster, ForecasterConfig, Horizon, HorizonConfig, QuantileMethod};

const VALUES: usize = 20_000;
const RUNS: usize = 30;
/// Time between values (s), as a station probes.
const PERIOD_S: f64 = 10.0;
/// Horizons of a station (s).
const LADDER_S: [f64; 4] = [60.0, 300.0, 900.0, 3600.0];

fn main() {
    let ladder = || LADDER_S.map(|s| HorizonConfig::sampled(Horizon::Seconds(s))).to_vec();
    let of = |horizons| ForecasterConfig { horizons, ..ForecasterConfig::default() };
    let with = |method, horizons| ForecasterConfig { quantiles: Some(method), ..of(horizons) };
    let cases = [
        ("next value", of(Vec::new())),
        ("exact 5", of(vec![HorizonConfig::exact(Horizon::Steps(5))])),
        ("exact 30", of(vec![HorizonConfig::exact(Horizon::Steps(30))])),
        ("exact 120", of(vec![HorizonConfig::exact(Horizon::Steps(120))])),
        ("sampled 30", of(vec![HorizonConfig::sampled(Horizon::Steps(30))])),
        ("sampled 360", of(vec![HorizonConfig::sampled(Horizon::Steps(360))])),
        ("ladder of four", of(ladder())),
        ("tracked", with(QuantileMethod::Tracked, Vec::new())),
        ("blended", with(QuantileMethod::Blended, Vec::new())),
        ("ladder, tracked", with(QuantileMethod::Tracked, ladder())),
        ("transfers", ForecasterConfig { transfers: true, ..of(ladder()) }),
        ("availability", ForecasterConfig { availability: true, ..ForecasterConfig::default() }),
    ];
    println!("{:<16} {:>8} {:>12}", "parts", "ns", "state bytes");
    let values = series(VALUES);
    for (name, config) in cases {
        let mut least = f64::INFINITY;
        let mut bytes = 0;
        for _ in 0..RUNS {
            let mut forecaster = Forecaster::new(&config).expect("valid horizons");
            let start = Instant::now();
            for (i, value) in values.iter().enumerate() {
                forecaster.update_at(*value, i as f64 * PERIOD_S).expect("the series is finite");
            }
            least = least.min(start.elapsed().as_nanos() as f64 / VALUES as f64);
            bytes = std::hint::black_box(&forecaster).size_bytes();
        }
        println!("{name:<16} {least:>8.0} {bytes:>12}");
    }
}

/// A series like a round-trip time in ms: a level that shifts, noise, and a heavy tail, from a
/// fixed generator (Knuth's MMIX).
fn series(length: usize) -> Vec<f64> {
    let mut state = 42_u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    };
    let mut level = 20.0;
    (0..length)
        .map(|_| {
            if uniform() < 0.005 {
                level = 10.0 + 40.0 * uniform();
            }
            let tail = if uniform() < 0.02 { 5.0 / uniform() } else { 0.0 };
            level + (uniform() + uniform() + uniform() - 1.5) + tail
        })
        .collect()
}
