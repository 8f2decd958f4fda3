//! Runs plans with blocking sockets, each experiment on the thread of its caller.
//!
//! Blocking calls on their own thread have the shortest path from the wire to the clock: with an
//! async runtime, its wake-up delay would be measured as network latency.

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
