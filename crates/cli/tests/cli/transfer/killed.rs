//! Kills either end (SIGKILL) at random moments from a seed, and runs the same command again.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use barograph_sim::{Link, LinkSpec, Network, PacketLoss, Reorder, SeededRng, network_or_skip};
use barograph_transfer::io::identity::Identity;

use super::{Running, barograph, hosts, tree};

/// Size of the object in a trial, in bytes.
const BYTES: usize = 6_000_000;
/// Sending rate, in bit/s. At this rate, sending the object takes two seconds.
const RATE: &str = "24M";

/// Counts of one trial.
#[derive(Debug, Default)]
struct TrialCounts {
    kills: u32,
    /// Bytes that the surviving end had counted as transferred, and that the receiver no longer had
    /// when the transfer resumed.
    moved_again_bytes: u64,
}

/// The two commands of a trial, which run on two emulated hosts or both on this host.
struct Ends<'a> {
    recv: &'a dyn Fn() -> Command,
    send: &'a dyn Fn() -> Command,
    spawn: &'a dyn Fn(&mut Command, bool) -> Running,
    /// Address of the receiver, the same at every start.
    at: SocketAddr,
    /// Fingerprints of the receiver and of the sender.
    fingerprints: [String; 2],
}

/// Sends a file, kills an end once or twice at random moments, and resumes until the file has
/// arrived.
fn trial(seed: u64, directory: &Path, ends: &Ends<'_>) -> TrialCounts {
    let mut rng = SeededRng::new(seed, 1);
    let (file, to) = (directory.join("from/object"), directory.join("to"));
    fs::write(&file, tree::bytes(seed, BYTES)).unwrap();
    let at = ends.at.to_string();
    let [there, here] = &ends.fingerprints;
    let start = || {
        let mut command = (ends.recv)();
        command.arg("recv").arg(&to).args(["--listen", &at, "--allow", here]);
        command.arg("--identity").arg(directory.join(PEMS[0]));
        let mut recv = (ends.spawn)(&mut command, true);
        recv.until("listening");
        recv
    };
    let mut recv = start();
    let mut counts = TrialCounts::default();
    let kills = 1 + rng.index_below(2) as u32;
    let mut moved: Option<u64> = None;
    loop {
        let mut command = (ends.send)();
        command.arg("send").arg(&file).args([&at, "--pin", there, "--controller", "fixed", "--rate", RATE]);
        command.arg("--identity").arg(directory.join(PEMS[1]));
        let mut sender = (ends.spawn)(&mut command, false);
        let begun = sender.until("begun");
        let held = begun["held_bytes"].as_u64().unwrap();
        counts.moved_again_bytes += moved.take().map_or(0, |moved| moved.saturating_sub(held));
        if counts.kills == kills {
            let (code, events, stderr) = sender.end();
            assert_eq!(code, Some(0), "seed {seed}: {stderr} {events:?}");
            break;
        }
        let moment = Duration::from_secs_f64(1.6 * rng.uniform() / f64::from(kills));
        std::thread::park_timeout(moment);
        counts.kills += 1;
        if rng.bernoulli(0.5) {
            sender.kill();
            let failed = recv.until("failed");
            moved = failed["held_bytes"].as_u64();
        } else {
            recv.kill();
            let failed = sender.until("failed");
            moved = failed["held_bytes"].as_u64();
            recv = start();
        }
    }
    assert!(fs::read(to.join("object")).unwrap() == fs::read(&file).unwrap(), "seed {seed}");
    let left: Vec<_> = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 1, "nothing else is left: {left:?}");
    fs::remove_file(to.join("object")).unwrap();
    counts
}

/// Runs one trial for each seed, and prints how many bytes were transferred twice.
fn trials(seeds: std::ops::Range<u64>, directory: &Path, ends: &Ends<'_>) {
    let count = seeds.end - seeds.start;
    let all: Vec<TrialCounts> = seeds.map(|seed| trial(seed, directory, ends)).collect();
    let kills: u32 = all.iter().map(|counts| counts.kills).sum();
    let again: u64 = all.iter().map(|counts| counts.moved_again_bytes).sum();
    let most = all.iter().map(|counts| counts.moved_again_bytes).max().unwrap_or(0);
    let mean = again / u64::from(kills.max(1));
    eprintln!(
        "{count} trials, {kills} kills: every object intact; of {BYTES} bytes, {mean} moved again a kill on average, {most} at most a trial"
    );
    assert!(mean <= WINDOW_BYTES, "more than the last unsynced window on average");
}

/// Maximum mean number of bytes that a kill may cost: the bytes of one second, because a receiver
/// makes data durable at least once a second.
const WINDOW_BYTES: u64 = 3_000_000;

/// Files with the identities of the receiver and of the sender. Because both identities are
/// permanent, both commands stay the same.
const PEMS: [&str; 2] = ["there.pem", "here.pem"];

/// Creates the directories and identities of trials; returns the fingerprints.
fn prepare(directory: &Path) -> [String; 2] {
    fs::create_dir(directory.join("from")).unwrap();
    fs::create_dir(directory.join("to")).unwrap();
    PEMS.map(|pem| Identity::kept_in(&directory.join(pem)).unwrap().fingerprint().to_string())
}

#[test]
fn a_transfer_resumes_after_either_end_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let fingerprints = prepare(directory.path());
    let spawn = |command: &mut Command, _: bool| Running::start(command);
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ends = Ends { recv: &barograph, send: &barograph, spawn: &spawn, at, fingerprints };
    trials(0..4, directory.path(), &ends);
}

/// A path with a round-trip time of 20 ms, 1 % of packets lost, and 1 % of packets delayed so that
/// later packets overtake them.
fn lossy(seed: u64) -> Link {
    Link::symmetric(LinkSpec {
        rate_bps: Some(100_000_000),
        delay: Duration::from_millis(10),
        loss: PacketLoss::Independent(0.01),
        reorder: Some(Reorder { probability: 0.01, hold: Duration::from_millis(2) }),
        seed,
        ..LinkSpec::default()
    })
}

fn between_hosts(network: &Network, seeds: std::ops::Range<u64>) {
    let directory = tempfile::tempdir().unwrap();
    let fingerprints = prepare(directory.path());
    let program = hosts::prepare(directory.path());
    let command = || hosts::ordinary(&program);
    let spawn = |command: &mut Command, is_recv: bool| {
        let host = if is_recv { &network.b } else { &network.a };
        host.run(|| Running::start(command)).unwrap()
    };
    let at = SocketAddr::from((network.b.v4(), 10_133));
    let ends = Ends { recv: &command, send: &command, spawn: &spawn, at, fingerprints };
    trials(seeds, directory.path(), &ends);
}

#[test]
fn a_transfer_between_two_hosts_resumes_after_either_end_is_killed() {
    let network: Network = network_or_skip!(lossy(1));
    between_hosts(&network, 100..104);
}

/// Run this test with `cargo test -p barograph --test cli -- --ignored --nocapture hundred`.
/// The test takes about six minutes.
#[test]
#[ignore = "six minutes: what it shows, four trials show in `make test`"]
fn a_hundred_trials_on_two_hosts() {
    let network: Network = network_or_skip!(lossy(2));
    between_hosts(&network, 1000..1100);
}
