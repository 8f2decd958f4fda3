//! Decisions of a mesh of stations: its peers, the plan and budget of bulk tests, its sites, and
//! the ranking of hosts.
//!
//! The crate is pure: it has no clock, socket, file or thread. The caller passes the time in, as a
//! [`Duration`](core::time::Duration) since any fixed start.
//!
//! Three types matter:
//!
//! - [`roster::Roster`]: turns directory events of several groups into changes of peers, such as
//!   joined or lost.
//! - [`Planner`]: chooses which peer this station tests next, and when.
//! - [`TestAdmission`]: limits a host to one bulk test at a time, within its [`Budget`]. Each test
//!   needs this admission, whether the host starts the test or a peer asks for the test.
//!
//! [`EarlyTests`] brings a test forward when the path to a peer changes.
//!
//! [`CompositionModel`] estimates pairs that are not measured from pairs that are. [`sites_of`]
//! groups hosts by their round-trip times. [`transfer_time`] forecasts the time of a transfer, and
//! [`rank`] sorts hosts by it. [`predict`] predicts the turns and costs of a mesh that does not
//! exist yet.
//!
//! ```
//! use std::time::Duration;
//!
//! use barograph_mesh::{Cost, PlanConfig, Planner, TestAdmission, TestAdmissionConfig};
//!
//! let mut planner = Planner::new("a", PlanConfig::default(), Duration::ZERO)?;
//! planner.set_peers(["b", "c"]);
//! let mut admission = TestAdmission::new(TestAdmissionConfig::default())?;
//!
//! let now = planner.next_at();
//! let test = planner.next(now).expect("a turn is due");
//! let grant = admission.start(now, &test.peer, test.expected).expect("the budget is unspent");
//! admission.begin(now, grant.token, &test.peer).expect("the grant is new");
//!
//! // The caller runs the test, which takes 5 s at 100 Mbit/s.
//! let cost = Cost { duration: Duration::from_secs(5), bytes: 62_500_000 };
//! let end = now + cost.duration;
//! admission.end(end, grant.token, cost).expect("the test ended in time");
//! planner.record_test(end, &test.peer, cost, 1e8);
//! assert!(planner.next_at() > end);
//! # Ok::<(), barograph_mesh::BudgetError>(())
//! ```
//!
//! The crate sends nothing and stores nothing: the station exchanges the messages, runs the tests
//! and keeps the log of the budget across restarts. `docs/spec/plan.md` specifies plan, token and
//! budget.
#![forbid(unsafe_code)]

mod admission;
mod budget;
mod choose;
mod compose;
mod early;
mod groups;
mod plan;
mod prediction;
mod rng;
pub mod roster;
mod sites;

pub use admission::{Grant, TestAdmission, TestAdmissionConfig, TestRefusal, TokenError};
pub use budget::{Budget, BudgetConfig, BudgetError, BudgetUsage, Cost, PastTest, Reservation, Role};
pub use choose::{HostCandidate, RankedHost, rank, transfer_time};
pub use compose::{ComposedQuantity, CompositionModel, LegForecast, PairObservation, PathEstimate};
pub use early::{EarlyTest, EarlyTestCounts, EarlyTestReason, EarlyTests, WatchedQuantity};
pub use groups::{GLOBAL, LOCAL, Member, SITES_HOSTS_MAX, SiteProposal, UNSET, propose_sites, route};
pub use plan::{PairForecast, PlanConfig, PlannedTest, Planner, SelectionPolicy, TestKind, TurnCounts};
pub use prediction::{
    MeshSize, PlanPrediction, PredictionError, RepresentativePrediction, TurnLimit, predict,
};
pub use sites::{Debounce, RttState, Site, SitePosition, SiteReport, certain_position, position, sites_of};

// The examples of README.md are doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
