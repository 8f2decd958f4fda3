//! A new link starts from a station's forecast of the response time, and reports its own
//! measurements to the station.
//!
//! `cargo run -p barograph-timeout --example station -- 127.0.0.1:10132` queries the station at
//! that address (`barograph up`). From the second run of the example on, the station has a
//! forecast. Without an address, the example starts a substitute for a station.

use std::error::Error;
use std::future::IntoFuture;
use std::time::Duration;

use axum::{Router, http::StatusCode, routing::get, routing::post};
use barograph_timeout::{Adaptive, AttemptOutcome, MessageAttempts, TimeoutEstimator};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

const PAIR: &str = "source=front&target=stock&quantity=response_time";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let station = if let Some(address) = std::env::args().nth(1) { address } else { stand_in().await? };
    let message = MessageAttempts::new(64, 3);
    let mut link = Adaptive::default();
    println!("cold:     {:?}", link.decide(&message.attempt(Duration::ZERO)));

    let answer = query(&station, &format!("GET /v1/forecast?{PAIR}"), "").await?;
    let mean = &answer["forecasts"][0]["mean"];
    if let (Some(value), Some(mse)) = (mean["value"].as_f64(), mean["mse"].as_f64()) {
        // Values from a network may be outside the range of a Duration.
        link.start_from(Duration::try_from_secs_f64(value)?, Duration::try_from_secs_f64(mse.sqrt())?);
        println!("forecast: {:?}", link.decide(&message.attempt(Duration::ZERO)));
    } else {
        println!("the station has no forecast of this pair yet: {answer}");
    }

    let mut records = Vec::new();
    for n in 0..100 {
        let attempt = message.attempt(Duration::ZERO);
        let (began, allowed) = (Instant::now(), link.timeout(&attempt));
        let is_answered = timeout(allowed, stock(n)).await.is_ok();
        let took = began.elapsed();
        link.record(
            &attempt,
            if is_answered { AttemptOutcome::Completed(took) } else { AttemptOutcome::TimedOut(took) },
        );
        if is_answered {
            records.push(json!({"source": "front", "target": "stock", "quantity": "response_time",
                "value": took.as_secs_f64()}));
        }
    }
    println!("learned:  {:?}", link.decide(&message.attempt(Duration::ZERO)));
    let stored = query(&station, "POST /v1/measurements", &json!({ "records": records }).to_string()).await?;
    println!("the station replied {stored}");
    Ok(())
}

/// The target of the link. Its response takes 20 ms or slightly more.
async fn stock(n: u64) {
    sleep(Duration::from_millis(20 + n % 5)).await;
}

/// Queries a station and returns its JSON, by HTTP/1.0, which needs no client library.
async fn query(station: &str, what: &str, body: &str) -> Result<Value, Box<dyn Error>> {
    let mut stream = TcpStream::connect(station).await?;
    let head = format!("{what} HTTP/1.0\r\nHost: {station}\r\nContent-Type: application/json\r\n");
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    let mut answer = String::new();
    timeout(Duration::from_secs(10), stream.take(1 << 20).read_to_string(&mut answer)).await??;
    let (_, json) = answer.split_once("\r\n\r\n").ok_or("the station's reply is not HTTP")?;
    Ok(serde_json::from_str(json)?)
}

/// Responds as a station does (docs/spec/api.md).
async fn stand_in() -> std::io::Result<String> {
    let forecast = json!({"forecasts": [{"mean": {"value": 0.022, "mse": 4e-6}}]}).to_string();
    let count = |body: String| json!({"stored": body.matches("\"value\"").count()}).to_string();
    let service = Router::new()
        .route("/v1/forecast", get(async move || forecast))
        .route("/v1/measurements", post(async move |body: String| (StatusCode::CREATED, count(body))));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(axum::serve(listener, service).into_future());
    Ok(address)
}
