//! Middleware: a timeout for each call to a service that learns, per target, how long answers take.
//!
//! [`AdaptiveTimeoutLayer`] wraps any [`tower_service::Service`]. A function of yours gives each request its
//! target; each target has an [`Adaptive`](crate::Adaptive) estimator, and all of them share one
//! [`Host`](crate::Host).
//!
//! ```
//! use barograph_timeout::tower::AdaptiveTimeoutLayer;
//! use http::{Method, Request};
//! use std::time::Duration;
//! use tower::ServiceBuilder;
//!
//! let layer = AdaptiveTimeoutLayer::new(|request: &Request<String>| request.uri().authority().cloned())
//!     .bytes(|request| request.body().len() as u64)
//!     .retry(3, |request| request.method().is_idempotent(), |request| Some(request.clone()))
//!     .deadline(Duration::from_secs(30));
//! let targets = layer.targets();
//! let client = ServiceBuilder::new().layer(layer).service(tower::service_fn(
//!     async |request: Request<String>| Ok::<_, std::io::Error>(request.into_body()),
//! ));
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
//! # let request = Request::builder().method(Method::GET).uri("http://here/").body("hello".into()).unwrap();
//! # let answer = runtime.block_on(async { tower::ServiceExt::oneshot(client, request).await.unwrap() });
//! # assert_eq!(answer, "hello");
//! println!("{:?}", targets.metrics());
//! ```
//!
//! # What happens to a call that takes longer than its timeout
//!
//! | set | request | what happens |
//! |---|---|---|
//! | neither | any | it fails with [`Elapsed`], early: as the first of two tries, so that the caller may try again |
//! | [`retry`] | may be sent again | it is cancelled (its future dropped) and sent again; the last try runs to the limit |
//! | [`hedge`] | may be sent again | a copy is sent beside it; the first answer wins, the other is dropped |
//! | [`retry`] | may not | it fails with [`Elapsed`], as early as with neither |
//! | [`hedge`] | may not | nothing: its only try runs to the limit, as nothing is cut off beside a hedge |
//!
//! The limit is [`Config::limit`](crate::Config::limit), two hours unless set: a caller that wants an end
//! sooner sets a [`deadline`]. Copies are bounded by one [`Budget`], retries and hedges together. An overdue
//! call that finds it empty is not cut off: it runs on as its last try. A copy that is never sent, because the
//! service does not get ready for it, is given back. Errors of the service are passed
//! through; they are never a reason to send again (`tower::retry` is for that, outside of this layer).
//!
//! # What is timed
//!
//! An attempt runs from `call` to the response (for HTTP: to its head, not to the end of its body). Waiting
//! for `poll_ready` – a limit on concurrency, a connection of its own that a service sets up there – is no
//! part of it, neither for the first attempt nor for later ones. What a service does inside of `call` cannot
//! be told apart: a pooling HTTP client connects there. Where a connector is at hand, [`Targets::connected`]
//! takes how long that took. Tokio's timer counts in milliseconds, so a timeout fires up to 1 ms late, and no
//! timeout of this layer is shorter than 2 ms: a shorter one would mostly be false.
//!
//! Dropping the call drops what is under way, and the estimator learns "longer than so", not "timed out".
//!
//! # What calls share
//!
//! A call locks its own target twice, for as long as an estimator computes (tens to hundreds of ns), and
//! takes no other lock besides the runtime's timer, if it waits: its target is found in a table that is read
//! without one. Targets share, in memory
//! that calls write to, only the budget's counter, which a target touches once for each whole copy that its
//! calls have earned (every fifth, by default; never without retry and hedge). A call to a target not seen
//! before locks the table to write to it. Cloning a service, as many stacks do for each request, and calls
//! that may be copied, count references to what all clones share. What a [`Host`](crate::Host) shares is the
//! estimator's.
//!
//! The number of targets is bounded ([`Settings::max_targets`]): the eighth that was idle longest is
//! forgotten when there is no room.
//!
//! [`retry`]: AdaptiveTimeoutLayer::retry
//! [`hedge`]: AdaptiveTimeoutLayer::hedge
//! [`deadline`]: AdaptiveTimeoutLayer::deadline

mod budget;
mod call;
mod classify;
mod error;
mod flight;
mod layer;
mod metrics;
mod service;
mod table;
mod target;
mod targets;

pub use budget::Budget;
pub use call::Call;
pub use classify::{AnsweredIf, Classify, Successes};
pub use error::{Cause, Elapsed};
pub use layer::AdaptiveTimeoutLayer;
pub use metrics::{Metrics, TargetMetrics};
pub use service::AdaptiveTimeout;
pub use target::Counts;
pub use targets::{Settings, Targets};

/// The error of a call: [`Elapsed`], or what the service's own error was.
pub type BoxError = std::boxed::Box<dyn core::error::Error + Send + Sync>;
