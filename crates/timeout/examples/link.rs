//! Runs both ends of a link over TCP, and prints for each message its response time, its timeout
//! and the reason for the timeout.
//!
//!     cargo run -p barograph-timeout --features link --example link

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use barograph_timeout::Adaptive;
use barograph_timeout::link::{Link, LinkConfig, ListenConfig, Listener, Message};
use tokio::time::sleep;

/// Handles a message in 20 ms, but every tenth message in 200 ms.
async fn handle(message: Message) -> Result<(), Infallible> {
    let slow = if message.id.is_multiple_of(10) { 10 } else { 1 };
    sleep(Duration::from_millis(20 * slow)).await;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind("127.0.0.1:0", ListenConfig::default()).await?;
    let target = listener.local_addr()?.to_string();
    tokio::spawn(async move { listener.serve(handle, std::future::pending()).await });

    let mut link = Link::tcp(target, LinkConfig::default(), Adaptive::default());
    println!("message  attempts  response ms  timeout ms  reason");
    for _ in 0..30 {
        let receipt = link.send(&[0; 4096]).await?;
        let Some(decision) = link.last_decision() else { continue };
        println!(
            "{:7}  {:8}  {:11.1}  {:10.1}  {}{}",
            receipt.id,
            receipt.attempts,
            receipt.response.as_secs_f64() * 1e3,
            decision.timeout.as_secs_f64() * 1e3,
            decision.reason,
            if receipt.duplicate { " (a duplicate: handled once)" } else { "" },
        );
    }
    println!("{:?}", link.counters());
    Ok(())
}
