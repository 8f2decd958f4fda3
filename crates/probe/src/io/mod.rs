//! Runs plans with blocking sockets, each experiment on the thread of its caller.
//!
//! Blocking calls on their own thread have the shortest path from the wire to the clock: with an
//! async runtime, its wake-up delay would be measured as network latency.

mod client;
mod connection;
mod deadline;
mod http;
mod kernel;
mod payload;
mod responder;
mod sync;

pub use client::{
    ChallengeSigner, PacedResult, ProbeContext, ProbeProgress, ProgressFn, TargetKind, detect,
    exchange_on_timer, iperf3_session, plan, probe, run, run_one, stream, stream_counted, train, trusting,
};
pub use connection::Upgraded;
pub use deadline::CancellationToken;
pub use kernel::bulk_tcp_info;
pub use payload::block as payload_block;
pub use responder::{
    BulkOutcome, BulkPermit, BulkRequest, Consent, DatagramLoop, ExternalReceiver, ForeignBulk, InvalidTest,
    Listener, Responder, ResponderLimits, SessionSlot,
};
