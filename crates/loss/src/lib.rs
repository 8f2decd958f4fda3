//! Names the cause of packet losses: the receiving host, which did not read packets in time, or the
//! network.
//!
//! The caller passes the pattern of received and lost packets of a window, and other evidence if
//! there is any; the crate returns a verdict and probabilities. It reads no socket, clock or kernel
//! counter, and it does not slow a sender down. The caller decides whether to slow a sender down.
//!
//! - A [`Signature`] holds which packets of a window were received and which were lost (Dickens
//!   §3.1).
//! - A [`Meter`] computes its [`Metrics`]: admissible words, complexity, success proportion, runs
//!   and gaps.
//! - A [`Classifier`] makes a [`Diagnosis`] of a window, or of each gap, from the metrics and
//!   [`Evidence`].
//!
//! ```
//! use barograph_loss::{Classifier, Evidence, Meter, Signature, Verdict};
//!
//! // 20 000 packets: 3000 received, 60 lost, 2000 received, 150 lost, and so on.
//! let window = Signature::from_runs(20_000, [3000, 60, 2000, 150, 5000, 90]).unwrap();
//! let metrics = Meter::new().measure(&window);
//! let evidence = Evidence { burst: Some(1), ..Evidence::default() };
//! let diagnosis = Classifier::shipped().diagnose(&window, &metrics, &evidence);
//! assert_eq!((diagnosis.verdict, diagnosis.lost_host), (Verdict::Host, 300));
//! ```
//!
//! [`PaperClassifier`] is the classifier of Dickens §3, for comparison. [`read_line`] reads windows
//! as text; [`TableReader`] and [`read_labelled`] read windows with a known cause, and
//! [`write_labelled`] writes them. The feature `fit` adds the training of classifiers.
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
pub use evidence::{Cause, Diagnosis, Evidence, EvidenceUsed, GapEvidence, LossPattern, Verdict};
#[cfg(feature = "fit")]
pub use fit::{
    BinReport, CurveReport, FitReport, HeldBackScores, LowReport, OwnModel, PAPER_KINDS, PaperFit,
    ShapiroWilk, VerdictShares, assign_folds, fit, fit_own, fit_paper,
};
pub use fit::{FitError, Label, LabelledWindow, UnfittedLength};
pub use line::{LineError, WindowLine, read_line};
pub use metrics::{Meter, Metrics};
pub use model::ModelError;
pub use paper::{ComplexityCurve, LowModel, NormalDistribution, PaperClassifier, PaperModel};
pub use signature::{LossRun, LossRuns, Signature, SignatureError};
pub use table::{TableError, TableReader, parse_window_comment, read_labelled, write_labelled};
pub use words::{WORD_MAX, WordCounter};

// The examples of README.md are doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
