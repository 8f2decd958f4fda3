//! `/v1/tests`: bulk tests between a station and its peers (docs/spec/mesh.md §5).

use serde::{Deserialize, Serialize};

use crate::Word;

/// The newest tests, and what further ones may cost.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TestList {
    /// Whether the station takes part in tests.
    pub bulk: bool,
    pub budget: TestBudget,
    /// Time until the station's next turn, seconds; `None` = there is no peer to test.
    pub next_turn_s: Option<f64>,
    pub turns_skipped: u64,
    pub turns_deferred: u64,
    /// Tests, the newest first.
    pub tests: Vec<Test>,
}

/// What tests may cost.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TestBudget {
    pub per_hour: TestCost,
    pub per_test: TestCost,
    /// Spent in the last hour.
    pub spent: TestSpent,
    /// Left of `per_hour`.
    pub left: TestCost,
}

/// What was spent, by this station's role.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TestSpent {
    /// Tests in which this station was the source, which sends.
    pub source: TestCost,
    /// Tests in which it was the target, which receives.
    pub target: TestCost,
}

/// What tests took, all together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TestCost {
    /// Time under way, seconds.
    pub seconds: f64,
    /// Bytes sent or received.
    pub bytes: u64,
}

/// One test, at this end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Test {
    /// When it began, seconds since 1970-01-01 UTC; of refusals when the latest was.
    pub time_s: f64,
    /// `source` (this station sent) or `target`.
    pub role: Word,
    pub peer: String,
    pub state: TestState,
    /// Whether `POST /v1/tests` asked for it.
    pub on_demand: bool,
    /// How long it was meant to be at most, seconds.
    pub test_s: f64,
    /// What it took in the end, seconds.
    pub duration_s: Option<f64>,
    /// Bytes sent or received.
    pub bytes: Option<u64>,
    /// Goodput of the test, bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_bit_s: Option<f64>,
    /// Why the stream ended: `full`, `bytes`, `early`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Word>,
    /// Program that makes it, if that is not the station's own stream: `iperf3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<Word>,
    /// Why it failed or was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When to ask again, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<f64>,
    /// How many refusals in a row it stands for.
    pub times: u64,
}

/// What became of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestState {
    Running,
    /// It gave a rate; as target, bytes came.
    Done,
    Failed,
    /// It did not begin: one end gave no permission.
    Refused,
    /// A state that this version does not have.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A request for a test.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTest {
    pub to: String,
    /// Its length, seconds; `None` = the station's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// The answer when no test may begin now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TestRefused {
    pub error: String,
    /// When to ask again, seconds.
    pub retry_after_s: f64,
}
