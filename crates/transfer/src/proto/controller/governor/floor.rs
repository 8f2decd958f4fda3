//! Whether a lower rate costs what it should save.

/// How far down a cap may go.
///
/// A host that reads slowly all the time loses less, the slower packets come, until it loses none: there the cap belongs. A host that does
/// not read for a while and then reads fast loses what comes meanwhile and does not fit its buffer, nearly the same share at any rate:
/// sending slower only moves less, and each cap at what still comes through is lower than the last. Which of both it is shows in what came
/// through at a higher rate before, and when much more is sent for a while: where clearly more comes through, the higher rate is kept, and
/// the lowest sought that moves as much.
#[derive(Debug, Default)]
pub(super) struct Floor {
    /// Bytes a second; 0 while there is none.
    pub(super) bytes_s: f64,
    /// Where most came through, as far as is known.
    best: Option<Point>,
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

/// What came through at a rate (both bytes a second), in the mean of some periods.
#[derive(Clone, Copy, Debug)]
struct Point {
    offered: f64,
    goodput: f64,
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

    /// A period is over, and without a cap the rate would be `most`; what the cap is to be from now on, where a trial begins or has failed.
    pub(super) fn on_period(&mut self, period: Period, most: f64) -> Option<f64> {
        self.wait = self.wait.saturating_sub(if WASTE < period.lost_share { HASTE } else { 1 });
        if let Some(trial) = self.trial.take() {
            if !self.is_better(trial, period) {
                if !trial.is_down {
                    // What once came through does not any more, at whatever rate.
                    self.best = Some(Point { offered: trial.before.offered, goodput: trial.before.goodput });
                }
                self.bytes_s = trial.floor_bytes_s;
                self.is_down = !trial.is_down && 0.0 < self.bytes_s;
                self.wait = WAIT;
                return Some(trial.before.offered);
            }
            if !trial.is_down {
                self.best = None;
            }
        }
        let best = self.remember(period);
        if period.lost_share <= 0.0 {
            return None;
        }
        let back = best.offered.min(most);
        if period.goodput < ENOUGH * best.goodput && CLEARLY * period.offered < back {
            // The host was a limit then as it is now, and more came through.
            return Some(self.try_rate(period, back, false));
        }
        let is_down = self.is_down && 0.0 < self.bytes_s;
        let next = period.offered * if is_down { DOWN } else { UP };
        let is_other = is_down || CLEARLY * period.offered < most;
        (self.wait == 0 && is_other).then(|| self.try_rate(period, next, is_down))
    }

    fn is_better(&self, trial: Trial, after: Period) -> bool {
        if trial.is_down {
            return self.best.is_none_or(|best| ENOUGH * best.goodput <= after.goodput);
        }
        let higher = (after.offered / trial.before.offered - 1.0).max(0.0);
        (1.0 + (MORE_EACH * higher).min(MORE)) * trial.before.goodput < after.goodput
    }

    fn try_rate(&mut self, before: Period, rate: f64, is_down: bool) -> f64 {
        self.is_down = is_down;
        self.trial = Some(Trial { before, floor_bytes_s: self.bytes_s, is_down });
        self.bytes_s = rate;
        rate
    }

    /// Where most came through, with this period: a mean, for the best of many by chance would never be reached again.
    fn remember(&mut self, period: Period) -> Point {
        let now = Point { offered: period.offered, goodput: period.goodput };
        let best = match self.best {
            Some(best) if best.offered <= CLEARLY * now.offered => {
                let is_higher = CLEARLY * best.offered < now.offered;
                if is_higher && best.goodput < now.goodput {
                    now
                } else {
                    let goodput = best.goodput + NEWEST * (now.goodput - best.goodput);
                    Point { goodput, ..best }
                }
            }
            Some(best) if now.goodput <= best.goodput => best,
            _ => now,
        };
        *self.best.insert(best)
    }
}

/// The step of a trial upwards: less might not be seen, where what is sent while the host does not read fills a buffer only.
const UP: f64 = 3.0;

/// The step of a trial downwards.
const DOWN: f64 = 0.8;

/// A higher rate is worth what it throws away if it moves so much more: a turn in ten that fell into the period by chance is not. Where the
/// controller allows but little more, half of that has to come through.
const MORE: f64 = 0.15;
const MORE_EACH: f64 = 0.5;

/// A lower one is as good if it moves so much of the best, for the same reason.
const ENOUGH: f64 = 0.9;

/// Rates that differ by less are the same: a cap opens and closes by as much in a period.
const CLEARLY: f64 = 1.1;

/// What the newest period weighs in what comes through at a rate: of the last four or so.
const NEWEST: f64 = 0.25;

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
        assert_eq!(floor.on_period(period(100.0, 30.0), 1e3), Some(300.0));
        assert_eq!(floor.on_period(period(300.0, 90.0), 1e3), Some(900.0));
        assert_eq!(floor.on_period(period(900.0, 92.0), 1e3), Some(300.0));
        // 70 % were lost before: soon a lower one is tried, which does as well, and the next does not.
        for _ in 1..WAIT / HASTE {
            assert_eq!(floor.on_period(period(300.0, 90.0), 1e3), None);
        }
        assert_eq!(floor.on_period(period(300.0, 90.0), 1e3), Some(240.0));
        assert_eq!(floor.on_period(period(240.0, 82.0), 1e3), Some(192.0));
        assert_eq!(floor.on_period(period(192.0, 80.0), 1e3), Some(240.0));
        assert_eq!(floor.bytes_s, 240.0);
    }

    #[test]
    fn a_host_that_reads_slowly_all_the_time_has_no_floor_and_few_trials() {
        let mut floor = Floor::default();
        assert_eq!(floor.on_period(period(101.0, 100.0), 1e3), Some(303.0));
        assert_eq!(floor.on_period(period(303.0, 100.0), 1e3), Some(101.0));
        assert_eq!(floor.bytes_s, 0.0);
        for _ in 1..WAIT {
            assert_eq!(floor.on_period(period(101.0, 100.0), 1e3), None);
        }
        assert_eq!(floor.on_period(period(100.0, 100.0), 1e3), None, "it lost nothing");
        assert_eq!(floor.on_period(period(101.0, 100.0), 1e3), Some(303.0));
    }

    #[test]
    fn a_cap_that_sinks_with_what_it_lets_through_goes_back_to_where_more_came() {
        let mut floor = Floor::default();
        // It reads seven eighths of the time, and the controller allows 300: a trial that begins near that shows nothing.
        assert_eq!(floor.on_period(period(250.0, 218.0), 300.0), Some(750.0));
        assert_eq!(floor.on_period(period(280.0, 220.0), 300.0), Some(250.0));
        let mut cap = 250.0;
        for _ in 0..5 {
            cap *= 0.95;
            if let Some(rate) = floor.on_period(period(cap, 0.87 * cap), 300.0) {
                assert_eq!(rate, 250.0);
                assert_eq!(floor.on_period(period(250.0, 219.0), 300.0), None);
                assert_eq!(floor.bytes_s, 250.0, "there it stays");
                return;
            }
        }
        panic!("it sinks");
    }

    #[test]
    fn a_host_that_became_slower_is_tried_once() {
        let mut floor = Floor { wait: WAIT, ..Floor::default() };
        assert_eq!(floor.on_period(period(202.0, 200.0), 1e3), None);
        assert_eq!(floor.on_period(period(101.0, 100.0), 1e3), Some(202.0), "more came then");
        assert_eq!(floor.on_period(period(202.0, 100.0), 1e3), Some(101.0));
        for _ in 0..100 {
            assert_eq!(floor.on_period(period(101.0, 100.0), 1e3), None);
        }
        assert_eq!(floor.bytes_s, 0.0);
    }
}
