//! What a station has learned of a path before it lets a test end early: the calibration and a
//! forecast of the rate.

use barograph_forecast::{Battery, Config};
use barograph_probe::Streamed;
use barograph_probe::calibration::{Calibration, Partials};
use barograph_probe::stop::Guard;
use barograph_probe::stream::{Early, Ended};

/// State learned from the tests of one path so far.
pub(crate) struct Calibrated {
    calibration: Calibration,
    battery: Battery,
}

impl Calibrated {
    pub(crate) fn new() -> Self {
        Self { calibration: Calibration::default(), battery: Battery::new(&Config::default()) }
    }

    /// Parameters for the next test to end early; `None` while the path is not calibrated.
    pub(crate) fn early(&self) -> Option<Early> {
        let interval = self.battery.interval(LEVEL)?;
        let guard = Guard { lower_bit_s: interval.lower, upper_bit_s: interval.upper };
        let expected = self.calibration.expected()?;
        Some(Early { guard: Some(guard), expected: Some(expected), ..Early::default() })
    }

    pub(crate) fn learn_full(&mut self, partials: &Partials, rate_bit_s: f64) -> anyhow::Result<()> {
        self.calibration.learn_full(partials, rate_bit_s);
        Ok(self.battery.update(rate_bit_s)?)
    }

    pub(crate) fn learn(&mut self, test: &Streamed, was_allowed: bool) -> anyhow::Result<()> {
        let rate_bit_s = test.rate_bit_s();
        match test.ended {
            Ended::Early(reason) => self.calibration.learn_early(&reason),
            _ if !was_allowed => self.calibration.learn_full(&test.partials, rate_bit_s),
            _ if test.surprised => self.calibration.learn_surprise(&test.partials, rate_bit_s),
            _ => {}
        }
        Ok(self.battery.update(rate_bit_s)?)
    }
}

/// Level of the interval that the station shows and alerts on.
const LEVEL: f64 = 0.9;
