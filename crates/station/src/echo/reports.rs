//! Reports of pages about their measurements, kept as series of the station if the setting
//! `echo.keep` is true.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_forecast::{Battery, Name, Outcome, Quantity, SeriesId};
use serde::Deserialize;

use super::Caller;
use crate::config::EchoConfig;
use crate::forecast::series::{Measurement, SeriesTable, bounds};
use crate::record::recorder::Inbox;
use crate::sync::lock;
use crate::time::now_unix_ns;
use barograph_limits::accounts::Accounts;
use barograph_limits::caller_group::limit_address;
use barograph_limits::token_bucket::Rate;

/// One value that a page has measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PageMeasurement {
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

impl PageMeasurement {
    /// Parses a text message; `None` if the text is not a valid report.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
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

/// Keeps reports, within limits for all sessions together.
#[derive(Debug)]
pub(super) struct PageReports {
    is_enabled: AtomicBool,
    host: Name,
    inbox: Inbox,
    series_table: Arc<Mutex<SeriesTable>>,
    sources_max: usize,
    quota: Mutex<ReportQuota>,
    /// Number of reports dropped because of a limit.
    crowded_out: AtomicU64,
}

#[derive(Debug)]
struct ReportQuota {
    /// Names that are in use.
    sources: HashMap<Name, SourceUse>,
    accounts: Accounts,
}

#[derive(Debug)]
struct SourceUse {
    /// Address that used the name first; `None` if a caller on this host used the name first, or if
    /// the name was used before the start.
    by: Option<IpAddr>,
    last: Duration,
}

/// Reports of one session: the name of the page, and the time of the last report of each quantity.
#[derive(Debug, Default)]
pub(super) struct SessionReports {
    name: Option<Name>,
    last: [Option<Duration>; QUANTITIES.len()],
}

impl PageReports {
    pub(super) fn new(
        config: &EchoConfig,
        host: Name,
        inbox: Inbox,
        series_table: Arc<Mutex<SeriesTable>>,
    ) -> Self {
        let rate = config.keep_reports_per_hour;
        let quota = ReportQuota {
            sources: known_names(&mut lock(&series_table)),
            accounts: Accounts::new(Rate::per_hour(rate), Rate::per_hour(rate / EACH_SHARE)),
        };
        Self {
            is_enabled: AtomicBool::new(config.keep),
            host,
            inbox,
            series_table,
            sources_max: config.keep_sources_max,
            quota: Mutex::new(quota),
            crowded_out: AtomicU64::new(0),
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    pub(super) fn set_enabled(&self, enabled: bool) {
        self.is_enabled.store(enabled, Ordering::Relaxed);
    }

    /// Keeps the report in `text`, received at the monotonic time `now`; returns false if the
    /// report is dropped.
    pub(super) fn take(
        &self,
        text: &str,
        caller: Caller,
        session: &mut SessionReports,
        now: Duration,
    ) -> bool {
        if !self.is_enabled() {
            return false;
        }
        let Some(report) = PageMeasurement::parse(text) else { return false };
        if !session.allows(&report, now) {
            return false;
        }
        let by = (!caller.is_local).then(|| limit_address(caller.ip));
        let PageMeasurement { source, quantity, value } = report;
        let series = SeriesId { source, target: self.host.clone(), quantity };
        let (time_unix_ns, outcome) = (now_unix_ns(), Outcome::Value(value));
        let source = series.source.clone();
        let is_kept = self.has_room_for_series(&series)
            && lock(&self.quota).admits(&series.source, by, self.sources_max, now)
            && self.inbox.offer_optional(Measurement {
                series,
                time_unix_ns,
                outcome,
                detail: String::new(),
            });
        if is_kept {
            lock(&self.series_table).mark_evictable(&source);
        }
        self.crowded_out.fetch_add((!is_kept).into(), Ordering::Relaxed);
        is_kept
    }

    pub(super) fn crowded_out(&self) -> u64 {
        self.crowded_out.load(Ordering::Relaxed)
    }

    /// Whether the series table has room for the series of a report. New names of pages add series
    /// all the time, so half of all series are kept for measurements of hosts. Series of pages are
    /// also removed if stations need the series that are reserved for them.
    fn has_room_for_series(&self, series: &SeriesId) -> bool {
        let series_table = lock(&self.series_table);
        series_table.series_max() / 2 < series_table.room() || series_table.get(series).is_some()
    }
}

/// Names of pages that already have series: pages used these names before the station was started.
fn known_names(series_table: &mut SeriesTable) -> HashMap<Name, SourceUse> {
    let known = series_table.names(&barograph_engine::Selector::default()).into_iter();
    let names = known.map(|series| series.source).filter(|name| name.as_str().starts_with(PREFIX));
    let known =
        names.map(|name| (name, SourceUse { by: None, last: Duration::ZERO })).collect::<HashMap<_, _>>();
    known.keys().for_each(|name| series_table.mark_evictable(name));
    known
}

impl ReportQuota {
    /// Whether the limits permit another report under `source`; if so, charges the report.
    fn admits(&mut self, source: &Name, by: Option<IpAddr>, sources_max: usize, now: Duration) -> bool {
        if !self.has_room_for(source, by, sources_max, now) {
            return false;
        }
        let has_paid = match by {
            Some(ip) => self.accounts.pay(ip, 1, now),
            None => self.accounts.pay_total(1, now),
        };
        if has_paid {
            self.sources.entry(source.clone()).or_insert(SourceUse { by, last: now }).last = now;
        }
        has_paid
    }

    fn has_room_for(&mut self, source: &Name, by: Option<IpAddr>, sources_max: usize, now: Duration) -> bool {
        if self.sources.contains_key(source) {
            return true;
        }
        self.sources.retain(|_, used| now.saturating_sub(used.last) < IDLE_MAX);
        let own = self.sources.values().filter(|used| used.by == by).count();
        let own_max = usize::max(1, sources_max / EACH_SHARE as usize);
        self.sources.len() < sources_max && (by.is_none() || own < own_max)
    }
}

impl SessionReports {
    /// Whether a session may send `report`. The report must have the name of the session's first
    /// report, and must arrive at least [`PERIOD_MIN`] after the session's last report of the same
    /// quantity.
    fn allows(&mut self, report: &PageMeasurement, now: Duration) -> bool {
        if *self.name.get_or_insert_with(|| report.source.clone()) != report.source {
            return false;
        }
        let at = QUANTITIES.iter().position(|word| *word == report.quantity.as_str());
        let Some(last) = at.and_then(|at| self.last.get_mut(at)) else { return false };
        let allows = last.is_none_or(|last| now.saturating_sub(last) >= PERIOD_MIN);
        if allows {
            *last = Some(now);
        }
        allows
    }
}

/// Quantities that a page may report.
const QUANTITIES: [&str; 5] = ["rtt", "rtt_nagle", "rtt_loaded", "goodput", "goodput_down"];
/// Prefix of the names of pages. No open invitation accepts such a name, so a report of a page is
/// never taken for a measurement of a member.
const PREFIX: &str = "web:";
/// Maximum number of bytes of a page's name. A random name of 128 bits in hexadecimal is half as
/// long.
const NAME_BYTES_MAX: usize = 64;
/// Maximum number of bytes of a report; the longest valid report is shorter.
const TEXT_BYTES_MAX: usize = 256;
/// Shortest time between two reports of a quantity. A page measures at most once a second. The
/// limit is half a second, because timers of pages are inaccurate.
const PERIOD_MIN: Duration = Duration::from_millis(500);
/// Divisor for the share of one address of another host. The share is a quarter of the names and a
/// quarter of the reports per hour, as for sessions.
const EACH_SHARE: u64 = 4;
/// Time without reports after which a source name is removed to make room for another source name:
/// twelve times the longest report period of a page. The removed name may be used again later.
const IDLE_MAX: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::forecast::series::ObserveResult;

    #[test]
    fn a_report_is_a_small_object_with_a_plain_name_and_a_possible_value() {
        let report =
            PageMeasurement::parse(r#"{"source":"a1-b_c.d","quantity":"rtt_loaded","value":0.25}"#).unwrap();
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
            assert_eq!(PageMeasurement::parse(bad), None, "{bad}");
        }
        let long = format!(r#"{{"source":"{}","quantity":"rtt","value":1}}"#, "a".repeat(65));
        assert_eq!(PageMeasurement::parse(&long), None);
        let padded = format!(r#"{{"source":"a","quantity":"rtt","value":1{}}}"#, " ".repeat(256));
        assert_eq!(PageMeasurement::parse(&padded), None);
    }

    #[test]
    fn series_of_pages_give_way_to_series_reserved_for_a_station() {
        let mut series_table = SeriesTable::new(10);
        let observe = |series_table: &mut SeriesTable, source: &str, target: u8| {
            let source = Name::new(source).unwrap();
            let series = SeriesId {
                source,
                target: Name::new(&format!("t{target}")).unwrap(),
                quantity: Quantity::RTT,
            };
            series_table.observe(&Measurement {
                series,
                time_unix_ns: 1,
                outcome: Outcome::Value(1.0),
                detail: String::new(),
            })
        };
        for target in 0..10 {
            observe(&mut series_table, &format!("{PREFIX}{}", target / 5), target);
        }
        assert_eq!(known_names(&mut series_table).len(), 2);
        series_table.reserve([(Name::new("a").unwrap(), 4)].into());
        for target in 0..4 {
            assert!(matches!(observe(&mut series_table, "a", target), ObserveResult::New(_)), "{target}");
        }
        assert!(
            matches!(observe(&mut series_table, "a", 4), ObserveResult::Refused),
            "it has what was promised"
        );
    }

    fn named(source: &str, quantity: &str) -> PageMeasurement {
        let source = Name::new(&format!("{PREFIX}{source}")).unwrap();
        PageMeasurement { source, quantity: Quantity::new(quantity).unwrap(), value: 1.0 }
    }

    #[test]
    fn each_quantity_of_a_session_has_its_own_rate_limit() {
        let mut session = SessionReports::default();
        let mut allows = |quantity, ms| session.allows(&named("a", quantity), Duration::from_millis(ms));
        assert!(allows("rtt", 0) && allows("goodput", 1));
        assert!(!allows("rtt", 499));
        assert!(allows("rtt", 500));
        assert!(!allows("cpu_available", 9000), "pages have none");
    }

    #[test]
    fn a_session_keeps_its_first_name() {
        let mut session = SessionReports::default();
        assert!(session.allows(&named("a", "rtt"), Duration::ZERO));
        assert!(!session.allows(&named("b", "goodput"), Duration::ZERO));
        assert!(session.allows(&named("a", "goodput"), Duration::ZERO));
    }

    fn quota(reports_per_hour: u64) -> ReportQuota {
        let (all, each) = (Rate::per_hour(reports_per_hour), Rate::per_hour(reports_per_hour / EACH_SHARE));
        ReportQuota { sources: HashMap::new(), accounts: Accounts::new(all, each) }
    }

    #[test]
    fn an_address_gets_a_quarter_of_the_names_and_idle_names_are_replaced() {
        let mut quota = quota(36_000);
        let minute = |minutes| Duration::from_mins(minutes);
        let mut admits = |name: &str, by: Option<u8>, at| {
            quota.admits(&named(name, "rtt").source, by.map(|i| [192, 0, 2, i].into()), 8, at)
        };
        assert!(admits("a", Some(1), minute(0)) && admits("b", Some(1), minute(0)));
        assert!(!admits("c", Some(1), minute(0)), "two of eight");
        for (at, name) in ["c", "d", "e", "f", "g", "h"].into_iter().enumerate() {
            assert!(admits(name, if at < 2 { Some(2) } else { None }, minute(1)), "{name}");
        }
        assert!(!admits("i", None, minute(1)), "all are in use");
        assert!(admits("a", Some(1), minute(30)));
        assert!(admits("i", Some(1), minute(60)), "b is idle");
        assert!(!admits("b", Some(1), minute(60)));
        assert!(admits("b", Some(1), minute(120)), "it may come back");
    }

    #[test]
    fn an_address_gets_a_quarter_of_the_reports() {
        let mut quota = quota(3200);
        let source = named("a", "rtt").source;
        let mut count =
            |by: Option<IpAddr>| (0..1000).filter(|_| quota.admits(&source, by, 8, Duration::ZERO)).count();
        // An eighth of the hour's reports may be used at once.
        assert_eq!(count(Some([192, 0, 2, 1].into())), 100);
        assert_eq!(count(None), 300, "this host is bound by the rest of all");
    }
}
