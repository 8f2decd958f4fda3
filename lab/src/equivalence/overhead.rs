//! What the browser adds to a round trip on loopback, told apart from what the station adds and from the clock.

use barograph_probe::io::Cancel;

use super::args::{Args, ClockName};
use super::browser::Ready;
use super::collect::progress;
use super::link::Bench;
use super::{native, websocket};
use crate::stats::{mean, median};

/// All blocks.
#[derive(Default)]
pub(crate) struct Overhead {
    pub(crate) blocks: Vec<Block>,
    /// Why there are no more, if there should be.
    pub(crate) stopped: Option<String>,
}

/// The three after each other, each on one warm connection.
pub(crate) struct Block {
    /// Which clock the browser had.
    pub(crate) clock: ClockName,
    pub(crate) ready: Ready,
    /// `barograph probe`'s exchange with the native responder.
    pub(crate) native: Centre,
    /// A native WebSocket client's with the station.
    pub(crate) websocket: Centre,
    /// The page's with the station.
    pub(crate) browser: Centre,
}

/// The centre of the times of a block, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub(crate) struct Centre {
    pub(crate) median_s: f64,
    /// A coarse clock gives whole steps only, and so does their median; the mean sees between them.
    pub(crate) mean_s: f64,
}

impl Centre {
    fn of(times_s: &[f64]) -> Option<Self> {
        let measured = times_s.get(WARMING as usize..)?;
        let median_s = median(measured)?;
        Some(Self { median_s, mean_s: mean(measured) })
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self { median_s: self.median_s - other.median_s, mean_s: self.mean_s - other.mean_s }
    }
}

impl Overhead {
    /// One of the three in all blocks, or in those of one clock.
    pub(crate) fn centres(&self, clock: Option<ClockName>, of: impl Fn(&Block) -> Centre) -> Vec<Centre> {
        let wanted = self.blocks.iter().filter(|block| clock.is_none_or(|clock| clock == block.clock));
        wanted.map(of).collect()
    }

    /// How much later the coarse clock reads than the fine one, in each two blocks that follow each other.
    pub(crate) fn clock_share(&self) -> Vec<Centre> {
        let of = |clock| self.centres(Some(clock), |block| block.browser.minus(block.websocket));
        of(ClockName::Coarse)
            .into_iter()
            .zip(of(ClockName::Fine))
            .map(|(coarse, fine)| coarse.minus(fine))
            .collect()
    }

    /// What the browser of a clock said of itself.
    pub(crate) fn ready(&self, clock: ClockName) -> Option<&Ready> {
        self.blocks.iter().find(|block| block.clock == clock).map(|block| &block.ready)
    }
}

/// Blocks with the finer clock and with the coarser in turns, each in a browser of its own.
pub(crate) fn by_clock(bench: &mut Bench, args: &Args, cancel: &Cancel) -> Overhead {
    let mut overhead = Overhead::default();
    let bar = progress(2 * BLOCKS, "what the browser adds");
    for turn in 0..BLOCKS {
        let mut clocks = [ClockName::Fine, ClockName::Coarse];
        // Each goes first in turn.
        clocks.rotate_left((turn % 2) as usize);
        for clock in clocks {
            let made = block(bench, args, clock, overhead.blocks.len(), cancel);
            if cancel.is_cancelled() {
                return overhead;
            }
            match made {
                Ok(block) => overhead.blocks.push(block),
                Err(error) => {
                    overhead.stopped = Some(format!("{error:#}"));
                    return overhead;
                }
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    overhead
}

fn block(
    bench: &mut Bench,
    args: &Args,
    clock: ClockName,
    number: usize,
    cancel: &Cancel,
) -> anyhow::Result<Block> {
    let (target, station) = (bench.target()?, bench.station());
    let (_, ready) = bench.reopened(args, clock)?;
    let mut centres = [Centre::default(); 3];
    for place in 0..3 {
        // Each of the three goes first in a third of the blocks.
        let which = (place + number) % 3;
        let times_s = match which {
            0 => native::exchanges(&bench.network, &target, WARMING + EXCHANGES, cancel)?,
            1 => websocket::exchanges(&bench.network, station, WARMING + EXCHANGES)?,
            _ => bench.browser(args)?.exchanges(WARMING + EXCHANGES)?,
        };
        centres[which] = Centre::of(&times_s).ok_or_else(|| anyhow::anyhow!("too few exchanges"))?;
    }
    let [native, websocket, browser] = centres;
    Ok(Block { clock, ready, native, websocket, browser })
}

/// Blocks with each clock: enough to see how much one differs from the next.
const BLOCKS: u64 = 5;

/// Of a block and program. With those before them as many as a session allows.
pub(crate) const EXCHANGES: u32 = 900;

/// Exchanges before: code is compiled, caches and the processor's clock become warm.
const WARMING: u32 = 99;
