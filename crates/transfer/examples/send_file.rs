//! Sends files to who printed the line: `cargo run -p barograph-transfer --features io --example send_file -- 'brg://…' PATH…`
use std::error::Error;
use std::sync::atomic::AtomicBool;

use barograph_transfer::io::session::To;
use barograph_transfer::io::{SendConfig, send};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let line = arguments.next().ok_or("usage: send_file LINE PATH…")?.parse()?;
    let config = SendConfig::new(arguments.map(Into::into).collect(), To::Line(line));
    let summary = send(config, &AtomicBool::new(false), &mut |_| {})?;
    println!("{} files, {} bytes in {:?}", summary.files, summary.bytes, summary.lasted);
    Ok(())
}
