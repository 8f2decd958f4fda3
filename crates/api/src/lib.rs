//! Requests and answers of a station's HTTP API (docs/spec/api.md), as JSON holds them.
//!
//! The station writes what clients read: each shape is stated once, and a test compares all of them with
//! [`OPENAPI`]. Field order is the order on the wire. Start with [`Forecasts`], [`Best`] and [`Measurements`].
//!
//! A reader takes answers of older and newer stations: keys it lacks are their defaults, keys it does not have are
//! ignored. Requests are strict: an unknown key is an error.
//!
//! Fields have a comment where the name does not say it: a unit, the words that occur, the meaning of `None`. `source`,
//! `target`, `quantity` and `unit` are those of [`Series`].
#![allow(missing_docs)]

mod best;
mod bulk;
#[cfg(feature = "client")]
pub mod client;
mod engine;
mod measured;
mod members;
mod mesh;
mod sites;
mod station;
mod targets;
mod transfers;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use best::{Best, BestHost, BestPart, Estimate, UnknownHost};
pub use bulk::{NewTest, Test, TestBudget, TestCost, TestList, TestRefused, TestSpent, TestState};
pub use engine::{
    EngineAppended, EngineLeft, EngineNextSeq, EngineRegistered, EngineRenewed, EngineWatermark,
};
pub use measured::{
    Event, Forecast, ForecastList, Forecasts, History, Lag, Latency, LatencyList, Latest, Measurements,
    NewRecord, Point, Recent, Record, Series, SeriesList, Stored,
};
pub use members::{Invitation, Member, MemberList, NewInvitation};
pub use mesh::{Directory, DroppedAddress, Mesh, Peer, PeerChange, PeerCounts, PeerEvent, PeerList, Spool};
pub use sites::{Acceptance, NextHost, PendingPosition, Position, Site, SiteOrigin, Sites};
pub use station::{Echo, Health, LimitUsage, Station};
pub use targets::{NewTarget, Target, TargetList};
pub use transfers::{
    LostPackets, NewTransfer, NewTransferLine, Transfer, TransferLine, TransferList, TransferState,
};

/// The OpenAPI document that a station serves at `/v1/openapi.json`.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// A word of a fixed vocabulary; a newer station may use one more.
pub type Word = Cow<'static, str>;

/// The answer to a request that is refused.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ErrorAnswer<'a> {
    pub error: Cow<'a, str>,
}

/// The answer to a removal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Removed {
    /// Name of the target or member, as the station spells it.
    pub removed: String,
}
