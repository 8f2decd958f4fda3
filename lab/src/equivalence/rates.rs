//! Table 7: the goodput that the page shows by its defaults, beside a long native transfer over the same link.

use std::time::Duration;

use anyhow::Context as _;
use barograph_probe::io::{Cancel, Context, run_one};
use barograph_probe::reduce::median;
use barograph_probe::{Direction, Experiment};
use serde::{Deserialize, Serialize};

use super::Args;
use super::collect::progress;
use super::link::{Bench, Path};

/// Both directions of one link, in bit/s.
#[derive(Serialize)]
pub(crate) struct Rates {
    pub(crate) link: &'static str,
    pub(crate) up: Beside,
    pub(crate) down: Beside,
    /// Why the rounds ended before all were made, if they did.
    pub(crate) stopped: Option<String>,
    /// Why it is no evidence, if it is none.
    pub(crate) void: Option<String>,
}

/// What was measured in one direction, a value a round.
#[derive(Default, Serialize)]
pub(crate) struct Beside {
    pub(crate) page: Vec<Shown>,
    /// Of 64 KiB, corrected as the page's are.
    pub(crate) page_small_bit_s: Vec<f64>,
    /// Of [`NATIVE_BYTES`].
    pub(crate) native_bit_s: Vec<f64>,
}

/// One value of the page.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Shown {
    #[serde(rename(deserialize = "value"))]
    pub(crate) bit_s: f64,
    /// Whether the page calls it a lower bound.
    pub(crate) at_least: bool,
    /// How much the transfer moved that counted.
    pub(crate) bytes: u64,
}

/// A cycle of the page: what it shows of both directions.
#[derive(Deserialize)]
pub(crate) struct Cycle {
    pub(crate) goodput: Shown,
    pub(crate) goodput_down: Shown,
}

impl Beside {
    /// The medians, in bit/s: the page's by its defaults, of 64 KiB, and the native program's.
    pub(crate) fn medians(&self) -> [Option<f64>; 3] {
        let page: Vec<f64> = self.page.iter().map(|shown| shown.bit_s).collect();
        [&page, &self.page_small_bit_s, &self.native_bit_s].map(|values| median(values))
    }
}

/// Rounds on one link: the native program and the page in turns.
pub(crate) fn of_link(path: &Path, args: &Args, cancel: &Cancel) -> anyhow::Result<Rates> {
    let mut bench = path.bench(args)?;
    let (mut up, mut down) = (Beside::default(), Beside::default());
    let bar = progress(args.rate_rounds.into(), "rates");
    let mut stopped = None;
    for _ in 0..args.rate_rounds {
        if let Err(error) = round(&mut bench, args, cancel, &mut up, &mut down) {
            stopped = Some(format!("{error:#}"));
            break;
        }
        if cancel.is_cancelled() {
            break;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Rates { link: path.name, up, down, stopped, void: bench.void() })
}

fn round(
    bench: &mut Bench,
    args: &Args,
    cancel: &Cancel,
    up: &mut Beside,
    down: &mut Beside,
) -> anyhow::Result<()> {
    for (direction, beside) in [(Direction::Up, &mut *up), (Direction::Down, &mut *down)] {
        beside.native_bit_s.push(native(bench, direction, cancel)?);
    }
    let shown = bench.browser(args)?.cycle("auto")?;
    up.page.push(shown.goodput);
    down.page.push(shown.goodput_down);
    let small = bench.browser(args)?.cycle(SMALL_BYTES)?;
    up.page_small_bit_s.push(small.goodput.bit_s);
    down.page_small_bit_s.push(small.goodput_down.bit_s);
    Ok(())
}

fn native(bench: &Bench, direction: Direction, cancel: &Cancel) -> anyhow::Result<f64> {
    let target = bench.target()?;
    let experiment = Experiment::Goodput { direction, bytes: NATIVE_BYTES };
    let context = Context { deadline: DEADLINE, cancel: cancel.clone(), ..Context::default() };
    let mut readings = bench.network.a.run(|| run_one(&target, experiment, &context))?;
    let reading = readings.pop().context("an experiment gives a reading")?;
    Ok(reading.result?.value)
}

/// Enough that slow start is a small part: 1.4 s at 100 Mbit/s.
pub(crate) const NATIVE_BYTES: u64 = 16 << 20;

/// JavaNws's size, and the page's smallest.
const SMALL_BYTES: u64 = 64 << 10;

/// 16 MiB take 70 s at 2 Mbit/s.
const DEADLINE: Duration = Duration::from_secs(120);
