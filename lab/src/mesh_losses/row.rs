//! A row of the table.

use std::fmt;

use crate::table::number;

/// What a fault did to a mesh.
#[derive(serde::Serialize)]
pub(super) struct Row {
    pub(super) mesh: &'static str,
    pub(super) fault: &'static str,
    /// Records that the station acknowledged, and how many of its records the archive has.
    pub(super) acknowledged: usize,
    pub(super) archived: u64,
    /// Acknowledged and not in the archive.
    pub(super) lost: usize,
    /// In the archive once more than once.
    pub(super) double: u64,
    /// From the fault's first moment until a station reported anything; `None` = none did.
    pub(super) noticed_s: Option<f64>,
    /// What was reported first.
    pub(super) sign: Option<String>,
    /// From the fault's end until what was acknowledged before it was confirmed by the mesh, another append was
    /// acknowledged, and forecasts learnt new values.
    pub(super) recovered_s: f64,
    /// From how many of the station's values the joined station, or the archive, forecasts.
    pub(super) forecast_from: u64,
    /// The longest time between two acknowledgements.
    pub(super) longest_gap_s: f64,
    /// Acknowledged and not yet confirmed by the mesh, at most.
    pub(super) most_waiting: u64,
    /// Peers that the parts reported as lost, each time.
    pub(super) peers_lost: u64,
    pub(super) read_only_s: u64,
}

impl Row {
    /// The first two lines of the table.
    pub(super) const HEAD: &'static str = "\
| mesh | fault | acknowledged | in the archive | lost | double | noticed (s) | recovered (s) | forecasts from \
| longest gap (s) | most waiting | peers lost | read-only (s) |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
";
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noticed = number(self.noticed_s, 1);
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {noticed} | {:.1} | {} | {:.2} | {} | {} | {} |",
            self.mesh,
            self.fault,
            self.acknowledged,
            self.archived,
            self.lost,
            self.double,
            self.recovered_s,
            self.forecast_from,
            self.longest_gap_s,
            self.most_waiting,
            self.peers_lost,
            self.read_only_s
        )
    }
}
