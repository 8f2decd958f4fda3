//! Experiments that measure a network: round-trip time, goodput, loss, connect and response time, and their responder.
