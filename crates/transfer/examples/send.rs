//! Sends files to the receiver that printed an address:
//! `cargo run --features io --example send -- brg://… FILE…`.

use std::error::Error;
use std::sync::atomic::AtomicBool;

use barograph_transfer::io::{SendConfig, To, send};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let line = words.next().ok_or("whom to? give the line that `barograph recv` prints")?.parse()?;
    let config = SendConfig::new(words.map(Into::into).collect(), To::Line(line));
    let summary = send(config, &AtomicBool::new(false), &mut |_| {})?;
    println!("{} bytes in {:?}, lost: {:?}", summary.bytes, summary.lasted, summary.seen.stats);
    Ok(())
}
