//! An axum service that calls a second service. Callers of the first service get an error early if
//! the second service stalls. `/metrics` of the first service shows the timeouts.
//!
//! `cargo run -p barograph-timeout --features tower --example axum_service` starts both services,
//! calls the front one, and prints the status codes and the metrics.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::{Router, routing::get};
use barograph_timeout::tower::{AdaptiveTimeout, AdaptiveTimeoutLayer, BoxError, Elapsed, Targets};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower::{Layer, Service, ServiceExt};

type Get = Request<Empty<Bytes>>;
type Http = Client<HttpConnector, Empty<Bytes>>;

#[derive(Clone)]
struct Front {
    back: AdaptiveTimeout<Http, String, Get>,
    back_uri: String,
    targets: Targets<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let back_uri = serve(Router::new().route("/", get(stock))).await?;
    let http = Client::builder(TokioExecutor::new()).build_http();
    let layer = AdaptiveTimeoutLayer::new(|get: &Get| get.uri().host().unwrap_or_default().to_owned());
    let targets = layer.targets();
    let state = Front { back: layer.layer(http.clone()), back_uri, targets };
    let front = Router::new().route("/", get(page)).route("/metrics", get(metrics)).with_state(state);
    let front_uri = serve(front).await?;

    let mut counts = BTreeMap::new();
    for _ in 0..300 {
        *counts.entry(http.get(front_uri.parse()?).await?.status()).or_insert(0) += 1;
    }
    println!("status codes: {counts:?}");
    let metrics = http.get(format!("{front_uri}metrics").parse()?).await?.into_body().collect().await?;
    println!("{}", String::from_utf8_lossy(&metrics.to_bytes()));
    Ok(())
}

/// Calls the other service. Status 504 means that the call takes longer than usual, and that the
/// caller may try again.
async fn page(State(mut front): State<Front>) -> Result<String, StatusCode> {
    let request = Request::get(&front.back_uri).body(Empty::new()).map_err(|_| StatusCode::BAD_GATEWAY)?;
    let answer = async { front.back.ready().await?.call(request).await }.await;
    match answer {
        Ok(response) => Ok(format!("in stock: {}", response.status())),
        Err(error) if Elapsed::find(&*error).is_some() => Err(StatusCode::GATEWAY_TIMEOUT),
        Err(_) => Err(StatusCode::BAD_GATEWAY),
    }
}

async fn metrics(State(front): State<Front>) -> Result<String, StatusCode> {
    let mut text = String::new();
    front.targets.metrics().write_openmetrics(&mut text).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(text)
}

/// The other service: responds at once, but every fiftieth call takes a second.
async fn stock() {
    static CALLS: AtomicU32 = AtomicU32::new(1);
    if CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(50) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn serve(service: Router) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let uri = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, service).into_future());
    Ok(uri)
}
