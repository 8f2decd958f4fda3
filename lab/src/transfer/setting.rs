//! What all runs of the study have in common.

/// How long runs are measured, and what they are drawn from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
}

/// How long a flow may take to find its rate before it is measured (s).
pub(crate) const START_S: u64 = 5;
