//! Validates the numbers of a scenario.

use std::path::Path;

use super::{Congestion, FloatRange, LinkBase, LinkLaw, ResponseTimeLaw, Scenario, Stall, StallDuration};

impl Scenario {
    /// Checks every field. If the scenario has a trace, `read` gets the path of the trace and
    /// returns the numbers of the trace.
    ///
    /// # Errors
    /// A sentence with the key and its valid range, or the error of `read`.
    pub fn validate(mut self, read: impl Fn(&Path) -> Result<Vec<f64>, String>) -> Result<Self, String> {
        if let ResponseTimeLaw::Trace { file, values } = &mut self.link.law {
            *values = read(file)?;
            normalise(values)
                .ok_or_else(|| format!("{}: all numbers must be positive and finite", file.display()))?;
        }
        self.check()?;
        Ok(self)
    }

    fn check(&self) -> Result<(), String> {
        within("nodes", self.nodes as f64, 2.0, 100_001.0)?;
        within("reductions", self.reductions as f64, 1.0, 1e6)?;
        within("tries", f64::from(self.tries), 1.0, 100.0)?;
        if self.message_bytes.is_empty() {
            return Err("message_bytes is empty: give at least one size".to_owned());
        }
        for bytes in &self.message_bytes {
            within("message_bytes", *bytes as f64, 1.0, 1e12)?;
        }
        range("message_bytes_range", self.message_bytes_range, 1.0, 1e12)?;
        for (key, value) in [
            ("reconnect_s", self.reconnect_s),
            ("reconnect_factor", self.reconnect_factor),
            ("pause_s", self.pause_s),
            ("period_s", self.period_s.unwrap_or(0.0)),
        ] {
            within(key, value, 0.0, 1e6)?;
        }
        self.link.check()?;
        for stall in self.stalls() {
            within("stall.probability", stall.probability, 0.0, 1.0)?;
            // More than a thousand stalls in a kilobyte are not meaningful, and each stall takes
            // time to draw.
            within("stall.per_bytes", stall.per_bytes.unwrap_or(1024) as f64, 1024.0, 1e12)?;
            stall.duration_s.check()?;
        }
        // At least a tenth of the attempts must succeed, because a reduction ends only after every
        // message has arrived.
        if let Some(loss) = self.loss {
            within("loss.probability", loss.probability, 0.0, 0.9)?;
            within("loss.gives_up_s", loss.gives_up_s, 1e-3, 1e6)?;
        }
        if let Some(reset) = self.reset {
            within("reset.probability", reset.probability, 0.0, 0.9)?;
            within("reset.after_s", reset.after_s, 0.0, 1e6)?;
        }
        if let Some(congestion) = &self.congestion {
            congestion.check()?;
        }
        if let Some(regime) = &self.regime {
            within("regime.every_s", regime.every_s, 1e-3, f64::INFINITY)?;
            range("regime.factor", Some(regime.factor), 1e-6, 1e6)?;
        }
        for shift in &self.shifts {
            within("shifts.factor", shift.factor, 1e-6, 1e6)?;
        }
        Ok(())
    }

    /// All kinds of stalls of the scenario.
    pub(crate) fn stalls(&self) -> impl Iterator<Item = &Stall> {
        self.stall.iter().chain(&self.more_stalls)
    }
}

impl LinkLaw {
    fn check(&self) -> Result<(), String> {
        match self.base_s {
            LinkBase::LogUniform(base) | LinkBase::Uniform(base) => {
                range("link.base_s", Some(base), 1e-6, 1e6)?
            }
            LinkBase::Lognormal { median, sigma } => {
                within("link.base_s.median", median, 1e-6, 1e6)?;
                within("link.base_s.sigma", sigma, 0.0, 5.0)?;
            }
            LinkBase::Constant(base) => within("link.base_s", base, 1e-6, 1e6)?,
        }
        within("link.direction_sigma", self.direction_sigma, 0.0, 5.0)?;
        within("link.size_share", self.size_share, 0.0, 1.0)?;
        match &self.law {
            ResponseTimeLaw::Constant {} | ResponseTimeLaw::Trace { .. } => Ok(()),
            ResponseTimeLaw::Lognormal { sigma, slow_share, slow_factor } => {
                within("link.law.sigma", *sigma, 0.0, 10.0)?;
                within("link.law.slow_share", *slow_share, 0.0, 0.5)?;
                within("link.law.slow_factor", *slow_factor, 1e-3, 1e6)
            }
            ResponseTimeLaw::Pareto { alpha, share, sigma, cap_s } => {
                within("link.law.alpha", *alpha, 0.1, 100.0)?;
                within("link.law.share", *share, 0.0, 1.0)?;
                within("link.law.sigma", *sigma, 0.0, 10.0)?;
                within("link.law.cap_s", *cap_s, 1e-6, f64::INFINITY)
            }
        }
    }
}

impl Congestion {
    fn check(&self) -> Result<(), String> {
        // The state changes are computed one after the other. With shorter states, the computation
        // would take too long.
        within("congestion.good_s", self.good_s, 1e-3, f64::INFINITY)?;
        within("congestion.bad_s", self.bad_s, 1e-3, 1e12)?;
        within("congestion.factor", self.factor, 1e-6, 1e6)?;
        within("congestion.load_feedback", self.load_feedback, 0.0, 100.0)?;
        within("congestion.load_fade_s", self.load_fade_s.unwrap_or(1.0), 1e-6, 1e12)
    }
}

impl StallDuration {
    fn check(self) -> Result<(), String> {
        let key = "stall.duration_s";
        match self {
            Self::Constant { value } => within(key, value, 0.0, 1e6),
            Self::Uniform { min, max } => range(key, Some(FloatRange { min, max }), 0.0, 1e6),
            Self::Exponential { mean, max } => {
                within(key, mean, 0.0, 1e6)?;
                within(key, max, 0.0, f64::INFINITY)
            }
            Self::Pareto { alpha, min, max } => {
                within("stall.duration_s.alpha", alpha, 0.1, 100.0)?;
                within(&format!("{key}.min"), min, 0.0, 1e6)?;
                range(key, Some(FloatRange { min, max }), 0.0, f64::INFINITY)
            }
        }
    }
}

/// Divides the numbers by their median; `None` if a number is not positive and finite.
fn normalise(values: &mut [f64]) -> Option<()> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = *sorted.get(sorted.len() / 2)?;
    let sound = sorted.iter().all(|value| value.is_finite() && *value > 0.0);
    values.iter_mut().for_each(|value| *value /= median);
    sound.then_some(())
}

fn within(key: &str, value: f64, min: f64, max: f64) -> Result<(), String> {
    // NaN is never within a range.
    if min <= value && value <= max {
        Ok(())
    } else if max.is_infinite() {
        Err(format!("{key} = {value}: must be at least {min}"))
    } else {
        Err(format!("{key} = {value}: must be {min} to {max}"))
    }
}

fn range(key: &str, range: Option<FloatRange>, min: f64, max: f64) -> Result<(), String> {
    let Some(range) = range else { return Ok(()) };
    within(&format!("{key}.min"), range.min, min, max)?;
    within(&format!("{key}.max"), range.max, range.min, max)
}
