//! The engine on NATS: the suite, outages, a cluster, and permissions.
//!
//! Every test starts servers of its own. Without `nats-server`, each test reports that and passes.
#![allow(clippy::unwrap_used)]

mod anew;
mod attack;
mod bounds;
mod cluster;
mod deployed;
mod foreign;
mod outage;
mod permissions;
mod proxy;
mod quorum;
mod reflection;
mod replies;
mod scripts;
mod server;
mod site;
mod suite;
mod tasks;
mod values;
mod wrong;
