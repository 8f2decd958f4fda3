//! Was the chosen host the fastest, and were the real times inside their intervals?

use barograph_api::{HostForecast, HostRanking};
use serde::Serialize;

use crate::stats::{geometric_mean, mean_of_some};
use crate::table::{Table, cells, dash, number, percent};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// The host that was named best was the fastest.
    Right,
    /// No host was named, and the fastest was among those too close to call.
    TooClose,
    /// A slower host was named, or the fastest was not among those too close to call.
    Wrong,
    /// No host had a time.
    Unknown,
}

/// An answer beside the times that the transfers took right after it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Question {
    pub(super) bytes: u64,
    pub(super) verdict: Verdict,
    pub(super) best: Option<String>,
    pub(super) too_close_to_call: Vec<String>,
    pub(super) fastest: String,
    /// Real time to the host with the shortest forecast, divided by the fastest; absent without a
    /// forecast.
    pub(super) first_over_fastest: Option<f64>,
    pub(super) times: Vec<HostTime>,
}

/// Real time of a transfer to a host, and what was forecast (s).
#[derive(Clone, Debug, Serialize)]
pub(super) struct HostTime {
    pub(super) host: String,
    pub(super) real_s: f64,
    pub(super) forecast: Option<Interval>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Interval {
    pub(super) lower_s: f64,
    pub(super) forecast_s: f64,
    pub(super) upper_s: f64,
}

impl Question {
    /// Scores an answer; `None` without real times.
    pub(super) fn of(bytes: u64, answer: &HostRanking, real: &[(&str, f64)]) -> Option<Self> {
        let (fastest, fastest_s) = *real.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let real_of = |host: &str| real.iter().find(|(name, _)| *name == host).map(|(_, real_s)| *real_s);
        let first_s = answer.hosts.first().and_then(|first| real_of(&first.host));
        Some(Self {
            bytes,
            verdict: verdict(answer, fastest),
            best: answer.best.clone(),
            too_close_to_call: answer.too_close_to_call.clone(),
            fastest: fastest.to_owned(),
            first_over_fastest: first_s.map(|first_s| first_s / fastest_s),
            times: real.iter().map(|(host, real_s)| HostTime::of(host, *real_s, answer)).collect(),
        })
    }
}

impl HostTime {
    fn of(host: &str, real_s: f64, answer: &HostRanking) -> Self {
        let forecast = forecast_of(answer, host).map(|forecast| Interval {
            lower_s: forecast.lower,
            forecast_s: forecast.forecast,
            upper_s: forecast.upper,
        });
        Self { host: host.to_owned(), real_s, forecast }
    }
}

/// The forecast for `host`, if the station has one.
pub(super) fn forecast_of<'a>(answer: &'a HostRanking, host: &str) -> Option<&'a HostForecast> {
    answer.hosts.iter().find(|forecast| forecast.host == host)
}

fn verdict(answer: &HostRanking, fastest: &str) -> Verdict {
    match &answer.best {
        Some(best) if best == fastest => Verdict::Right,
        Some(_) => Verdict::Wrong,
        None if answer.too_close_to_call.is_empty() => Verdict::Unknown,
        None if answer.too_close_to_call.iter().any(|host| host == fastest) => Verdict::TooClose,
        None => Verdict::Wrong,
    }
}

/// Table of the verdicts by size, with all sizes in the last row.
pub(super) fn verdicts(questions: &[Question]) -> Table {
    let mut table = Table::titled(
        "size | questions | right | too close | hosts too close | wrong | no answer | right or too close, % | \
         first ÷ fastest",
    );
    for (name, group) in groups(questions) {
        let count = |verdict: Verdict| group.iter().filter(|question| question.verdict == verdict).count();
        let [right, close] = [Verdict::Right, Verdict::TooClose].map(count);
        let ratios: Vec<f64> = group.iter().filter_map(|question| question.first_over_fastest).collect();
        let named: Vec<f64> = group
            .iter()
            .filter(|question| question.verdict == Verdict::TooClose)
            .map(|question| question.too_close_to_call.len() as f64)
            .collect();
        table.push(cells![
            name,
            group.len(),
            right,
            close,
            number(mean_of_some(&named), 1),
            count(Verdict::Wrong),
            count(Verdict::Unknown),
            percent((right + close) as f64 / group.len() as f64),
            number(mean_of_some(&ratios), 2),
        ]);
    }
    table
}

/// Table of real times against their intervals by size, with all sizes in the last row.
pub(super) fn intervals_by_size(questions: &[Question]) -> Table {
    let mut table = Table::titled(&format!("size | {INTERVALS}"));
    for (name, group) in groups(questions) {
        let times = group.iter().flat_map(|question| &question.times);
        table.push([name].into_iter().chain(Hits::of(times).cells()));
    }
    table
}

/// Table of real times against their intervals, by host.
pub(super) fn intervals_by_host(questions: &[Question], hosts: &[&str]) -> Table {
    let mut table = Table::titled(&format!("host | {INTERVALS}"));
    for host in hosts {
        let times = questions.iter().flat_map(|question| &question.times);
        let hits = Hits::of(times.filter(|time| time.host == *host));
        table.push([(*host).to_owned()].into_iter().chain(hits.cells()));
    }
    table
}

/// Questions of each size that occurs, smallest first, then all.
fn groups(questions: &[Question]) -> Vec<(String, Vec<&Question>)> {
    let mut sizes: Vec<u64> = questions.iter().map(|question| question.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let of = |bytes: u64| questions.iter().filter(|question| question.bytes == bytes).collect::<Vec<_>>();
    let all = ("all".to_owned(), questions.iter().collect::<Vec<_>>());
    sizes.into_iter().map(|bytes| (size_name(bytes), of(bytes))).chain([all]).collect()
}

/// A number of bytes in powers of 1000.
pub(super) fn size_name(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes as f64 / 1e3),
        _ => format!("{} MB", bytes as f64 / 1e6),
    }
}

const INTERVALS: &str = "times | inside, % | faster, % | slower, % | real ÷ forecast | upper ÷ lower";

/// How real times were to their intervals.
#[derive(Clone, Debug, Default, PartialEq)]
struct Hits {
    /// Transfers to hosts with a forecast.
    times: usize,
    /// Times below the lower end.
    faster: usize,
    /// Times above the upper end.
    slower: usize,
    /// Real time divided by the forecast one.
    ratios: Vec<f64>,
    /// Upper end divided by the lower one.
    widths: Vec<f64>,
}

impl Hits {
    fn of<'a>(times: impl Iterator<Item = &'a HostTime>) -> Self {
        let mut hits = Self::default();
        for (real_s, interval) in times.filter_map(|time| Some((time.real_s, time.forecast?))) {
            hits.times += 1;
            hits.faster += usize::from(real_s < interval.lower_s);
            hits.slower += usize::from(interval.upper_s < real_s);
            hits.ratios.push(real_s / interval.forecast_s);
            hits.widths.push(interval.upper_s / interval.lower_s);
        }
        hits
    }

    fn cells(&self) -> Vec<String> {
        let share = |count: usize| {
            if self.times == 0 { dash() } else { percent(count as f64 / self.times as f64) }
        };
        let ratio = |ratios: &[f64]| {
            let mean = geometric_mean(ratios.iter().copied());
            if mean.is_nan() { dash() } else { format!("{mean:.2}") }
        };
        let inside = self.times - self.faster - self.slower;
        let [faster, slower] = [self.faster, self.slower].map(share);
        cells![self.times, share(inside), faster, slower, ratio(&self.ratios), ratio(&self.widths)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(best: Option<&str>, too_close: &[&str], forecasts: &[(&str, [f64; 3])]) -> HostRanking {
        let host = |(host, [lower, forecast, upper]): &(&str, [f64; 3])| HostForecast {
            host: (*host).to_owned(),
            forecast: *forecast,
            lower: *lower,
            upper: *upper,
            ..HostForecast::default()
        };
        HostRanking {
            best: best.map(str::to_owned),
            too_close_to_call: too_close.iter().map(|host| (*host).to_owned()).collect(),
            hosts: forecasts.iter().map(host).collect(),
            ..HostRanking::default()
        }
    }

    const REAL: [(&str, f64); 3] = [("a", 2.0), ("b", 1.0), ("c", 4.0)];

    fn question(best: Option<&str>, too_close: &[&str]) -> Question {
        let forecasts = [("a", [0.5, 1.0, 1.5]), ("b", [0.8, 1.1, 1.4]), ("c", [4.5, 5.0, 6.0])];
        Question::of(10_000, &answer(best, too_close, &forecasts), &REAL).expect("there are times")
    }

    #[test]
    fn only_the_fastest_host_or_a_close_call_with_it_is_right() {
        assert_eq!(question(Some("b"), &[]).verdict, Verdict::Right);
        assert_eq!(question(Some("a"), &[]).verdict, Verdict::Wrong);
        assert_eq!(question(None, &["a", "b"]).verdict, Verdict::TooClose);
        assert_eq!(question(None, &["a", "c"]).verdict, Verdict::Wrong);
        assert_eq!(question(None, &[]).verdict, Verdict::Unknown);
    }

    #[test]
    fn a_detour_is_the_time_to_the_first_host_over_the_fastest_time() {
        let question = question(Some("b"), &[]);
        assert_eq!((question.fastest.as_str(), question.first_over_fastest), ("b", Some(2.0)));
        let nothing = Question::of(1, &answer(None, &[], &[]), &REAL).expect("there are times");
        assert_eq!(nothing.first_over_fastest, None);
        assert!(Question::of(1, &answer(None, &[], &[]), &[]).is_none());
    }

    #[test]
    fn times_are_inside_their_interval_or_faster_or_slower() {
        let question = question(Some("b"), &[]);
        let hits = Hits::of(question.times.iter());
        assert_eq!((hits.times, hits.faster, hits.slower), (3, 1, 1));
        let cells = hits.cells();
        assert_eq!(cells[..4], ["3", "33.3", "33.3", "33.3"]);
        // (2 × 1 ÷ 1.1 × 4 ÷ 5)^(1/3)
        assert_eq!(cells[4], "1.13");
    }

    #[test]
    fn hosts_without_a_forecast_are_not_counted() {
        let question = Question::of(1, &answer(Some("b"), &[], &[("b", [0.5, 1.0, 2.0])]), &REAL);
        let question = question.expect("there are times");
        assert_eq!(Hits::of(question.times.iter()).times, 1);
        assert_eq!(Hits::of([].into_iter()).cells()[1], dash());
    }

    #[test]
    fn a_close_call_shows_how_many_hosts_it_names() {
        let all = [question(None, &["a", "b"]), question(None, &["a", "b", "c"]), question(Some("b"), &[])];
        let table = verdicts(&all).to_string();
        let last = table.lines().last().expect("there is a row for all sizes");
        let cells: Vec<&str> = last.split('|').map(str::trim).collect();
        assert_eq!(cells[3..6], ["1", "2", "2.5"], "{table}");
    }

    #[test]
    fn tables_have_a_row_for_each_size_and_one_for_all() {
        let small = question(Some("b"), &[]);
        let large = Question { bytes: 100_000_000, ..question(Some("a"), &[]) };
        let all = [large, small];
        let table = verdicts(&all).to_string();
        let first_cells: Vec<&str> =
            table.lines().skip(2).filter_map(|line| line.split('|').nth(1)).map(str::trim).collect();
        assert_eq!(first_cells, ["10 kB", "100 MB", "all"]);
        assert!(table.lines().last().is_some_and(|line| line.contains("50.0")), "{table}");
        assert_eq!(intervals_by_size(&all).to_string().lines().count(), 5);
        assert_eq!(intervals_by_host(&all, &["a", "b"]).to_string().lines().count(), 4);
    }
}
