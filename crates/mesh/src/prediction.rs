//! Prediction of turns, revisits and costs for a mesh that does not exist yet.

use std::time::Duration;

use crate::budget::{BudgetError, Cost, HOUR};
use crate::plan::{PlanConfig, SelectionPolicy};

/// Number of hosts and of their sites. The hosts of a site test each other. With more than one
/// site, one host of each site represents the site. The representatives also test each other (the
/// group `global`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeshSize {
    /// Number of all hosts, 2 to 1 000 000.
    pub hosts: u32,
    /// Number of sites, from 1 to the number of hosts. The hosts are spread evenly over the sites.
    pub sites: u32,
}

/// Why there is no prediction for a mesh and a plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum PredictionError {
    #[error("the number of hosts is {0}; the accepted range is 2 to 1000000")]
    Hosts(u32),
    #[error("{hosts} hosts cannot have {sites} sites; use at least 1 site and at most 1 for each host")]
    Sites { hosts: u32, sites: u32 },
    /// The paper's plan would exceed the budget. The turns of this plan do not wait for the budget,
    /// so their tests must fit into half of the budget.
    #[error(
        "the paper's plan needs {asked:?} and {asked_bytes} bytes an hour for the tests that a host starts, but half of the budget is \
         {half:?} and {half_bytes} bytes; use longer turns or a larger budget"
    )]
    Paper {
        asked: Duration,
        asked_bytes: u64,
        /// Half of an hour's budget of time.
        half: Duration,
        /// Half of an hour's bytes.
        half_bytes: u64,
    },
    #[error(transparent)]
    Plan(#[from] BudgetError),
}

/// What determines the length of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnLimit {
    /// The configured interval between turns.
    Turns,
    /// The budget of time.
    Time,
    /// The budget of bytes.
    Bytes,
}

/// Prediction for a mesh in which all hosts are up and never refuse a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanPrediction {
    /// Number of peers of a host that does not represent its site.
    pub peers: u32,
    /// Number of peers of a representative: the other hosts of its site and the other
    /// representatives; 0 with one site.
    pub representative_peers: u32,
    /// Mean time from one turn of a host to its next turn.
    pub turn: Duration,
    /// What determines the length of a turn.
    pub limit: TurnLimit,
    /// Mean time between two tests of a pair, for hosts that do not represent their site.
    pub revisit: Duration,
    /// Mean time between two tests of a pair, for pairs that a representative tests.
    pub representative_revisit: Duration,
    /// Longest time that any pair of the mesh waits for its test, while no host refuses.
    pub bound: Duration,
    /// Prediction for a representative; `None` with one site.
    pub representative: Option<RepresentativePrediction>,
    /// Cost of the tests that a host starts in an hour. The tests that peers ask this host for cost
    /// the same amount.
    pub started: Cost,
    /// Number of tests that a host starts in an hour.
    pub tests_per_hour: f64,
    /// Share of time that a host spends in tests that it starts. The tests that other hosts start
    /// with this host take the same share.
    pub share_started: f64,
    /// Number of ordered pairs that are tested in the whole mesh.
    pub pairs: u64,
}

/// Prediction for a host that represents its site.
///
/// The hosts of the site and the other representatives ask the representative for tests. The
/// representative reserves budget for both. See
/// [`Planner::set_groups`](crate::Planner::set_groups).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RepresentativePrediction {
    /// Mean time from one turn of the representative to its next turn.
    pub turn: Duration,
    /// Longest time that a pair waits for its test by the representative, while no host refuses.
    pub bound: Duration,
    /// Cost of the tests that the representative starts in an hour.
    pub started: Cost,
    /// Number of tests that the representative starts in an hour.
    pub tests_per_hour: f64,
    /// Share of time that the representative spends in tests that it starts.
    pub share_started: f64,
}

impl MeshSize {
    /// Number of hosts at the largest site.
    pub fn hosts_at_site(&self) -> u32 {
        self.hosts.div_ceil(self.sites.max(1))
    }

    fn check(&self) -> Result<(), PredictionError> {
        if !(2..=1_000_000).contains(&self.hosts) {
            return Err(PredictionError::Hosts(self.hosts));
        }
        if !(1..=self.hosts).contains(&self.sites) {
            return Err(PredictionError::Sites { hosts: self.hosts, sites: self.sites });
        }
        Ok(())
    }

    /// Ordered pairs: within each site, and between representatives.
    fn pairs(&self) -> u64 {
        let (hosts, sites) = (u64::from(self.hosts), u64::from(self.sites));
        let (small, larger) = (hosts / sites, hosts % sites);
        let all_of = |n: u64| n * n.saturating_sub(1);
        (sites - larger) * all_of(small) + larger * all_of(small + 1) + all_of(sites)
    }
}

/// Predicts turns, revisits and costs of a plan in which each test costs `each`.
///
/// A turn of [`SelectionPolicy::Paper`] is either a bandwidth or a latency test, as in the paper,
/// so each pair takes two turns (Gloperf §3: ten hosts at n = 5 "could see a 90-minute revisit
/// time").
pub fn predict(mesh: MeshSize, config: &PlanConfig, each: Cost) -> Result<PlanPrediction, PredictionError> {
    mesh.check()?;
    config.check()?;
    let peers = mesh.hosts_at_site() - 1;
    let representative_peers = if mesh.sites < 2 { 0 } else { peers + mesh.sites - 1 };
    let each = each.at_most(config.budget.test_cap());
    let turns_of_pair = if config.policy == SelectionPolicy::Paper { 2 } else { 1 };
    check_paper(config, each)?;
    let (turn, limit) = turn(config, each, 1);
    let started = |turn: Duration| {
        let tests_per_hour = HOUR.as_secs_f64() / turn.as_secs_f64() / f64::from(turns_of_pair);
        let duration = each.duration.mul_f64(tests_per_hour);
        (Cost { duration, bytes: (each.bytes as f64 * tests_per_hour) as u64 }, tests_per_hour)
    };
    let bound = |peers: u32, groups: u32| {
        let turns = config.policy.turns_max(peers.saturating_mul(turns_of_pair));
        config.turn_max_in(each, groups).saturating_mul(turns)
    };
    let revisit = |turn: Duration, peers: u32| turn.saturating_mul(peers.saturating_mul(turns_of_pair));
    let share = |started: Cost| started.duration.as_secs_f64() / HOUR.as_secs_f64();
    // With one host at each site, a representative is in one group only.
    let groups = if peers > 0 { 2 } else { 1 };
    let (representative_turn, _) = self::turn(config, each, groups);
    let representative = (representative_peers > 0).then(|| {
        let (started, tests_per_hour) = started(representative_turn);
        RepresentativePrediction {
            turn: representative_turn,
            bound: bound(representative_peers, groups),
            started,
            tests_per_hour,
            share_started: share(started),
        }
    });
    let (started, tests_per_hour) = started(turn);
    Ok(PlanPrediction {
        peers,
        representative_peers,
        turn,
        limit,
        revisit: revisit(turn, peers),
        representative_revisit: revisit(representative_turn, representative_peers),
        bound: representative.map_or(Duration::ZERO, |one| one.bound).max(bound(peers, 1)),
        representative,
        started,
        tests_per_hour,
        share_started: share(started),
        pairs: mesh.pairs(),
    })
}

/// Checks that the budget has room for a bandwidth test in every turn of the paper's plan. The
/// turns of this plan do not wait for the budget.
fn check_paper(config: &PlanConfig, each: Cost) -> Result<(), PredictionError> {
    let tests = HOUR.as_secs_f64() / config.every.as_secs_f64();
    let (asked, asked_bytes) = (each.duration.mul_f64(tests), (each.bytes as f64 * tests) as u64);
    let (half, half_bytes) = (config.budget.per_hour().duration / 2, config.budget.bytes_per_hour / 2);
    if config.policy == SelectionPolicy::Paper && (half < asked || half_bytes < asked_bytes) {
        return Err(PredictionError::Paper { asked, asked_bytes, half, half_bytes });
    }
    Ok(())
}

/// Mean length of a turn, for a host in this number of groups.
fn turn(config: &PlanConfig, each: Cost, groups: u32) -> (Duration, TurnLimit) {
    let every = config.every;
    if config.policy == SelectionPolicy::Paper {
        return (every, TurnLimit::Turns);
    }
    let time = config.pace_by_time(each).saturating_mul(groups);
    let bytes = config.pace_by_bytes(each).saturating_mul(groups);
    let paced = time.max(bytes);
    match () {
        () if paced <= every => (every, TurnLimit::Turns),
        () if bytes <= time => (time, TurnLimit::Time),
        () => (bytes, TurnLimit::Bytes),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(hosts: u32, sites: u32, config: &PlanConfig, seconds: f64, bytes: u64) -> PlanPrediction {
        let each = Cost { duration: Duration::from_secs_f64(seconds), bytes };
        predict(MeshSize { hosts, sites }, config, each).unwrap()
    }

    #[test]
    fn the_papers_plan_tests_each_pair_of_ten_hosts_every_90_minutes() {
        let paper = of(10, 1, &PlanConfig::paper(), 5.0, 62_500_000);
        assert_eq!(paper.revisit, Duration::from_secs(90 * 60));
        assert_eq!(paper.pairs, 90);
    }

    #[test]
    fn prediction_names_what_limits_the_turns() {
        let config = PlanConfig::default();
        let settled = of(20, 1, &config, 0.5, 6_250_000);
        assert_eq!((settled.limit, settled.turn), (TurnLimit::Turns, Duration::from_secs(300)));
        assert_eq!(settled.revisit, Duration::from_secs(19 * 300));
        let full = of(20, 1, &config, 5.0, 62_500_000);
        assert_eq!((full.limit, full.turn.as_secs()), (TurnLimit::Time, 1428));
        assert!((full.share_started - 0.0035).abs() < 1e-9, "{}", full.share_started);
        let fast = of(20, 1, &config, 5.0, 625_000_000);
        assert_eq!((fast.limit, fast.turn.as_secs()), (TurnLimit::Bytes, 5142));
        assert_eq!(fast.started.bytes / 1_000_000, 437);
    }

    #[test]
    fn the_papers_plan_must_fit_into_its_budget() {
        let paper = PlanConfig { every: Duration::from_secs(1), ..PlanConfig::paper() };
        let each = Cost { duration: Duration::from_secs(5), bytes: 62_500_000 };
        let error = predict(MeshSize { hosts: 10, sites: 1 }, &paper, each).unwrap_err();
        assert!(matches!(error, PredictionError::Paper { .. }), "{error}");
        assert!(error.to_string().contains("18000s") && error.to_string().contains("90s"), "{error}");
        assert!(predict(MeshSize { hosts: 10, sites: 1 }, &paper, Cost::default()).is_ok());
    }

    #[test]
    fn representatives_have_longer_turns_because_they_share_two_groups() {
        let full = of(60, 3, &PlanConfig::default(), 5.0, 62_500_000);
        let one = full.representative.unwrap();
        assert_eq!((full.turn.as_secs(), one.turn.as_secs()), (1428, 2857));
        assert_eq!(full.representative_revisit, one.turn * 21);
        assert!(one.bound == full.bound && full.turn * 4 * 19 < one.bound);
        // If the budget does not limit turns, the turns of a representative are as long as the
        // turns of other hosts.
        let settled = of(60, 3, &PlanConfig::default(), 0.5, 6_250_000);
        assert_eq!(settled.representative.unwrap().turn, settled.turn);
        assert_eq!(of(60, 1, &PlanConfig::default(), 5.0, 0).representative, None);
    }

    #[test]
    fn sites_reduce_the_number_of_pairs() {
        let flat = of(10_000, 1, &PlanConfig::default(), 0.5, 6_250_000);
        let sites = of(10_000, 500, &PlanConfig::default(), 0.5, 6_250_000);
        assert_eq!((flat.pairs, sites.pairs), (99_990_000, 500 * 20 * 19 + 500 * 499));
        assert_eq!((sites.peers, sites.representative_peers), (19, 518));
        // Uneven sites: 4, 3 and 3 hosts, and 6 ordered pairs between the representatives.
        assert_eq!(of(10, 3, &PlanConfig::default(), 0.5, 0).pairs, 12 + 6 + 6 + 6);
    }

    #[test]
    fn impossible_mesh_sizes_are_rejected() {
        let config = PlanConfig::default();
        for (hosts, sites) in [(1, 1), (0, 0), (5, 6), (5, 0), (1_000_001, 1)] {
            assert!(predict(MeshSize { hosts, sites }, &config, Cost::default()).is_err(), "{hosts} {sites}");
        }
    }
}
