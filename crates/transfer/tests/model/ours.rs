//! A bulk sender and its receiver around a controller: there are some feedbacks in each round trip,
//! and each feedback reports many packets.

use std::collections::VecDeque;
use std::time::Duration;

use barograph_transfer::Rtt;
use barograph_transfer::controller::{Controller, Delivery, DetectedLossRun, FeedbackSample};
use barograph_transfer::testkit::controller::model::ModelController;

pub(crate) const PACKET: u32 = 1500;

/// Number of packets that must arrive after a gap before the packets of the gap count as lost.
const REORDER: u64 = 3;

#[derive(Clone, Copy)]
struct Sent {
    at: Duration,
    delivered: u64,
    delivered_at: Duration,
    first_sent: Duration,
    in_flight: u64,
    is_app_limited: bool,
    is_acked: bool,
    is_lost: bool,
}

pub(crate) struct Report {
    packets: Vec<(u64, bool)>,
    held: Duration,
}

pub(crate) struct Ours {
    pub(crate) controller: Box<ModelController>,
    /// (from, to, rate): between these times, the sender has only `rate` bytes a second to send.
    pub(crate) limited: Option<(Duration, Duration, f64)>,
    pub(crate) feedbacks_per_rtt: f64,
    pub(crate) burst_packets: u32,
    pub(crate) reports: VecDeque<Report>,
    pub(crate) lost_packets: u64,
    pub(crate) sent_packets: u64,
    arrivals: VecDeque<(Duration, u64, bool)>,
    flight: VecDeque<Sent>,
    floor: u64,
    highest: u64,
    in_flight: u64,
    delivered: u64,
    delivered_at: Duration,
    first_sent: Duration,
    round: u64,
    round_ends: u64,
    rtt: Option<Rtt>,
    heard_at: Duration,
    next_send: Duration,
}

impl Ours {
    pub(crate) fn new(controller: Box<ModelController>, start: Duration) -> Self {
        Self {
            controller,
            limited: None,
            feedbacks_per_rtt: 4.0,
            burst_packets: 2,
            reports: VecDeque::new(),
            lost_packets: 0,
            sent_packets: 0,
            arrivals: VecDeque::new(),
            flight: VecDeque::new(),
            floor: 0,
            highest: 0,
            in_flight: 0,
            delivered: 0,
            delivered_at: start,
            first_sent: start,
            round: 0,
            round_ends: 0,
            rtt: None,
            heard_at: start,
            next_send: start,
        }
    }

    /// Sends the packets that may be sent at `now`. Returns the packets' numbers, and when to call
    /// again, unless the window is full.
    pub(crate) fn poll(&mut self, now: Duration) -> (Vec<u64>, Option<Duration>) {
        let mut numbers = Vec::new();
        if now < self.next_send {
            return (numbers, Some(self.next_send));
        }
        let app = self.limited.filter(|&(from, to, _)| (from..to).contains(&now)).map(|(_, _, rate)| rate);
        let rate = self.controller.rate_bytes_s().min(app.unwrap_or(f64::INFINITY));
        while (numbers.len() as u32) < self.burst_packets {
            if self.in_flight + u64::from(PACKET) > self.controller.window_bytes() {
                break;
            }
            if self.in_flight == 0 {
                (self.first_sent, self.delivered_at) = (now, now);
            }
            self.in_flight += u64::from(PACKET);
            self.flight.push_back(Sent {
                at: now,
                delivered: self.delivered,
                delivered_at: self.delivered_at,
                first_sent: self.first_sent,
                in_flight: self.in_flight,
                is_app_limited: app.is_some(),
                is_acked: false,
                is_lost: false,
            });
            numbers.push(self.floor + self.flight.len() as u64 - 1);
        }
        self.sent_packets += numbers.len() as u64;
        if numbers.is_empty() {
            return (numbers, None);
        }
        let gap = numbers.len() as f64 * f64::from(PACKET) / rate;
        self.next_send = now + Duration::from_secs_f64(gap.min(60.0));
        (numbers, Some(self.next_send))
    }

    pub(crate) fn arrive(&mut self, at: Duration, number: u64, is_marked: bool) {
        self.arrivals.push_back((at, number, is_marked));
    }

    /// Reports the packets that arrived until `now`. Returns the number of bytes that arrived, and
    /// the time of the next report.
    pub(crate) fn report(&mut self, now: Duration) -> (u64, Duration) {
        let mut packets = Vec::new();
        let mut last = now;
        while let Some(&(at, number, is_marked)) = self.arrivals.front().filter(|arrival| arrival.0 <= now) {
            packets.push((number, is_marked));
            last = at;
            self.arrivals.pop_front();
        }
        let bytes = packets.len() as u64 * u64::from(PACKET);
        self.reports.push_back(Report { packets, held: now - last });
        let rtt = self.rtt.map_or(0.004, |rtt| rtt.smoothed.as_secs_f64());
        (bytes, now + Duration::from_secs_f64((rtt / self.feedbacks_per_rtt).max(0.000_25)))
    }

    pub(crate) fn hear(&mut self, now: Duration) {
        let Some(report) = self.reports.pop_front() else { return };
        let Some(&(newest, _)) = report.packets.last() else {
            self.wait(now);
            return;
        };
        self.heard_at = now;
        let mut marked = 0;
        let mut acked = 0;
        for &(number, is_marked) in &report.packets {
            let Some(at) = number.checked_sub(self.floor) else { continue };
            let sent = &mut self.flight[at as usize];
            sent.is_acked = true;
            // Packets that were declared lost because no feedback came are not counted as in flight
            // any more.
            if !sent.is_lost {
                self.in_flight -= u64::from(PACKET);
            }
            acked += 1;
            marked += u64::from(is_marked);
        }
        self.delivered += acked * u64::from(PACKET);
        self.delivered_at = now;
        self.highest = self.highest.max(newest);
        let Some(at) = newest.checked_sub(self.floor) else { return };
        let sent = self.flight[at as usize];
        let sample = now - sent.at - report.held;
        let rtt = self.measure(sample);
        if sent.delivered >= self.round_ends {
            self.round += 1;
            self.round_ends = self.delivered;
        }
        let interval = (sent.at - sent.first_sent).max(now - sent.delivered_at);
        self.first_sent = sent.at;
        let delivery = (interval >= rtt.min).then(|| Delivery {
            bytes_s: (self.delivered - sent.delivered) as f64 / interval.as_secs_f64(),
            prior_delivered_bytes: sent.delivered,
            delivered_bytes: self.delivered,
            in_flight_bytes: sent.in_flight,
            is_app_limited: sent.is_app_limited,
        });
        let losses = self.find_losses();
        let seen = FeedbackSample {
            rtt,
            round_trip: rtt.latest,
            round: self.round,
            acked_packets: acked,
            acked_bytes: acked * u64::from(PACKET),
            marked_packets: marked,
            in_flight_bytes: self.in_flight,
            delivery,
            losses: &losses,
            host_lost_packets: 0,
            drain_bytes_s: 0,
            accounted_packets: self.floor,
            packet_bytes: PACKET,
            ..FeedbackSample::default()
        };
        self.controller.on_feedback(now, &seen);
        // Schedule the next burst at most one interval of the new rate from now.
        let gap = f64::from(self.burst_packets * PACKET) / self.controller.rate_bytes_s();
        self.next_send = self.next_send.min(now + Duration::from_secs_f64(gap.min(60.0)));
    }

    fn measure(&mut self, sample: Duration) -> Rtt {
        let rtt = match self.rtt {
            None => Rtt { latest: Some(sample), smoothed: sample, variation: sample / 2, min: sample },
            Some(rtt) => Rtt {
                latest: Some(sample),
                smoothed: rtt.smoothed * 7 / 8 + sample / 8,
                variation: rtt.variation * 3 / 4 + rtt.smoothed.abs_diff(sample) / 4,
                min: rtt.min.min(sample),
            },
        };
        self.rtt = Some(rtt);
        rtt
    }

    fn find_losses(&mut self) -> Vec<DetectedLossRun> {
        let mut losses: Vec<DetectedLossRun> = Vec::new();
        let mut was_lost = false;
        while self.floor + REORDER < self.highest + 1 {
            let Some(sent) = self.flight.pop_front() else { break };
            let number = self.floor;
            self.floor += 1;
            if !sent.is_acked {
                self.lost_packets += 1;
                if !sent.is_lost {
                    self.in_flight -= u64::from(PACKET);
                }
                if !was_lost {
                    let in_flight_bytes = sent.in_flight;
                    losses.push(DetectedLossRun {
                        at: number,
                        packets: 0,
                        bytes: 0,
                        sent: sent.at,
                        in_flight_bytes,
                    });
                }
                let last = losses.last_mut().unwrap();
                last.packets += 1;
                last.bytes += u64::from(PACKET);
            }
            was_lost = !sent.is_acked;
        }
        losses
    }

    /// No feedback came. The no-feedback timer expires after four round trips, or after the time
    /// for two packets at the current rate if this time is longer (RFC 5348 §4.3).
    fn wait(&mut self, now: Duration) {
        let round_trips = self.rtt.map_or(1.0, |rtt| 4.0 * rtt.smoothed.as_secs_f64());
        let packets = 2.0 * f64::from(PACKET) / self.controller.rate_bytes_s();
        if (now - self.heard_at).as_secs_f64() < round_trips.max(packets) {
            return;
        }
        self.heard_at = now;
        self.controller.on_no_feedback(now);
        for sent in &mut self.flight {
            sent.is_lost |= !sent.is_acked;
        }
        self.in_flight = 0;
    }
}
