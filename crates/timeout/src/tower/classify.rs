//! What counts as an answer.

/// Says of a result whether it is an answer, from whose time an estimator learns, or a failure, whose time
/// says nothing about how long an answer takes.
pub trait Classify<Response, Error> {
    /// Whether `result` is an answer.
    fn is_answer(&self, result: Result<&Response, &Error>) -> bool;
}

/// Every response is an answer, and no error is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Successes;

impl<Response, Error> Classify<Response, Error> for Successes {
    fn is_answer(&self, result: Result<&Response, &Error>) -> bool {
        result.is_ok()
    }
}

/// What a function says is an answer; see
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
