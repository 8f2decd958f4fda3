//! Grouping of gaps by their own evidence.

use super::pattern::KnownEvidence;
use crate::metrics::RunSums;
use crate::{Evidence, GapEvidence, LossRun};

/// Smallest one-way delay just before the losses, in seconds, at which a queue counts as present.
/// In the open signatures this delay is at most 83 µs for losses of the host over an idle path, and
/// at least 268 µs for losses of a queue.
pub(crate) const QUEUE_DELAY_S: f64 = 150e-6;

/// Group of a gap, according to the evidence on this gap alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GapGroup {
    /// The socket dropped packets in the gap.
    Host,
    /// The socket's counter did not increase over the gap.
    Network,
    /// The delay or the marks show that a queue was full or nearly full.
    Delayed,
    /// No other group matches the evidence on the gap.
    Rest,
}

/// Rules that assign gaps to groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GapGrouping {
    is_counted: bool,
    /// Delay from which a gap is [`GapGroup::Delayed`], s.
    delayed_s: f64,
    has_delays: bool,
    has_marks: bool,
}

impl GapGrouping {
    /// Creates the rules. `is_counted` states whether the socket's counts are believed.
    pub(crate) fn of(gaps: impl Iterator<Item = (LossRun, GapEvidence)>, is_counted: bool) -> Self {
        let mut grouping = Self { is_counted, delayed_s: QUEUE_DELAY_S, has_delays: false, has_marks: false };
        for (_, known) in gaps {
            if let Some(delay) = delay_of(known.delay_s) {
                grouping.has_delays = true;
                // The limit is at least half the largest delay. A queue that drops packets is full,
                // so the delay of its packets is close to the largest delay.
                grouping.delayed_s = grouping.delayed_s.max(delay / 2.0);
            }
            grouping.has_marks |= known.is_marked.is_some();
        }
        grouping
    }

    pub(crate) fn of_gap(&self, known: &GapEvidence) -> GapGroup {
        let is_delayed = delay_of(known.delay_s).is_some_and(|delay| delay >= self.delayed_s);
        match known.host_drops {
            Some(0) if self.is_counted => GapGroup::Network,
            Some(_) if self.is_counted => GapGroup::Host,
            _ if is_delayed || known.is_marked == Some(true) => GapGroup::Delayed,
            _ => GapGroup::Rest,
        }
    }

    /// Sums over the gaps of the groups [`GapGroup::Delayed`] and [`GapGroup::Rest`].
    pub(crate) fn sums(&self, gaps: impl Iterator<Item = (LossRun, GapEvidence)>) -> [GroupSums; 2] {
        let mut sums = [GroupSums::default(); 2];
        for (gap, known) in gaps {
            let group = self.of_gap(&known);
            for (sums, summed) in sums.iter_mut().zip([GapGroup::Delayed, GapGroup::Rest]) {
                if group == summed {
                    sums.add(gap, &known);
                } else {
                    sums.received += gap.received + gap.lost;
                }
            }
        }
        sums
    }

    /// Evidence on a group as a whole. If no gap has a delay, the delay of the window is used. If
    /// the marks of all gaps are unknown, the marks of the window are used.
    pub(crate) fn known(&self, group: GapGroup, delay: MeanDelay, window: &Evidence) -> KnownEvidence {
        let mut known = KnownEvidence::of(window);
        if self.has_marks {
            known.is_marked = group == GapGroup::Delayed;
        }
        if self.has_delays {
            known.delay_s = delay.mean_s();
        }
        known
    }
}

/// Sums over the gaps of a group. The packets of other gaps count as received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupSums {
    pub(crate) runs: RunSums,
    pub(crate) delay: MeanDelay,
    /// Packets since the last gap of the group.
    received: u32,
}

impl GroupSums {
    fn add(&mut self, gap: LossRun, known: &GapEvidence) {
        let received = std::mem::take(&mut self.received) + gap.received;
        self.runs.add(LossRun { received, lost: gap.lost });
        self.delay.add(gap, known);
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
pub(crate) struct CombinedEvidence {
    delay: MeanDelay,
    /// Number of losses in gaps with marks.
    marked: u32,
    /// Number of losses in gaps without marks.
    unmarked: u32,
}

impl CombinedEvidence {
    pub(crate) fn add(&mut self, gap: LossRun, known: &GapEvidence) {
        self.delay.add(gap, known);
        match known.is_marked {
            Some(true) => self.marked += gap.lost,
            Some(false) => self.unmarked += gap.lost,
            None => {}
        }
    }

    /// Returns the combined evidence. If no gap has a delay, the delay of the window is used. If
    /// the marks of all gaps are unknown, the marks of the window are used. The gaps count as
    /// marked if most of their losses are in marked gaps.
    pub(crate) fn known(&self, window: KnownEvidence) -> KnownEvidence {
        KnownEvidence {
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

    pub(crate) fn add(&mut self, gap: LossRun, known: &GapEvidence) {
        if let Some(delay) = delay_of(known.delay_s) {
            self.lost += f64::from(gap.lost);
            self.sum_s += f64::from(gap.lost) * delay;
        }
    }
}

impl KnownEvidence {
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
pub(crate) fn without_evidence<E>(gaps: impl Iterator<Item = (LossRun, E)>) -> impl Iterator<Item = LossRun> {
    gaps.map(|(gap, _)| gap)
}
