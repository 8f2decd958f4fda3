//! Decides whether a lower cap reduces goodput by more than the losses that it avoids.

/// Lower limit of the cap.
///
/// If a host always reads slowly, a lower rate means fewer losses, down to none at some rate, which
/// is the right cap. A host that pauses and then reads fast loses the packets that arrive during
/// the pause and do not fit its buffer. Such a host loses nearly the same share of the packets at
/// any rate. For this host a lower rate only moves less data, and each new cap, which is set to the
/// delivered rate, is lower than the previous one.
///
/// Two observations distinguish these hosts: what a higher rate delivered before, and what a much
/// higher rate delivers in a trial. If the higher rate delivers clearly more, it is kept. Then the
/// floor is lowered step by step to the lowest rate that delivers as much.
#[derive(Debug, Default)]
pub(super) struct Floor {
    /// Floor in bytes a second; 0 if there is none.
    pub(super) bytes_s: f64,
    /// The rate with the highest goodput so far, and this goodput.
    best: Option<GoodputPoint>,
    trial: Option<RateTrial>,
    /// Whether the next trial tries a lower rate.
    is_down: bool,
    /// Number of periods until the next trial may begin.
    wait: u32,
}

#[derive(Clone, Copy, Debug)]
struct RateTrial {
    before: Period,
    floor_bytes_s: f64,
    is_down: bool,
}

/// Goodput at an offered rate (both bytes a second), averaged over some periods.
#[derive(Clone, Copy, Debug)]
struct GoodputPoint {
    offered: f64,
    goodput: f64,
}

/// What was measured in one period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    /// Mean allowed rate in bytes a second.
    pub(super) offered: f64,
    /// Acknowledged bytes a second, headers included.
    pub(super) goodput: f64,
    /// Host losses as a share of all bytes that were acknowledged or lost by the host (0 to 1).
    pub(super) lost_share: f64,
}

impl Floor {
    /// Length of a period (s). A period lasts at least ten periods of a CPU quota, so that one
    /// quota period more or less changes the result by only a tenth. A period also lasts at least
    /// eight round trips, because the first round trip acknowledges packets that were sent before
    /// the period.
    pub(super) fn period_s(round_trip_s: f64) -> f64 {
        (8.0 * round_trip_s).max(10.0 * super::QUOTA_S)
    }

    /// Ends a period. `most` is the controller's rate without a cap. Returns the new cap if a trial
    /// begins or has failed.
    pub(super) fn on_period(&mut self, period: Period, most: f64) -> Option<f64> {
        self.wait = self.wait.saturating_sub(if period.lost_share > WASTE { WASTE_WEIGHT } else { 1 });
        if let Some(trial) = self.trial.take() {
            if !self.is_better(trial, period) {
                if !trial.is_down {
                    // A higher rate no longer delivers more, so the old best is out of date.
                    self.best =
                        Some(GoodputPoint { offered: trial.before.offered, goodput: trial.before.goodput });
                }
                self.bytes_s = trial.floor_bytes_s;
                self.is_down = !trial.is_down && self.bytes_s > 0.0;
                self.wait = WAIT;
                return Some(trial.before.offered);
            }
            if !trial.is_down {
                self.best = None;
            }
        }
        let best = self.update_best(period);
        if period.lost_share <= 0.0 {
            return None;
        }
        let back = best.offered.min(most);
        if period.goodput < KEPT_MIN * best.goodput && RATE_TOLERANCE * period.offered < back {
            // The best rate delivered more, although the host already lost packets at this rate.
            // Try the best rate again.
            return Some(self.try_rate(period, back, false));
        }
        let is_down = self.is_down && self.bytes_s > 0.0;
        let next = period.offered * if is_down { DOWN } else { UP };
        let is_other = is_down || RATE_TOLERANCE * period.offered < most;
        (self.wait == 0 && is_other).then(|| self.try_rate(period, next, is_down))
    }

    fn is_better(&self, trial: RateTrial, after: Period) -> bool {
        if trial.is_down {
            return self.best.is_none_or(|best| KEPT_MIN * best.goodput <= after.goodput);
        }
        let higher = (after.offered / trial.before.offered - 1.0).max(0.0);
        (1.0 + (GROWTH_EACH * higher).min(GROWTH_MIN)) * trial.before.goodput < after.goodput
    }

    fn try_rate(&mut self, before: Period, rate: f64, is_down: bool) -> f64 {
        self.is_down = is_down;
        self.trial = Some(RateTrial { before, floor_bytes_s: self.bytes_s, is_down });
        self.bytes_s = rate;
        rate
    }

    /// Updates the best rate and its goodput with this period, and returns both. The goodput at one
    /// rate is a mean: later periods would never reach the maximum of many random values.
    fn update_best(&mut self, period: Period) -> GoodputPoint {
        let now = GoodputPoint { offered: period.offered, goodput: period.goodput };
        let best = match self.best {
            Some(best) if best.offered <= RATE_TOLERANCE * now.offered => {
                let is_higher = RATE_TOLERANCE * best.offered < now.offered;
                if is_higher && best.goodput < now.goodput {
                    now
                } else {
                    let goodput = best.goodput + NEWEST * (now.goodput - best.goodput);
                    GoodputPoint { goodput, ..best }
                }
            }
            Some(best) if now.goodput <= best.goodput => best,
            _ => now,
        };
        *self.best.insert(best)
    }
}

/// Factor on the rate in an upward trial. A smaller factor may show nothing: the additional packets
/// may only fill a buffer while the host does not read.
const UP: f64 = 3.0;

/// Factor on the rate in a downward trial.
const DOWN: f64 = 0.8;

/// A higher rate is kept only if goodput grows by this share, which is more than a tenth: one quota
/// period can add a tenth by chance. If the controller allows only a slightly higher rate, goodput
/// must grow by half as much as the rate.
const GROWTH_MIN: f64 = 0.15;
const GROWTH_EACH: f64 = 0.5;

/// A lower rate counts as equally good if its goodput is at least this share of the best goodput.
/// One quota period can remove a tenth by chance.
const KEPT_MIN: f64 = 0.9;

/// Rates within this factor count as equal: a cap can change by this factor within one period.
const RATE_TOLERANCE: f64 = 1.1;

/// Weight of the newest period in the mean goodput at a rate. The mean covers about the last four
/// periods.
const NEWEST: f64 = 0.25;

/// Number of periods between a failed trial and the next trial. If a host always reads slowly, a
/// trial wastes twice what the host reads in one period: 0.4 % of what it reads in this many
/// periods.
const WAIT: u32 = 480;

/// A period that wastes more than a share of [`WASTE`] of its bytes counts as this many periods of
/// [`WAIT`]. In such a period, a trial costs little in comparison.
const WASTE_WEIGHT: u32 = 24;
const WASTE: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    fn period(offered: f64, goodput: f64) -> Period {
        Period { offered, goodput, lost_share: 1.0 - goodput / offered }
    }

    #[test]
    fn the_floor_rises_while_more_arrives_then_seeks_the_lowest_such_rate() {
        let mut floor = Floor::default();
        assert_eq!(floor.on_period(period(100.0, 30.0), 1e3), Some(300.0));
        assert_eq!(floor.on_period(period(300.0, 90.0), 1e3), Some(900.0));
        assert_eq!(floor.on_period(period(900.0, 92.0), 1e3), Some(300.0));
        // Before, 70 % of the bytes were lost, so a lower rate is tried soon. The lower rate
        // delivers as much; the next lower rate does not.
        for _ in 1..WAIT / WASTE_WEIGHT {
            assert_eq!(floor.on_period(period(300.0, 90.0), 1e3), None);
        }
        assert_eq!(floor.on_period(period(300.0, 90.0), 1e3), Some(240.0));
        assert_eq!(floor.on_period(period(240.0, 82.0), 1e3), Some(192.0));
        assert_eq!(floor.on_period(period(192.0, 80.0), 1e3), Some(240.0));
        assert_eq!(floor.bytes_s, 240.0);
    }

    #[test]
    fn a_constantly_slow_host_has_no_floor_and_few_trials() {
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
    fn a_sinking_cap_returns_to_the_rate_at_which_more_arrived() {
        let mut floor = Floor::default();
        // The host reads seven eighths of the time, and the controller allows a rate of 300 bytes a
        // second: a trial that begins near this rate shows nothing.
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
    fn a_host_that_became_slower_gets_one_trial() {
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
