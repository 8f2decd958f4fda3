//! Which windows there are: by kind, by loss rate, by length and by cause.

use std::collections::BTreeSet;

use barograph_loss::{Cause, Labelled, PAPER_KINDS};

/// Which windows a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    /// Those of the paper's experiments: streams, on–off, TCP and random loss, against processes and a quota on the receiver.
    Papers,
    /// All but outages, which no pattern tells from a host's.
    All,
    Outage,
}

impl Kinds {
    pub(crate) fn has(self, kind: &str) -> bool {
        match self {
            Self::Papers => PAPER_KINDS.contains(&kind),
            Self::All => !Self::Outage.has(kind),
            Self::Outage => kind == "outage",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Papers => "paper's kinds",
            Self::All => "all kinds but outage",
            Self::Outage => "outage",
        }
    }
}

/// Loss rates from the lowest that the paper's classifier tells (§3.3), over those at which it changes its metric and at which our
/// windows change, to the highest it was trained on.
pub(crate) const BANDS: [f64; 5] = [8e-5, 5e-4, 2e-3, 1e-2, 5e-2];

/// Whether a loss rate is one that the classifiers are for.
pub(crate) fn is_in_range(window: &Labelled) -> bool {
    (BANDS[0]..=BANDS[4]).contains(&window.signature.loss_rate())
}

/// Which band the window's loss rate is in, the highest among them closed.
pub(crate) fn band_of(window: &Labelled) -> usize {
    let rate = window.signature.loss_rate();
    BANDS[1..4].iter().filter(|bound| **bound <= rate).count()
}

/// The length that the floors and the earlier experiment are of (packets).
pub(crate) const FLOORS_AT: u32 = 20_000;

/// The lengths of windows there are (packets).
pub(crate) fn lengths(windows: &[Labelled]) -> BTreeSet<u32> {
    windows.iter().map(|window| window.signature.packets()).collect()
}

pub(crate) fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Host => "CPU",
        Cause::Network => "network",
        Cause::Unknown => "both",
    }
}
