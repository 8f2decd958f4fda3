//! UFTP, to one receiver, unsealed.

use std::path::Path;

use anyhow::{Context as _, bail};

use super::bench::Bench;
use crate::tool::{Ended, run};

/// At the rate it is told: that of the bottleneck, else the best of some. Its own time counts, for it waits three seconds for receivers first.
pub(super) fn measure(bench: &Bench<'_>, has_control: bool) -> anyhow::Result<f64> {
    if has_control {
        // TFMCC finds its rate; `-R` is where it begins.
        return at(bench, bench.rate_bps.map_or(1_000_000, |rate| rate / 10_000), true);
    }
    match bench.rate_bps {
        // Its headers go on top of what it is told.
        Some(rate) => at(bench, rate / 1000 * 94 / 100, false),
        None => {
            let rates = RATES_KBIT_S.map(|rate| at(bench, rate, false));
            let best = rates.into_iter().flatten().max_by(f64::total_cmp);
            best.context("UFTP ended at no rate")
        }
    }
}

fn at(bench: &Bench<'_>, rate_kbit_s: u64, has_control: bool) -> anyhow::Result<f64> {
    let bytes = bench.rate_bps.map_or(rate_kbit_s * 125, |rate| rate / 10) * bench.seconds;
    let time = |text: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.starts_with("Total elapsed time:"))?;
        line.split_whitespace().nth(3)?.parse().ok()
    };
    let own = std::cell::Cell::new(None);
    let copied = bench.copied_in(
        &|from: &Path, to: &Path, limit_s| {
            let words = ["-d", "-I", DEVICE, "-B", BUFFER_BYTES, "-D", &to.to_string_lossy()];
            let _server = bench.serve(&bench.network.b, Path::new("uftpd"), &words, ("udp", PORT))?;
            let to = bench.network.b.v4().to_string();
            let (rate, from) = (rate_kbit_s.to_string(), from.to_string_lossy());
            let mut words = vec!["uftp", "-M", &to, "-P", &to, "-I", DEVICE, "-R", &rate, "-B", BUFFER_BYTES];
            if has_control {
                words.extend(["-C", "tfmcc"]);
            }
            words.extend(["-Y", "none", &from]);
            let ended = run(&bench.network.a, &words, limit_s + ANNOUNCE_S)?;
            if let Ended::Done(text) = &ended {
                own.set(time(text));
            }
            Ok(ended)
        },
        bytes,
        bench.rate_bps.map_or(bench.limit_s(), |_| bench.seconds),
    )?;
    let seconds = own.get().unwrap_or(copied.seconds - ANNOUNCE_S as f64) + copied.synced_s;
    if seconds <= 0.0 {
        bail!("UFTP took no time");
    }
    Ok(8.0 * copied.bytes as f64 / seconds)
}

/// Of `uftpd`, unless told.
const PORT: u16 = 1044;
/// Of a network's hosts.
const DEVICE: &str = "link0";
/// What it asks for: as others, more than the system's default.
const BUFFER_BYTES: &str = "8000000";
/// How long it waits for receivers (three times its estimate of a round trip, at first 1 s).
const ANNOUNCE_S: u64 = 3;
/// Where no rate is known, from what it can do at all to what nobody has reported.
const RATES_KBIT_S: [u64; 4] = [500_000, 1_000_000, 2_000_000, 4_000_000];
