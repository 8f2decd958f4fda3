//! All that the study found.

use barograph_study::compare::{Better, Moments, Study};

use super::browser::Ready;
use super::buffers::Buffers;
use super::collect::LinkStudy;
use super::link::Replayed;
use super::overhead::Overhead;
use super::rates::Rates;

/// All that a study found.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) links: Vec<LinkStudy>,
    pub(crate) browsers: Vec<Ready>,
    pub(crate) buffers: Vec<Buffers>,
    pub(crate) rates: Vec<Rates>,
    pub(crate) overhead: Overhead,
    /// How the emulated links' delays vary.
    pub(crate) jitter: Option<Variation>,
    /// Whether it was ended before it was done.
    pub(crate) is_cancelled: bool,
}

/// How delays vary: standard deviations and the mean, in seconds.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Variation {
    pub(crate) one_way_s: f64,
    pub(crate) round_trip_s: f64,
    pub(crate) mean_one_way_s: f64,
    pub(crate) is_seeded: bool,
}

impl Variation {
    pub(crate) fn of(replayed: &Replayed) -> Self {
        Self {
            one_way_s: replayed.one_way_s(),
            round_trip_s: replayed.round_trip_s(),
            mean_one_way_s: replayed.mean().as_secs_f64(),
            is_seeded: replayed.is_seeded,
        }
    }
}

/// The coefficient of independent pairs of the series that is divided by: of x and y with one mean μ and variance σ²,
/// Σxy ÷ Σx² tends to μ² ÷ (μ² + σ²).
pub(crate) fn by_scatter(study: &Study) -> Option<f64> {
    let side = match study.better {
        Better::Larger => &study.a,
        Better::Smaller => &study.b,
    };
    let Moments { mean, variance, .. } = side.moments;
    variance.map(|variance| mean * mean / (mean * mean + variance)).filter(|ratio| ratio.is_finite())
}

/// Native probes know no other way, so the page does the same.
pub(crate) const REGIME: &str = "Every experiment has a new connection of its own, natively and in the browser, whatever the quantity; \
the time to open it is no part of any value.";
