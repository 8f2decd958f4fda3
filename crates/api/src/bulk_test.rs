//! `/v1/tests`: bulk tests between a station and its peers (docs/spec/mesh.md §5).

use serde::{Deserialize, Serialize};

use crate::Keyword;

/// The newest bulk tests, and the budget for further ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BulkTestList {
    /// Whether the station takes part in bulk tests.
    pub bulk: bool,
    /// Time and bytes that bulk tests may use, and have used.
    pub budget: BulkTestBudget,
    /// Time until the station's next turn, in seconds; `None` = there is no peer to test.
    pub next_turn_s: Option<f64>,
    /// Number of turns in which every peer refused.
    pub turns_skipped: u64,
    /// Number of turns put off because this host could not start the test: a different bulk
    /// transfer ran, the budget was used up, or iperf3 was missing.
    pub turns_deferred: u64,
    /// Tests, the newest first.
    pub tests: Vec<BulkTest>,
}

/// Time and bytes that bulk tests may use, and have used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BulkTestBudget {
    /// Maximum time and maximum number of bytes of all tests together in one hour.
    pub per_hour: BulkTestCost,
    /// Maximum time and maximum number of bytes of one test.
    pub per_test: BulkTestCost,
    /// Time and bytes spent in the last hour.
    pub spent: BulkTestSpent,
    /// Time and bytes of `per_hour` that are still unused.
    pub left: BulkTestCost,
}

/// Time and bytes used by bulk tests, by this station's role.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BulkTestSpent {
    /// Time and bytes of the tests in which this station was the source, the sender.
    pub source: BulkTestCost,
    /// Time and bytes of the tests in which this station was the target, the receiver.
    pub target: BulkTestCost,
}

/// Time and bytes of one or more bulk tests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BulkTestCost {
    /// Duration of the tests, in seconds.
    pub seconds: f64,
    /// Bytes sent or received.
    pub bytes: u64,
}

/// One bulk test, as this end saw it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BulkTest {
    /// Start of the test, or time of the latest refusal, in seconds since 1970-01-01 UTC.
    pub time_s: f64,
    /// `source` (this station sends) or `target` (this station receives).
    pub role: Keyword,
    /// Name of the station at the other end.
    pub peer: String,
    /// Progress or result of the test.
    pub state: BulkTestState,
    /// Whether `POST /v1/tests` requested the test.
    pub on_demand: bool,
    /// Maximum intended duration of the test, in seconds.
    pub test_s: f64,
    /// Actual duration of the test, in seconds; `None` = not known, or the test still runs.
    pub duration_s: Option<f64>,
    /// Bytes sent or received; `None` = not known, or the test still runs.
    pub bytes: Option<u64>,
    /// Goodput of the test, in bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_bit_s: Option<f64>,
    /// Why the stream ended: `full` (maximum time), `bytes` (maximum number of bytes) or `early`
    /// (the rate had settled, or an estimate of the rate was accepted).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Keyword>,
    /// Program that ran the test: `iperf3`; absent if the station's own stream was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<Keyword>,
    /// Why the test failed or was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Time after which to retry, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<f64>,
    /// Number of consecutive refusals that this row represents; 1 if the test was not refused.
    pub times: u64,
}

/// Progress or result of a bulk test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkTestState {
    /// The test has begun and has not ended.
    Running,
    /// The test measured a rate; at the target, this means that bytes arrived.
    Done,
    /// The test began and measured no rate.
    Failed,
    /// The test did not begin, because one end refused the test.
    Refused,
    /// A state that this version does not have.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A request for a bulk test.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewBulkTest {
    /// Name of the peer that receives.
    pub to: String,
    /// Duration of the test, in seconds; `None` = the station's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// The response if no bulk test may begin now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BulkTestRefused {
    /// Why no test may begin, as a sentence.
    pub error: String,
    /// Time after which to retry, in seconds.
    pub retry_after_s: f64,
}
