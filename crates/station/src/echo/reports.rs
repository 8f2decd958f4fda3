//! What pages report of their measurements, kept as series of the station where its operator wants that.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barograph_forecast::{Battery, Name, Outcome, Quantity, Series};
use serde::Deserialize;

use super::limits::{Account, Rate};
use crate::bank::{Bank, Measured, bounds};
use crate::config::EchoConfig;
use crate::health::lock;
use crate::prober::now_unix_ns;
use crate::recorder::Inbox;

/// One value that a page has measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    /// `web:` and the name that the page gives itself.
    pub(crate) source: Name,
    pub(crate) quantity: Quantity,
    pub(crate) value: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportJson {
    source: String,
    quantity: String,
    value: f64,
}

impl Report {
    /// Reads a text message; `None` = it is no report that could be kept.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if TEXT_BYTES_MAX < text.len() {
            return None;
        }
        let report: ReportJson = serde_json::from_str(text).ok()?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name =
            (1..=NAME_BYTES_MAX).contains(&report.source.len()) && report.source.bytes().all(is_plain);
        if !is_name || !QUANTITIES.contains(&report.quantity.as_str()) {
            return None;
        }
        let quantity = Quantity::new(&report.quantity).ok()?;
        let (least, most) = bounds(&quantity);
        let is_possible = (least..=most.min(Battery::VALUE_MAX)).contains(&report.value);
        let source = Name::new(&format!("{PREFIX}{}", report.source)).ok()?;
        is_possible.then_some(Self { source, quantity, value: report.value })
    }
}

/// Keeps reports within the bounds of all sessions together.
#[derive(Debug)]
pub(super) struct Keeper {
    keeps: AtomicBool,
    host: Name,
    inbox: Inbox,
    sources_max: usize,
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    /// Every source that has a series.
    sources: HashSet<Name>,
    account: Account,
}

/// When one session reported each quantity last.
#[derive(Debug, Default)]
pub(super) struct Pace([Option<Duration>; QUANTITIES.len()]);

impl Keeper {
    pub(super) fn new(config: &EchoConfig, host: Name, inbox: Inbox, bank: &Bank) -> Self {
        let known = bank.select(&barograph_engine::Selector::default()).into_iter();
        let sources =
            known.map(|(series, _)| &series.source).filter(|name| name.as_str().starts_with(PREFIX));
        let book = Book {
            sources: sources.cloned().collect(),
            account: Account::new(Rate::per_hour(config.keep_reports_per_hour)),
        };
        Self {
            keeps: AtomicBool::new(config.keep),
            host,
            inbox,
            sources_max: config.keep_sources_max,
            book: Mutex::new(book),
        }
    }

    pub(super) fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Relaxed)
    }

    pub(super) fn set_keeps(&self, keeps: bool) {
        self.keeps.store(keeps, Ordering::Relaxed);
    }

    /// Keeps what `text` reports at the monotonic time `now`; false = it is dropped.
    pub(super) fn take(&self, text: &str, pace: &mut Pace, now: Duration) -> bool {
        if !self.keeps() {
            return false;
        }
        let Some(report) = Report::parse(text) else { return false };
        if !pace.allows(&report.quantity, now) || !self.has_room_for(&report.source, now) {
            return false;
        }
        let Report { source, quantity, value } = report;
        self.inbox.offer_spare(Measured {
            series: Series { source, target: self.host.clone(), quantity },
            time_unix_ns: now_unix_ns(),
            outcome: Outcome::Value(value),
            detail: String::new(),
        })
    }

    fn has_room_for(&self, source: &Name, now: Duration) -> bool {
        let mut book = lock(&self.book);
        let is_known = book.sources.contains(source);
        if (!is_known && self.sources_max <= book.sources.len()) || !book.account.pay(1, now) {
            return false;
        }
        if !is_known {
            book.sources.insert(source.clone());
        }
        true
    }
}

impl Pace {
    fn allows(&mut self, quantity: &Quantity, now: Duration) -> bool {
        let at = QUANTITIES.iter().position(|word| *word == quantity.as_str());
        let Some(last) = at.and_then(|at| self.0.get_mut(at)) else { return false };
        let allows = last.is_none_or(|last| PERIOD_MIN <= now.saturating_sub(last));
        if allows {
            *last = Some(now);
        }
        allows
    }
}

/// What a page measures.
const QUANTITIES: [&str; 5] = ["rtt", "rtt_nagle", "rtt_loaded", "goodput", "goodput_down"];
/// No host's name has a colon: what a page says is never taken for a host's own measurement.
const PREFIX: &str = "web:";
/// A random name of 128 bits in hexadecimal is half as long.
const NAME_BYTES_MAX: usize = 64;
/// The longest report, with room to spare.
const TEXT_BYTES_MAX: usize = 256;
/// A page measures once a second at most; half of that leaves room for its timer.
const PERIOD_MIN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_report_is_a_small_object_with_a_plain_name_and_a_possible_value() {
        let report = Report::parse(r#"{"source":"a1-b_c.d","quantity":"rtt_loaded","value":0.25}"#).unwrap();
        assert_eq!((report.source.as_str(), report.value), ("web:a1-b_c.d", 0.25));
        for bad in [
            "",
            "{}",
            "[1]",
            r#"{"source":"a","quantity":"rtt"}"#,
            r#"{"source":"a","quantity":"rtt","value":-1}"#,
            r#"{"source":"a","quantity":"rtt","value":1e999}"#,
            r#"{"source":"a","quantity":"rtt","value":null}"#,
            r#"{"source":"a","quantity":"cpu_available","value":1}"#,
            r#"{"source":"","quantity":"rtt","value":1}"#,
            r#"{"source":"a b","quantity":"rtt","value":1}"#,
            r#"{"source":"a\u0000","quantity":"rtt","value":1}"#,
            r#"{"source":"a","quantity":"rtt","value":1,"time_s":0}"#,
        ] {
            assert_eq!(Report::parse(bad), None, "{bad}");
        }
        let long = format!(r#"{{"source":"{}","quantity":"rtt","value":1}}"#, "a".repeat(65));
        assert_eq!(Report::parse(&long), None);
        let padded = format!(r#"{{"source":"a","quantity":"rtt","value":1{}}}"#, " ".repeat(256));
        assert_eq!(Report::parse(&padded), None);
    }

    #[test]
    fn each_quantity_of_a_session_has_its_own_pace() {
        let mut pace = Pace::default();
        let mut allows = |quantity, ms| pace.allows(&quantity, Duration::from_millis(ms));
        assert!(allows(Quantity::RTT, 0) && allows(Quantity::GOODPUT, 1));
        assert!(!allows(Quantity::RTT, 499));
        assert!(allows(Quantity::RTT, 500));
        assert!(!allows(Quantity::CPU_AVAILABLE, 9000), "pages have none");
    }
}
