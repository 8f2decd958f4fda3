//! Linux system calls, through `nix`, that send and receive trains and report the number of dropped
//! datagrams.

pub(super) mod inbox;
pub(super) mod options;
pub(super) mod outbox;
