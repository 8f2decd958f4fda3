//! The thinking of a mesh of stations: who is there, who tests whom and when, within budgets.
//!
//! Pure: time comes in as a [`Duration`](core::time::Duration) since some start, values go out; no clock, no socket.
//!
//! A station has one [`Planner`], which says whom to test next, and one [`Gate`], which both the tests
//! that it starts and those that others ask it for pass through: it holds the token of the one
//! bulk test at a time, and the hard [`Budget`]. `docs/spec/plan.md` states what they promise.
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
pub use token::{Gate, GateConfig, Grant, Refusal, TokenError};
