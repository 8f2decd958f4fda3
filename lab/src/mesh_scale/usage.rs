//! What a process uses, as Linux says (proc_pid_stat(5), proc_pid_smaps_rollup(5), proc_stat(5)).

use std::fs::read_to_string;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde::Serialize;

use crate::stats::{Rank, quantile, sorted};

/// The processor time of a process so far, and when that was.
pub(super) struct Cost {
    busy_s: f64,
    at: Instant,
}

/// Memory now, and the share of a processor over a time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Usage {
    pub(super) rss_mb: f64,
    pub(super) anonymous_mb: f64,
    pub(super) file_mb: f64,
    /// Each page divided by the number of processes that have it.
    pub(super) pss_mb: f64,
    pub(super) threads: f64,
    pub(super) core_percent: f64,
}

impl Cost {
    pub(super) fn of(id: u32) -> anyhow::Result<Self> {
        Ok(Self { busy_s: busy_s(id)?, at: Instant::now() })
    }
}

impl Usage {
    pub(super) fn since(id: u32, before: &Cost) -> anyhow::Result<Self> {
        let core = (busy_s(id)? - before.busy_s) / before.at.elapsed().as_secs_f64();
        let status = read_to_string(format!("/proc/{id}/status"))?;
        let smaps = read_to_string(format!("/proc/{id}/smaps_rollup"))?;
        let mb = |text: &str, key: &str| anyhow::Ok(number(text, key)? * 1024.0 / 1e6);
        Ok(Self {
            rss_mb: mb(&status, "VmRSS:")?,
            anonymous_mb: mb(&status, "RssAnon:")?,
            file_mb: mb(&status, "RssFile:")?,
            pss_mb: mb(&smaps, "Pss:")?,
            threads: number(&status, "Threads:")?,
            core_percent: 100.0 * core,
        })
    }

    /// The quantile `share` of each figure by itself.
    pub(super) fn at(all: &[Self], share: f64) -> Self {
        let of = |figure: fn(&Self) -> f64| {
            quantile(&sorted(all.iter().map(figure)), share, Rank::Nearest).unwrap_or(f64::NAN)
        };
        Self {
            rss_mb: of(|usage| usage.rss_mb),
            anonymous_mb: of(|usage| usage.anonymous_mb),
            file_mb: of(|usage| usage.file_mb),
            pss_mb: of(|usage| usage.pss_mb),
            threads: of(|usage| usage.threads),
            core_percent: of(|usage| usage.core_percent),
        }
    }
}

/// The time that all processors of the machine were busy since it started.
pub(super) fn machine_busy_s() -> anyhow::Result<f64> {
    let text = read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<f64> = line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    // user, nice, system, then (after idle and waiting for disks) interrupts.
    let busy = [0, 1, 2, 5, 6].iter().filter_map(|index| ticks.get(*index)).sum::<f64>();
    Ok(busy / TICKS_PER_S)
}

/// Seconds since 1970.
pub(super) fn now_s() -> anyhow::Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// User and system time of a process with all its threads, also those that have ended.
fn busy_s(id: u32) -> anyhow::Result<f64> {
    let text = read_to_string(format!("/proc/{id}/stat"))?;
    // The name, which may hold spaces, ends with the last parenthesis; `utime` is field 14.
    let rest = text.rsplit_once(')').context("the process has no name")?.1;
    let ticks: Vec<f64> =
        rest.split_whitespace().skip(11).take(2).map_while(|word| word.parse().ok()).collect();
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_S)
}

fn number(text: &str, key: &str) -> anyhow::Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).with_context(|| format!("there is no {key}"))
}

/// `USER_HZ`, 100 on every architecture that Linux runs a station on.
const TICKS_PER_S: f64 = 100.0;
