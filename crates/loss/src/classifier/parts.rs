//! Division of gaps into parts by their own evidence.

use super::pattern::Known;
use crate::{Evidence, Gap, GapEvidence};

/// One-way delay from which a queue counts as present before the losses, s. In the open signatures
/// it is at most 83 µs for losses of the host over an idle path, and at least 268 µs for losses of
/// a queue.
pub(crate) const QUEUE_DELAY_S: f64 = 150e-6;

/// Part of a gap, by its own evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The socket dropped packets in the gap.
    Host,
    /// The socket's counter did not increase over the gap.
    Network,
    /// The delay or marks show a full queue, or one that is nearly full.
    Delayed,
    /// None of these applies.
    Rest,
}

/// Rules that assign gaps to parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    is_counted: bool,
    /// Delay from which a gap is [`Part::Delayed`], s.
    delayed_s: f64,
    has_delays: bool,
    has_marks: bool,
}

impl Parts {
    /// Creates the rules. `is_counted` states whether the socket's counts are believed.
    pub(crate) fn of(gaps: impl Iterator<Item = (Gap, GapEvidence)>, is_counted: bool) -> Self {
        let mut parts = Self { is_counted, delayed_s: QUEUE_DELAY_S, has_delays: false, has_marks: false };
        for (_, known) in gaps {
            if let Some(delay) = delay_of(known.delay_s) {
                parts.has_delays = true;
                // The limit is at least half the largest delay, because a queue that drops packets
                // is full.
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

    /// Whether any gap can be in this part.
    pub(crate) fn may_have(&self, part: Part) -> bool {
        part != Part::Delayed || self.has_delays || self.has_marks
    }

    /// Evidence on a part as a whole. If no gap has a delay, that of the window is used; likewise
    /// for marks.
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

/// Mean of the delay before gaps, weighted by losses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MeanDelay {
    lost: f64,
    sum_s: f64,
}

/// Combined evidence on several gaps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfGaps {
    delay: MeanDelay,
    /// Losses in gaps with marks, and in gaps without.
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

    /// Returns the combined evidence. If no gap has a delay, that of the window is used; likewise
    /// for marks. The gaps count as marked if most of their losses are in marked gaps.
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
    /// Mean delay, s; `None` if no gap had a delay.
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
    /// Evidence on a window, without impossible values.
    pub(crate) fn of(evidence: &Evidence) -> Self {
        Self {
            burst: evidence.burst.filter(|burst| *burst > 0),
            delay_s: delay_of(evidence.delay_s),
            is_marked: evidence.marks > Some(0),
        }
    }

    /// Returns the evidence without delay and marks.
    pub(crate) fn without_queue(self) -> Self {
        Self { burst: self.burst, ..Self::default() }
    }

    /// Whether the evidence shows a queue before the losses.
    pub(crate) fn has_queue(&self) -> bool {
        self.is_marked || self.delay_s.is_some_and(|delay| delay >= QUEUE_DELAY_S)
    }
}

/// Returns a valid delay. Adjustments of clocks make small negative delays, which become 0.
fn delay_of(delay_s: Option<f64>) -> Option<f64> {
    delay_s.filter(|delay| delay.is_finite()).map(|delay| delay.max(0.0))
}

/// Removes the evidence from gaps.
pub(crate) fn gaps_only<E>(gaps: impl Iterator<Item = (Gap, E)>) -> impl Iterator<Item = Gap> {
    gaps.map(|(gap, _)| gap)
}
