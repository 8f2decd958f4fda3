//! Classification of results: response or failure.

/// Classifies a result as a response or a failure. The estimator learns the time of responses only.
pub trait Classify<Response, Error> {
    /// Whether `result` counts as a response.
    fn is_answer(&self, result: Result<&Response, &Error>) -> bool;
}

/// Every `Ok` counts as a response, and no `Err` does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Successes;

impl<Response, Error> Classify<Response, Error> for Successes {
    fn is_answer(&self, result: Result<&Response, &Error>) -> bool {
        result.is_ok()
    }
}

/// Classifies with a function; see
/// [`AdaptiveTimeoutLayer::answered_if`](super::AdaptiveTimeoutLayer::answered_if).
#[derive(Clone, Copy, Debug)]
pub struct AnsweredIf<F>(pub(super) F);

impl<F, Response, Error> Classify<Response, Error> for AnsweredIf<F>
where
    F: Fn(Result<&Response, &Error>) -> bool,
{
    fn is_answer(&self, result: Result<&Response, &Error>) -> bool {
        (self.0)(result)
    }
}
