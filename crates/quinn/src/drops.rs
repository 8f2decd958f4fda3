//! When and how much a socket dropped, from reads of its drop counter.

use std::collections::VecDeque;
use std::time::Instant;

use crate::wire::{AGE_MAX, RISES_MAX, Report, ReportedRise};

/// Follows the drop counter of a socket.
#[derive(Debug, Default)]
pub(crate) struct DropMeter {
    /// The last read of the counter.
    last: Option<(Instant, u32)>,
    /// Length of the largest buffer that was read of late (bytes).
    largest_bytes: f64,
    /// Estimated number of dropped bytes so far.
    dropped_bytes: u64,
    rises: VecDeque<Rise>,
}

/// The counter rose between two reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rise {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    pub(crate) bytes: u64,
}

impl DropMeter {
    /// Starts again with another socket. The bytes so far are kept.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.last = Some((now, 0));
    }

    /// Records a read of the counter at `now`, just after `buffers` were read from the socket, each
    /// with its length in bytes. Returns whether the counter rose.
    ///
    /// The counter counts buffers and wraps. With GRO, a buffer has up to 64 datagrams. A full
    /// socket drops large buffers rather than small ones, so each counts as the largest of late.
    pub(crate) fn on_read(&mut self, now: Instant, drops: u32, buffers: impl Iterator<Item = usize>) -> bool {
        for length in buffers {
            self.largest_bytes = (length as f64).max(KEPT_SHARE * self.largest_bytes);
        }
        let Some((from, before)) = self.last.replace((now, drops)) else { return false };
        let count = drops.wrapping_sub(before);
        if count == 0 || count > u32::MAX / 2 {
            return false;
        }
        let bytes = (f64::from(count) * self.largest_bytes.max(1.0)) as u64;
        self.dropped_bytes += bytes;
        if self.rises.len() == KEPT_MAX {
            self.rises.pop_front();
        }
        self.rises.push_back(Rise { from, to: now, bytes });
        true
    }

    /// Estimated number of bytes that the socket dropped so far.
    pub(crate) fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    /// All rises after the first `known_bytes` dropped bytes, as one.
    fn since(&self, known_bytes: u64) -> Option<Rise> {
        let bytes = self.dropped_bytes.checked_sub(known_bytes).filter(|bytes| *bytes > 0)?;
        let mut after = bytes;
        let is_new = |rise: &&Rise| {
            let is_new = after > 0;
            after = after.saturating_sub(rise.bytes);
            is_new
        };
        let first = self.rises.iter().rev().take_while(is_new).last()?;
        Some(Rise { from: first.from, to: self.rises.back()?.to, bytes })
    }
}

/// Makes the reports for one connection of a socket.
#[derive(Debug, Default)]
pub(crate) struct Reporter {
    known_bytes: u64,
    number: u32,
    /// The last rises that were reported, newest first.
    recent: VecDeque<Rise>,
}

impl Reporter {
    /// A reporter of the drops from now on.
    pub(crate) fn new(meter: &DropMeter) -> Self {
        Self { known_bytes: meter.dropped_bytes(), ..Self::default() }
    }

    /// Makes a report of what the meter has, with ages at `now`.
    pub(crate) fn report(&mut self, now: Instant, meter: &DropMeter) -> Report {
        if let Some(rise) = meter.since(self.known_bytes) {
            self.known_bytes = meter.dropped_bytes();
            self.number = self.number.saturating_add(1);
            self.recent.push_front(rise);
            self.recent.truncate(RISES_MAX);
        }
        let age_us = |at: Instant| {
            let age = now.saturating_duration_since(at).min(AGE_MAX);
            u32::try_from(age.as_micros()).unwrap_or(u32::MAX)
        };
        let reported = |rise: &Rise| ReportedRise {
            from_us: age_us(rise.from),
            to_us: age_us(rise.to),
            bytes: u32::try_from(rise.bytes.max(1)).unwrap_or(u32::MAX),
        };
        Report { number: self.number, rises: self.recent.iter().map(reported).collect() }
    }
}

/// Share of the largest length that is kept with each smaller buffer: it is halved after about as
/// many buffers as a receive buffer of Linux's default size holds full datagrams.
const KEPT_SHARE: f64 = 1.0 - 1.0 / 128.0;

/// Number of rises that are kept for a connection that reports late. If more came, the last report
/// of the connection is as old as many time slices, and one rise from then on suffices.
const KEPT_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::epoch;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_report_has_the_time_and_the_bytes_of_the_drops() {
        let start = epoch();
        let mut meter = DropMeter::default();
        meter.restart(start);
        let mut reporter = Reporter::new(&meter);
        assert!(!meter.on_read(start + 10 * MS, 0, [1200, 1200].into_iter()));
        assert!(meter.on_read(start + 90 * MS, 5, std::iter::empty()));
        let report = reporter.report(start + 91 * MS, &meter);
        assert_eq!(report.number, 1);
        assert_eq!(report.rises, [ReportedRise { from_us: 81_000, to_us: 1_000, bytes: 6_000 }]);
    }

    #[test]
    fn rises_between_two_reports_are_one_and_earlier_ones_are_repeated() {
        let start = epoch();
        let mut meter = DropMeter::default();
        meter.restart(start);
        let mut reporter = Reporter::new(&meter);
        let mut read = |ms: u32, drops| meter.on_read(start + ms * MS, drops, [1000].into_iter());
        assert!(read(1, 1) && !read(2, 1) && read(3, 3));
        let report = reporter.report(start + 4 * MS, &meter);
        assert_eq!((report.number, report.rises.len()), (1, 1));
        assert_eq!(report.rises[0], ReportedRise { from_us: 4_000, to_us: 1_000, bytes: 3_000 });
        for ms in 5..15 {
            assert!(meter.on_read(start + ms * MS, ms, std::iter::empty()));
            let report = reporter.report(start + ms * MS, &meter);
            assert!(report.rises.len() <= RISES_MAX && report.rises[0].to_us == 0, "{report:?}");
        }
        assert_eq!(reporter.report(start + 20 * MS, &meter).number, 11);
    }

    #[test]
    fn a_counter_that_wraps_has_risen_and_one_that_fell_has_not() {
        let start = epoch();
        let mut meter = DropMeter { last: Some((start, u32::MAX)), ..DropMeter::default() };
        assert!(meter.on_read(start, 1, [500].into_iter()));
        assert_eq!(meter.dropped_bytes(), 1000);
        assert!(!meter.on_read(start, 0, std::iter::empty()));
    }

    #[test]
    fn drops_before_the_offer_are_not_reported() {
        let start = epoch();
        let mut meter = DropMeter::default();
        meter.restart(start);
        assert!(meter.on_read(start + MS, 9, [1000].into_iter()));
        assert_eq!(Reporter::new(&meter).report(start + MS, &meter), Report::default());
    }

    #[test]
    fn a_late_reporter_gets_one_rise_with_all_bytes() {
        let start = epoch();
        let mut meter = DropMeter::default();
        meter.restart(start);
        let mut reporter = Reporter::new(&meter);
        for count in 1..=2 * KEPT_MAX as u32 {
            meter.on_read(start + count * MS, count, [1000].into_iter());
        }
        let report = reporter.report(start + 200 * MS, &meter);
        assert_eq!(report.rises[0].bytes, 128_000);
        assert_eq!(report.rises[0].from_us, 200_000 - 64_000, "the oldest rise that is kept");
    }
}
