//! Results of a simulated mesh.

use std::time::Duration;

use barograph_mesh::BudgetConfig;

use super::Mesh;

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) tests: f64,
    pub(crate) skipped_share: f64,
    pub(crate) refusals: u64,
    pub(crate) deferrals: u64,
    pub(crate) gap_max: Duration,
    pub(crate) gap_mean: f64,
}

impl Mesh {
    pub(crate) fn taken_by_greedy(&self) -> Duration {
        self.greedy.and_then(|greedy| self.taken.get(&greedy)).copied().unwrap_or_default()
    }

    /// Checks that the tests of a host in any hour cost at most its budget plus one test. Returns
    /// the largest share of its budget of time that a host used in an hour.
    pub(crate) fn assert_budgets_hold(&self) -> f64 {
        let mut busiest = Duration::ZERO;
        let BudgetConfig { bytes_per_hour, .. } = self.config.budget;
        let (limit, cap) = (self.config.budget.per_hour(), self.config.budget.test_cap());
        let hour = Duration::from_secs(3600);
        for (i, station) in self.stations.iter().enumerate().filter(|(i, _)| self.greedy != Some(*i)) {
            let mut first = 0;
            let (mut duration, mut bytes) = (Duration::ZERO, 0);
            let mut free_at = Duration::ZERO;
            for &(start, end, cost) in &station.tests {
                assert!(free_at <= start, "station {i} takes part in two tests at {start:?}");
                free_at = end;
                duration += cost.duration;
                bytes += cost.bytes;
                while station.tests[first].1 + hour <= start {
                    duration -= station.tests[first].2.duration;
                    bytes -= station.tests[first].2.bytes;
                    first += 1;
                }
                assert!(duration < limit.duration + cap.duration, "station {i}: {duration:?}");
                assert!(bytes < bytes_per_hour + cap.bytes, "station {i}: {bytes} bytes");
                busiest = busiest.max(duration);
            }
        }
        busiest.as_secs_f64() / limit.duration.as_secs_f64()
    }

    /// The bound that stations promise; with sites, the bound of stations that do not represent
    /// their site.
    pub(crate) fn bound(&self) -> Duration {
        self.bound_of(1)
    }

    /// The bound that one station promises; station 0 represents its site.
    pub(crate) fn bound_of(&self, station: usize) -> Duration {
        self.stations[station].planner.revisit_bound()
    }

    /// Returns the report, which includes the gaps of the stations with as many peers as station 1.
    pub(crate) fn report(&self) -> Report {
        self.report_like(1)
    }

    /// Returns the report, which includes the gaps of the stations with as many peers as station
    /// `like`.
    pub(crate) fn report_like(&self, like: usize) -> Report {
        let mut report = Report {
            tests: 0.0,
            skipped_share: 0.0,
            refusals: 0,
            deferrals: 0,
            gap_max: Duration::ZERO,
            gap_mean: 0.0,
        };
        let (mut skipped, mut gaps) = (0, 0);
        for (i, station) in self.stations.iter().enumerate().filter(|(i, _)| self.greedy != Some(*i)) {
            let turns = station.planner.turn_counts();
            report.tests += turns.tests as f64;
            skipped += turns.skipped;
            report.refusals += turns.refusals;
            report.deferrals += turns.deferrals;
            if station.peers.len() != self.stations[like].peers.len() {
                continue;
            }
            gaps += station.gaps;
            report.gap_mean += station.gap_sum.as_secs_f64();
            let open = station
                .peers
                .iter()
                .map(|to| self.now - station.visited.get(to).copied().unwrap_or_default());
            report.gap_max = report.gap_max.max(station.gap_max).max(open.max().unwrap_or_default());
            assert!(station.planner.peers() == station.peers.len(), "station {i}");
        }
        report.skipped_share = skipped as f64 / (skipped as f64 + report.tests);
        report.gap_mean /= gaps as f64;
        report
    }
}
