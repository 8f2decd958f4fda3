//! A hyper client that cancels calls and sends them again if they take longer than usual.
//!
//! `cargo run -p barograph-timeout --features tower --example hyper_client` starts a local server
//! that stalls now and then, and calls this server. The first calls may be sent again. The calls
//! after them may not be sent again, so an overdue call of this kind fails early.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::{Router, routing::any};
use barograph_timeout::tower::{AdaptiveTimeoutLayer, BoxError, Elapsed};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, Router::new().route("/", any(answer))).into_future());

    let layer = AdaptiveTimeoutLayer::new(|request: &Request<Full<Bytes>>| {
        request.uri().authority().map_or_else(String::new, ToString::to_string)
    })
    .retry(3, |request| request.method().is_idempotent(), |request| Some(request.clone()))
    .deadline(Duration::from_secs(10));
    let targets = layer.targets();
    let http = Client::builder(TokioExecutor::new()).build_http();
    let mut client = ServiceBuilder::new().layer(layer).service(http);

    for (method, calls) in [(Method::GET, 300), (Method::POST, 100)] {
        let (mut longest, mut told) = (Duration::ZERO, 0);
        for _ in 0..calls {
            let request = Request::builder().method(&method).uri(&server).body(Full::default())?;
            let began = Instant::now();
            match client.ready().await?.call(request).await {
                Ok(_) => {}
                Err(error) if Elapsed::find(&*error).is_some() => told += 1,
                Err(error) => return Err(error),
            }
            longest = longest.max(began.elapsed());
        }
        println!("{calls} × {method}: at most {longest:.1?}, {told} cut off");
    }
    for target in targets.metrics().targets {
        let (decision, counts) = (target.decision, target.counts);
        println!("{}: timeout {:.1?} ({})", target.key, decision.timeout, decision.reason);
        println!(
            "forecast {:.1?}, {} retries of {} attempts",
            decision.forecast, counts.retries, counts.attempts
        );
    }
    Ok(())
}

/// Responds at once, but every fiftieth call takes a second.
async fn answer() {
    static CALLS: AtomicU32 = AtomicU32::new(1);
    if CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(50) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
