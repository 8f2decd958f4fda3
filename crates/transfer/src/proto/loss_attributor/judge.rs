//! Classifiers that a sender may choose, behind one call.

use std::sync::{Arc, OnceLock};

use barograph_loss::{
    Cause, Classifier, Evidence, GapEvidence, LossRun, Meter, PaperClassifier, Signature, Verdict,
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
    Paper(PaperMethod),
}

/// The paper's classifier, with buffers for the window.
#[derive(Clone, Debug)]
struct PaperMethod {
    classifier: Arc<PaperClassifier>,
    signature: Signature,
    meter: Meter,
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
            LossClassification::Paper => Method::Paper(PaperMethod::shipped()),
            _ => Method::Default(shipped()),
        };
        Some(Self { method, has_counter, has_pattern })
    }

    /// A judge with the shipped model and all evidence.
    pub(super) fn shipped() -> Self {
        Self { method: Method::Default(shipped()), has_counter: true, has_pattern: true }
    }

    /// Appends the cause of each gap of a window of `packets` packets to `causes`. Returns whether
    /// claims of the receiver were contradicted.
    pub(super) fn judge(
        &mut self,
        packets: u32,
        gaps: &[(LossRun, GapEvidence)],
        burst: u32,
        causes: &mut Vec<Cause>,
    ) -> bool {
        match &mut self.method {
            Method::Default(classifier) => {
                let evidence = Evidence { burst: Some(burst), ..Evidence::default() };
                let gaps = gaps.iter().copied();
                let diagnosis =
                    classifier.diagnose_runs(packets, &evidence, gaps, |_, cause, _| causes.push(cause));
                diagnosis.evidence_used.disbelieved
            }
            Method::Paper(method) => {
                let cause = method.cause(packets, gaps);
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

impl PaperMethod {
    fn shipped() -> Self {
        Self { classifier: shipped_paper(), signature: Signature::new(), meter: Meter::new() }
    }

    /// Cause of all losses of the window: the paper's classifier has one verdict for all (Dickens
    /// §2.2).
    fn cause(&mut self, packets: u32, gaps: &[(LossRun, GapEvidence)]) -> Cause {
        let runs = gaps.iter().flat_map(|(gap, _)| [gap.received, gap.lost]);
        if self.signature.fill_runs(packets, runs).is_err() {
            return Cause::Unknown;
        }
        match self.classifier.diagnose(&self.meter.measure(&self.signature)).verdict {
            Verdict::Host => Cause::Host,
            Verdict::Network => Cause::Network,
            Verdict::Hybrid | Verdict::Inconclusive => Cause::Unknown,
        }
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
