//! The portable sockets: datagrams over the loopback, and the tests of flows and of sessions once more.

#[path = "../io/main.rs"]
mod flow;
#[path = "../session/main.rs"]
mod session;
mod socket;
