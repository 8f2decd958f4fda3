//! Sends files to the receiver that printed an address:
//! `cargo run --features io --example send -- brg://… FILE…`.

use std::error::Error;
use std::sync::atomic::AtomicBool;

use barograph_transfer::io::{ReceiverEndpoint, SendConfig, send};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let address = words
        .next()
        .ok_or("a receiver address is missing: pass the one that `barograph recv` prints")?
        .parse()?;
    let config = SendConfig::new(words.map(Into::into).collect(), ReceiverEndpoint::Address(address));
    let summary = send(config, &AtomicBool::new(false), &mut |_| {})?;
    println!("{} bytes in {:?}, lost: {:?}", summary.bytes, summary.lasted, summary.progress.stats);
    Ok(())
}
