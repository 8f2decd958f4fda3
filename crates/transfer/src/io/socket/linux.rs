//! The calls of Linux, through `nix`: trains in both directions, and the count of drops.

pub(super) mod inbox;
pub(super) mod options;
pub(super) mod outbox;
