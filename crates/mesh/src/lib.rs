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
//! - [`TestAdmission`]: limits a host to one bulk test at a time, within its [`Budget`]. Both the
//!   tests that the host starts and those that peers ask for pass through it.
//!
//! [`Model`] estimates pairs that are not measured from pairs that are, [`sites_of`] groups hosts
//! by their round-trip times, and [`rank`] sorts hosts by the forecast time of a transfer.
//!
//! ```
//! use std::time::Duration;
//!
//! use barograph_mesh::{Cost, PlanConfig, Planner, TestAdmission, TestAdmissionConfig};
//!
//! let mut planner = Planner::new("a", PlanConfig::default(), Duration::ZERO)?;
//! planner.set_peers(["b", "c"]);
//! let mut gate = TestAdmission::new(TestAdmissionConfig::default())?;
//!
//! let now = planner.next_at();
//! let test = planner.next(now).expect("a turn is due");
//! let grant = gate.start(now, &test.peer, test.expected).expect("the budget is unspent");
//! gate.begin(now, grant.token, &test.peer).expect("the grant is new");
//!
//! // The caller runs the test, which takes 5 s at 100 Mbit/s.
//! let cost = Cost { duration: Duration::from_secs(5), bytes: 62_500_000 };
//! let end = now + cost.duration;
//! gate.end(end, grant.token, cost).expect("the test ended in time");
//! planner.tested(end, &test.peer, cost, 1e8);
//! assert!(planner.next_at() > end);
//! # Ok::<(), barograph_mesh::BudgetError>(())
//! ```
//!
//! The crate sends nothing and stores nothing: the station exchanges the messages, runs the tests
//! and keeps the log of the budget across restarts. `docs/spec/plan.md` specifies plan, token and
//! budget.
#![forbid(unsafe_code)]

mod budget;
mod chance;
mod choose;
mod compose;
mod expectation;
mod groups;
mod plan;
pub mod roster;
mod sites;
mod token;

pub use budget::{Budget, BudgetConfig, BudgetError, Cost, Past, Reservation, Role, Spent};
pub use choose::{Candidate, INITIAL_WINDOW_BYTES, Ranked, rank};
pub use compose::{Composition, Estimate, Lesson, Model, Path};
pub use expectation::{Expectation, ExpectationError, Layout, Limit, Representative, expect};
pub use groups::{GLOBAL, LOCAL, Member, Proposal, SITES_HOSTS_MAX, UNSET, propose_sites, route};
pub use plan::{Length, Next, PairForecast, PlanConfig, Planner, Policy, Statistics};
pub use sites::{Patience, Position, RoundTrip, Site, Stand, clear_position, position, sites_of};
pub use token::{Grant, Refusal, TestAdmission, TestAdmissionConfig, TokenError};
