//! Why packets were lost: by the receiving host, which did not read them in time, or by the network.
//!
//! Pure: the fate of each packet comes in, with what else is known of it, and probabilities go out; no clock, no socket.
//!
//! - A [`Signature`] is the fate of each packet of a window (Dickens §3.1).
//! - A [`Meter`] computes its [`Metrics`]: admissible words, complexity, success proportion, runs and gaps.
//! - A [`Classifier`] tells who lost the packets, of the window and of each gap, by the best evidence there is.
//! - A [`PaperClassifier`] is the one of Dickens §3.
//! - [`read_line`] reads windows as text, [`Table`] and [`read_labelled`] those whose cause is known.
#![forbid(unsafe_code)]

mod classifier;
mod evidence;
mod fit;
#[doc(hidden)]
pub mod fuzzing;
mod line;
mod metrics;
mod model;
mod paper;
mod signature;
mod table;
mod words;

pub use classifier::Classifier;
pub use evidence::{Cause, Diagnosis, Evidence, Found, GapEvidence, Shape, Verdict};
#[cfg(feature = "fit")]
pub use fit::{
    BinReport, CurveReport, FitReport, LowReport, PAPER_KINDS, PaperFit, ShapiroWilk, deal_runs, fit,
    fit_paper,
};
pub use fit::{FitError, Labelled, LeftOut};
pub use line::{Line, LineError, read_line};
pub use metrics::{Meter, Metrics};
pub use model::ModelError;
pub use paper::{Curve, LowModel, Normal, PaperClassifier, PaperModel};
pub use signature::{Gap, Gaps, Signature, SignatureError};
pub use table::{Table, TableError, read_labelled, stated_window};
pub use words::{WORD_MAX, Words};
