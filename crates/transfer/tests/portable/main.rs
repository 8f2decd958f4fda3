//! The portable sockets: datagrams over the loopback interface, and the tests of flows and
//! sessions, repeated with these sockets.

#[path = "../io/main.rs"]
mod flow;
#[path = "../session/main.rs"]
mod session;
mod socket;
