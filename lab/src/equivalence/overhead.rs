//! What the browser adds to a round trip on loopback, with either of its clocks.

use anyhow::Result;
use barograph_probe::io::Cancel;

use super::browser::Ready;
use super::collect::{Asked, Quantity, Turns, progress};
use super::link::Bench;
use super::{Args, ClockName};

/// Medians with one clock.
pub(crate) struct Overhead {
    pub(crate) ready: Ready,
    pub(crate) native_s: f64,
    pub(crate) browser_s: f64,
    pub(crate) pairs: usize,
}

impl Overhead {
    /// The median of the browser less that of the native program.
    pub(crate) fn added_s(&self) -> f64 {
        self.browser_s - self.native_s
    }
}

/// With the finer clock and with the coarser, each in a browser of its own.
pub(crate) fn by_clock(bench: &mut Bench, args: &Args, cancel: &Cancel) -> Result<Vec<Overhead>> {
    let mut overheads = Vec::new();
    let count = args.pairs.min(PAIRS_MAX);
    for clock in [ClockName::Fine, ClockName::Coarse] {
        let url = bench.url().to_owned();
        let ready = bench.browser()?.open(&url, args, clock)?;
        let asked =
            Asked { quantity: Quantity::Rtt, bytes: args.bytes, write_bytes: None, message_bytes: None };
        let mut turns = Turns::default();
        let bar = progress(count.into(), "what the browser adds");
        for pair in 0..count {
            if !turns.take(bench, &asked, pair % 2 == 0, cancel)? {
                return Ok(overheads);
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let study = turns.study(Quantity::Rtt)?;
        let (native_s, browser_s, pairs) = (study.a.median, study.b.median, study.pairing.pairs.len());
        overheads.push(Overhead { ready, native_s, browser_s, pairs });
    }
    Ok(overheads)
}

/// A median of so many is steady, and a round trip on loopback is quick.
const PAIRS_MAX: u32 = 500;
