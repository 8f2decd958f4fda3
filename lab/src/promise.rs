//! `lab promise`: replays series of goodput, promises at random moments how long a transfer will
//! take, and counts how often it does.

mod forecasters;
mod replay;

use std::path::{Path, PathBuf};

use anyhow::ensure;
use barograph_forecast::transfer_interval_shares;
use barograph_sim::SeededRng;
use barograph_study::input::Sample;
use serde::Serialize;

use crate::error_window::ERRORS_MIN;
use crate::jobs;
use crate::output::Output;
use crate::series::{files, name, read};
use crate::stats::{Rank, geometric_mean, mean, median, quantile, range, sorted};
use crate::table::{Table, cells, dash, percent};
use forecasters::{LEVEL, OwnForecaster, Promise, Rates, with_error_quantiles};
use replay::Replay;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with the traces; files bw_*.csv are used, with values in Mbit/s.
    #[arg(value_name = "DIR")]
    traces: PathBuf,
    /// Promises for each trace and size, at random moments.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    promises: u32,
    /// Seed of the moments.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the numbers as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    let paths = files(&args.traces, "csv", |name| name.starts_with("bw_"))?;
    let series =
        paths.iter().map(|path| Ok((name(path), read(path)?))).collect::<anyhow::Result<Vec<_>>>()?;
    let jobs: Vec<_> = series.iter().flat_map(|trace| SIZES.map(|size| (trace, size))).collect();
    let rows: Vec<Row> = jobs::all(
        &jobs,
        |((name, _), (_, size))| format!("{name}, {size}"),
        |((name, samples), size)| measure(name, samples, *size, args),
    )
    .into_iter()
    .flatten()
    .collect();
    ensure!(!rows.is_empty(), "no trace in {} is long enough for a transfer", args.traces.display());
    let output = Output::new(page, args.json);
    output.print(&markdown(&rows, args))?;
    output.json(&rows)
}

/// Sizes of transfers in bytes, with their names.
const SIZES: [(f64, &str); 4] = [(10e6, "10 MB"), (100e6, "100 MB"), (1e9, "1 GB"), (10e9, "10 GB")];

/// Names of the forecasters, in the order of [`Row::scores`].
const FORECASTERS: [&str; 4] = ["Barograph", "last rate", "average since start", "EWMA"];

/// Position of EWMA, to which widths are compared.
const EWMA: usize = 3;

/// Values before the first promise: methods learn for a hundred values.
const FIRST: usize = 100;

/// Promises for one size on one trace.
#[derive(Serialize)]
struct Row {
    trace: String,
    size: &'static str,
    /// Number of transfers, one after the other, that fit between the first and the last moment.
    transfers: f64,
    median_s: f64,
    scores: Vec<Score>,
}

/// Scores of the promises of a forecaster; shares from 0 to 1.
#[derive(Clone, Copy, Debug, Serialize)]
struct Score {
    /// Share of times that were inside the promised interval.
    hits: f64,
    /// Share of times that were at most the longest promised time.
    in_time: f64,
    /// Median width of the intervals in seconds.
    width_s: f64,
    /// The same, if all intervals were wider or narrower by one factor of the logarithms, such that
    /// the share of hits is [`LEVEL`].
    width_at_level_s: f64,
}

/// Replays a trace; `None` if it is too short for the transfers.
fn measure(name: &str, samples: &[Sample], (bytes, size): (f64, &'static str), args: &Args) -> Option<Row> {
    let replay = Replay::new(samples);
    let bits = 8.0 * bytes;
    let times: Vec<f64> = (0..samples.len()).map_while(|index| replay.transfer_s(index, bits)).collect();
    let mut ends_s = times.iter().zip(samples).map(|(time_s, sample)| sample.time_s + time_s);
    // From here on, the simple forecasters know enough errors.
    let known_s = ends_s.clone().nth(ERRORS_MIN - 1)?;
    let first = FIRST.max(samples.partition_point(|sample| sample.time_s < known_s));
    let count = times.len().checked_sub(first).filter(|count| *count >= COUNT_MIN)?;
    let mut rng = SeededRng::new(args.seed, bytes as u64);
    let moments: Vec<usize> = (0..args.promises).map(|_| first + rng.index_below(count)).collect();

    let simple =
        Rates::ALL.map(|rates| with_error_quantiles(&rates.after_each(samples), &times, samples, bits));
    let own = OwnForecaster::promises(samples, &moments, bits)?;
    let score = |promise: &dyn Fn(usize, usize) -> Option<Promise>| {
        let promises =
            moments.iter().enumerate().map(|(at, moment)| Some((promise(at, *moment)?, times[*moment])));
        Some(Score::of(&promises.collect::<Option<Vec<_>>>()?))
    };
    let mut scores = vec![score(&|at, _| Some(own[at]))?];
    for promises in &simple {
        scores.push(score(&|_, moment| promises[moment])?);
    }
    let median_s = median(&moments.iter().map(|moment| times[*moment]).collect::<Vec<f64>>())?;
    let last_end_s = ends_s.next_back()?;
    let transfers = (last_end_s - samples[first].time_s) / median_s;
    Some(Row { trace: name.to_owned(), size, transfers, median_s, scores })
}

/// Fewest moments that a trace must have for a size.
const COUNT_MIN: usize = 100;

impl Score {
    /// Scores promises with the times that the transfers took, in seconds.
    fn of(promises: &[(Promise, f64)]) -> Self {
        let share = |is: fn(&Promise, f64) -> bool| {
            promises.iter().filter(|(promise, time_s)| is(promise, *time_s)).count() as f64
                / promises.len() as f64
        };
        let width_s = |factor: f64| {
            let widths: Vec<f64> =
                promises.iter().map(|(promise, _)| promise.scaled(factor).width_s()).collect();
            median(&widths).unwrap_or(f64::NAN)
        };
        let factors = sorted(promises.iter().map(|(promise, time_s)| promise.factor_for(*time_s)));
        let factor = quantile(&factors, LEVEL, Rank::Least).unwrap_or(f64::NAN);
        Self {
            hits: share(|promise, time_s| promise.low_s <= time_s && time_s <= promise.high_s),
            in_time: share(|promise, time_s| time_s <= promise.high_s),
            width_s: width_s(1.0),
            width_at_level_s: width_s(factor),
        }
    }
}

fn markdown(rows: &[Row], args: &Args) -> String {
    let [early, late] = transfer_interval_shares(LEVEL);
    let mut text = format!(
        "# Promised times of transfers\n\nEach series of goodput is replayed: a value is the rate since the value \
         before. At {} random moments for each size, a {:.0} % interval of the time is promised for a transfer that \
         begins then, and takes the goodput that was measured. The moments are such that the transfer ends within \
         the trace. Barograph's interval is learned from transfers of several sizes that are replayed on the \
         values so far (docs/spec/transfer-time.md, Learned times). It comes from the forecaster alone; the \
         model of slow start, which a station adds, hardly changes the time of 10 MB and more. It leaves out {:.1} % \
         of the times before it, and {:.1} % after it: this is shorter than the same share on both sides. The other \
         forecasters divide the bytes by a rate; their intervals are the quantiles of the ratio of real to forecast \
         time of all transfers of this size that began after an earlier value and have ended. EWMA has the gain 1/8. \
         Constants of Barograph were chosen on the first halves of these traces and on simulated series.\n\n\
         *Hits* are times inside the interval, *in time* those before its end, in percent. *Width ÷ EWMA's* is the \
         median width divided by EWMA's; *at {:.0} %* the same after all intervals of a forecaster are scaled by \
         one factor of the logarithms, in hindsight, to that share of hits. Means of ratios are geometric.\n",
        args.promises,
        100.0 * LEVEL,
        100.0 * early,
        100.0 * (1.0 - late),
        100.0 * LEVEL
    );
    text += &format!("\n## By size\n\n{}", by_size(rows));
    text += &format!(
        "\n## By trace\n\n{}\nTransfers: how many of the median time fit, one after the other, between the first and the \
         last moment. Few of them make hits uncertain.\n",
        by_trace(rows)
    );
    text
}

fn by_size(rows: &[Row]) -> Table {
    let mut table = Table::titled(
        "forecaster | size | traces | hits | least–most by trace | in time | width ÷ EWMA's | at 90 %",
    )
    .text_columns(2);
    for (_, size) in SIZES {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.size == size).collect();
        for (forecaster, name) in FORECASTERS.iter().enumerate().filter(|_| !rows.is_empty()) {
            let all = |of: fn(&Score) -> f64| -> Vec<f64> {
                rows.iter().map(|row| of(&row.scores[forecaster])).collect()
            };
            // A geometric mean without the traces that have no width would be too good.
            let relative = |of: fn(&Score) -> f64| {
                let ratio = |row: &&Row| of(&row.scores[forecaster]) / of(&row.scores[EWMA]);
                let ratios: Vec<f64> = rows.iter().map(ratio).collect();
                let is_finite = ratios.iter().all(|ratio| ratio.is_finite());
                if is_finite { geometric_mean(ratios.into_iter()) } else { f64::INFINITY }
            };
            let (low, high) = range(all(|score| score.hits).into_iter());
            table.push(cells![
                name,
                size,
                rows.len(),
                percent(mean(&all(|score| score.hits))),
                format!("{}–{}", percent(low), percent(high)),
                percent(mean(&all(|score| score.in_time))),
                finite(relative(|score| score.width_s), 2),
                finite(relative(|score| score.width_at_level_s), 2),
            ]);
        }
    }
    table
}

fn by_trace(rows: &[Row]) -> Table {
    let header = FORECASTERS.iter().flat_map(|name| [format!("{name}: hits"), "width s".to_owned()]);
    let mut table = Table::new(["trace", "size", "transfers", "median s"]).and(header).text_columns(2);
    for row in rows {
        let scores = row.scores.iter().flat_map(|score| [percent(score.hits), finite(score.width_s, 1)]);
        let head = cells![row.trace, row.size, format!("{:.0}", row.transfers), finite(row.median_s, 1)];
        table.push(head.into_iter().chain(scores));
    }
    table
}

/// A number with this many decimals; a dash if it is not finite.
fn finite(number: f64, decimals: usize) -> String {
    if number.is_finite() { format!("{number:.decimals$}") } else { dash() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_at_a_noisy_rate_hit_about_nine_times_of_ten() {
        let mut rng = SeededRng::new(7, 0);
        let samples: Vec<Sample> = (0..3000)
            .map(|i| Sample { time_s: f64::from(i), value: 5.0 + rng.index_below(11) as f64 })
            .collect();
        let args = Args { traces: PathBuf::new(), promises: 500, seed: 1, json: false };
        let row = measure("noise", &samples, SIZES[0], &args).unwrap();
        // 10 MB at 10 Mbit/s.
        assert!((7.0..9.0).contains(&row.median_s), "{}", row.median_s);
        assert_eq!(row.scores.len(), FORECASTERS.len());
        assert!(row.scores.iter().all(|score| (0.8..=0.97).contains(&score.hits)), "{:?}", row.scores);
        assert!(row.scores[0].width_at_level_s < row.scores[1].width_at_level_s, "{:?}", row.scores);
        assert!(measure("short", &samples[..150], SIZES[3], &args).is_none());
    }

    #[test]
    fn scaled_intervals_have_the_level_in_hindsight() {
        let promise = Promise { low_s: 1.0, median_s: 2.0, high_s: 4.0 };
        let score = Score::of(&[(promise, 8.0), (promise, 2.0)]);
        assert_eq!((score.hits, score.in_time, score.width_s), (0.5, 0.5, 3.0));
        // Twice as wide by logarithms: 0.5 to 8.
        assert!((score.width_at_level_s - 7.5).abs() < 1e-9, "{score:?}");
    }
}
