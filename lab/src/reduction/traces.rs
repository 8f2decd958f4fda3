//! False timeouts on real series: attempts that each estimator would have cut off although the
//! response was on its way.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use barograph_timeout::{
    Adaptive, AdaptiveConfig, AttemptOutcome, MessageAttempts, Nws, NwsEscalating, Rfc6298, TimeoutEstimator,
};

use super::TraceArgs;
use crate::series::{files, name, read};
use crate::table::{Table, cells};

pub(crate) fn markdown(args: &TraceArgs) -> anyhow::Result<String> {
    let mut table = Table::titled(
        "series | attempts | mean+2sd | seed-escalating | rfc6298 | default | after an outlier",
    );
    for file in files(&args.dir, "csv", |name| name.starts_with("resp_") || name.starts_with("rtt_"))? {
        table.push(row(&name(&file), &times(&file)?));
    }
    Ok(format!(
        "# False timeouts on real series\n\nEvery value is the time of an attempt; one that takes longer than its \
         timeout is cut off, and the next value is its retry's. In percent of the attempts; each of these \
         answers was on its way. The default's budget is {:.0} % if retries prove to help, 3 % before. The \
         last column: one answer in the middle takes 1000 × the median; after this number of messages the \
         default's timeout stays below 10 × the median.\n\n{table}",
        100.0 * AdaptiveConfig::default().retry_budget
    ))
}

fn row(name: &str, times: &[Duration]) -> Vec<String> {
    let percent = |cut: usize| format!("{:.2}", 100.0 * cut as f64 / times.len() as f64);
    cells![
        name,
        times.len(),
        percent(replay(&mut Nws::new(2.0), times, |_| {})),
        percent(replay(&mut NwsEscalating(Nws::new(2.0)), times, |_| {})),
        percent(replay(&mut Rfc6298::default(), times, |_| {})),
        percent(replay(&mut Adaptive::default(), times, |_| {})),
        settles(times).map_or_else(|| "above without it".to_owned(), |after| after.to_string()),
    ]
}

/// Number of attempts that were cut off; `look_on` gets the first timeout of each message.
fn replay(link: &mut impl TimeoutEstimator, times: &[Duration], mut look_on: impl FnMut(Duration)) -> usize {
    let mut cut = 0;
    let mut message = MessageAttempts::new(BYTES, TRIES);
    let mut now = Duration::ZERO;
    for time in times {
        let attempt = message.attempt(now);
        let timeout = link.timeout(&attempt);
        if attempt.number == 0 {
            look_on(timeout);
        }
        if *time <= timeout {
            link.record(&attempt, AttemptOutcome::Completed(*time));
            (message, now) = (MessageAttempts::new(BYTES, TRIES), Duration::ZERO);
        } else {
            link.record(&attempt, AttemptOutcome::TimedOut(timeout));
            cut += 1;
            now += timeout;
            message.advance();
        }
    }
    cut
}

/// Number of messages until the default's timeout stays below ten medians, after one response in
/// the middle took a thousand medians: 0 if it never exceeds them, `None` if it exceeds them even
/// without the outlier.
fn settles(times: &[Duration]) -> Option<usize> {
    let mut sorted = times.to_vec();
    sorted.sort();
    let median = sorted[sorted.len() / 2];
    let middle = times.len() / 2;
    let end = (middle + WITHIN).min(times.len());
    let last_above = |times: &[Duration]| {
        let mut timeouts = Vec::new();
        replay(&mut Adaptive::default(), times, |timeout| timeouts.push(timeout));
        let after = &timeouts[timeouts.len().saturating_sub(WITHIN)..];
        after.iter().rposition(|timeout| 10 * median <= *timeout).map_or(0, |last| last + 1)
    };
    let mut with_outlier = times[..end].to_vec();
    with_outlier[middle] = 1000 * median;
    (last_above(&times[..end]) == 0).then(|| last_above(&with_outlier))
}

fn times(file: &Path) -> anyhow::Result<Vec<Duration>> {
    let (name, shown) = (name(file), file.display());
    let unit = if name.contains("_ms_") { 1e-3 } else { 1.0 };
    let time = |value: f64| {
        Duration::try_from_secs_f64(value * unit).with_context(|| format!("{shown}: {value} is not a time"))
    };
    let times: Vec<Duration> =
        read(file)?.iter().map(|sample| time(sample.value)).collect::<anyhow::Result<_>>()?;
    ensure!(times.len() > WITHIN, "{shown}: {} values; more than {WITHIN} are needed", times.len());
    Ok(times)
}

/// The series have no sizes, so all messages have the same.
const BYTES: u64 = 1000;
const TRIES: u32 = 5;

/// Messages after the outlier within which the timeout must settle.
const WITHIN: usize = 300;
