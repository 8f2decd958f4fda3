//! Turns when many stations test each other: how many are skipped because another test is running,
//! and whether each pair is measured as often as the plan promises.
//!
//! Time is compressed: turns of [`EVERY`] with tests of [`LENGTH`] instead of 5 min and 5 s. The
//! share of time that a host spends in tests decides how often two tests meet. It is several times
//! what the default budget permits; back-offs keep their length.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use anyhow::{Context as _, ensure};
use barograph_mesh::{BudgetConfig, Cost, MeshSize, PlanConfig, PlanPrediction, predict};
use serde::Serialize;

use super::station::{Station, machine_busy_s, wait_until_met};
use super::{Args, Engine};
use crate::http::get;
use crate::machine::now_s;
use crate::stats::{Rank, mean, quantile, range, sorted};
use crate::table::{Table, cells};

/// What was measured; times in seconds.
#[derive(Serialize)]
pub(super) struct Report {
    stations: usize,
    group: usize,
    engine: Engine,
    every_s: f64,
    test_s: f64,
    watched_s: f64,
    busy: f64,
    processors: usize,
    /// Turns with a test; `failed` counts the tests without a rate.
    made: f64,
    failed: f64,
    /// Turns in which all peers refused.
    skipped: f64,
    /// Turns deferred because the station itself was in a test or had used its budget.
    deferred: f64,
    refusals: f64,
    /// Tests that exceeded the limit of bytes or time of one test.
    over: usize,
    /// Share of time that a station spent in tests as source or target: mean and largest.
    share: [f64; 2],
    share_max: f64,
    revisit: Revisit,
}

#[derive(Serialize)]
struct Revisit {
    /// Ordered pairs of stations that share a group, and those without any value.
    pairs: usize,
    unmeasured: usize,
    /// Time between two tests of a pair: promised, and measured on average.
    promised_s: f64,
    mean_s: f64,
    /// Longest wait of any pair: promised, and measured as 90th percentile and maximum.
    longest_promised_s: f64,
    longest_s: [f64; 2],
    /// Share of pairs that never waited longer than promised.
    in_time: f64,
}

/// Counters of a station since its start.
#[derive(Clone, Copy, Default)]
struct Counts {
    done: f64,
    failed: f64,
    refused: f64,
    skipped: f64,
    deferred: f64,
    spent_s: f64,
}

/// Tests that gave a rate: by source and target, the start of each (s since 1970).
type TestStarts = BTreeMap<(String, String), Vec<f64>>;

pub(super) fn measure(args: &Args, directory: &Path) -> anyhow::Result<Report> {
    let Args { stations, group, .. } = *args;
    ensure!(
        group >= 2 && stations.is_multiple_of(group),
        "{stations} stations cannot be divided into sites of {group}: give a --group of 2 or more that divides --stations"
    );
    let promised = promised(group)?;
    let cluster = args.cluster(directory)?;
    let archive = Station::archive(&args.program, directory, cluster.as_ref(), &args.set)?;
    let member = |index| {
        let mut set = settings(index / group);
        set.extend(args.set.iter().cloned());
        Station::member(&args.program, directory, index, cluster.as_ref(), &archive, &set)
    };
    let mut stations = (0..stations).map(member).collect::<anyhow::Result<Vec<_>>>()?;
    wait_until_met(&mut stations, group - 1)?;
    let length = args.minutes.map_or(promised.bound, |minutes| Duration::from_secs_f64(60.0 * minutes));
    eprintln!("{} stations have met; measuring for {:.0} s", stations.len(), length.as_secs_f64());

    let (began, began_at, busy) = (Instant::now(), now_s()?, machine_busy_s()?);
    let before = stations.iter().map(counts).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut starts, mut over) = (TestStarts::new(), 0);
    loop {
        thread::sleep(POLL_INTERVAL.min(length.saturating_sub(began.elapsed())));
        for station in &mut stations {
            ensure!(!station.has_ended(), "{} has ended: {}", station.name, station.log());
            over += record_tests(station, &mut starts)?;
        }
        if length <= began.elapsed() {
            break;
        }
    }
    let (watched_s, ended_at) = (began.elapsed().as_secs_f64(), now_s()?);
    let busy = (machine_busy_s()? - busy) / watched_s;
    let after = stations.iter().map(counts).collect::<anyhow::Result<Vec<_>>>()?;
    let sum = |of: fn(&Counts) -> f64| after.iter().map(of).sum::<f64>() - before.iter().map(of).sum::<f64>();
    let shares =
        before.iter().zip(&after).map(|(before, after)| (after.spent_s - before.spent_s) / watched_s);
    let shares: Vec<f64> = shares.collect();
    let deferred = sum(|counts| counts.deferred);
    Ok(Report {
        stations: stations.len(),
        group,
        engine: args.engine,
        every_s: EVERY.as_secs_f64(),
        test_s: LENGTH.as_secs_f64(),
        watched_s,
        busy,
        processors: thread::available_parallelism().map_or(1, usize::from),
        made: sum(|counts| counts.done + counts.failed),
        failed: sum(|counts| counts.failed),
        skipped: sum(|counts| counts.skipped),
        deferred,
        // The refusals include the turns that the station deferred itself.
        refusals: sum(|counts| counts.refused) - deferred,
        over,
        share: [mean(&shares), range(shares.iter().copied()).1],
        share_max: SHARE,
        revisit: revisit(&stations, group, &starts, [began_at, ended_at], &promised),
    })
}

fn plan() -> PlanConfig {
    let budget = BudgetConfig { share: SHARE, bytes_per_hour: BYTES_PER_HOUR, test_max: LENGTH };
    PlanConfig { every: EVERY, budget, ..PlanConfig::default() }
}

/// What `barograph plan` computes for one group with these settings.
fn promised(group: usize) -> anyhow::Result<PlanPrediction> {
    let mesh_size = MeshSize { hosts: u32::try_from(group)?, sites: 1 };
    Ok(predict(mesh_size, &plan(), Cost { duration: LENGTH, bytes: 0 })?)
}

fn settings(site: usize) -> Vec<String> {
    vec![
        format!("mesh.site=site{site}"),
        format!("mesh.bulk_every_s={}", EVERY.as_secs_f64()),
        format!("mesh.bulk_seconds={}", LENGTH.as_secs_f64()),
        format!("mesh.bulk_share={SHARE}"),
        format!("mesh.bulk_bytes_per_hour={BYTES_PER_HOUR}"),
    ]
}

fn counts(station: &Station) -> anyhow::Result<Counts> {
    let [done, failed, refused] = station.tests()?;
    let tests = get(station.address, "/v1/tests")?;
    let number = |value: &serde_json::Value| value.as_f64().context("/v1/tests has its numbers");
    let spent = &tests["budget"]["spent"];
    Ok(Counts {
        done,
        failed,
        refused,
        skipped: number(&tests["turns_skipped"])?,
        deferred: number(&tests["turns_deferred"])?,
        spent_s: number(&spent["source"]["seconds"])? + number(&spent["target"]["seconds"])?,
    })
}

/// Records the newest tests that a station started. Returns how many of the new ones exceeded the
/// limit of one test.
fn record_tests(station: &Station, starts: &mut TestStarts) -> anyhow::Result<usize> {
    let answer = get(station.address, "/v1/tests")?;
    let bytes_max = answer["budget"]["per_test"]["bytes"].as_u64().context("a test has a bound")?;
    let mut over = 0;
    for row in answer["tests"].as_array().context("tests are a list")? {
        let (Some(peer), Some(time_s)) = (row["peer"].as_str(), row["time_s"].as_f64()) else { continue };
        if row["role"] != "source" || row["state"] != "done" {
            continue;
        }
        let times = starts.entry((station.name.clone(), peer.to_string())).or_default();
        if times.contains(&time_s) {
            continue;
        }
        times.push(time_s);
        let longest_s = (LENGTH + LATE).as_secs_f64();
        over += usize::from(
            row["bytes"].as_u64().is_none_or(|bytes| bytes > bytes_max)
                || row["duration_s"].as_f64().is_none_or(|duration| longest_s < duration),
        );
    }
    Ok(over)
}

/// Longest wait of each pair in the measured time, and the mean time between tests.
fn revisit(
    stations: &[Station],
    group: usize,
    starts: &TestStarts,
    [began, ended]: [f64; 2],
    promised: &PlanPrediction,
) -> Revisit {
    let (mut longest, mut tests, mut unmeasured) = (Vec::new(), 0, 0);
    for site in stations.chunks(group) {
        for (source, target) in site.iter().flat_map(|source| site.iter().map(move |target| (source, target)))
        {
            if source.name == target.name {
                continue;
            }
            let times = starts.get(&(source.name.clone(), target.name.clone()));
            let times = sorted(times.into_iter().flatten().copied().filter(|at| began <= *at));
            tests += times.len();
            unmeasured += usize::from(times.is_empty());
            // A wait at the start or end of the measured time counts with the part inside it.
            let ends = times.iter().copied().chain([ended]);
            let begins = [began].into_iter().chain(times.iter().copied());
            longest.push(ends.zip(begins).map(|(end, begin)| end - begin).fold(0.0, f64::max));
        }
    }
    let longest = sorted(longest);
    let at = |share: f64| quantile(&longest, share, Rank::Nearest);
    let bound_s = promised.bound.as_secs_f64();
    let in_time = longest.iter().filter(|wait| **wait <= bound_s).count() as f64;
    Revisit {
        pairs: longest.len(),
        unmeasured,
        promised_s: promised.revisit.as_secs_f64(),
        mean_s: (ended - began) * longest.len() as f64 / tests.max(1) as f64,
        longest_promised_s: bound_s,
        longest_s: [at(0.9).unwrap_or(f64::NAN), at(1.0).unwrap_or(f64::NAN)],
        in_time: in_time / longest.len() as f64,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stations, group, watched_s, every_s, test_s, made, skipped, .. } = self;
        writeln!(
            f,
            "{stations} stations at sites of {group}, {:?}; time is compressed: a turn every {every_s} s, tests of \
             {test_s} s. Measured for {watched_s:.0} s; {:.2} of {} processors were busy.\n",
            self.engine, self.busy, self.processors
        )?;
        let of = |count: f64, all: f64| format!("{count:.0} ({:.2} %)", 100.0 * count / all);
        let turns = made + skipped;
        let [share, largest] = self.share.map(|share| 100.0 * share);
        let budget = 100.0 * self.share_max;
        let Revisit { pairs, unmeasured, promised_s, mean_s, longest_promised_s, longest_s, in_time } =
            &self.revisit;
        let [nine, all] = longest_s;
        let mut table = Table::new(["", ""]);
        for (name, value) in [
            ("turns", format!("{turns:.0}")),
            ("skipped because all peers refused", of(*skipped, turns)),
            ("deferred because of the station's own test or budget", of(self.deferred, turns)),
            ("peers that refused, of those asked", of(self.refusals, made + self.refusals)),
            ("tests that failed", of(self.failed, *made)),
            ("tests over the limit of one test", self.over.to_string()),
            (
                "time in tests, mean (largest; budget)",
                format!("{share:.1} % ({largest:.1} %; {budget:.0} %)"),
            ),
            ("pairs (never measured)", format!("{pairs} ({unmeasured})")),
            ("time between tests of a pair, mean (promised)", format!("{mean_s:.1} s ({promised_s:.1} s)")),
            (
                "longest wait of 90 % of the pairs, of all (promised)",
                format!("{nine:.1} s, {all:.1} s ({longest_promised_s:.1} s)"),
            ),
            ("pairs that never waited longer than promised", format!("{:.2} %", 100.0 * in_time)),
        ] {
            table.push(cells![name, value]);
        }
        write!(f, "{table}")
    }
}

/// A group of twenty is tested in a minute.
const EVERY: Duration = Duration::from_secs(3);
/// The shortest possible test.
const LENGTH: Duration = Duration::from_millis(100);
/// Room for a test in each turn, and for as many by other stations.
const SHARE: f64 = 0.2;
/// The largest possible setting, so that only time is limited.
const BYTES_PER_HOUR: u64 = 1_000_000_000_000_000;
/// Time to start and end a test on a machine that runs a hundred stations.
const LATE: Duration = Duration::from_millis(500);
/// A station keeps its newest hundred tests and refusals, which cover several such intervals.
const POLL_INTERVAL: Duration = Duration::from_secs(20);
