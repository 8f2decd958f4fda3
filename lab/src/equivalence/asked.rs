//! What native program and browser are asked for.

use barograph_study::compare::Better;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    Rtt,
    RttNagle,
    /// Up, without any correction, as in the paper's study (§2.1.1).
    Goodput,
}

impl Quantity {
    pub(crate) const ALL: [Self; 3] = [Self::Rtt, Self::RttNagle, Self::Goodput];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Rtt => "rtt",
            Self::RttNagle => "rtt_nagle",
            Self::Goodput => "goodput",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        if self.is_transfer() { "bit/s" } else { "s" }
    }

    /// Whether bytes are moved, and larger values are better.
    pub(crate) fn is_transfer(self) -> bool {
        self == Self::Goodput
    }

    pub(crate) fn better(self) -> Better {
        if self.is_transfer() { Better::Larger } else { Better::Smaller }
    }
}

/// One sample, as both are asked for it.
pub(crate) struct Asked {
    pub(crate) quantity: Quantity,
    pub(crate) bytes: u64,
    /// Bytes of a write of the native program; `None` is its default.
    pub(crate) write_bytes: Option<usize>,
    /// Bytes of a message of the page; `None` is its default.
    pub(crate) message_bytes: Option<usize>,
}
