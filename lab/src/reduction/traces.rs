//! False timeouts on real series: what each estimator would have cut off though the answer was on its way.

use anyhow::{Context, ensure};
use barograph_study::input::SeriesReader;
use barograph_timeout::{Adaptive, Config, Ended, Exchange, Nws, NwsEscalating, Rfc6298, Timeout};
use clap::Args as ClapArgs;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::forecast::report::aligned;

/// What is replayed.
#[derive(ClapArgs)]
pub(crate) struct TraceArgs {
    /// A folder of series; its `resp_*.csv` and `rtt_*.csv` are replayed, in milliseconds where the name says
    /// `_ms_`, else in seconds.
    dir: PathBuf,
}

/// A row for each series, a column for each estimator.
pub(crate) fn markdown(args: &TraceArgs) -> anyhow::Result<String> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(&args.dir)
        .with_context(|| format!("cannot read {}", args.dir.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    files.retain(|file| {
        let name = name(file);
        file.extension().is_some_and(|end| end == "csv")
            && (name.starts_with("resp_") || name.starts_with("rtt_"))
    });
    files.sort();
    ensure!(!files.is_empty(), "{}: no resp_*.csv and no rtt_*.csv", args.dir.display());
    let mut rows = vec![ESTIMATORS.map(str::to_owned).to_vec()];
    for file in &files {
        rows.push(row(&name(file), &times(file)?));
    }
    let budget = Config::default().budget;
    Ok(format!(
        "# False timeouts on real series\n\nEvery value is the time of an attempt; one that takes longer than its \
         timeout is cut off, and the next value is its retry's. In percent of the attempts; each of these \
         answers was on its way. The default's budget is {:.0} % where retries prove to help, 3 % before. The \
         last column: one answer in the middle takes 1000 × the median; after so many messages more the \
         default's timeout is below 10 × the median for good.\n\n{}",
        100.0 * budget,
        aligned(&rows)
    ))
}

const ESTIMATORS: [&str; 7] =
    ["series", "attempts", "mean+2sd", "seed-escalating", "rfc6298", "default", "after an outlier"];

fn row(name: &str, times: &[Duration]) -> Vec<String> {
    let percent = |cut: usize| format!("{:.2}", 100.0 * cut as f64 / times.len() as f64);
    vec![
        name.to_owned(),
        times.len().to_string(),
        percent(replay(&mut Nws::new(2.0), times, |_| {})),
        percent(replay(&mut NwsEscalating(Nws::new(2.0)), times, |_| {})),
        percent(replay(&mut Rfc6298::default(), times, |_| {})),
        percent(replay(&mut Adaptive::default(), times, |_| {})),
        settles(times).map_or_else(|| "above without it".to_owned(), |after| after.to_string()),
    ]
}

/// How many attempts were cut off; `look_on` sees the timeout of each message.
fn replay(link: &mut impl Timeout, times: &[Duration], mut look_on: impl FnMut(Duration)) -> usize {
    let mut cut = 0;
    let mut exchange = Exchange::new(BYTES, TRIES);
    let mut now = Duration::ZERO;
    for time in times {
        let attempt = exchange.attempt(now);
        let timeout = link.timeout(&attempt);
        if attempt.number == 0 {
            look_on(timeout);
        }
        if *time <= timeout {
            link.record(&attempt, Ended::Answered(*time));
            (exchange, now) = (Exchange::new(BYTES, TRIES), Duration::ZERO);
        } else {
            link.record(&attempt, Ended::TimedOut(timeout));
            cut += 1;
            now += timeout;
            exchange.again();
        }
    }
    cut
}

/// After how many messages the default's timeout stays below ten medians, when one answer in the middle takes
/// a thousand: 0 if it always was, `None` if it is not even without.
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
    let shown = file.display();
    let opened = File::open(file).with_context(|| format!("cannot read {shown}"))?;
    let unit = if name(file).contains("_ms_") { 1e-3 } else { 1.0 };
    let mut times = Vec::new();
    for point in SeriesReader::new(BufReader::new(opened)) {
        let value = point.with_context(|| format!("{shown} is no series"))?.value;
        let time = Duration::try_from_secs_f64(value * unit);
        times.push(time.with_context(|| format!("{shown}: {value} is no time"))?);
    }
    ensure!(WITHIN < times.len(), "{shown}: {} values are too few", times.len());
    Ok(times)
}

fn name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The series do not say: all of one size.
const BYTES: u64 = 1000;

/// As in the scenarios.
const TRIES: u32 = 5;

/// The window after an outlier in which the timeout must settle.
const WITHIN: usize = 300;
