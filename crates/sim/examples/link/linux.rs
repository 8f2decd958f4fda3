//! Flags and main function of the example.

use barograph_sim::{
    A_V4, A_V6, B_V4, B_V6, Host, Jitter, Link, LinkSpec, Network, PacketLoss, Queue, RelayOptions, Reorder,
    delays_from_file,
};
use clap::Parser;
use std::{error, fs, path::PathBuf, process::ExitCode, thread, time::Duration, time::Instant};

/// Runs a command at one end of an emulated link.
#[derive(Parser)]
struct Flags {
    /// Rate in Mbit/s, both ways
    #[arg(long)]
    rate: Option<f64>,
    /// One-way delay in ms
    #[arg(long, default_value_t = 0.0)]
    delay: f64,
    /// Standard deviation of the delay in ms
    #[arg(long, conflicts_with = "replay")]
    jitter: Option<f64>,
    /// File of extra delays in seconds, one for each packet
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Probability that a packet is lost
    #[arg(long)]
    loss: Option<f64>,
    /// Mean length of a burst of losses, in packets
    #[arg(long, requires = "loss")]
    burst: Option<f64>,
    /// Probability that a packet is held back by 10 ms
    #[arg(long)]
    reorder: Option<f64>,
    /// Limit of the queue in bandwidth-delay products
    #[arg(long, requires = "rate")]
    queue_bdp: Option<f64>,
    /// Spin for this many µs before each departure
    #[arg(long, default_value_t = 0)]
    spin: u64,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use a veth pair, which emulates only the rate
    #[arg(long, conflicts_with_all = ["delay", "jitter", "replay", "loss", "reorder", "queue_bdp"])]
    veth: bool,
    /// Shell command for host B; host A's command starts when a program in host B listens on TCP or
    /// has a UDP socket
    #[arg(long)]
    peer: Option<String>,
    /// Command for host A
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub(crate) fn main() -> Result<ExitCode, Box<dyn error::Error>> {
    let flags = Flags::parse();
    let network = Network::new(link(&flags)?)?;
    let inside = |host: &Host, program: &str| {
        let mut command = host.command(program);
        command.env("A_V4", A_V4.to_string()).env("A_V6", A_V6.to_string());
        command.env("B_V4", B_V4.to_string()).env("B_V6", B_V6.to_string());
        command
    };
    if let Some(peer) = &flags.peer {
        inside(&network.b, "sh").args(["-c", peer]).spawn()?;
        wait_for_listener(&network.b)?;
    }
    let status = inside(&network.a, &flags.command[0]).args(&flags.command[1..]).status()?;
    let report = network.report();
    if let Some(report) = &report {
        eprintln!("{report}");
    }
    let void = report.is_some_and(|report| report.invalid_reason().is_some());
    let code = if void { 3 } else { status.code().unwrap_or(1) as u8 };
    Ok(ExitCode::from(code))
}

fn link(flags: &Flags) -> Result<Link, Box<dyn error::Error>> {
    let rate_bps = flags.rate.map(|megabits| (megabits * 1e6) as u64);
    if flags.veth {
        return Ok(Link::Veth { rate_bps });
    }
    let milliseconds = |ms: f64| Duration::try_from_secs_f64(ms / 1e3);
    let jitter = match (&flags.replay, flags.jitter) {
        (Some(file), _) => Jitter::Replay(delays_from_file(file)?),
        (None, Some(ms)) => Jitter::Normal { deviation: milliseconds(ms)? },
        (None, None) => Jitter::None,
    };
    let loss = match (flags.loss, flags.burst) {
        (Some(p), Some(length)) => {
            let leave = 1.0 / length;
            PacketLoss::Bursts { enter: p * leave / (1.0 - p), leave, good_loss: 0.0, bad_loss: 1.0 }
        }
        (p, _) => p.map_or(PacketLoss::None, PacketLoss::Independent),
    };
    let spec = LinkSpec {
        rate_bps,
        delay: milliseconds(flags.delay)?,
        jitter,
        loss,
        reorder: flags.reorder.map(|probability| Reorder { probability, hold: Duration::from_millis(10) }),
        queue: flags.queue_bdp.map_or(Queue::Unlimited, Queue::Bdp),
        seed: flags.seed,
    };
    let options = RelayOptions { spin: Duration::from_micros(flags.spin), ..RelayOptions::default() };
    Ok(Link::symmetric_with(spec, options))
}

/// Waits at most ten seconds until the host has a TCP socket that listens or a UDP socket, without
/// connecting to it.
fn wait_for_listener(host: &Host) -> Result<(), Box<dyn error::Error>> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(10) {
        let tables = ["tcp", "tcp6", "udp", "udp6"].map(|table| format!("/proc/thread-self/net/{table}"));
        let sockets = host.run(|| tables.map(|table| fs::read_to_string(table).unwrap_or_default()))?;
        // The fourth column is the state; 0A is TCP_LISTEN, and 07 is that of UDP sockets without a
        // peer.
        if sockets
            .iter()
            .flat_map(|table| table.lines())
            .any(|row| matches!(row.split_whitespace().nth(3), Some("0A" | "07")))
        {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err("the peer did not listen within 10 s".into())
}
