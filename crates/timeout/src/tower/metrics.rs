//! Snapshots of targets, and their OpenMetrics text.

use core::fmt::{self, Display, Write};
use core::time::Duration;
use std::string::{String, ToString};
use std::vec::Vec;

use super::target::TargetCounters;
use crate::TimeoutDecision;

/// A snapshot of a set of targets.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LayerMetrics<K> {
    /// Each target, in no particular order.
    pub targets: Vec<TargetMetrics<K>>,
    /// Number of copies that may be sent now.
    pub budget_left: f64,
    /// Number of targets that were forgotten for lack of room.
    pub forgotten: u64,
}

/// A snapshot of one target.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TargetMetrics<K> {
    /// Key of the target.
    pub key: K,
    /// Decision for a call of the last call's size: timeout, forecast, error and reason.
    pub decision: TimeoutDecision,
    /// Counters of the target's attempts.
    pub counts: TargetCounters,
}

impl<K> TargetMetrics<K> {
    /// Share of attempts with a false timeout, 0 to 1; `None` before any attempt. A timeout is
    /// false if the response would have arrived soon after the timeout.
    ///
    /// With hedging, false timeouts are observed: the response of the overdue attempt arrived
    /// before the response of the hedge. With retries, false timeouts are estimated from the
    /// response times of the retries ([`TargetCounters::false_estimated`]). For calls that fail
    /// with their first timeout, the share stays 0, because there is no later response that shows
    /// whether the timeout was false.
    #[must_use]
    pub fn false_timeout_share(&self) -> Option<f64> {
        let TargetCounters { false_observed, false_estimated, attempts, .. } = self.counts;
        (attempts > 0).then(|| (false_observed + false_estimated) as f64 / attempts as f64)
    }
}

impl<K: Display> LayerMetrics<K> {
    /// Writes the snapshot as OpenMetrics 1.0 text, with the content type
    /// `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    ///
    /// ```
    /// use barograph_timeout::tower::Targets;
    /// use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let targets = Targets::default();
    /// targets.start_from("db", Duration::from_millis(20), Duration::from_millis(2));
    /// let mut text = String::new();
    /// targets.metrics().write_openmetrics(&mut text)?;
    /// assert!(text.contains("barograph_timeout_attempts_total{target=\"db\"} 0\n"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of `out`; a `String` has none.
    pub fn write_openmetrics(&self, out: &mut impl Write) -> fmt::Result {
        let targets: Vec<_> = self
            .targets
            .iter()
            .map(|target| (escaped(&target.key), target.decision, target.counts))
            .collect();
        for (name, help, value) in SECONDS {
            writeln!(out, "# TYPE {name} gauge\n# UNIT {name} seconds\n# HELP {name} {help}")?;
            for (key, decision, _) in &targets {
                if let Some(value) = value(decision) {
                    writeln!(out, "{name}{{target=\"{key}\"}} {}", value.as_secs_f64())?;
                }
            }
        }
        for (name, help, samples) in COUNTERS {
            writeln!(out, "# TYPE {name} counter\n# HELP {name} {help}")?;
            for (key, _, counts) in &targets {
                for (label, value) in samples(counts) {
                    writeln!(out, "{name}_total{{target=\"{key}\"{label}}} {value}")?;
                }
            }
        }
        let Self { budget_left, forgotten, .. } = self;
        writeln!(out, "# TYPE barograph_timeout_budget gauge")?;
        writeln!(out, "# HELP barograph_timeout_budget Copies that the retry budget allows now.")?;
        writeln!(out, "barograph_timeout_budget {budget_left}")?;
        writeln!(out, "# TYPE barograph_timeout_forgotten counter")?;
        writeln!(
            out,
            "# HELP barograph_timeout_forgotten Targets that were forgotten because max_targets was reached."
        )?;
        writeln!(out, "barograph_timeout_forgotten_total {forgotten}\n# EOF")
    }
}

type Seconds = (&'static str, &'static str, fn(&TimeoutDecision) -> Option<Duration>);

const SECONDS: [Seconds; 3] = [
    ("barograph_timeout_seconds", "Timeout of a first attempt of the last call's size.", |decision| {
        Some(decision.timeout)
    }),
    ("barograph_timeout_forecast_seconds", "Forecast of the response time.", |decision| decision.forecast),
    ("barograph_timeout_error_seconds", "Typical error of the forecast.", |decision| decision.error),
];

type Samples = Vec<(&'static str, u64)>;
type Counter = (&'static str, &'static str, fn(&TargetCounters) -> Samples);

const COUNTERS: [Counter; 6] = [
    ("barograph_timeout_attempts", "Attempts begun.", |counts| Vec::from([("", counts.attempts)])),
    ("barograph_timeout_ended", "Attempts by how they ended.", |counts| {
        Vec::from([
            (",ended=\"answered\"", counts.answered),
            (",ended=\"timed_out\"", counts.timed_out),
            (",ended=\"superseded\"", counts.superseded),
            (",ended=\"failed\"", counts.failed),
        ])
    }),
    ("barograph_timeout_retries", "Copies sent after a timeout.", |counts| Vec::from([("", counts.retries)])),
    ("barograph_timeout_hedges", "Copies sent beside an attempt.", |counts| Vec::from([("", counts.hedges)])),
    ("barograph_timeout_withheld", "Copies not sent because the budget was empty.", |counts| {
        Vec::from([("", counts.withheld)])
    }),
    ("barograph_timeout_false", "False timeouts, observed or estimated.", |counts| {
        Vec::from([
            (",known=\"observed\"", counts.false_observed),
            (",known=\"estimated\"", counts.false_estimated),
        ])
    }),
];

/// Escapes the value of a label (OpenMetrics 1.0, §ABNF: `escaped-char`).
fn escaped(key: &impl Display) -> String {
    key.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
