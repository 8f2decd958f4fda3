//! What copies: a plain program, and ours.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use barograph_sim::{Link, Network};

use super::super::job::{Copied, Job, NAME, SECONDS_MAX};
use super::super::session::Session;
use crate::process::Process;
use crate::tool::{Ended, run};

/// What the disk takes (bytes a second), synced.
pub(super) fn written(job: &Job) -> anyhow::Result<f64> {
    let block: Vec<u8> = (0..1_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let place = job.place()?;
    let began = Instant::now();
    let mut file = fs::File::create(place.path().join(NAME))?;
    for _ in 0..job.bytes >> 20 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(job.bytes as f64 / began.elapsed().as_secs_f64())
}

/// The same of `cp`.
pub(super) fn copied(job: &Job) -> anyhow::Result<f64> {
    let Copied { seconds, synced_s, bytes } = job.copied(&|from, to, limit_s| {
        let mut command = Command::new("timeout");
        // Bytes are copied, not shared.
        command.args([&limit_s.to_string(), "cp", "-r", "--reflink=never"]).args([from, to]);
        ensure!(command.stdin(Stdio::null()).status()?.success(), "cp failed");
        Ok(Ended::Done(String::new()))
    })?;
    Ok(bytes as f64 / (seconds + synced_s))
}

/// `barograph send` to `barograph recv` (bytes a second): from the sender's start to its end, when all is verified and durable.
pub(super) fn barograph(session: &Session, job: &Job, is_clear: bool, has_ear: bool) -> anyhow::Result<f64> {
    let program = session.program.to_string_lossy();
    let mut asked = Command::new(&session.program);
    asked.args(["send", "--help"]).stdout(Stdio::null()).stderr(Stdio::null());
    let knows = asked.status().with_context(|| format!("{program} cannot be run"))?;
    ensure!(knows.success(), "{program} has no `send`");
    let network = Network::new(Link::Veth { rate_bps: None })?;
    let to = job.place()?;
    let address = network.b.v4().to_string();
    let mut receiver = network.b.command(&program);
    receiver.args(["recv", "--once", "--quiet", "--host", &address, "--listen", &address]).arg(to.path());
    if is_clear {
        receiver.arg("--clear");
    }
    let mut receiver = Process::spawn(receiver.stdout(Stdio::piped()).stderr(Stdio::null()))?;
    let (lines, until) = (receiver.lines()?, Instant::now() + START_MAX);
    let line = loop {
        let line = lines.recv_timeout(until.saturating_duration_since(Instant::now()));
        let line = line.context("`barograph recv` prints no line")?;
        // A line may be a command to paste, with the address in it.
        if let Some(found) = line.split_whitespace().find(|word| word.starts_with("brg://")) {
            break found.to_owned();
        }
    };
    let source_text = job.source().to_string_lossy();
    let mut words = vec![&*program, "send", "--quiet"];
    words.extend(is_clear.then_some("--clear"));
    words.extend((!has_ear).then_some("--no-classifier"));
    words.extend([&*source_text, &line]);
    let began = Instant::now();
    let Ended::Done(_) = run(&network.a, &words, SECONDS_MAX)? else {
        bail!("`barograph send` did not end within {SECONDS_MAX} s");
    };
    let seconds = began.elapsed().as_secs_f64();
    job.check(to.path())?;
    Ok(job.bytes as f64 / seconds)
}

const START_MAX: Duration = Duration::from_secs(10);
