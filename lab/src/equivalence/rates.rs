//! Table 7: the goodput that the page shows by its defaults, beside a long native transfer over the same link.

use std::time::Duration;

use barograph_probe::io::Cancel;
use barograph_probe::{Direction, Experiment};
use serde::Serialize;

use super::args::Args;
use super::browser::Shown;
use super::collect::progress;
use super::link::{Bench, Path};
use super::native;
use crate::stats::median;

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
        beside.native_bit_s.push(native_bit_s(bench, direction, cancel)?);
    }
    let shown = bench.browser(args)?.cycle("auto")?;
    up.page.push(shown.goodput);
    down.page.push(shown.goodput_down);
    let small = bench.browser(args)?.cycle(SMALL_BYTES)?;
    up.page_small_bit_s.push(small.goodput.bit_s);
    down.page_small_bit_s.push(small.goodput_down.bit_s);
    Ok(())
}

fn native_bit_s(bench: &Bench, direction: Direction, cancel: &Cancel) -> anyhow::Result<f64> {
    let experiment = Experiment::Goodput { direction, bytes: NATIVE_BYTES };
    Ok(native::one(&bench.network, &bench.target()?, experiment, DEADLINE, None, cancel)?.value)
}

/// Enough that slow start is a small part: 1.4 s at 100 Mbit/s.
pub(crate) const NATIVE_BYTES: u64 = 16 << 20;

/// JavaNws's size, and the page's smallest.
const SMALL_BYTES: u64 = 64 << 10;

/// 16 MiB take 70 s at 2 Mbit/s.
const DEADLINE: Duration = Duration::from_secs(120);
