//! The portable sockets: datagrams over the loopback interface, and the tests of flows and sessions
//! again.

#[path = "../io/main.rs"]
mod flow;
#[path = "../session/main.rs"]
mod session;
mod socket;
