//! Takes back the response to losses that were the host's (BBR §5.5.10.3,
//! BBRHandleSpuriousLossDetection).

use super::ModelController;
use super::bandwidth::FullBandwidthDetector;
use super::state::State;
use crate::proto::controller::{DetectedLossRun, FeedbackSample};

/// State before the first of the losses that are counted.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// Number of lost packets since the last bandwidth probe that were not taken back.
    lost: u64,
    /// Position of the first of these packets.
    lost_from: u64,
    before: Option<Before>,
}

#[derive(Clone, Copy, Debug)]
struct Before {
    state: State,
    full_pipe: FullBandwidthDetector,
    bandwidth_lo: f64,
    inflight_lo: f64,
    inflight_hi: f64,
}

impl Undo {
    /// Forgets all losses: a bandwidth probe measures anew what the path carries.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Removes runs from the losses that are counted. Runs before these losses only move their
    /// positions.
    fn take_back(&mut self, runs: &[DetectedLossRun]) {
        for run in runs {
            let packets = u64::from(run.packets);
            if run.at < self.lost_from {
                self.lost_from = self.lost_from.saturating_sub(packets);
            } else {
                self.lost = self.lost.saturating_sub(packets);
            }
        }
    }
}

impl ModelController {
    /// Keeps the state before the first losses.
    pub(super) fn remember(&mut self, seen: &FeedbackSample<'_>) {
        let lost: u64 = seen.losses.iter().map(|loss| u64::from(loss.packets)).sum();
        if lost > 0 && self.undo.lost == 0 {
            self.undo.lost_from = seen.losses.first().map_or(0, |loss| loss.at);
            self.undo.before = Some(Before {
                state: self.state,
                full_pipe: self.full_pipe,
                bandwidth_lo: self.bandwidth.short_term(),
                inflight_lo: self.inflight_lo,
                inflight_hi: self.inflight_hi,
            });
        }
        self.undo.lost = self.undo.lost.saturating_add(lost);
    }

    /// Takes back losses. If all losses since the last probe are taken back, the limits that they
    /// lowered are restored, and Startup continues if they ended it.
    pub(super) fn take_back(&mut self, seen: &FeedbackSample<'_>) {
        if seen.taken_back.is_empty() {
            return;
        }
        self.round.take_back(seen.taken_back);
        self.undo.take_back(seen.taken_back);
        if self.undo.lost > 0 {
            return;
        }
        let Some(before) = self.undo.before.take() else { return };
        self.bandwidth.raise_short_term(before.bandwidth_lo);
        self.inflight_lo = self.inflight_lo.max(before.inflight_lo);
        self.inflight_hi = self.inflight_hi.max(before.inflight_hi);
        if before.state == State::Startup && !matches!(self.state, State::Startup | State::ProbeRtt { .. }) {
            self.full_pipe = before.full_pipe;
            self.state = State::Startup;
        }
    }
}
