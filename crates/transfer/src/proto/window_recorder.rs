//! Labelled windows of a transfer, from which the host's own model is learned.

use std::collections::VecDeque;

use barograph_loss::{Evidence, Label, LabelledWindow, Meter, Signature};

use super::{LossAttributor, UnattributedLoss};
use crate::proto::wire::GapReport;

/// Cuts the packets of a transfer into windows, and labels each by the receiver's counter.
///
/// A window is recorded if it has losses, if the counter is known for all of them, and if a claim
/// of host losses has no queue beside it. With a queue, no model names the host, whatever it
/// learned. The pattern is not checked, because a model is learned where patterns differ. So a
/// receiver that lies can teach the sender to believe it.
///
/// Packets are identified by their index, as in [`LossAttributor`].
#[derive(Debug, Default)]
pub(super) struct WindowRecorder {
    /// Runs of lost packets, in order.
    runs: VecDeque<ObservedRun>,
    /// The next window begins here or later.
    start: u64,
    meter: Meter,
    /// Windows that the caller did not take yet.
    ready: VecDeque<LabelledWindow>,
}

#[derive(Clone, Copy, Debug)]
struct ObservedRun {
    index: u64,
    packets: u32,
    /// Number of packets that the sender sent in one burst when the loss was detected.
    burst: u32,
    evidence: GapReport,
}

impl ObservedRun {
    fn end(&self) -> u64 {
        self.index + u64::from(self.packets)
    }
}

impl WindowRecorder {
    /// Adds a run of packets that was declared lost. Runs must be added in ascending order.
    pub(super) fn lose(&mut self, missing: &UnattributedLoss, burst: u32) {
        let UnattributedLoss { index, packets, evidence, .. } = *missing;
        match self.runs.back_mut() {
            Some(last) if last.end() == index && last.evidence == evidence => {
                last.packets = last.packets.saturating_add(packets);
            }
            _ => self.runs.push_back(ObservedRun { index, packets, burst, evidence }),
        }
    }

    /// Records that a packet arrived after it was declared lost.
    pub(super) fn ack_lost(&mut self, index: u64) {
        let at = self.runs.partition_point(|run| run.end() <= index);
        let Some(run) = self.runs.get_mut(at).filter(|run| run.index <= index) else { return };
        // Both parts are shorter than the run, so the casts lose nothing.
        let (before, after) = ((index - run.index) as u32, (run.end() - index - 1) as u32);
        let behind = ObservedRun { index: index + 1, packets: after, ..*run };
        run.packets = before;
        match (before, after) {
            (0, 0) => drop(self.runs.remove(at)),
            (0, _) => *run = behind,
            (_, 0) => {}
            _ => self.runs.insert(at + 1, behind),
        }
    }

    /// Cuts the windows that are complete. Packets below `settled` arrived or were declared lost.
    pub(super) fn settle(&mut self, settled: u64) {
        // Packets that were declared lost may still arrive for a while.
        self.cut_to(settled.saturating_sub(LATE_PACKETS));
    }

    /// Cuts the last windows, after all packets below `settled` were settled and none can arrive.
    pub(super) fn finish(&mut self, settled: u64) {
        self.cut_to(settled);
    }

    /// Returns the oldest window that was not returned before.
    pub(super) fn poll(&mut self) -> Option<LabelledWindow> {
        self.ready.pop_front()
    }

    fn cut_to(&mut self, limit: u64) {
        loop {
            let start = self.next_start();
            let end = start + LossAttributor::WINDOW_PACKETS;
            if limit < end {
                return;
            }
            let window = self.window(start);
            self.start = end;
            while self.runs.front().is_some_and(|run| run.end() <= end) {
                self.runs.pop_front();
            }
            if self.ready.len() < READY_MAX {
                self.ready.extend(window);
            }
        }
    }

    /// First index at or after `start` at which a window cuts no run at either end. A model must
    /// not learn a run that was cut.
    fn next_start(&self) -> u64 {
        let mut start = self.start;
        loop {
            if let Some(cut) = self.cut_by(start) {
                start = cut;
            } else if let Some(cut) = self.cut_by(start + LossAttributor::WINDOW_PACKETS) {
                start = cut - LossAttributor::WINDOW_PACKETS;
            } else {
                return start;
            }
        }
    }

    /// End of the run that a cut before the packet `index` would divide. Adjacent runs with
    /// different evidence are one run.
    fn cut_by(&self, index: u64) -> Option<u64> {
        let at = self.runs.partition_point(|run| run.end() <= index);
        let run = self.runs.get(at)?;
        let touches = at > 0 && self.runs.get(at - 1).is_some_and(|before| before.end() == index);
        (run.index < index || (run.index == index && touches)).then(|| run.end())
    }

    /// The window that begins at `start`, unless it has no losses or no reliable label.
    fn window(&mut self, start: u64) -> Option<LabelledWindow> {
        let end = start + LossAttributor::WINDOW_PACKETS;
        let from = self.runs.partition_point(|run| run.end() <= start);
        let mut signature = Signature::new();
        let (mut totals, mut at) = (Totals::default(), start);
        for run in self.runs.range(from..).take_while(|run| run.index < end) {
            let received = u32::try_from(run.index - at).ok()?;
            signature.push_received(received).and_then(|()| signature.push_lost(run.packets)).ok()?;
            totals.add(run)?;
            at = run.end();
        }
        signature.push_received(u32::try_from(end.checked_sub(at)?).ok()?).ok()?;
        let (cause, evidence) = (totals.cause()?, totals.evidence());
        let has_queue = evidence.marks > Some(0) || evidence.delay_s >= Some(QUEUE_DELAY_S);
        if has_queue && cause != Label::Network {
            return None;
        }
        let metrics = self.meter.measure(&signature);
        let (kind, run) = (KIND.to_owned(), String::new());
        Some(LabelledWindow { signature, metrics, evidence, cause, kind, run })
    }
}

/// Sums over the runs of a window.
#[derive(Default)]
struct Totals {
    host: u32,
    network: u32,
    burst: u32,
    /// Sum of the delays before the losses (µs), and the number of losses with a known delay.
    delay_us: f64,
    delayed: u32,
    /// Number of gaps beside a mark; `None` if marks are not known.
    marks: Option<u32>,
}

impl Totals {
    /// Adds a run; `None` if the counter is not known for it.
    fn add(&mut self, run: &ObservedRun) -> Option<()> {
        let of_cause = if run.evidence.host_drops? { &mut self.host } else { &mut self.network };
        *of_cause += run.packets;
        self.burst = self.burst.max(run.burst);
        if let Some(delay_us) = run.evidence.delay_us {
            self.delay_us += f64::from(delay_us) * f64::from(run.packets);
            self.delayed += run.packets;
        }
        if let Some(is_marked) = run.evidence.is_marked {
            self.marks = Some(self.marks.unwrap_or(0) + u32::from(is_marked));
        }
        Some(())
    }

    /// Cause of the losses by the counter; `None` without losses.
    fn cause(&self) -> Option<Label> {
        match (self.host, self.network) {
            (0, 0) => None,
            (_, 0) => Some(Label::Host),
            (0, _) => Some(Label::Network),
            _ => Some(Label::Both),
        }
    }

    fn evidence(&self) -> Evidence {
        Evidence {
            burst: Some(self.burst.max(1)),
            delay_s: (self.delayed > 0).then(|| self.delay_us / f64::from(self.delayed) / 1e6),
            host_drops: Some(self.host),
            marks: self.marks,
        }
    }
}

/// Kind of the windows of a transfer, in contrast to those of experiments.
const KIND: &str = "observed";
/// One-way delay before the losses, in s, from which no pattern names the host: 4 ms
/// (docs/spec/classify.md, "Limits on `cpu`").
const QUEUE_DELAY_S: f64 = 4e-3;
/// Number of settled packets after a window until it is cut: a tenth of a window. Packets that
/// arrive later, after they were declared lost, count as lost.
const LATE_PACKETS: u64 = LossAttributor::WINDOW_PACKETS / 10;
/// Largest number of windows that wait for the caller. A single call can complete 13 windows,
/// because a sender keeps at most 2^18 packets.
const READY_MAX: usize = 64;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use rangemap::RangeSet;

    use super::*;
    use crate::proto::controller::FeedbackSample;
    use crate::proto::wire::{AckRange, Feedback};
    use crate::proto::{Controller, LossClassification, Packet, Sender, SenderConfig};

    const N: u64 = LossAttributor::WINDOW_PACKETS;

    fn loss(index: u64, packets: u32, host_drops: Option<bool>) -> UnattributedLoss {
        let evidence = GapReport { host_drops, is_marked: Some(false), delay_us: Some(20) };
        let (bytes, sent, in_flight_bytes) = (0, Duration::ZERO, 0);
        UnattributedLoss { index, packets, bytes, sent, in_flight_bytes, evidence }
    }

    /// Runs of the windows of a transfer of `packets` packets with these losses.
    fn windows(packets: u64, losses: &[UnattributedLoss]) -> Vec<(Label, Vec<[u32; 2]>)> {
        let mut recorder = WindowRecorder::default();
        losses.iter().for_each(|loss| recorder.lose(loss, 16));
        recorder.finish(packets);
        let windows = std::iter::from_fn(|| recorder.poll());
        windows
            .map(|window| {
                assert_eq!(u64::from(window.signature.packets()), N);
                assert_eq!((window.evidence.burst, window.evidence.delay_s), (Some(16), Some(20e-6)));
                (window.cause, window.signature.loss_runs().map(|run| [run.received, run.lost]).collect())
            })
            .collect()
    }

    #[test]
    fn windows_are_labelled_by_the_receivers_counter() {
        let host = [loss(3000, 90, Some(true)), loss(9000, 60, Some(true))];
        assert_eq!(windows(N, &host), [(Label::Host, vec![[3000, 90], [5910, 60]])]);
        let network = [loss(5, 1, Some(false)), loss(900, 1, Some(false))];
        assert_eq!(windows(N, &network), [(Label::Network, vec![[5, 1], [894, 1]])]);
        let both = [loss(5, 1, Some(false)), loss(900, 80, Some(true))];
        assert_eq!(windows(N, &both)[0].0, Label::Both);
    }

    #[test]
    fn a_window_without_losses_or_with_an_unknown_counter_is_not_recorded() {
        assert_eq!(windows(5 * N, &[]), []);
        assert_eq!(windows(N, &[loss(3000, 90, Some(true)), loss(9000, 60, None)]), []);
        assert_eq!(windows(N - 1, &[loss(3000, 90, Some(true))]), []);
    }

    #[test]
    fn a_claim_of_host_losses_beside_a_queue_is_not_recorded() {
        let with = |host_drops, is_marked, delay_us| {
            let evidence = GapReport { host_drops, is_marked: Some(is_marked), delay_us: Some(delay_us) };
            let mut recorder = WindowRecorder::default();
            recorder.lose(&UnattributedLoss { evidence, ..loss(3000, 90, None) }, 16);
            recorder.finish(N);
            recorder.poll().is_some()
        };
        assert!(with(Some(true), false, 3900));
        assert!(!with(Some(true), false, 4000));
        assert!(!with(Some(true), true, 20));
        assert!(with(Some(false), true, 9000));
    }

    #[test]
    fn no_window_cuts_a_run() {
        // One run crosses the end of the first window, and one the end of the second window.
        let losses = [loss(N - 50, 100, Some(true)), loss(2 * N + 40, 100, Some(true))];
        let found = windows(4 * N, &losses);
        assert_eq!(found[0], (Label::Host, vec![[(N - 100) as u32, 100]]));
        // The first window ends at N + 50, and the second one at the end of the second run.
        assert_eq!(found[1], (Label::Host, vec![[(N - 100) as u32, 100]]));
        assert_eq!(found.len(), 2);
        // A run that is longer than a window is in no window.
        assert_eq!(windows(4 * N, &[loss(100, N as u32 + 1, Some(true))]), []);
    }

    #[test]
    fn parts_of_a_run_with_different_evidence_stay_together() {
        let second = UnattributedLoss { evidence: GapReport::default(), ..loss(N, 60, None) };
        let second = UnattributedLoss {
            evidence: GapReport { host_drops: Some(true), delay_us: Some(20), ..second.evidence },
            ..second
        };
        let found = windows(2 * N + 1000, &[loss(N - 60, 60, Some(true)), second]);
        assert_eq!(found[0].1, [[(N - 120) as u32, 120]]);
    }

    /// A controller that never limits the sender.
    #[derive(Debug)]
    struct Unlimited;

    impl Controller for Unlimited {
        fn on_feedback(&mut self, _: Duration, _: &FeedbackSample<'_>) {}

        fn on_no_feedback(&mut self, _: Duration) {}

        fn rate_bytes_s(&self) -> f64 {
            f64::INFINITY
        }
    }

    /// Reports these packets, of which those at the positions `lost` are missing.
    fn report(packets: &[Packet], lost: std::ops::Range<usize>) -> Feedback {
        let evidence = GapReport { host_drops: Some(true), is_marked: Some(false), delay_us: Some(20) };
        let mut feedback = Feedback { start: packets[0].number, ..Feedback::default() };
        let mut next = feedback.start;
        for packet in
            packets.iter().enumerate().filter(|(at, _)| !lost.contains(at)).map(|(_, packet)| packet)
        {
            match feedback.runs.last_mut() {
                Some(run) if packet.number == next => run.received += 1,
                last => {
                    // Numbers that the sender left out count as missing, too.
                    last.into_iter().for_each(|run| run.missing = (packet.number - next) as u32);
                    feedback.runs.push(AckRange { received: 1, missing: 0, evidence });
                }
            }
            next = packet.number + 1;
        }
        feedback.totals.packets = next;
        feedback
    }

    #[test]
    fn a_sender_returns_the_windows_of_its_packets() {
        let classification = LossClassification::Default;
        let config = SenderConfig { payload_bytes: 1000, overhead_bytes: 50, seed: 3, classification };
        let bytes = 1000 * (N + 500);
        let mut sender = Sender::new(config, bytes, &RangeSet::new(), Box::new(Unlimited)).unwrap();
        sender.record_windows();
        let mut time = Duration::ZERO;
        let mut number = 0;
        let mut lost = 4000..4070;
        // The packets that were lost are sent again in the next round.
        while !sender.is_done() && number < 9 {
            time += Duration::from_millis(10);
            let packets: Vec<Packet> = std::iter::from_fn(|| sender.poll_packet(time)).collect();
            assert!(sender.poll_window().is_none());
            time += Duration::from_millis(10);
            if !packets.is_empty() {
                let feedback = report(&packets, std::mem::take(&mut lost));
                sender.handle_feedback(time, number, &feedback).unwrap();
            }
            sender.handle_timeout(time);
            number += 1;
        }
        assert!(sender.is_done());
        let window = sender.poll_window().unwrap();
        let runs: Vec<_> = window.signature.loss_runs().collect();
        assert_eq!((runs.len(), runs[0].received, runs[0].lost), (1, 4000, 70));
        assert_eq!((window.cause, window.kind.as_str()), (Label::Host, "observed"));
        assert!(sender.poll_window().is_none());
    }

    #[test]
    fn packets_that_arrive_late_are_not_lost() {
        let mut recorder = WindowRecorder::default();
        for lost in [loss(100, 1, Some(true)), loss(3000, 90, Some(true))] {
            recorder.lose(&lost, 16);
        }
        [100, 3000, 3045, 3089].into_iter().for_each(|index| recorder.ack_lost(index));
        recorder.settle(N + LATE_PACKETS - 1);
        assert!(recorder.poll().is_none());
        recorder.settle(N + LATE_PACKETS);
        let runs: Vec<_> =
            recorder.poll().unwrap().signature.loss_runs().map(|run| (run.received, run.lost)).collect();
        assert_eq!(runs, [(3001, 44), (1, 43)]);
    }
}
