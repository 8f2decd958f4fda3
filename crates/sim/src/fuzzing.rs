//! Entry points for fuzzers: functions that must not panic for any scenario.

use crate::{LinkSimulation, Scenario, SimulatedAttempt};

/// Validates `scenario` and simulates it. In a valid scenario, every attempt must take a finite
/// time above zero.
///
/// # Panics
/// If an attempt takes an invalid time, which is a defect.
pub fn fuzz_scenario(scenario: Scenario) {
    let Ok(scenario) = scenario.validate(|_| Ok(vec![1.0, 0.25, 1e9])) else { return };
    let links = (scenario.nodes - 1).min(4);
    let mut simulation = LinkSimulation::new(&scenario, links);
    let mut at = 0.0;
    for reduction in 0..24 {
        for path in 0..2 * links {
            let number = (reduction % 3) as u32;
            let bytes = simulation.bytes(path, reduction);
            let response = simulation.respond(&SimulatedAttempt { path, reduction, number, at, bytes });
            let takes_s = response.takes_s;
            let is_sound = takes_s.is_finite() && (takes_s > 0.0 || response.broken && takes_s == 0.0);
            assert!(is_sound, "{response:?} of {bytes} bytes at {at} in {scenario:?}");
            assert!(simulation.reconnect_s(path).is_finite() && simulation.base_s(path) > 0.0);
            if !response.broken {
                simulation.cancelled(path, at, at + takes_s);
            }
        }
        at = 1.9 * at + scenario.pause_s + 0.01;
    }
}
