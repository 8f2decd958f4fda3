//! Classifiers that a sender may choose, behind one call.

use std::sync::{Arc, OnceLock};

use barograph_loss::{
    Cause, Classifier, Evidence, GapEvidence, Metrics, PaperClassifier, Signature, Verdict,
};

use crate::proto::LossClassification;

/// The classifier of a sender, and whether it uses the receiver's counter.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    method: Method,
    /// Whether the receiver's claims about its drop counter are used.
    pub(super) has_counter: bool,
    /// Whether losses without a claim are judged by their pattern. If not, they are the network's.
    pub(super) has_pattern: bool,
}

#[derive(Clone, Debug)]
enum Method {
    Default(Arc<Classifier>),
    Paper(Arc<PaperClassifier>),
}

impl Judge {
    /// Returns the judge of this choice; `None` if every loss counts as the network's.
    pub(super) fn new(classification: &LossClassification) -> Option<Self> {
        let (has_counter, has_pattern) = match classification {
            LossClassification::None => return None,
            LossClassification::Default | LossClassification::Model(_) => (true, true),
            LossClassification::Pattern | LossClassification::Paper => (false, true),
            LossClassification::Counter => (true, false),
        };
        let method = match classification {
            LossClassification::Model(classifier) => Method::Default(classifier.clone()),
            LossClassification::Paper => Method::Paper(shipped_paper()),
            _ => Method::Default(shipped()),
        };
        Some(Self { method, has_counter, has_pattern })
    }

    /// A judge with the shipped model and all evidence.
    pub(super) fn shipped() -> Self {
        Self { method: Method::Default(shipped()), has_counter: true, has_pattern: true }
    }

    /// A judge with this classifier and all evidence.
    pub(super) fn of(classifier: Classifier) -> Self {
        Self { method: Method::Default(Arc::new(classifier)), has_counter: true, has_pattern: true }
    }

    /// Appends the cause of each gap of the window to `causes`. Returns whether claims of the
    /// receiver were contradicted.
    pub(super) fn judge(
        &self,
        window: &Signature,
        metrics: &Metrics,
        burst: u32,
        gaps: &[GapEvidence],
        causes: &mut Vec<Cause>,
    ) -> bool {
        match &self.method {
            Method::Default(classifier) => {
                let evidence = Evidence { burst: Some(burst), ..Evidence::default() };
                let gaps = gaps.iter().copied();
                let diagnosis = classifier
                    .diagnose_gaps(window, metrics, &evidence, gaps, |_, cause, _| causes.push(cause));
                diagnosis.evidence_used.disbelieved
            }
            Method::Paper(classifier) => {
                // Dickens §2.2: one verdict for all losses of the window.
                let cause = match classifier.diagnose(metrics).verdict {
                    Verdict::Host => Cause::Host,
                    Verdict::Network => Cause::Network,
                    Verdict::Hybrid | Verdict::Inconclusive => Cause::Unknown,
                };
                causes.extend(gaps.iter().map(|_| cause));
                false
            }
        }
    }

    /// Whether marks and delays are used, so that a loss may be settled by them.
    pub(super) fn has_path_evidence(&self) -> bool {
        matches!(self.method, Method::Default(_))
    }
}

/// The shipped model, parsed only once, because this takes longer than sending a small object.
fn shipped() -> Arc<Classifier> {
    static SHIPPED: OnceLock<Arc<Classifier>> = OnceLock::new();
    SHIPPED.get_or_init(|| Arc::new(Classifier::shipped())).clone()
}

fn shipped_paper() -> Arc<PaperClassifier> {
    static SHIPPED: OnceLock<Arc<PaperClassifier>> = OnceLock::new();
    SHIPPED.get_or_init(|| Arc::new(PaperClassifier::shipped())).clone()
}
