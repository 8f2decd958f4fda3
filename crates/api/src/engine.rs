//! Small answers of `/v1/engine` (docs/spec/engine.md); records, entries and events are `barograph-engine`'s.

use serde::{Deserialize, Serialize};

/// The answer to a registration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineRegistered {
    /// Names the registration in renewals.
    pub registration: String,
    #[serde(default)]
    pub ttl_s: f64,
}

/// The answer to a renewal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineRenewed {
    #[serde(default)]
    pub ttl_s: f64,
}

/// The answer to the end of a registration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineLeft {}

/// The answer to an append.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineAppended {
    pub records: usize,
    /// How long to wait before the next append, seconds; absent = 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub wait_s: f64,
}

fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// The answer to a question for a watermark.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineWatermark {
    /// Sequence number up to which no record of the origin is missing.
    pub watermark: u64,
}

/// The answer to a question for the next sequence number.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineNextSeq {
    /// Sequence number that the origin has not used.
    pub next_seq: u64,
}
