//! Doing what was planned: blocking sockets, each experiment on the thread that asks for it.
//!
//! Blocking calls on a thread of one's own are the shortest way from the wire to the clock: a
//! wake-up by a runtime would be measured as network.

mod client;
mod clock;
mod connection;
mod http;
mod kernel;
mod payload;
mod responder;
mod sync;

pub use client::{
    Context, Paced, Peer, Progress, ProgressFn, Sign, beside, detect, paced, plan, probe, run, run_one,
    stream, stream_counted, trusting,
};
pub use clock::Cancel;
pub use connection::Upgraded;
pub use kernel::bulk_tcp_info;
pub use payload::block as noise;
pub use responder::{
    Agreement, BulkElsewhere, Consent, DatagramLoop, Limits, Listener, NoTest, Program, Responder,
    SessionSlot, Settled, Wish,
};
