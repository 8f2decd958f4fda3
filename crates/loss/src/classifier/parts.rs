//! Which gaps are judged together, by what is known of each.

use super::pattern::Known;
use crate::{Evidence, Gap, GapEvidence};

/// Delay from which a queue stood before the loss (s): before the losses of the open signatures' hosts it is 80 µs at the most, and before those of
/// their queues 260 µs at the least.
pub(crate) const QUEUE_DELAY_S: f64 = 150e-6;

/// What a gap's own evidence says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The socket dropped packets in it.
    Host,
    /// The socket's counter did not rise over it.
    Network,
    /// A queue was full, or nearly, or marks say so.
    Delayed,
    /// Nothing of these.
    Rest,
}

/// By what gaps are parted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    is_counted: bool,
    /// Delay from which a gap is [`Part::Delayed`] (s).
    delayed_s: f64,
    has_delays: bool,
    has_marks: bool,
}

impl Parts {
    /// `is_counted`: the socket's counts are believed.
    pub(crate) fn of(gaps: impl Iterator<Item = (Gap, GapEvidence)>, is_counted: bool) -> Self {
        let mut parts = Self { is_counted, delayed_s: QUEUE_DELAY_S, has_delays: false, has_marks: false };
        for (_, known) in gaps {
            if let Some(delay) = delay_of(known.delay_s) {
                parts.has_delays = true;
                // Near the largest that was seen: a queue that drops is full.
                parts.delayed_s = parts.delayed_s.max(delay / 2.0);
            }
            parts.has_marks |= known.is_marked.is_some();
        }
        parts
    }

    pub(crate) fn of_gap(&self, known: &GapEvidence) -> Part {
        let is_delayed = delay_of(known.delay_s).is_some_and(|delay| delay >= self.delayed_s);
        match known.host_drops {
            Some(0) if self.is_counted => Part::Network,
            Some(_) if self.is_counted => Part::Host,
            _ if is_delayed || known.is_marked == Some(true) => Part::Delayed,
            _ => Part::Rest,
        }
    }

    /// Whether there can be gaps of this part.
    pub(crate) fn may_have(&self, part: Part) -> bool {
        part != Part::Delayed || self.has_delays || self.has_marks
    }

    /// What is known of a part as a whole; delay and marks of the window where no gap has any.
    pub(crate) fn known(&self, part: Part, delay: MeanDelay, window: &Evidence) -> Known {
        let mut known = Known::of(window);
        if self.has_marks {
            known.is_marked = part == Part::Delayed;
        }
        if self.has_delays {
            known.delay_s = delay.mean_s();
        }
        known
    }
}

/// Adds up the delay before gaps, in the mean over losses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MeanDelay {
    lost: f64,
    sum_s: f64,
}

/// Adds up what is known of gaps, to be known of them as one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfGaps {
    delay: MeanDelay,
    /// Losses in gaps that were marked, and in those that were not.
    marked: u32,
    unmarked: u32,
}

impl OfGaps {
    pub(crate) fn add(&mut self, gap: Gap, known: &GapEvidence) {
        self.delay.add(gap, known);
        match known.is_marked {
            Some(true) => self.marked += gap.lost,
            Some(false) => self.unmarked += gap.lost,
            None => {}
        }
    }

    /// Delay and marks of the window where no gap has any; marked is what most of the losses are.
    pub(crate) fn known(&self, window: Known) -> Known {
        Known {
            burst: window.burst,
            delay_s: self.delay.mean_s().or(window.delay_s),
            is_marked: if self.marked + self.unmarked == 0 {
                window.is_marked
            } else {
                self.marked > self.unmarked
            },
        }
    }
}

impl MeanDelay {
    /// `None` where no gap had a delay.
    fn mean_s(&self) -> Option<f64> {
        (self.lost > 0.0).then(|| self.sum_s / self.lost)
    }

    pub(crate) fn add(&mut self, gap: Gap, known: &GapEvidence) {
        if let Some(delay) = delay_of(known.delay_s) {
            self.lost += f64::from(gap.lost);
            self.sum_s += f64::from(gap.lost) * delay;
        }
    }
}

impl Known {
    /// Of a window; what is not possible is not known.
    pub(crate) fn of(evidence: &Evidence) -> Self {
        Self {
            burst: evidence.burst.filter(|burst| *burst > 0),
            delay_s: delay_of(evidence.delay_s),
            is_marked: evidence.marks > Some(0),
        }
    }

    /// The same but for what tells of queues.
    pub(crate) fn without_queue(self) -> Self {
        Self { burst: self.burst, ..Self::default() }
    }

    /// Whether a queue is known to have stood before the losses.
    pub(crate) fn has_queue(&self) -> bool {
        self.is_marked || self.delay_s.is_some_and(|delay| delay >= QUEUE_DELAY_S)
    }
}

/// A delay that can be one; clocks that were set make small negative ones.
fn delay_of(delay_s: Option<f64>) -> Option<f64> {
    delay_s.filter(|delay| delay.is_finite()).map(|delay| delay.max(0.0))
}

/// Gaps without what is known of them.
pub(crate) fn gaps_only<E>(gaps: impl Iterator<Item = (Gap, E)>) -> impl Iterator<Item = Gap> {
    gaps.map(|(gap, _)| gap)
}
