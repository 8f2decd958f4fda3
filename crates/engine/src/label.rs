//! Time labels that other hosts wrote, and their bounds at the receiver.

use std::time::Duration;

use crate::Record;

impl Record {
    /// Longest time by which a label may be ahead of the receiver's clock. The clocks of hosts
    /// usually differ by seconds.
    pub const LABEL_AHEAD_MAX: Duration = Duration::from_mins(1);

    /// Bounds the label of a record that another host wrote and that arrives at `now_unix_ns`.
    ///
    /// A label more than [`Record::LABEL_AHEAD_MAX`] ahead is replaced by `now_unix_ns`. The detail
    /// keeps the original label ([`original_label_unix_ns`]), if the detail is empty or a JSON
    /// object, and has room. Returns how far the label was ahead, if it was replaced. A receiver
    /// with a clock before 2026, which was never set, replaces no label.
    pub fn bound_label(&mut self, now_unix_ns: i64) -> Option<Duration> {
        let label_unix_ns = self.time_unix_ns;
        let time_unix_ns = counted_unix_ns(label_unix_ns, now_unix_ns);
        if time_unix_ns == label_unix_ns {
            return None;
        }
        self.time_unix_ns = time_unix_ns;
        if let Some(detail) = marked(&self.detail, label_unix_ns) {
            self.detail = detail;
        }
        Some(Duration::from_nanos(label_unix_ns.saturating_sub(now_unix_ns).unsigned_abs()))
    }
}

/// Bounds a time label: returns `now_unix_ns` if `label_unix_ns` is too far ahead of `now_unix_ns`,
/// otherwise `label_unix_ns`.
fn counted_unix_ns(label_unix_ns: i64, now_unix_ns: i64) -> i64 {
    let is_ahead = now_unix_ns.saturating_add(AHEAD_MAX_NS) < label_unix_ns;
    if is_ahead && now_unix_ns >= SET_FROM_UNIX_NS { now_unix_ns } else { label_unix_ns }
}

/// Returns whether a value with this label comes too late for a forecast, given the newest label of
/// its series.
///
/// If the newest label is later than the current time, the clock was set back after that label was
/// written, so the newest label is ignored.
#[must_use]
pub fn is_late(label_unix_ns: i64, newest_unix_ns: i64, now_unix_ns: i64) -> bool {
    newest_unix_ns <= now_unix_ns && label_unix_ns < newest_unix_ns
}

/// Original label of a record, if [`Record::bound_label`] replaced it; read from the detail.
#[must_use]
pub fn original_label_unix_ns(detail: &str) -> Option<i64> {
    let (seconds, rest) = detail.strip_prefix(MARK)?.split_once('.')?;
    let nanoseconds = rest.get(..NANOSECONDS)?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(nanoseconds) || !rest[NANOSECONDS..].starts_with([',', '}']) {
        return None;
    }
    seconds.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanoseconds.parse().ok()?)
}

/// The detail with the label inserted at its start; `None` if the result would be too long, or if
/// `detail` is not a JSON object.
fn marked(detail: &str, label_unix_ns: i64) -> Option<String> {
    let (seconds, nanoseconds) = (label_unix_ns / 1_000_000_000, label_unix_ns % 1_000_000_000);
    let rest = if detail.is_empty() { "}" } else { detail.trim_start().strip_prefix('{')?.trim_start() };
    let comma = if rest.starts_with('}') { "" } else { "," };
    let marked = format!("{MARK}{seconds}.{nanoseconds:09}{comma}{rest}");
    (marked.len() <= Record::DETAIL_BYTES_MAX).then_some(marked)
}

const AHEAD_MAX_NS: i64 = Record::LABEL_AHEAD_MAX.as_nanos() as i64;

/// Earliest time of a clock that was set, 2026-01-01 UTC. A host without a battery for its clock
/// starts in 1970, or at the build time of its system. Records with labels from such a clock would
/// be removed as too old after the clock is set.
const SET_FROM_UNIX_NS: i64 = 1_767_225_600_000_000_000;

/// Start of a detail that holds an original label.
const MARK: &str = "{\"labelled_s\":";

/// Number of digits after the decimal point of the original label.
const NANOSECONDS: usize = 9;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_forecast::{Name, Outcome, Quantity, SeriesId};
    use proptest::prelude::*;

    use super::*;

    fn record(time_unix_ns: i64, detail: &str) -> Record {
        let origin = Name::new("north").unwrap();
        let series = SeriesId { source: origin.clone(), target: origin.clone(), quantity: Quantity::RTT };
        let outcome = Outcome::Value(1.0);
        Record { origin, seq: 1, series, time_unix_ns, outcome, detail: detail.into() }
    }

    fn details() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(String::new()),
            Just("{}".into()),
            Just(" { \"n\": 3 }".into()),
            Just("{\"n\":3,\"raw\":1e6}".into())
        ]
    }

    proptest! {
        #[test]
        fn bound_label_limits_labels_to_a_minute_ahead_and_keeps_the_original(
            now in SET_FROM_UNIX_NS..Record::TIME_MAX_UNIX_NS,
            label in 0..=Record::TIME_MAX_UNIX_NS,
            detail in details(),
        ) {
            let mut bounded = record(label, &detail);
            let ahead = bounded.bound_label(now);
            prop_assert!(bounded.time_unix_ns <= now.saturating_add(AHEAD_MAX_NS));
            prop_assert_eq!(ahead.is_some(), now.saturating_add(AHEAD_MAX_NS) < label);
            if let Some(ahead) = ahead {
                prop_assert_eq!(bounded.time_unix_ns, now);
                prop_assert_eq!(ahead.as_nanos(), (label - now) as u128);
                prop_assert_eq!(original_label_unix_ns(&bounded.detail), Some(label));
                prop_assert!(bounded.check().is_ok());
            } else {
                prop_assert_eq!(&bounded, &record(label, &detail));
            }
            let once = bounded.clone();
            prop_assert_eq!(bounded.bound_label(now), None);
            prop_assert_eq!(bounded, once, "a second receiver changes nothing");
        }

        #[test]
        fn a_value_labelled_now_is_not_late_after_any_earlier_labels(
            steps in proptest::collection::vec((0_i64..1_000_000, any::<i32>()), 1..50),
        ) {
            // The clock advances and may be set back. Labels are off by up to two seconds either
            // way.
            let (mut now, mut newest) = (1_000_000_000_000_i64, i64::MIN);
            for (passed, off) in steps {
                now += passed;
                prop_assert!(!is_late(now, newest, now));
                newest = now + i64::from(off);
            }
        }

        #[test]
        fn label_functions_do_not_panic_on_any_detail(detail in "\\PC{0,40}", digits in "\\PC{0,14}") {
            let _ = original_label_unix_ns(&detail);
            let _ = original_label_unix_ns(&format!("{MARK}{digits}"));
            let mut any = record(Record::TIME_MAX_UNIX_NS, &detail);
            any.bound_label(SET_FROM_UNIX_NS);
            prop_assert!(any.time_unix_ns == SET_FROM_UNIX_NS && any.check().is_ok());
        }
    }

    #[test]
    fn a_receiver_with_an_unset_clock_keeps_every_label() {
        for now in [i64::MIN, 0, SET_FROM_UNIX_NS - 1] {
            let mut new = record(SET_FROM_UNIX_NS + 7_000_000_000_000, "");
            assert_eq!(
                (new.bound_label(now), &new),
                (None, &record(SET_FROM_UNIX_NS + 7_000_000_000_000, ""))
            );
        }
    }

    #[test]
    fn bound_label_keeps_a_detail_that_is_full_or_not_an_object() {
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(Record::DETAIL_BYTES_MAX - 8));
        for detail in ["[1]", "7", &long] {
            let mut record = record(Record::TIME_MAX_UNIX_NS, detail);
            assert!(record.bound_label(SET_FROM_UNIX_NS).is_some());
            assert_eq!((record.time_unix_ns, record.detail.as_str()), (SET_FROM_UNIX_NS, detail));
        }
        assert_eq!(marked("{ }", 1_500_000_000).unwrap(), "{\"labelled_s\":1.500000000}");
    }
}
