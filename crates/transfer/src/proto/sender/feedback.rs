//! What a feedback says, taken in; what was lost; and what the controller is told of it.

use std::ops::Range;
use std::time::Duration;

use barograph_loss::Cause;

use super::book::{Fate, PACKETS_MAX};
use super::{Sender, Violation, micros};
use crate::proto::controller::{Delivery, Loss, Seen};
use crate::proto::ear::{Heard, Moment};
use crate::proto::nanos;
use crate::proto::wire::{Echo, Feedback, Totals};

/// The newest feedback so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heeded {
    number: Option<u64>,
    totals: Totals,
    /// The packet echoed last: a round trip is taken once.
    echoed: Option<u64>,
    /// Packets below this index were told of, by it and by those that it carries on.
    pub(super) surveyed: u64,
    /// The highest index that had been acknowledged with it, plus one.
    acked_to: u64,
    /// It carries on where the one before it ended, from the first packet on.
    is_whole: bool,
}

impl Heeded {
    pub(super) fn drain_bytes_s(&self) -> u64 {
        self.totals.drain_bytes_s
    }
}

/// What the controller has not been told yet.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    acked_packets: u64,
    acked_bytes: u64,
    marked_packets: u64,
    host_lost: u64,
    /// The round trip measured last.
    round_trip: Option<Duration>,
    /// Memory for what the ear says.
    pub(super) heard: Vec<Heard>,
    losses: Vec<Loss>,
    /// Packets settled that are not the host's, so far.
    settled: u64,
    /// Packets lost by the host, so far: those that did not come after all, and all that were told. Below 0 amid what the ear says, where a claim is
    /// taken back before it is read.
    host: i64,
    told_host: i64,
    /// Where the last run of losses that was told ends, in the count of [`Seen::settled_packets`].
    losses_end: u64,
}

impl Sender {
    pub(super) fn heed(&mut self, now: Duration, number: u64, feedback: &Feedback) -> Result<(), Violation> {
        let is_newer = self.heeded.number.is_none_or(|newest| newest < number);
        if is_newer {
            self.check(feedback)?;
        }
        let acked_before = self.news.acked_packets;
        self.take_runs(now, feedback, is_newer)?;
        let has_acked = acked_before < self.news.acked_packets;
        // What is replayed, or says nothing new, is no sign of life of the path.
        let is_news = is_newer && (has_acked || self.heeded.totals.packets < feedback.totals.packets);
        if is_newer {
            self.news.marked_packets += feedback.totals.marked - self.heeded.totals.marked;
            self.heeded.totals = feedback.totals;
            if let Some(echo) = &feedback.echo {
                self.take_echo(now, echo)?;
            }
            self.survey(number, feedback);
        }
        if is_news {
            self.timers.heard(now, has_acked);
        }
        let lost_to = if is_newer && self.heeded.is_whole { self.heeded.surveyed } else { 0 };
        self.detect_losses(now, lost_to);
        self.listen(now);
        if !is_news {
            self.heeded.acked_to = self.acked_to;
            self.forget();
            return Ok(());
        }
        let (is_round, delivery) = self.path.sample(nanos(now), self.rtt.min);
        if is_round && std::mem::take(&mut self.has_lost_in_round) {
            self.reorder.calm_down();
        }
        // Where of a report only the first datagram comes through, rounds do not end, and it has to begin further on all the same.
        if is_round || self.rounded + self.rtt.longer() * 2 <= now {
            self.rounded = now;
            self.round_ends = [self.settled, self.round_ends[0]];
        }
        self.heeded.acked_to = self.acked_to;
        self.forget();
        self.tell(now, delivery);
        Ok(())
    }

    /// What must be so in a newer feedback.
    fn check(&self, feedback: &Feedback) -> Result<(), Violation> {
        let (new, old) = (&feedback.totals, &self.heeded.totals);
        let is_less = new.packets < old.packets || new.bytes < old.bytes || new.marked < old.marked;
        if is_less { Err(Violation::TakenBack) } else { Ok(()) }
    }

    /// Acknowledges what came, and notes what is known of the gaps.
    fn take_runs(&mut self, now: Duration, feedback: &Feedback, is_newer: bool) -> Result<(), Violation> {
        let (mut at, end) = (feedback.start, self.numbers.end());
        let mut place = self.numbers.seek(at);
        for run in &feedback.runs {
            let came_to = at.saturating_add(u64::from(run.received));
            if run.received > 0 {
                // Also where the sum of the runs stands still at the highest number there is.
                if end <= at || end < came_to {
                    return Err(Violation::NeverSent(at.max(end)));
                }
                let from = self.numbers.index_from(&mut place, at);
                if let Some(left_out) = self.numbers.left_out_to(place, came_to) {
                    return Err(Violation::NeverSent(left_out));
                }
                // No number was left out between them.
                self.ack(now, from..from + (came_to - at));
            }
            at = came_to.saturating_add(u64::from(run.missing));
            if is_newer && run.missing > 0 && came_to < end {
                let from = self.numbers.index_from(&mut place, came_to);
                let gap = from..self.numbers.index_from(&mut place, at.min(end));
                if !self.book.are_open(gap.clone()) {
                    return Err(Violation::TakenBack);
                }
                // Of what is settled nobody asks any more; and a gap of a number left out has no packet to note it at.
                if self.settled < gap.end
                    && !gap.is_empty()
                    && let Some(sent) = self.book.get_mut(gap.start)
                {
                    sent.evidence = Some(run.evidence);
                }
            }
        }
        Ok(())
    }

    /// Acknowledges packets of these indices; those acknowledged before are passed over.
    fn ack(&mut self, now: Duration, indices: Range<u64>) {
        let now_ns = nanos(now);
        let (mut from, mut range) = (indices.start, 0..0);
        while let Some(index) = self.book.next_open(from..indices.end) {
            from = index + 1;
            let Some(sent) = self.book.get(index).copied() else { break };
            let bytes = u64::from(sent.len) + self.overhead;
            self.path.ack(now_ns, &sent.stamp, bytes);
            self.book.settle(index, Fate::Acked, self.overhead);
            self.news.acked_packets += 1;
            self.news.acked_bytes += bytes;
            self.acked_to = self.acked_to.max(from);
            if sent.fate == Fate::Lost {
                self.find(index, bytes);
            } else {
                self.news.settled += 1;
            }
            // Packets in a row carry ranges in a row, which are noted as one.
            if range.end == sent.start {
                range.end = sent.range().end;
            } else {
                self.stats.acked_bytes += self.object.ack(std::mem::replace(&mut range, sent.range()));
            }
        }
        self.stats.acked_bytes += self.object.ack(range);
    }

    /// A packet came that had been taken for lost.
    fn find(&mut self, index: u64, bytes: u64) {
        self.stats.spurious_packets += 1;
        // It was missing in the report before this, so that it was overtaken by as many as had come then.
        self.reorder.grow(self.heeded.acked_to.saturating_sub(index + 1), self.path.round());
        let told = match &mut self.ear {
            Some(ear) => ear.find(index, bytes),
            None => Some(Cause::Network),
        };
        // As a loss of the network's it was counted; otherwise it is now.
        match told {
            Some(Cause::Network | Cause::Unknown) => {}
            Some(Cause::Host) => {
                self.news.settled += 1;
                self.news.host = self.news.host.saturating_sub(1).max(0);
            }
            None => self.news.settled += 1,
        }
    }

    fn take_echo(&mut self, now: Duration, echo: &Echo) -> Result<(), Violation> {
        let is_sent = echo.number < self.numbers.end();
        if !is_sent || self.numbers.is_left_out(echo.number) {
            return Err(Violation::NeverSent(echo.number));
        }
        if self.heeded.echoed == Some(echo.number) {
            return Ok(());
        }
        // Of a packet that is forgotten, or with a time that it did not have, nothing is learned.
        let index = self.numbers.index_of(echo.number);
        let sent = self.book.get(index).filter(|sent| sent.fate == Fate::Acked);
        let sent_at = sent.map(|sent| Duration::from_nanos(sent.stamp.sent_ns));
        if let Some(sent_at) = sent_at.filter(|at| micros(*at) == echo.sent_us) {
            self.heeded.echoed = Some(echo.number);
            self.rtt.add(now.saturating_sub(sent_at), Duration::from_micros(echo.held_us.into()));
            self.news.round_trip = self.rtt.latest;
        }
        Ok(())
    }

    /// Notes up to where it is known which packets are missing: a report of many gaps comes in several datagrams, and if one of them is lost, what
    /// it told of is not missing.
    fn survey(&mut self, number: u64, feedback: &Feedback) {
        let runs = feedback.runs.iter().map(|run| u64::from(run.received) + u64::from(run.missing));
        let end = runs.fold(feedback.start, u64::saturating_add).min(self.numbers.end());
        let (start, end) = (self.numbers.index_of(feedback.start), self.numbers.index_of(end));
        let is_first = self.book.next_open(self.settled..start).is_none();
        let is_next = self.heeded.number.is_some_and(|before| before.checked_add(1) == Some(number));
        let carries_on = self.heeded.is_whole && is_next && start <= self.heeded.surveyed;
        self.heeded.is_whole = is_first || carries_on;
        if self.heeded.is_whole {
            self.heeded.surveyed = end;
        }
        self.heeded.number = Some(number);
    }

    pub(super) fn moment(&self, now: Duration) -> Moment {
        Moment { now, rtt: self.rtt.smoothed, burst: self.pacer.burst_packets() }
    }

    /// Takes in what the ear has to say.
    pub(super) fn listen(&mut self, now: Duration) {
        let moment = self.moment(now);
        if let Some(ear) = &mut self.ear {
            ear.listen(moment, self.settled, &mut self.news.heard);
        }
        self.news.heard.sort_unstable_by_key(|heard| heard.missing.index);
        for index in 0..self.news.heard.len() {
            if let Some(heard) = self.news.heard.get(index).copied() {
                self.hear(&heard);
            }
        }
        self.news.heard.clear();
        self.news.host = self.news.host.max(0);
        self.stats.lost_host = u64::try_from(self.news.told_host).unwrap_or(0);
    }

    fn hear(&mut self, heard: &Heard) {
        let (missing, packets) = (&heard.missing, u64::from(heard.missing.packets));
        if heard.is_taken_back {
            self.news.told_host -= i64::from(missing.packets);
            self.news.host -= i64::from(missing.packets);
        }
        match heard.cause {
            Cause::Host => {
                self.news.told_host += i64::from(missing.packets);
                self.news.host += i64::from(missing.packets);
                self.news.host_lost += packets;
                return;
            }
            Cause::Network => self.stats.lost_network += packets,
            Cause::Unknown => self.stats.lost_unknown += packets,
        }
        self.news.settled += packets;
        // By its index, less what the host lost before it; never before the run that was told last, nor after what is settled.
        let at = missing.index.saturating_sub(u64::try_from(self.news.host).unwrap_or(0));
        let at = at.min(self.news.settled.saturating_sub(packets)).max(self.news.losses_end);
        self.news.losses_end = at + packets;
        self.news.losses.push(Loss {
            at,
            packets: missing.packets,
            bytes: missing.bytes,
            sent: missing.sent,
            in_flight_bytes: missing.in_flight_bytes,
        });
    }

    pub(super) fn forget(&mut self) {
        // A lost packet that is still kept takes room from what is to be sent.
        let lost_below = if self.book.len() < PACKETS_MAX / 2 { self.round_ends[1] } else { self.settled };
        self.book.forget(lost_below);
        self.numbers.forget_below(self.book.first());
    }

    /// Tells the controller.
    pub(super) fn tell(&mut self, now: Duration, delivery: Option<Delivery>) {
        let (full, drained) = (self.full_bytes(), self.heeded.totals.drain_bytes_s);
        // The receiver counts bytes of the object; on the way each packet has more.
        let drain = u128::from(drained) * u128::from(full) / u128::from(self.payload);
        let news = &mut self.news;
        let seen = Seen {
            rtt: self.rtt,
            round_trip: news.round_trip.take(),
            round: self.path.round(),
            acked_packets: std::mem::take(&mut news.acked_packets),
            acked_bytes: std::mem::take(&mut news.acked_bytes),
            marked_packets: std::mem::take(&mut news.marked_packets),
            in_flight_bytes: self.book.in_flight_bytes(),
            delivery,
            losses: &news.losses,
            host_lost_packets: std::mem::take(&mut news.host_lost),
            drain_bytes_s: u64::try_from(drain).unwrap_or(u64::MAX),
            settled_packets: news.settled,
            packet_bytes: u32::try_from(full).unwrap_or(u32::MAX),
        };
        self.controller.on_feedback(now, &seen);
        self.news.losses.clear();
        self.take_rate(now);
    }

    pub(super) fn take_rate(&mut self, now: Duration) {
        self.pacer.set_rate(now, self.controller.rate_bytes_s());
        self.window_bytes = self.controller.window_bytes();
    }
}
