//! The engine on NATS: the suite, outages, a cluster, and permissions.
//!
//! Every test starts servers of its own. Without `nats-server`, each test reports that and passes.

mod archive_writes;
mod attack;
mod bounds;
mod cluster;
mod deployed;
mod implausible_values;
mod late_writes;
mod malformed_headers;
mod member_writes;
mod nonces;
mod outage;
mod permissions;
mod proxy;
mod quorum;
mod recreated_stream;
mod reflected_replies;
mod removals;
mod replies;
mod scripts;
mod server;
mod site_failure;
mod suite;
mod tasks;
mod values;
