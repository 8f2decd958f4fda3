//! What a classifier is worth to a sender: Dickens §4.1.1 and Table 1 with windows of ours.

use anyhow::Context as _;
use barograph_loss::{Cause, Gap, Labelled, Verdict};
use barograph_sim::Chance;

use super::estimator::{Cumulative, Estimator, EventHistory, RecentLosses};
use super::judge::{Judged, Method, Split};
use super::kinds::is_in_range;
use super::rates::{percent, rates, runs};
use super::references::{TRANSFERS, Transfer};
use super::simulation::{PACKETS, Path, draw, lowest, tilt};
use crate::stats::range;
use crate::table::{Table, cells, list};

/// The table, and which floors it meets. Verdicts are of models that were not fitted on the run of the window.
pub(crate) fn table(windows: &[Labelled], seed: u64) -> anyhow::Result<String> {
    let judged = Split::Five.judge(windows, seed)?;
    let is_of_pool = |judged: &&Judged<'_>| {
        let window = judged.window;
        window.cause == Cause::Host && window.signature.packets() == PACKETS && is_in_range(window)
    };
    let pool: Vec<&Judged<'_>> = judged.iter().filter(is_of_pool).collect();
    if pool.is_empty() {
        return Ok(format!("\n{TITLE}\n\nNo window of {PACKETS} packets was lost by the CPU alone.\n"));
    }
    let mut text = format!("\n{TITLE}\n\n{}", of_pool(&pool, seed));
    let mut table = Table::new(["estimate of the loss rate", "long-term loss", "without"])
        .and(METHODS.map(Method::name))
        .and(["the paper's errors", "the paper, Table 1"]);
    let mut least = FLOORS.map(|_| f64::INFINITY);
    for (estimate, transfer) in
        Estimate::ALL.iter().flat_map(|estimate| TRANSFERS.iter().map(move |transfer| (*estimate, transfer)))
    {
        let reached = Reached::mean(&pool, estimate, transfer, seed)?;
        let with = |value: f64| format!("{} (×{})", mbit(value), factor(value / reached.without));
        let mut row = cells![estimate.name(), transfer.loss_rate, mbit(reached.without)];
        row.extend(reached.methods.iter().map(|value| with(*value)));
        row.push(with(reached.papers_errors));
        let (papers, papers_without) = (transfer.with_mbit_s, transfer.without_mbit_s);
        row.push(format!("{papers_without} → {papers} (×{})", factor(papers / papers_without)));
        table.push(row);
        for (floor, least) in FLOORS.iter().zip(&mut least).filter(|(floor, _)| floor.estimate == estimate) {
            *least = least.min(reached.methods[floor.method] / reached.without);
        }
    }
    text += &table.to_string();
    for (floor, least) in FLOORS.iter().zip(least) {
        text += &format!(
            "\nFloor: {}, at least {} × the same estimate ({}) without a classifier: {} at the least, {}.\n",
            METHODS[floor.method].name(),
            floor.factor,
            floor.estimate.name(),
            factor(least),
            if floor.factor <= least { "met" } else { "missed" }
        );
    }
    Ok(text)
}

const TITLE: &str = "## What a classifier is worth (direct-execution simulation, Dickens §4.1.1)";

/// What can judge without the network's help, and with the kernel's.
const METHODS: [Method; 4] = [Method::Paper, Method::Burst, Method::Delay, Method::Counter];

/// What one of [`METHODS`] is to reach, as a multiple of the same estimate without a classifier.
struct Floor {
    estimate: Estimate,
    method: usize,
    factor: f64,
}

/// With the counter against the paper's baseline, and without it – by pattern and burst alone, and with the delay – against RFC 5348's.
const FLOORS: [Floor; 3] = [
    Floor { estimate: Estimate::Cumulative, method: 3, factor: 100.0 },
    Floor { estimate: Estimate::Events, method: 1, factor: 4.0 },
    Floor { estimate: Estimate::Events, method: 2, factor: 4.0 },
];

/// How the rate of loss is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Estimate {
    Cumulative,
    Events,
    /// With round trips of the physical transfer.
    ShortEvents,
    Recent,
}

impl Estimate {
    const ALL: [Self; 4] = [Self::Cumulative, Self::Events, Self::ShortEvents, Self::Recent];

    fn name(self) -> &'static str {
        match self {
            Self::Cumulative => "packets, cumulative (the paper's, as we read it)",
            Self::Events => "events, RFC 5348, 8 intervals, a window a round trip",
            Self::ShortEvents => "the same, 65 ms of the physical 1 Gb/s a round trip",
            Self::Recent => "packets of the last 8 events",
        }
    }

    fn start(self) -> Box<dyn Estimator> {
        let first_interval = 1.0 / PATH.rate_at(PATH.ceiling_packets());
        match self {
            Self::Cumulative => Box::new(Cumulative::default()),
            // A physical window stands for a virtual one, and that takes a round trip.
            Self::Events => Box::new(EventHistory::new(PACKETS, first_interval)),
            Self::ShortEvents => {
                // A tenth of the virtual path, which has the same round trip.
                Box::new(EventHistory::new((PATH.ceiling_packets() / 10.0) as u32, first_interval))
            }
            Self::Recent => Box::new(RecentLosses::new(PACKETS)),
        }
    }
}

/// Dickens §4.1.1 and §5: 10 Gbit/s, a round trip of 65 ms, packets of 1024 bytes; UDP, IPv4 and Ethernet add 42.
const PATH: Path =
    Path { ceiling_bit_s: 10e9, round_trip_s: 0.065, payload_bytes: 1024.0, header_bytes: 42.0 };

/// Throughputs (bit/s) of one estimate at one long-term loss.
#[derive(Default)]
struct Reached {
    without: f64,
    methods: [f64; METHODS.len()],
    papers_errors: f64,
}

impl Reached {
    /// In the mean over [`SEEDS`].
    fn mean(
        pool: &[&Judged<'_>],
        estimate: Estimate,
        transfer: &Transfer,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let losses: Vec<f64> = pool.iter().map(|judged| judged.window.signature.loss_rate()).collect();
        let gaps: Vec<Vec<Gap>> =
            pool.iter().map(|judged| judged.window.signature.gaps().collect()).collect();
        let lossy = transfer.loss_rate * Transfer::WINDOWS as f64 / transfer.lossy as f64;
        let weights = tilt(&losses, lossy).with_context(|| {
            format!("no mixture of the {} windows has a mean loss of {lossy:.4}", pool.len())
        })?;
        let mut mean = Self::default();
        for seed in seed..seed + SEEDS {
            let mut chance = Chance::new(seed, SIMULATION_STREAM);
            let drawn = draw(&weights, Transfer::WINDOWS, transfer.lossy, &mut chance);
            // The gaps of each place that the sender takes for the network's.
            let reach = |is_told: &dyn Fn(usize, usize) -> bool| {
                let windows = drawn.iter().enumerate().map(|(place, window)| match window {
                    Some(window) if !is_told(place, *window) => gaps[*window].as_slice(),
                    _ => &[],
                });
                PATH.throughput_bit_s(windows, &mut *estimate.start()) / SEEDS as f64
            };
            mean.without += reach(&|_, _| false);
            for (method, reached) in METHODS.into_iter().zip(&mut mean.methods) {
                *reached += reach(&|_, window| pool[window].said(method).verdict == Verdict::Cpu);
            }
            let failed = lowest(&drawn, &losses, transfer.below_range + transfer.missed);
            mean.papers_errors += reach(&|place, _| !failed[place]);
        }
        Ok(mean)
    }
}

/// What the pool is, and how each method does on it.
fn of_pool(pool: &[&Judged<'_>], seed: u64) -> String {
    let (least, most) = range(pool.iter().map(|judged| judged.window.signature.loss_rate()));
    let right = METHODS.map(|method| {
        let right = rates(pool, method, seed).map_or(f64::NAN, |rates| rates.right.value);
        format!("{} {} %", method.name(), percent(right))
    });
    format!(
        "{} windows of {PACKETS} packets of {} runs, which the CPU lost alone ({:.5} to {:.5}). Of {} windows as many as in the paper's Table 1 are lossy, drawn \
         so that their long-term loss is that of the table; {SEEDS} seeds. Right of the pool, by models not fitted on the window's run: {}. *The paper's errors*: its \
         classifier's misses and windows below its range, replayed on those of our windows that lost least. Payload, Mb/s, and as a multiple of the same estimate \
         without a classifier; the ceiling is {}.\n\n",
        pool.len(),
        runs(pool),
        least,
        most,
        Transfer::WINDOWS,
        list(right),
        mbit(PATH.ceiling_packets() * PATH.payload_bytes * 8.0 / PATH.round_trip_s),
    )
}

fn mbit(bit_s: f64) -> String {
    let mbit = bit_s / 1e6;
    if mbit < 100.0 { format!("{mbit:.1}") } else { format!("{mbit:.0}") }
}

fn factor(factor: f64) -> String {
    if factor < 10.0 { format!("{factor:.2}") } else { format!("{factor:.0}") }
}

/// What the simulation is a mean of.
const SEEDS: u64 = 3;

/// Of the seed; the parts of the runs and the bootstrap have others.
const SIMULATION_STREAM: u64 = 3;

#[cfg(test)]
mod tests {
    use super::super::judge::Models;
    use super::super::judge::tests::made;
    use super::*;

    #[test]
    fn who_knows_all_causes_reaches_the_ceiling_and_who_knows_none_what_the_response_gives() {
        let windows = made(PACKETS, 4, 6, 5);
        let models = Models::fit(&windows).unwrap();
        let judged = models.judge(windows.iter().filter(|window| window.cause == Cause::Host));
        let pool: Vec<&Judged<'_>> = judged.iter().collect();
        let reached = Reached::mean(&pool, Estimate::Cumulative, &TRANSFERS[0], 1).unwrap();
        // At 0.00035 the response is 92.5 packets of 1024 bytes in 65 ms: 11.7 Mb/s, and more while the loss of the start is
        // under that of the whole.
        assert!((11e6..25e6).contains(&reached.without), "{}", reached.without);
        let again = Reached::mean(&pool, Estimate::Cumulative, &TRANSFERS[0], 1).unwrap();
        assert_eq!((reached.without, reached.papers_errors), (again.without, again.papers_errors));
        assert!(reached.without < reached.papers_errors && reached.papers_errors < 9.6e9);
        let events = Reached::mean(&pool, Estimate::Events, &TRANSFERS[0], 1).unwrap();
        assert!(20.0 * reached.without < events.without, "{}", events.without);
    }
}
