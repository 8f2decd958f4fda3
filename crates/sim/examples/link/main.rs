//! Runs a command at one end of an emulated link, and reports whether the run is valid. Needs Linux
//! and root.
//!
//! ```sh
//! cargo run -p barograph-sim --example link -- --rate 50 --delay 10 --loss 0.001 --queue-bdp 1 \
//!     --peer 'iperf3 -s -1' -- iperf3 -c 192.0.2.2
//! ```
//!
//! The environment variables `A_V4`, `A_V6`, `B_V4` and `B_V6` of the command contain the
//! addresses. The exit status is the exit status of the command, or 3 for a void run.

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
fn main() -> Result<std::process::ExitCode, Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("emulated links need Linux (no other system is supported)");
}
