//! Rates of packet trains to one peer, and their changes.

use std::collections::VecDeque;

/// The rates of the newest trains (bit/s). Rates are compared only with rates of other trains: a
/// train shows the capacity of the path, which is not its goodput.
#[derive(Debug, Default)]
pub(super) struct TrainHistory {
    /// Rates that are not suspected, oldest first.
    rates: VecDeque<f64>,
    /// The last train, if its rate was outside the range of the trains before it.
    suspect: Option<(Direction, f64)>,
}

/// What a train shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrainChange {
    /// The rate is within the range of earlier trains, or too few trains are known.
    None,
    /// The rate is outside the range. One more train must confirm it.
    Suspected,
    /// Two trains in a row are outside the range on the same side.
    Confirmed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Fall,
    Rise,
}

impl TrainHistory {
    /// Adds a train with a rate that is finite and above 0.
    pub(super) fn push(&mut self, rate: f64) -> TrainChange {
        match (self.suspect.take(), self.direction(rate)) {
            (Some((before, first)), Some(now)) if before == now => {
                // The path is another one.
                self.rates.clear();
                self.rates.extend([first, rate]);
                TrainChange::Confirmed
            }
            (before, now) => {
                // An outlier widens the range, so a noisy path seldom raises a suspicion.
                if let Some((_, outlier)) = before {
                    self.keep(outlier);
                }
                self.suspect = now.map(|direction| (direction, rate));
                match now {
                    Some(_) => TrainChange::Suspected,
                    None => {
                        self.keep(rate);
                        TrainChange::None
                    }
                }
            }
        }
    }

    /// Whether enough trains are known to see a change.
    pub(super) fn is_known(&self) -> bool {
        TRAINS_MIN <= self.rates.len()
    }

    /// On which side of the range of earlier trains the rate is. The range goes from the second
    /// lowest to the second highest rate, so one outlier does not hide a change.
    fn direction(&self, rate: f64) -> Option<Direction> {
        if !self.is_known() {
            return None;
        }
        let mut sorted: Vec<f64> = self.rates.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (low, high) = (sorted[1], sorted[sorted.len() - 2]);
        if rate * FACTOR < low {
            Some(Direction::Fall)
        } else {
            (rate > high * FACTOR).then_some(Direction::Rise)
        }
    }

    fn keep(&mut self, rate: f64) {
        if self.rates.len() == TRAINS_MAX {
            self.rates.pop_front();
        }
        self.rates.push_back(rate);
    }
}

/// Number of trains that a change is compared with, at least. Below five, the second lowest and the
/// second highest rate would be the median, or next to it.
const TRAINS_MIN: usize = 5;

/// Number of trains that are compared, at most: those of the last five minutes with up to five
/// peers.
const TRAINS_MAX: usize = 15;

/// Factor by which a rate must be outside the range. On a quiet path the range is narrow, and a
/// fall to two thirds changes the time of a transfer by half.
const FACTOR: f64 = 1.5;
