//! Whether a lower rate costs what it should save.

/// How far down a cap may go.
///
/// A host that reads slowly all the time loses less, the slower packets come, until it loses none: there the cap belongs. A host that does
/// not read for a while and then reads fast loses what comes meanwhile and does not fit its buffer, nearly the same share at any rate:
/// sending slower only moves less, and each cap at what still comes through is lower than the last. Which of both it is shows when much
/// more is sent for a while: where clearly more comes through, the higher rate is kept, and the lowest sought that moves as much.
#[derive(Debug, Default)]
pub(super) struct Floor {
    /// Bytes a second; 0 while there is none.
    bytes_s: f64,
    /// What came through when it was found (bytes a second).
    goodput: f64,
    trial: Option<Trial>,
    /// Whether the next trial is of a lower rate.
    is_down: bool,
    /// Periods until the next trial may begin.
    wait: u32,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    before: Period,
    floor_bytes_s: f64,
    is_down: bool,
}

/// What a period showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    /// The rate allowed (bytes a second), in the mean.
    pub(super) offered: f64,
    /// What was acknowledged (bytes a second).
    pub(super) goodput: f64,
    /// Of what was acknowledged and lost by the host, what part was lost.
    pub(super) lost_share: f64,
}

impl Floor {
    /// How long a period is (s): ten of a CPU quota's, so that one turn more or less of the receiver is a tenth, and so many round trips
    /// that the first, in which is acknowledged what was sent before, does not matter.
    pub(super) fn period_s(round_trip_s: f64) -> f64 {
        (8.0 * round_trip_s).max(10.0 * super::QUOTA_S)
    }

    /// Bytes a second that the cap does not go below.
    pub(super) fn bytes_s(&self) -> f64 {
        self.bytes_s
    }

    /// A period is over; what the cap is to be from now on, where a trial begins or has failed.
    pub(super) fn on_period(&mut self, period: Period) -> Option<f64> {
        self.wait = self.wait.saturating_sub(if WASTE < period.lost_share { HASTE } else { 1 });
        if let Some(trial) = self.trial.take() {
            if !self.is_better(trial, period) {
                self.bytes_s = trial.floor_bytes_s;
                self.is_down = !trial.is_down && 0.0 < self.bytes_s;
                self.wait = WAIT;
                return Some(trial.before.offered);
            }
            if !trial.is_down {
                self.goodput = period.goodput;
            }
        }
        (self.wait == 0 && 0.0 < period.lost_share).then(|| self.try_another(period))
    }

    fn is_better(&self, trial: Trial, after: Period) -> bool {
        if trial.is_down {
            ENOUGH * self.goodput <= after.goodput
        } else {
            MORE * trial.before.goodput < after.goodput
        }
    }

    fn try_another(&mut self, before: Period) -> f64 {
        self.is_down &= 0.0 < self.bytes_s;
        self.trial = Some(Trial { before, floor_bytes_s: self.bytes_s, is_down: self.is_down });
        self.bytes_s = before.offered * if self.is_down { DOWN } else { UP };
        self.bytes_s
    }
}

/// The step of a trial upwards: less might not be seen, where what is sent while the host does not read fills a buffer only.
const UP: f64 = 3.0;

/// The step of a trial downwards.
const DOWN: f64 = 0.8;

/// A higher rate is worth what it throws away if it moves so much more: a turn in ten that fell into the period by chance is not.
const MORE: f64 = 1.15;

/// A lower one is as good if it moves so much of the best, for the same reason.
const ENOUGH: f64 = 0.9;

/// Periods between a trial that failed and the next: of a host that reads slowly all the time, a trial throws away twice what it reads, and
/// so 0.4 % of all.
const WAIT: u32 = 480;

/// A period in which more than a fiftieth is thrown away already counts so often: then a trial costs little.
const HASTE: u32 = 24;
const WASTE: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    fn period(offered: f64, goodput: f64) -> Period {
        Period { offered, goodput, lost_share: 1.0 - goodput / offered }
    }

    #[test]
    fn a_higher_rate_is_kept_while_it_moves_more_and_then_the_lowest_sought() {
        let mut floor = Floor::default();
        assert_eq!(floor.on_period(period(100.0, 30.0)), Some(300.0));
        assert_eq!(floor.on_period(period(300.0, 90.0)), Some(900.0));
        assert_eq!(floor.on_period(period(900.0, 92.0)), Some(300.0));
        // 70 % were lost before: soon a lower one is tried, which does as well, and the next does not.
        for _ in 1..WAIT / HASTE {
            assert_eq!(floor.on_period(period(300.0, 90.0)), None);
        }
        assert_eq!(floor.on_period(period(300.0, 90.0)), Some(240.0));
        assert_eq!(floor.on_period(period(240.0, 82.0)), Some(192.0));
        assert_eq!(floor.on_period(period(192.0, 80.0)), Some(240.0));
        assert_eq!(floor.bytes_s(), 240.0);
    }

    #[test]
    fn a_host_that_reads_slowly_all_the_time_has_no_floor_and_few_trials() {
        let mut floor = Floor::default();
        assert_eq!(floor.on_period(period(101.0, 100.0)), Some(303.0));
        assert_eq!(floor.on_period(period(303.0, 100.0)), Some(101.0));
        assert_eq!(floor.bytes_s(), 0.0);
        for _ in 1..WAIT {
            assert_eq!(floor.on_period(period(101.0, 100.0)), None);
        }
        assert_eq!(floor.on_period(period(100.0, 100.0)), None, "it lost nothing");
        assert_eq!(floor.on_period(period(101.0, 100.0)), Some(303.0));
    }
}
