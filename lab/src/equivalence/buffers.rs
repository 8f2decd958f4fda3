//! Table 6, the control of buffers: how much is written and read at once, and what that does to goodput.

use barograph::compare::Study;
use barograph_probe::io::{Cancel, Limits};

use super::Args;
use super::collect::{Asked, Quantity, Turns, progress};
use super::link::Path;

/// One setting, compared.
pub(crate) struct Buffers {
    /// Bytes of a write, or of a message; `None` is the default of each.
    pub(crate) write_bytes: Option<usize>,
    /// Bytes that the native program's responder reads at once; `None` is its default.
    pub(crate) receive_bytes: Option<usize>,
    pub(crate) study: Study,
    pub(crate) void: Option<String>,
}

/// All settings on one link.
pub(crate) fn rows(path: &Path, args: &Args, cancel: &Cancel) -> anyhow::Result<Vec<Buffers>> {
    let mut rows = Vec::new();
    for (write_bytes, receive_bytes) in SETTINGS {
        if cancel.is_cancelled() {
            break;
        }
        let mut limits = Limits::default();
        if let Some(bytes) = receive_bytes {
            limits.receive_block_bytes = bytes;
        }
        let mut bench = path.bench_with(args, limits)?;
        let quantity = Quantity::Goodput;
        let asked = Asked { quantity, bytes: args.bytes, write_bytes, message_bytes: write_bytes };
        let mut turns = Turns::default();
        let bar = progress(args.buffer_pairs.into(), "buffers");
        for pair in 0..args.buffer_pairs {
            if !turns.take(&mut bench, &asked, pair % 2 == 0, cancel)? {
                break;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let (study, void) = (turns.study(quantity)?, bench.void());
        rows.push(Buffers { write_bytes, receive_bytes, study, void });
    }
    Ok(rows)
}

/// The paper's write sizes (§4.2: 32 KiB in C, 64 KiB in Java), and the receive blocks that made them matter there
/// (512 B) and did not (1 KiB). One is varied at a time.
const SETTINGS: [(Option<usize>, Option<usize>); 5] =
    [(None, None), (Some(32 * 1024), None), (Some(64 * 1024), None), (None, Some(512)), (None, Some(1024))];
