//! Mean reversion: how far a series moves back towards a median in the next step, learned for each
//! class of distance to the median.

/// Learns the mean next step for each cell of (distance to a short median, distance to a long
/// median); a regressogram (Tukey 1961) with fading memory.
#[derive(Clone, Debug)]
pub(crate) struct StepTable {
    /// For each cell: the sum of the steps and the number of steps, both with fading weights.
    cells: [[f64; 2]; SIDE * SIDE],
    cell: usize,
}

const SIDE: usize = 7;
// Constants of method 11 in `docs/spec/full.md`; edges and steps are in step scales.
const TABLE_EDGES: [f64; SIDE - 1] = [-3.0, -1.2, -0.4, 0.4, 1.2, 3.0];
const TABLE_FADE: f64 = 0.998;
const TABLE_STEP_MAX: f64 = 10.0;
/// Weight of the prior: the number of assumed observations of a step of 0.
const TABLE_PRIOR: f64 = 3.0;

impl StepTable {
    pub(crate) fn new() -> Self {
        Self { cells: [[0.0; 2]; SIDE * SIDE], cell: 0 }
    }

    /// Returns the expected step. `short` and `long` are the distances to the two medians. The step
    /// and the distances are in scales.
    pub(crate) fn predict(&mut self, short: f64, long: f64) -> f64 {
        self.cell = count_edges_below(&TABLE_EDGES, short) * SIDE + count_edges_below(&TABLE_EDGES, long);
        let [sum, count] = self.cells[self.cell];
        sum / (count + TABLE_PRIOR)
    }

    /// Learns `step`, in scales: the step that followed the distances of the last prediction.
    pub(crate) fn learn(&mut self, step: f64) {
        let [sum, count] = &mut self.cells[self.cell];
        *sum = TABLE_FADE * *sum + step.clamp(-TABLE_STEP_MAX, TABLE_STEP_MAX);
        *count = TABLE_FADE * *count + 1.0;
    }
}

/// Learns the share of the distance to a median that the next step reverts, for each class of that
/// distance: threshold regression (Tong 1978) through the origin.
#[derive(Clone, Debug)]
pub(crate) struct ThresholdReversion {
    /// For each class: Σ step·distance and Σ distance², both fading.
    cells: [[f64; 2]; CLASSES],
    cell: usize,
    distance: f64,
}

const CLASSES: usize = 8;
// Constants of method 12 in `docs/spec/full.md`; edges, steps and distances are in step scales.
const CLASS_EDGES: [f64; CLASSES - 1] = [0.3, 0.7, 1.2, 2.0, 3.5, 6.0, 12.0];
const REVERSION_FADE: f64 = 0.995;
const REVERSION_STEP_MAX: f64 = 40.0;
const DISTANCE_MAX: f64 = 30.0;
const SHARE_MAX: f64 = 1.2;
const ENERGY_START: f64 = 0.001;

impl ThresholdReversion {
    pub(crate) fn new() -> Self {
        Self { cells: [[0.0, ENERGY_START]; CLASSES], cell: 0, distance: 0.0 }
    }

    /// The share of `distance` that the next step is expected to revert. `distance` is from the
    /// value to the median, in units of the step scale.
    pub(crate) fn predict(&mut self, distance: f64) -> f64 {
        self.cell = count_edges_below(&CLASS_EDGES, distance.abs());
        self.distance = distance.clamp(-DISTANCE_MAX, DISTANCE_MAX);
        let [product, energy] = self.cells[self.cell];
        (product / (energy + 1.0)).clamp(-SHARE_MAX, SHARE_MAX)
    }

    /// Learns from `step`, the step of the series after the last call of
    /// [`predict`](Self::predict), in units of the step scale.
    pub(crate) fn learn(&mut self, step: f64) {
        let step = step.clamp(-REVERSION_STEP_MAX, REVERSION_STEP_MAX);
        let [product, energy] = &mut self.cells[self.cell];
        *product = REVERSION_FADE * *product + step * self.distance;
        *energy = REVERSION_FADE * *energy + self.distance * self.distance;
    }
}

/// Number of edges at or below `value`.
fn count_edges_below<const N: usize>(edges: &[f64; N], value: f64) -> usize {
    edges.iter().map(|edge| usize::from(*edge <= value)).sum()
}
