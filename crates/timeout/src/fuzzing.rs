//! Entry points for fuzzers: plain functions with assertions that must hold for any bytes.

use core::time::Duration;

use crate::{Adaptive, AdaptiveConfig, Attempt, AttemptOutcome, HostStatistics, TimeoutEstimator};

/// Loads `data` as the state of a link and as the state of a host. A state that loads must give
/// timeouts within their limits after any further attempts, and must save and load again.
///
/// # Panics
/// If an assertion fails, which is a defect.
pub fn fuzz_state(data: &[u8]) {
    let config = AdaptiveConfig::default();
    let host = HostStatistics::load(data);
    if let Ok(host) = &host {
        assert!(HostStatistics::load(&host.save()).is_ok(), "a host does not load what it saved");
        exercise(Adaptive::new(&config, host), &config, data);
    }
    if let Ok(link) = Adaptive::load(data, &config, &host.unwrap_or_default()) {
        exercise(link, &config, data);
    }
}

/// Records attempts that end in every way, in an order taken from `data`.
fn exercise(mut link: Adaptive, config: &AdaptiveConfig, data: &[u8]) {
    for (turn, byte) in data.iter().rev().chain(&[0; 8]).take(TURNS).enumerate() {
        let number = u32::from(byte % 4);
        let bytes = u64::MAX >> (byte % 64);
        let attempt = Attempt { bytes, number, max_attempts: 4, elapsed: Duration::from_secs(turn as u64) };
        let decision = link.decide(&attempt);
        let timeout = decision.timeout;
        assert!(Duration::ZERO < timeout && timeout <= config.max_timeout, "{decision:?}");
        assert_eq!(timeout, link.timeout(&attempt));
        let took = TIMES[usize::from(byte / 4) % TIMES.len()];
        link.record(
            &attempt,
            match byte / 32 {
                0 => AttemptOutcome::TimedOut(timeout),
                1 => AttemptOutcome::TimedOut(took),
                2 => AttemptOutcome::Cancelled(took),
                3 => AttemptOutcome::Failed(took),
                _ => AttemptOutcome::Completed(took),
            },
        );
        link.record_connect(took);
    }
    let again = Adaptive::load(&link.save(), config, &HostStatistics::default());
    assert!(again.is_ok(), "a link does not load what it saved: {again:?}");
}

/// Maximum number of attempts in one input: enough responses for one or two fits.
const TURNS: usize = 64;

/// Times of attempts, from zero to the longest possible time.
const TIMES: [Duration; 7] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_micros(50),
    Duration::from_millis(20),
    Duration::from_secs(1),
    Duration::from_secs(10_000),
    Duration::MAX,
];
