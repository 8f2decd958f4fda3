//! A gRPC client that hedges overdue calls: it sends a copy, and the first response wins.
//!
//! The layer wraps calls with messages, which can be copied. It does not wrap the channel, because
//! the bodies of its requests cannot be copied. `cargo run -p barograph-timeout --features tower
//! --example tonic_client` starts its own server. A codec for plain text replaces generated code,
//! so `protoc` is not needed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::{Router, routing::any};
use barograph_timeout::tower::{AdaptiveTimeoutLayer, BoxError};
use bytes::{Buf, BufMut};
use http::uri::PathAndQuery;
use tokio::time::Instant;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

const PATH: &str = "/lesson.Shouter/Shout";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let server = format!("http://{}", incoming.local_addr()?);
    let serve = any(async |request| tonic::server::Grpc::new(Text).unary(service_fn(shout), request).await);
    let routes = tonic::service::Routes::from(Router::new().route(PATH, serve));
    tokio::spawn(Server::builder().add_routes(routes).serve_with_incoming(incoming));

    let channel = Endpoint::from_shared(server.clone())?.connect().await?;
    let layer = AdaptiveTimeoutLayer::new(move |_: &String| server.clone())
        .bytes(|message| message.len() as u64)
        .hedge(|_shouting_is_idempotent| true, |message| Some(message.clone()));
    let targets = layer.targets();
    let mut client = ServiceBuilder::new().layer(layer).service(service_fn(move |message: String| {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        async move {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            grpc.unary(Request::new(message), PathAndQuery::from_static(PATH), Text).await
        }
    }));

    let mut longest = Duration::ZERO;
    for _ in 0..300 {
        let began = Instant::now();
        let answer = client.ready().await?.call("hello".to_owned()).await?;
        assert_eq!(answer.into_inner(), "HELLO");
        longest = longest.max(began.elapsed());
    }
    println!("300 calls: the longest took {longest:.1?}");
    for target in targets.metrics().targets {
        let counts = target.counts;
        println!("timeout {:.1?}: {}", target.decision.timeout, target.decision.reason);
        println!("{} hedges, {} of them false", counts.hedges, counts.false_observed);
    }
    Ok(())
}

/// Responds at once, but every fiftieth call takes a second.
async fn shout(request: Request<String>) -> Result<Response<String>, Status> {
    static CALLS: AtomicU32 = AtomicU32::new(1);
    if CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(50) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(Response::new(request.into_inner().to_uppercase()))
}

/// Codec for messages of plain text.
#[derive(Clone, Copy)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(text.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let mut text = vec![0; from.remaining()];
        from.copy_to_slice(&mut text);
        String::from_utf8(text).map(Some).map_err(|_| Status::invalid_argument("not UTF-8"))
    }
}
