//! Small responses of `/v1/engine` (docs/spec/engine.md). Records, entries and events are those of
//! `barograph-engine`.

use serde::{Deserialize, Serialize};

/// The response to a registration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineRegistered {
    /// ID of the registration, for renewals.
    pub registration: String,
    /// Time for which the registration is valid, in seconds.
    #[serde(default)]
    pub ttl_s: f64,
}

/// The response to a renewal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineRenewed {
    /// Time for which the registration is valid from now on, in seconds.
    #[serde(default)]
    pub ttl_s: f64,
}

/// The response to a request that ends a registration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineUnregistered {}

/// The response to an append.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineAppended {
    /// Number of records that are stored.
    pub records: usize,
    /// Time to wait before the next append, in seconds; absent = 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub wait_s: f64,
}

fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// The response to a request for a watermark.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineWatermark {
    /// Sequence number up to which no record of the origin is missing.
    pub watermark: u64,
}

/// The response to a request for the next sequence number.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineNextSeq {
    /// Sequence number that the origin has not used.
    pub next_seq: u64,
}
