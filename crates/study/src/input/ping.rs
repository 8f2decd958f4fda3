//! Output of `ping`: of iputils (Linux), BusyBox, and BSD (macOS).

use std::collections::{BTreeMap, VecDeque};

/// A reply to a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PingReply {
    /// When the reply came, in seconds since 1970, if the lines have times (`ping -D`).
    pub(super) time_s: Option<f64>,
    /// Number of probes before this one.
    pub(super) index: u64,
    /// Round-trip time in milliseconds.
    pub(super) rtt_ms: f64,
    /// Number of probes that were lost since the reply before.
    pub(super) lost: u64,
}

/// Puts the replies of `ping` in the order of their sequence numbers, and counts the numbers that
/// are missing.
///
/// A number is lost once a number [`REORDERED_MAX`] higher was answered, or when the output ends.
/// Duplicates, and replies to numbers that count as lost, are ignored.
#[derive(Clone, Debug, Default)]
pub(super) struct PingLog {
    /// The next sequence number, without the wrap of 16-bit numbers; `None` before the first line
    /// that shows it.
    next: Option<u64>,
    /// The number of the first probe of this run of `ping`.
    first: u64,
    /// The number after the highest one that was seen.
    seen: u64,
    /// The number after the highest one that was answered.
    replied: u64,
    /// Whether the run began with its header, so that `first` is the number of its first probe.
    has_header: bool,
    /// Number of probes of the earlier runs.
    earlier: u64,
    /// Replies that came before the reply to an earlier number.
    held: BTreeMap<u64, PingReply>,
    ready: VecDeque<PingReply>,
    /// Numbers that were lost after the last reply in `ready`.
    lost: u64,
    /// Whether the first reply had the time at which it came.
    is_stamped: Option<bool>,
}

impl PingLog {
    /// Learns a line. `None` if the line is a reply without its time in milliseconds, or if not all
    /// replies or none have the time at which they came.
    pub(super) fn learn(&mut self, text: &str) -> Option<()> {
        let (time_s, text) = stamped(text);
        if is_header(text) {
            // BSD and BusyBox count from 0. Their heads have a colon after the address.
            let first = u64::from(!text.contains("): ") && !text.starts_with("PING6"));
            self.begin_run(first);
            self.has_header = true;
        } else if let Some((_, reply)) = text.split_once(" bytes from ") {
            self.reply(time_s, reply)?;
        } else if let Some((_, number)) = text.split_once("icmp_seq") {
            // "Destination Host Unreachable", "no answer yet" or "Request timeout": the number was
            // used, and its reply may still come.
            if let Some(number) = leading_number(number.trim_start_matches(['=', ' '])) {
                if self.is_beginning(number) {
                    self.begin_run(self.first_up_to(number));
                }
                self.see(number);
            }
        } else if let Some((count, _)) = text.split_once(" packets transmitted") {
            self.end_of_run(count.parse().unwrap_or(0));
        }
        let end = self.replied.saturating_sub(REORDERED_MAX);
        self.settle(end.max(self.seen.saturating_sub(u64::from(LATE_MAX))));
        Some(())
    }

    fn begin_run(&mut self, first: u64) {
        self.finish();
        self.earlier += self.next.unwrap_or(0) - self.first;
        (self.next, self.first, self.seen, self.replied) = (Some(first), first, first, first);
    }

    /// The next reply in the order of sequence numbers, if it is known.
    pub(super) fn pop(&mut self) -> Option<PingReply> {
        self.ready.pop_front()
    }

    /// Ends the run: what has no reply is lost.
    pub(super) fn finish(&mut self) {
        self.settle(self.seen);
    }

    /// Returns the number of losses after the last reply that is ready, since the last call.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    fn reply(&mut self, time_s: Option<f64>, text: &str) -> Option<()> {
        let Some((_, number)) = text.split_once("seq=") else {
            return Some(()); // An error of a router, such as "Time to live exceeded".
        };
        let (_, time) = text.split_once("time=")?;
        let rtt_ms: f64 = time.trim_start().split([' ', 'm']).next()?.parse().ok()?;
        let unit = time.trim_start().trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        let is_stamped = *self.is_stamped.get_or_insert(time_s.is_some());
        if !(rtt_ms.is_finite() && unit.starts_with("ms")) || is_stamped != time_s.is_some() {
            return None;
        }
        let is_duplicate = text.contains("DUP!");
        let number = leading_number(number)?;
        if !is_duplicate && self.is_first_again(number) {
            self.begin_run(self.first);
        } else if !is_duplicate && self.is_beginning(number) {
            self.begin_run(self.first_up_to(number));
        }
        if let (Some(number), false) = (self.see(number), is_duplicate) {
            self.replied = self.replied.max(number + 1);
            let index = self.earlier + number - self.first;
            self.held.entry(number).or_insert(PingReply { time_s, index, rtt_ms, lost: 0 });
        }
        Some(())
    }

    /// Whether the first number of the run was answered before, so that another run begins. Its
    /// header may be missing, for example after `grep`.
    fn is_first_again(&self, number: u16) -> bool {
        let Some(next) = self.next.filter(|_| u64::from(number) == self.first) else { return false };
        LATE_MAX < number.wrapping_sub(next as u16) || self.held.contains_key(&self.first)
    }

    /// Whether a number is near the beginning of a run, and neither late nor next in this run, so
    /// that another run begins. Its header and its first replies may be missing.
    fn is_beginning(&self, number: u16) -> bool {
        let Some(next) = self.next.map(|next| next as u16) else { return false };
        let (behind, ahead) = (next.wrapping_sub(number), number.wrapping_sub(next));
        number <= BEGINNING_MAX && LATE_MAX < behind && LATE_MAX < ahead
    }

    /// The first number of a run without its header, of which `number` is the first one seen.
    fn first_up_to(&self, number: u16) -> u64 {
        self.first.min(FIRST_MAX).min(u64::from(number))
    }

    /// Notes that a sequence number was used. Returns the number without its wrap; `None` if it was
    /// decided before.
    fn see(&mut self, number: u16) -> Option<u64> {
        let next = *self.next.get_or_insert_with(|| {
            let first = u64::from(number);
            (self.first, self.seen, self.replied) = (first, first, first);
            first
        });
        let behind = (next as u16).wrapping_sub(number);
        if (1..=LATE_MAX).contains(&behind) {
            return None;
        }
        let number = next + u64::from(number.wrapping_sub(next as u16));
        self.seen = self.seen.max(number + 1);
        Some(number)
    }

    /// Learns from the statistics at the end how many probes were sent.
    fn end_of_run(&mut self, count: u64) {
        let end = self.first.saturating_add(count);
        if self.has_header && (self.seen..=self.seen + u64::from(u16::MAX)).contains(&end) {
            self.seen = end;
        }
        self.settle(self.seen);
    }

    /// Decides all numbers before `end`, and releases the replies that no undecided number
    /// precedes.
    fn settle(&mut self, end: u64) {
        let Some(mut next) = self.next else { return };
        while let Some(reply) = self.held.first_entry().filter(|reply| *reply.key() <= end.max(next)) {
            self.lost += *reply.key() - next;
            next = *reply.key() + 1;
            self.ready.push_back(PingReply { lost: std::mem::take(&mut self.lost), ..reply.remove() });
        }
        self.lost += end.saturating_sub(next);
        self.next = Some(next.max(end));
    }
}

/// Whether a line is output of `ping`.
pub(super) fn is_ping(text: &str) -> bool {
    let (_, text) = stamped(text);
    let is_reply = |(size, reply): (&str, &str)| size.parse::<u32>().is_ok() && reply.contains("seq=");
    is_header(text) || text.split_once(" bytes from ").is_some_and(is_reply)
}

/// The host that a header names; `None` for other lines.
pub(super) fn target(text: &str) -> Option<String> {
    let (_, text) = stamped(text);
    let mut words = text.split_whitespace();
    let name = if text.starts_with("PING6(") { words.next_back() } else { words.nth(1) };
    name.filter(|_| is_header(text)).map(str::to_owned)
}

fn is_header(text: &str) -> bool {
    (text.starts_with("PING ") && text.contains("bytes")) || text.starts_with("PING6(")
}

/// The time of `ping -D` at the beginning of a line, in seconds since 1970, and the rest of the
/// line.
fn stamped(text: &str) -> (Option<f64>, &str) {
    let parts = || text.strip_prefix('[')?.split_once("] ");
    let stamp =
        |(time, rest): (&str, _)| Some((time.parse().ok().filter(|time: &f64| time.is_finite())?, rest));
    match parts().and_then(stamp) {
        Some((time_s, rest)) => (Some(time_s), rest),
        None => (None, text),
    }
}

/// The sequence number at the beginning of a text; `None` if it has more than 16 bits.
fn leading_number(text: &str) -> Option<u16> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// What a reply must contain.
pub(super) const EXPECTED: &str = "a reply of ping with its time, such as \
     `64 bytes from 192.0.2.1: icmp_seq=3 ttl=57 time=12.3 ms`, and with -D on every line or none";

/// A number is lost once a number three higher was seen: the packet threshold of RFC 9002 §6.1.1.
/// Until then the replies after it wait.
const REORDERED_MAX: u64 = 3;

/// A number at most this much behind the next one is late. A number further behind is ahead, after
/// an outage or the wrap of 16-bit numbers. No reply is a thousand probes late.
const LATE_MAX: u16 = 1000;

/// The first number of a run: 1, or 0 with BSD and BusyBox.
const FIRST_MAX: u64 = 1;

/// Largest number at which a run without its header may begin, far from the numbers before: its
/// first replies may be lost. An outage of thousands of probes rarely ends at one of so few
/// numbers.
const BEGINNING_MAX: u16 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Index, time in ms and losses before each reply; then the losses after the last one.
    fn read(text: &str) -> (Vec<(u64, f64, u64)>, u64) {
        let mut log = PingLog::default();
        text.lines().for_each(|line| log.learn(line).expect(line));
        log.finish();
        let lost = log.take_lost();
        let replies = std::iter::from_fn(|| log.pop());
        (replies.map(|reply| (reply.index, reply.rtt_ms, reply.lost)).collect(), lost)
    }

    fn replies(numbers: &[u16]) -> String {
        let line = |number: &u16| format!("64 bytes from ::1: icmp_seq={number} ttl=64 time={number} ms\n");
        numbers.iter().map(line).collect()
    }

    #[test]
    fn the_output_of_iputils_is_read_with_its_losses() {
        let text = "PING example.org (192.0.2.1) 56(84) bytes of data.\n\
            64 bytes from 192.0.2.1: icmp_seq=2 ttl=57 time=12.3 ms\n\
            From 192.0.2.9 icmp_seq=3 Destination Host Unreachable\n\
            64 bytes from example.org (192.0.2.1): icmp_seq=5 ttl=57 time=1200 ms\n\
            64 bytes from 192.0.2.1: icmp_seq=5 ttl=57 time=1201 ms (DUP!)\n\n\
            --- example.org ping statistics ---\n\
            7 packets transmitted, 2 received, 71% packet loss, time 6005ms\n\
            rtt min/avg/max/mdev = 12.3/606.1/1200.0/593.8 ms\n";
        assert_eq!(read(text), (vec![(1, 12.3, 1), (4, 1200.0, 2)], 2));
    }

    #[test]
    fn the_output_of_busybox_and_bsd_is_read_with_its_losses() {
        let busybox = "PING 192.0.2.1 (192.0.2.1): 56 data bytes\n\
            64 bytes from 192.0.2.1: seq=1 ttl=64 time=0.081 ms\n\
            64 bytes from 192.0.2.1: seq=2 ttl=64 time=0.070 ms\n";
        assert_eq!(read(busybox), (vec![(1, 0.081, 1), (2, 0.07, 0)], 0));
        let bsd = "PING 192.0.2.1 (192.0.2.1): 56 data bytes\n\
            64 bytes from 192.0.2.1: icmp_seq=0 ttl=57 time=12.345 ms\n\
            Request timeout for icmp_seq 1\nRequest timeout for icmp_seq 2\n\
            92 bytes from 192.0.2.9: Time to live exceeded\n\
            3 packets transmitted, 1 packets received, 66.7% packet loss\n";
        assert_eq!(read(bsd), (vec![(0, 12.345, 0)], 2));
        let bsd6 = "PING6(56=40+8+8 bytes) ::1 --> ::1\n16 bytes from ::1, icmp_seq=0 hlim=64 time=0.1 ms\n";
        assert_eq!(read(bsd6), (vec![(0, 0.1, 0)], 0));
    }

    #[test]
    fn replies_that_came_in_another_order_are_put_in_order() {
        let numbers = |text: &str| read(text).0.iter().map(|reply| reply.1 as u16).collect::<Vec<_>>();
        assert_eq!(numbers(&replies(&[7, 9, 10, 8, 11])), [7, 8, 9, 10, 11]);
        assert_eq!(numbers(&replies(&[7, 9, 10, 11, 8, 12])), [7, 9, 10, 11, 12], "8 is too late");
        let mut log = PingLog::default();
        for line in replies(&[1, 3, 4]).lines() {
            log.learn(line).expect(line);
        }
        assert_eq!(log.pop().map(|reply| reply.index), Some(0));
        assert_eq!(log.pop(), None, "the reply to 2 may still come");
        log.learn(replies(&[5]).trim()).expect("a reply");
        assert_eq!(log.pop().map(|reply| (reply.index, reply.lost)), Some((2, 1)));
    }

    #[test]
    fn sequence_numbers_wrap_and_runs_follow_each_other() {
        let (all, lost) = read(&replies(&[65_534, 65_535, 1, 2]));
        let indices: Vec<(u64, u64)> = all.iter().map(|reply| (reply.0, reply.2)).collect();
        assert_eq!((indices, lost), (vec![(0, 0), (1, 0), (3, 1), (4, 0)], 0));
        let (all, _) = read(&replies(&[1, 40_000]));
        assert_eq!(all[1], (39_999, 40_000.0, 39_998), "an outage of half the numbers");
        let run = "PING a (192.0.2.1) 56(84) bytes of data.\n".to_owned() + &replies(&[1, 2]);
        let indices: Vec<u64> = read(&run.repeat(2)).0.iter().map(|reply| reply.0).collect();
        assert_eq!(indices, [0, 1, 2, 3]);
    }

    #[test]
    fn a_run_without_its_header_begins_at_the_first_number() {
        let indices = |text: &str| read(text).0.iter().map(|reply| reply.0).collect::<Vec<_>>();
        assert_eq!(indices(&replies(&[1, 1, 1])), [0, 1, 2]);
        assert_eq!(indices(&replies(&[1, 2, 4, 1, 2])), [0, 1, 3, 4, 5]);
    }

    #[test]
    fn long_runs_without_headers_follow_each_other() {
        let run: Vec<u16> = (1..=3000).collect();
        let (all, lost) = read(&replies(&[&run[..], &run[..]].concat()));
        assert_eq!((all.len(), all.iter().map(|reply| reply.2).sum::<u64>(), lost), (6000, 0, 0));
        let (all, _) = read(&replies(&[&run[..], &[3, 4]].concat()));
        assert_eq!((all[3000].0, all[3000].2), (3002, 2), "the first two replies of the next run are lost");
        let unanswered = "no answer yet for icmp_seq=1\n";
        let (all, _) = read(&(replies(&run) + unanswered + &replies(&[2, 3])));
        assert_eq!((all[3000].0, all[3000].2), (3001, 1), "the first reply of the next run is lost");
        let middle: Vec<u16> = (9000..9010).collect();
        let (all, _) = read(&replies(&[&middle[..], &[1, 2]].concat()));
        assert_eq!((all[10].0, all[10].2), (10, 0), "a log that begins in the middle of a run");
    }

    #[test]
    fn late_replies_after_no_answer_yet_are_no_losses() {
        let mut text = replies(&[1]);
        for number in 2..8 {
            text += &format!("no answer yet for icmp_seq={number}\n");
        }
        text += &replies(&[2, 3, 4, 5, 6, 7]);
        assert_eq!(read(&text).0.len(), 7);
    }

    #[test]
    fn the_end_of_a_log_has_no_losses_before_its_first_line() {
        let text = replies(&[9908, 9909, 9910]) + "9910 packets transmitted, 9910 received, 0% packet loss\n";
        assert_eq!((read(&text).0.len(), read(&text).1), (3, 0));
    }

    #[test]
    fn a_reply_without_its_time_is_refused() {
        for reply in [
            "12 bytes from ::1: icmp_seq=1 ttl=64",
            "64 bytes from ::1: icmp_seq=1 ttl=64 time=x ms",
            "64 bytes from ::1: icmp_seq=1 ttl=64 time=5 s",
            "64 bytes from ::1: icmp_seq=1 ttl=64 time=inf ms",
            "64 bytes from ::1: icmp_seq=70000 ttl=64 time=5 ms",
        ] {
            assert!(is_ping(reply), "{reply}");
            assert_eq!(PingLog::default().learn(reply), None, "{reply}");
        }
        let stamped = "[1777636800.5] 64 bytes from ::1: icmp_seq=1 ttl=64 time=5.0ms";
        let mut log = PingLog::default();
        assert!(is_ping(stamped) && log.learn(stamped).is_some());
        assert_eq!(log.pop().and_then(|reply| reply.time_s), Some(1_777_636_800.5));
        assert_eq!(log.learn(&replies(&[2])), None, "the first reply had a time of its own");
        for other in ["ping,1", "PING", "5 bytes from", "[1,2]", "time_s,value"] {
            assert!(!is_ping(other), "{other}");
        }
    }
}
