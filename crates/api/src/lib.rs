//! Types of a station's HTTP API (docs/spec/api.md): requests and responses, in the form that they
//! have in JSON.
//!
//! The station serialises the types that clients deserialise, so each shape is defined once. A test
//! compares all these types with the OpenAPI document, [`OPENAPI`]. The order of the fields is the
//! order in JSON.
//!
//! Three types matter:
//!
//! - [`Forecasts`]: what a station expects of the next value of a series.
//! - [`HostRanking`]: hosts, ranked by the expected time of a transfer.
//! - [`Measurements`]: values that an application sends to a station.
//!
//! ```
//! use barograph_api::HostRanking;
//!
//! let answer = r#"{"from": "north", "bytes": 1000, "best": "south"}"#;
//! let best: HostRanking = serde_json::from_str(answer)?;
//! assert_eq!(best.best.as_deref(), Some("south"));
//! assert!(best.hosts.is_empty());
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! Responses of older and newer stations can be read: an unknown key is ignored, and in types with
//! `#[serde(default)]` a missing key has its default. Requests are strict: an unknown key is an
//! error.
//!
//! The feature `client` adds the module `client`: an HTTP client for asynchronous and for blocking
//! callers. Without this feature, the crate has no networking. The crate does not validate values,
//! because the station validates them.
#![allow(missing_docs)]

mod best;
mod bulk_test;
#[cfg(feature = "client")]
pub mod client;
mod engine;
mod measurement;
mod members;
mod mesh;
mod sites;
mod station;
mod targets;
mod transfers;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use best::{Estimate, HostForecast, HostRanking, QuantityForecast, UnknownHost};
pub use bulk_test::{
    BulkTest, BulkTestBudget, BulkTestCost, BulkTestList, BulkTestRefused, BulkTestSpent, BulkTestState,
    NewBulkTest,
};
pub use engine::{
    EngineAppended, EngineNextSeq, EngineRegistered, EngineRenewed, EngineUnregistered, EngineWatermark,
};
pub use measurement::{
    AgedForecast, Forecast, ForecastList, Forecasts, HistoryPage, HorizonForecast, Latency, LatencyList,
    LatestPage, Measurements, MissedEvents, NewRecord, Quantile, RecentPoints, Record, SeriesList,
    SeriesPoint, SeriesSummary, StoredCount, StreamEvent, TransferForecast,
};
pub use members::{Invitation, Member, MemberList, NewInvitation};
pub use mesh::{Directory, DroppedAddress, Mesh, Peer, PeerChange, PeerCounts, PeerEvent, PeerList, Spool};
pub use sites::{AcceptPosition, CurrentPosition, NextHost, PendingPosition, ProposedPosition, Site, Sites};
pub use station::{Echo, Health, LimitUsage, Station};
pub use targets::{NewTarget, Target, TargetList};
pub use transfers::{
    LostPackets, NewReceiver, NewTransfer, Transfer, TransferList, TransferState, WaitingTransfer,
};

/// The OpenAPI document that a station serves at `/v1/openapi.json`.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// A word of a fixed vocabulary; a newer station may use further words.
pub type Keyword = Cow<'static, str>;

/// The response to a rejected request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ErrorBody<'a> {
    /// What is wrong, as a sentence.
    pub error: Cow<'a, str>,
}

/// The response to a removal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RemovedName {
    /// Name of the target or member, as the station spells it.
    pub removed: String,
}

// The examples of README.md are doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
