//! `lab signatures`: real loss signatures with the kernel's own truth of who lost what, made on this machine.

mod args;
mod cut;
mod files;
mod goals;
pub(crate) mod host;
mod kind;
mod make;
pub(crate) mod plan;
mod receiver;
pub(crate) mod sender;
mod session;
mod tally;

pub(crate) use args::Args;
pub(crate) use session::run;
