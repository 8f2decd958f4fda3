//! How a sender finds the causes of losses, and how many losses each kind of evidence settled.

use std::ops::Add;
use std::sync::Arc;

use barograph_loss::Classifier;

/// How a sender finds the cause of a loss.
///
/// ```
/// use barograph_transfer::LossClassification;
///
/// assert_eq!(LossClassification::default().name(), "default");
/// ```
#[derive(Clone, Debug, Default)]
pub enum LossClassification {
    /// By the receiver's counter, marks, delay and pattern, with the shipped model.
    #[default]
    Default,
    /// As `Default`, but the receiver's counter is ignored.
    Pattern,
    /// By the paper's classifier, from the pattern alone ([`barograph_loss::PaperClassifier`]).
    Paper,
    /// As `Default`, with a fitted model.
    Model(Arc<Classifier>),
    /// By the receiver's counter alone. Without a counter, every loss counts as the network's.
    Counter,
    /// Every loss counts as the network's.
    None,
}

impl LossClassification {
    /// Name as users write it: `default`, `pattern`, `paper`, `model`, `counter` or `none`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Pattern => "pattern",
            Self::Paper => "paper",
            Self::Model(_) => "model",
            Self::Counter => "counter",
            Self::None => "none",
        }
    }
}

/// Number of lost packets by the evidence that settled their cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossesByEvidence {
    /// The drop counter of the receiver's kernel.
    pub counter: u64,
    /// Congestion marks beside the loss.
    pub marks: u64,
    /// The one-way delay before the loss, with the pattern.
    pub delay: u64,
    /// The pattern of losses alone.
    pub pattern: u64,
    /// None: no verdict came in time, so the loss counts as the network's.
    pub expired: u64,
}

impl Add for LossesByEvidence {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            counter: self.counter + other.counter,
            marks: self.marks + other.marks,
            delay: self.delay + other.delay,
            pattern: self.pattern + other.pattern,
            expired: self.expired + other.expired,
        }
    }
}
