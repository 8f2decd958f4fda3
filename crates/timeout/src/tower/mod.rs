//! Middleware: gives each call to a service a timeout that is learned from the response times of
//! its target.
//!
//! [`AdaptiveTimeoutLayer`] wraps any [`tower_service::Service`]. A function of the caller returns
//! the target of each request. Each target has an [`Adaptive`](crate::Adaptive) estimator, and all
//! of them share one [`HostStatistics`](crate::HostStatistics).
//!
//! ```
//! use barograph_timeout::tower::AdaptiveTimeoutLayer;
//! use http::{Method, Request};
//! use std::time::Duration;
//! use tower::ServiceBuilder;
//!
//! let layer =
//!     AdaptiveTimeoutLayer::new(|request: &Request<String>| request.uri().authority().cloned())
//!         .bytes(|request| request.body().len() as u64)
//!         .retry(3, |request| request.method().is_idempotent(), |request| Some(request.clone()))
//!         .deadline(Duration::from_secs(30));
//! let targets = layer.targets();
//! let client = ServiceBuilder::new().layer(layer).service(tower::service_fn(
//!     async |request: Request<String>| Ok::<_, std::io::Error>(request.into_body()),
//! ));
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
//! # let request =
//! #     Request::builder().method(Method::GET).uri("http://here/").body("hello".into()).unwrap();
//! # let answer = runtime
//! #     .block_on(async { tower::ServiceExt::oneshot(client, request).await.unwrap() });
//! # assert_eq!(answer, "hello");
//! println!("{:?}", targets.metrics());
//! ```
//!
//! # What happens to a call that takes longer than its timeout
//!
//! - With neither [`retry`] nor [`hedge`], the call fails early with [`Elapsed`], so that the
//!   caller may try again. The estimator treats the attempt as the first of two attempts.
//! - With [`retry`], a request that may be sent again is cancelled (its future is dropped) and sent
//!   again. The last attempt runs to the limit. A request that may not be sent again fails with
//!   [`Elapsed`], as early as without [`retry`] and [`hedge`].
//! - With [`hedge`], a copy of a request that may be sent again is sent beside the request. The
//!   first response wins, and the other attempt is dropped. A request that may not be sent again
//!   has only one attempt, which runs to the limit.
//!
//! The limit is [`AdaptiveConfig::max_timeout`](crate::AdaptiveConfig::max_timeout), two hours
//! unless set. A caller that needs a result sooner sets a [`deadline`]. One [`RetryBudget`] bounds
//! all copies, retries and hedges together. If the budget is empty, an overdue call is not cut off.
//! Its attempt continues as the last one. If a copy is never sent, because the service does not
//! become ready, the cost of the copy is given back to the budget. Errors of the service are passed
//! through and never cause a retry (`tower::retry`, outside this layer, does that).
//!
//! # What is timed
//!
//! An attempt runs from `call` to the response; for HTTP, to the head of the response, not to the
//! end of its body. Waiting for `poll_ready` is not part of any attempt. For example, `poll_ready`
//! may wait for a concurrency limit or for a new connection. What a service does inside `call`
//! cannot be separated: a pooling HTTP client connects there. A caller with its own connector
//! reports the time of connecting to [`Targets::record_connect`].
//!
//! Tokio's timer counts in milliseconds, so a timeout fires up to 1 ms late. No timeout of this
//! layer is shorter than 2 ms, because most shorter timeouts would be false.
//!
//! Dropping the call drops its attempts. The estimator then learns that the response would have
//! taken longer, not that the attempt timed out.
//!
//! # What calls share
//!
//! A call locks its own target twice. Each lock lasts while an estimator computes (tens to hundreds
//! of ns). The call takes no other lock, except that of the runtime's timer if the call waits. The
//! table of targets is read without a lock. A call to a new target locks the table to write to it.
//!
//! Targets share the budget's counter. A target adds to the counter once for each whole copy that
//! its calls have earned. By default, this happens at every fifth call; without retry and hedge, it
//! never happens. Two operations count references to shared state: cloning a service, which many
//! stacks do for each request, and a call that may be copied. The estimators also share what a
//! [`HostStatistics`](crate::HostStatistics) holds.
//!
//! The number of targets is bounded ([`TargetsConfig::max_targets`]). When this number is reached,
//! the eighth of the targets that has been idle longest is forgotten.
//!
//! [`retry`]: AdaptiveTimeoutLayer::retry
//! [`hedge`]: AdaptiveTimeoutLayer::hedge
//! [`deadline`]: AdaptiveTimeoutLayer::deadline

mod budget;
mod call;
mod call_state;
mod classify;
mod error;
mod layer;
mod metrics;
mod service;
mod table;
mod target;
mod targets;

pub use budget::RetryBudget;
pub use call::Call;
pub use classify::{AnsweredIf, Classify, Successes};
pub use error::{Elapsed, ElapsedCause};
pub use layer::AdaptiveTimeoutLayer;
pub use metrics::{LayerMetrics, TargetMetrics};
pub use service::AdaptiveTimeout;
pub use target::TargetCounters;
pub use targets::{Targets, TargetsConfig};

/// Error of a call: [`Elapsed`], or the service's own error.
pub type BoxError = std::boxed::Box<dyn core::error::Error + Send + Sync>;
