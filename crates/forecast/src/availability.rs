//! Forecasts whether the next probe answers.

use libm::{exp, log, pow};

/// Forecasts whether the next probe answers, from the answers and failures so far.
///
/// Five forecasts are mixed by their past Brier scores: the share of answers so far (the
/// climatology), the share of recent answers with a long and with a short memory, and the share of
/// answers after runs and after patterns like the present one. The mixture is Vovk's aggregating
/// algorithm (1998, "A game of prediction with expert advice", Journal of Computer and System
/// Sciences 56). The sum of its squared errors exceeds that of the climatology by at most
/// −ln 0.98 / 2 ≈ 0.01, whatever the outcomes are.
///
/// ```
/// use barograph_forecast::Availability;
///
/// let mut availability = Availability::new();
/// assert_eq!(availability.probability(), None);
/// // Outages of ten probes: the probe after a failure usually fails, too.
/// for number in 0..1000 {
///     availability.learn(number % 100 < 90);
/// }
/// let after_failure = availability.probability().expect("there are outcomes");
/// assert!(after_failure < 0.95);
/// let score = availability.brier().expect("outcomes were scored");
/// assert!(score.issued < 0.5 * score.climatology);
/// ```
#[derive(Clone, Debug)]
pub struct Availability {
    count: u64,
    answers: f64,
    /// Fading shares of answers, with a short and with a long memory, and with the memory of
    /// forecasts far ahead.
    fast: f64,
    slow: f64,
    far: f64,
    /// The last outcomes, the newest in the lowest bit; 1 is an answer.
    recent: u32,
    /// Number of equal outcomes at the end of the series.
    run: u32,
    /// Answers after a run: first index 1 after answers, 0 after failures; second index by the
    /// length of the run, in powers of two.
    after_runs: [[AnswerShare; RUN_CLASSES]; 2],
    /// Answers after each pattern of the last [`PATTERN_LEN`] outcomes.
    after_patterns: [AnswerShare; 1 << PATTERN_LEN],
    /// Sum of squared errors of each of [`Availability::parts`].
    losses: [f64; PARTS],
    issued: f64,
    /// Sums of squared errors of the issued probability.
    loss: f64,
    scored: u64,
}

/// Brier scores (Brier 1950, "Verification of forecasts expressed in terms of probability"): mean
/// squared differences between a probability and the outcome, 1 for an answer and 0 for a failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BrierScore {
    /// Score of the issued probabilities, 0 (best) to 1.
    pub issued: f64,
    /// Score of the climatology, for the same outcomes: the share of answers so far, where one
    /// probe with 0.99 answers is assumed before the first outcome.
    pub climatology: f64,
    /// Number of scored outcomes.
    pub count: u64,
}

impl Availability {
    /// Creates an availability without outcomes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            count: 0,
            answers: 0.0,
            fast: START,
            slow: START,
            far: START,
            recent: 0,
            run: 0,
            after_runs: [[AnswerShare::default(); RUN_CLASSES]; 2],
            after_patterns: [AnswerShare::default(); 1 << PATTERN_LEN],
            losses: [0.0; PARTS],
            issued: 0.0,
            loss: 0.0,
            scored: 0,
        }
    }

    /// Scores the issued probability on an outcome, then learns the outcome.
    ///
    /// A refused connection is an answer. A failure of the measuring host itself is no outcome.
    pub fn learn(&mut self, is_answer: bool) {
        let outcome = f64::from(u8::from(is_answer));
        if self.count != 0 {
            let squared = |probability: f64| (probability - outcome) * (probability - outcome);
            let parts = self.parts();
            for (loss, part) in self.losses.iter_mut().zip(parts) {
                *loss += squared(part);
            }
            self.loss += squared(self.issued);
            self.scored += 1;
            let [runs, pattern] = self.contexts();
            runs.learn(outcome);
            pattern.learn(outcome);
        }
        let continues = self.count != 0 && is_answer == (self.recent & 1 == 1);
        self.run = if continues { self.run.saturating_add(1) } else { 1 };
        self.recent = self.recent << 1 | u32::from(is_answer);
        self.count += 1;
        self.answers += outcome;
        let newest = 1.0 / (self.count as f64 + 1.0);
        for (share, gain) in
            [(&mut self.fast, FAST_GAIN), (&mut self.slow, SLOW_GAIN), (&mut self.far, FAR_GAIN)]
        {
            *share += gain.max(newest) * (outcome - *share);
        }
        self.issued = self.mixed();
    }

    /// Probability that the next probe answers, 0 to 1; `None` before the first outcome.
    #[must_use]
    pub fn probability(&self) -> Option<f64> {
        (self.count != 0).then_some(self.issued)
    }

    /// Probability that the probe that is `steps` probes ahead answers; the next probe is one step
    /// ahead. `None` before the first outcome, and if `steps` is below 1 or not finite.
    ///
    /// The probability approaches the share of recent answers at the rate at which a chain of two
    /// states, answer and failure, forgets its state.
    #[must_use]
    pub fn probability_ahead(&self, steps: f64) -> Option<f64> {
        if !(1.0..f64::INFINITY).contains(&steps) {
            return None;
        }
        let next = self.probability()?;
        let share = self.far;
        let [after_failure, after_answer] = self.after_runs.map(|classes| {
            let total = classes.iter().fold(AnswerShare::default(), |sum, class| sum.plus(class));
            total.shrunk_to(share, 1.0)
        });
        // How much of the present state is left after one step. A chain of outcomes that
        // alternate forgets its state at once.
        let memory = (after_answer - after_failure).clamp(0.0, MEMORY_MAX);
        Some((share + (next - share) * pow(memory, steps - 1.0)).clamp(0.0, 1.0))
    }

    /// Brier scores of the issued probabilities and of the climatology; `None` before an outcome
    /// was scored. The first outcome is not scored, because no probability was issued before it.
    #[must_use]
    pub fn brier(&self) -> Option<BrierScore> {
        let mean = |sum: f64| sum / self.scored as f64;
        (self.scored != 0).then(|| BrierScore {
            issued: mean(self.loss),
            climatology: mean(self.losses[CLIMATOLOGY]),
            count: self.scored,
        })
    }

    /// The probabilities that are mixed.
    fn parts(&self) -> [f64; PARTS] {
        let [runs, pattern] = self.context_shares();
        let climatology = (self.answers + START) / (self.count as f64 + 1.0);
        [
            climatology,
            self.slow,
            self.fast,
            runs.shrunk_to(self.slow, CONTEXT_PRIOR),
            pattern.shrunk_to(self.slow, CONTEXT_PRIOR),
        ]
    }

    /// Mixes the parts so that the squared error is at most the mixed loss for both outcomes. Under
    /// the rate 2, squared errors of probabilities are mixable (Vovk 1998).
    fn mixed(&self) -> f64 {
        let parts = self.parts();
        let least = self.losses.iter().fold(f64::INFINITY, |least: f64, loss| least.min(*loss));
        let mut weights = PRIORS;
        for (weight, loss) in weights.iter_mut().zip(self.losses) {
            *weight *= exp(-RATE * (loss - least));
        }
        let mixed_loss = |outcome: f64| {
            let mut sum = 0.0;
            for (weight, part) in weights.iter().zip(parts) {
                sum += weight * exp(-RATE * (part - outcome) * (part - outcome));
            }
            -log(sum) / RATE
        };
        // Both losses lack the same term, the logarithm of the sum of the weights.
        (0.5 + 0.5 * (mixed_loss(0.0) - mixed_loss(1.0))).clamp(0.0, 1.0)
    }

    /// Indices of the present run and of the present pattern.
    fn context_indices(&self) -> (usize, usize, usize) {
        let state = (self.recent & 1) as usize;
        let class = (self.run.max(1).ilog2() as usize).min(RUN_CLASSES - 1);
        (state, class, self.recent as usize & ((1 << PATTERN_LEN) - 1))
    }

    fn context_shares(&self) -> [&AnswerShare; 2] {
        let (state, class, pattern) = self.context_indices();
        [&self.after_runs[state][class], &self.after_patterns[pattern]]
    }

    fn contexts(&mut self) -> [&mut AnswerShare; 2] {
        let (state, class, pattern) = self.context_indices();
        [&mut self.after_runs[state][class], &mut self.after_patterns[pattern]]
    }
}

impl Default for Availability {
    fn default() -> Self {
        Self::new()
    }
}

/// Answers and outcomes that fade.
#[derive(Clone, Copy, Debug, Default)]
struct AnswerShare {
    answers: f64,
    outcomes: f64,
}

impl AnswerShare {
    fn learn(&mut self, outcome: f64) {
        self.answers = FADE * self.answers + outcome;
        self.outcomes = FADE * self.outcomes + 1.0;
    }

    /// The share of answers, if `weight` outcomes with the share `prior` are added.
    fn shrunk_to(&self, prior: f64, weight: f64) -> f64 {
        (self.answers + weight * prior) / (self.outcomes + weight)
    }

    fn plus(self, other: &Self) -> Self {
        Self { answers: self.answers + other.answers, outcomes: self.outcomes + other.outcomes }
    }
}

const PARTS: usize = 5;
/// Index of the share of answers so far among the parts.
const CLIMATOLOGY: usize = 0;
/// Weights of the parts before the first outcome. The weight of the climatology sets the bound of
/// its advantage: −ln 0.98 / 2 squared errors in all. Independent failures have no better forecast
/// than the climatology. If failures are not independent, the other parts take over after the
/// climatology has made about three squared errors more.
const PRIORS: [f64; PARTS] = [0.98, 0.005, 0.005, 0.005, 0.005];
/// Largest rate at which squared errors of probabilities are mixable (Vovk 1998).
const RATE: f64 = 2.0;
/// Answers that are assumed for one probe before the first outcome. Most targets answer almost
/// always, so the first failure of a target must not be a surprise of the full size.
const START: f64 = 0.99;
/// Gains of the fading shares: memories of 5, 50 and 500 probes. At a probe each minute, the last
/// one remembers a working day. An outage of an hour hardly changes it.
const FAST_GAIN: f64 = 0.2;
const SLOW_GAIN: f64 = 0.02;
const FAR_GAIN: f64 = 0.002;
/// Weight of the slow share in the share of a context, in outcomes.
const CONTEXT_PRIOR: f64 = 4.0;
/// Fade of the shares of contexts at each of their outcomes: a memory of 200 outcomes.
const FADE: f64 = 0.995;
/// Classes of runs: of 1, 2–3, 4–7, …, 64–127 outcomes, and longer ones.
const RUN_CLASSES: usize = 8;
const PATTERN_LEN: usize = 4;
/// Largest memory of the two-state chain for one step.
const MEMORY_MAX: f64 = 0.9999;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn outcomes() -> impl Strategy<Value = Vec<bool>> {
        let runs = prop::collection::vec((any::<bool>(), 1usize..40), 0..20);
        prop_oneof![
            prop::collection::vec(any::<bool>(), 0..400),
            runs.prop_map(|runs| runs.into_iter().flat_map(|(up, n)| core::iter::repeat_n(up, n)).collect()),
        ]
    }

    proptest! {
        /// Vovk's bound, rounded up: the climatology has the weight 0.98 at the start.
        #[test]
        fn squared_errors_exceed_those_of_the_climatology_by_at_most_001_in_all(outcomes in outcomes()) {
            let mut availability = Availability::new();
            for is_answer in outcomes {
                availability.learn(is_answer);
                let Some(score) = availability.brier() else { continue };
                let excess = (score.issued - score.climatology) * score.count as f64;
                prop_assert!(excess <= 0.0102, "{excess} after {}", score.count);
            }
        }

        #[test]
        fn brier_score_is_the_mean_squared_error_of_the_issued_probabilities(outcomes in outcomes()) {
            let mut availability = Availability::new();
            let (mut sum, mut count) = (0.0, 0u64);
            for is_answer in outcomes {
                if let Some(issued) = availability.probability() {
                    prop_assert!((0.0..=1.0).contains(&issued));
                    let error = issued - f64::from(u8::from(is_answer));
                    (sum, count) = (sum + error * error, count + 1);
                }
                availability.learn(is_answer);
                prop_assert_eq!(availability.brier().map(|score| score.count), (count != 0).then_some(count));
                if let Some(score) = availability.brier() {
                    prop_assert_eq!(score.issued, sum / count as f64);
                }
                for steps in [1.0, 1.5, 10.0, 1e300] {
                    prop_assert!((0.0..=1.0).contains(&availability.probability_ahead(steps).unwrap()));
                }
            }
        }
    }

    #[test]
    fn probability_ahead_starts_at_the_next_probe_and_approaches_the_recent_share() {
        let mut availability = Availability::new();
        assert_eq!(availability.probability_ahead(1.0), None);
        // Outages of ten probes in every hundred; the last probe is in an outage.
        (0..996).for_each(|number| availability.learn(number % 100 < 90));
        let next = availability.probability().unwrap();
        assert!((availability.probability_ahead(1.0).unwrap() - next).abs() < 1e-12);
        let ahead = [1.0, 2.0, 5.0, 20.0, 100.0].map(|steps| availability.probability_ahead(steps).unwrap());
        assert!(ahead.windows(2).all(|pair| pair[0] < pair[1]), "{ahead:?}");
        assert!((availability.probability_ahead(1e9).unwrap() - availability.far).abs() < 1e-9);
        for steps in [0.5, f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(availability.probability_ahead(steps), None);
        }
    }

    #[test]
    fn alternating_outcomes_are_predicted() {
        let mut availability = Availability::new();
        (0..1000).for_each(|number| availability.learn(number % 2 == 0));
        let score = availability.brier().unwrap();
        assert!(score.issued < 0.05 * score.climatology, "{score:?}");
    }
}
