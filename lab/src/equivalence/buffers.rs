//! Table 6, the control of buffers: how much is written and read at once, and what that does to goodput.

use barograph_probe::io::{Cancel, Limits};
use barograph_study::compare::Study;

use super::args::Args;
use super::asked::{Asked, Quantity};
use super::collect::{Turns, progress};
use super::link::Path;

/// One setting, compared.
pub(crate) struct Buffers {
    /// Bytes of a write, or of a message; `None` is the default of each.
    pub(crate) write_bytes: Option<usize>,
    /// Bytes that the native program's responder reads at once; `None` is its default. The station that answers the page
    /// has no such setting.
    pub(crate) receive_bytes: Option<usize>,
    pub(crate) study: Study,
    /// Why it is no evidence, if it is none.
    pub(crate) void: Option<String>,
}

impl Buffers {
    /// Whether nothing is set.
    pub(crate) fn is_default(&self) -> bool {
        (self.write_bytes, self.receive_bytes) == (None, None)
    }
}

/// All settings on one link, as far as they could be measured.
pub(crate) fn rows(path: &Path, args: &Args, cancel: &Cancel) -> Vec<Buffers> {
    let mut rows = Vec::new();
    for (write_bytes, receive_bytes) in SETTINGS {
        if cancel.is_cancelled() {
            break;
        }
        match row(path, args, write_bytes, receive_bytes, cancel) {
            Ok(row) => rows.push(row),
            Err(error) => eprintln!("buffers: {error:#}"),
        }
    }
    rows
}

fn row(
    path: &Path,
    args: &Args,
    write_bytes: Option<usize>,
    receive_bytes: Option<usize>,
    cancel: &Cancel,
) -> anyhow::Result<Buffers> {
    let mut limits = Limits::default();
    if let Some(bytes) = receive_bytes {
        limits.receive_block_bytes = bytes;
    }
    let mut bench = path.bench_with(args, limits)?;
    let quantity = Quantity::Goodput;
    let asked = Asked { quantity, bytes: args.bytes, write_bytes, message_bytes: write_bytes };
    let mut turns = Turns::default();
    let bar = progress(args.buffer_pairs.into(), "buffers");
    let mut stopped = None;
    for pair in 0..args.buffer_pairs {
        turns.take(&mut bench, args, &asked, pair % 2 == 0, cancel);
        stopped = turns.too_many_failures(quantity);
        if stopped.is_some() || cancel.is_cancelled() {
            break;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let void = bench.void().or(stopped);
    Ok(Buffers { write_bytes, receive_bytes, study: turns.study(quantity)?, void })
}

/// The paper's write sizes (§4.2: 32 KiB in C, 64 KiB in Java), and the receive blocks that made them matter there
/// (512 B) and did not (1 KiB). One is varied at a time.
const SETTINGS: [(Option<usize>, Option<usize>); 5] =
    [(None, None), (Some(32 * 1024), None), (Some(64 * 1024), None), (None, Some(512)), (None, Some(1024))];
