//! `LossClassifier`: finds out whether packets were lost by the receiving host or by the network.

use barograph_loss::{
    Classifier, Diagnosis, Evidence, LossPattern, Meter, Metrics, PaperClassifier, Signature, Verdict,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Finds the cause of the losses of a window of packets.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct LossClassifier {
    inner: AnyClassifier,
}

enum AnyClassifier {
    Default(Box<Classifier>),
    Paper(PaperClassifier),
}

#[pymethods]
impl LossClassifier {
    /// Creates a classifier with the shipped model, or with the text of a model that `barograph
    /// classify fit --method default` wrote. ValueError says why a text is no such model.
    #[new]
    #[pyo3(signature = (model=None))]
    fn new(model: Option<&str>) -> PyResult<Self> {
        let classifier = match model {
            Some(model) => {
                Classifier::read(model).map_err(|error| PyValueError::new_err(error.to_string()))?
            }
            None => Classifier::shipped(),
        };
        Ok(Self { inner: AnyClassifier::Default(Box::new(classifier)) })
    }

    /// Returns the classifier of the paper (Dickens §3), which uses the pattern of losses alone.
    #[staticmethod]
    fn paper() -> Self {
        Self { inner: AnyClassifier::Paper(PaperClassifier::shipped()) }
    }

    /// Returns the cause of the losses of a window of `packets` packets. `runs` are the numbers of
    /// packets that were received, lost, received, lost, and so on; the rest was received.
    #[pyo3(signature = (packets, runs, *, burst=None, delay=None, host_drops=None, marks=None))]
    fn diagnose(
        &self,
        packets: u32,
        runs: Vec<u32>,
        burst: Option<u32>,
        delay: Option<f64>,
        host_drops: Option<u32>,
        marks: Option<u32>,
    ) -> PyResult<LossDiagnosis> {
        if burst == Some(0) {
            return Err(PyValueError::new_err("burst must be at least 1"));
        }
        if let Some(delay) = delay.filter(|delay| !(0.0..f64::INFINITY).contains(delay)) {
            return Err(PyValueError::new_err(format!("delay must be 0 or more and finite, not {delay}")));
        }
        let signature =
            Signature::from_runs(packets, runs).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let metrics = Meter::new().measure(&signature);
        let evidence = Evidence { burst, delay_s: delay, host_drops, marks };
        let inner = match &self.inner {
            AnyClassifier::Default(classifier) => classifier.diagnose(&signature, &metrics, &evidence),
            AnyClassifier::Paper(classifier) => classifier.diagnose(&metrics),
        };
        Ok(LossDiagnosis { inner, metrics })
    }
}

/// The cause of the losses of a window, and the evidence for it.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct LossDiagnosis {
    inner: Diagnosis,
    metrics: Metrics,
}

#[pymethods]
impl LossDiagnosis {
    /// The cause: "cpu", "network", "hybrid" or "inconclusive".
    #[getter]
    fn verdict(&self) -> &'static str {
        match self.inner.verdict {
            Verdict::Host => "cpu",
            Verdict::Network => "network",
            Verdict::Hybrid => "hybrid",
            Verdict::Inconclusive => "inconclusive",
        }
    }

    /// Probability that a lost packet was lost by the host's CPU, 0 to 1; the rest is the
    /// network's.
    #[getter]
    fn p_cpu(&self) -> f64 {
        self.inner.p_host
    }

    /// Number of packets that were lost.
    #[getter]
    fn lost(&self) -> u32 {
        self.metrics.lost
    }

    /// Number of packets lost by the host.
    #[getter]
    fn lost_host(&self) -> u32 {
        self.inner.lost_host
    }

    /// Number of packets lost by the network.
    #[getter]
    fn lost_network(&self) -> u32 {
        self.inner.lost_network
    }

    /// Number of packets lost by an unknown cause.
    #[getter]
    fn lost_unknown(&self) -> u32 {
        self.inner.lost_unknown
    }

    /// The evidence that was used and doubts about it, with the words of `barograph classify`.
    #[getter]
    fn evidence(&self) -> Vec<&'static str> {
        let (used, pattern) = (self.inner.evidence_used, self.inner.pattern);
        let words = [
            (used.pattern, "pattern"),
            (used.burst, "burst"),
            (used.delay, "delay"),
            (used.host_drops, "host_drops"),
            (used.marks, "marks"),
            (used.disbelieved, "disbelieved"),
            (used.extrapolated, "extrapolated"),
            (pattern == Some(LossPattern::Outage), "outage"),
            (pattern == Some(LossPattern::Policer), "policer"),
        ];
        words.into_iter().filter_map(|(is_so, word)| is_so.then_some(word)).collect()
    }

    fn __repr__(&self) -> String {
        format!(
            "LossDiagnosis(verdict='{}', p_cpu={:.6}, lost={}, lost_host={}, lost_network={}, lost_unknown={}, evidence={:?})",
            self.verdict(),
            self.p_cpu(),
            self.lost(),
            self.lost_host(),
            self.lost_network(),
            self.lost_unknown(),
            self.evidence(),
        )
    }
}
