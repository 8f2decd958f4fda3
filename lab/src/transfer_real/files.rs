//! From disk to disk: what the disk writes, the peers that copy files, and `barograph send` to `barograph recv`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use barograph_sim::{Link, Network};
use serde_json::json;

use super::goal::{self, Bound};
use super::session::{Session, gbit_s, median, ratio};
use super::tool::{Ended, make_file, run};
use crate::mesh_parts::Process;
use crate::transfer::Table;

pub(crate) fn table(session: &Session) -> anyhow::Result<Table> {
    let folder = tempfile::tempdir_in(&session.disk).context("--disk")?;
    let bytes = if session.is_full { 8 * BYTES } else { BYTES };
    let source = folder.path().join("source");
    make_file(&source, bytes)?;
    let rounds = if session.is_full { 5 } else { 2 };
    type Copy<'a> = Box<dyn Fn() -> anyhow::Result<f64> + 'a>;
    let at = folder.path();
    let ours = |is_clear, has_ear| move || barograph(session, &source_of(at), at, is_clear, has_ear);
    let copies: Vec<(&str, Copy<'_>)> = vec![
        ("the disk: written and synced", Box::new(|| written(&at.join("limit"), bytes))),
        ("the disk: read, written and synced", Box::new(|| copied(&source_of(at), &at.join("limit")))),
        (SEALED, Box::new(ours(false, true))),
        ("Barograph, sealed, no classifier", Box::new(ours(false, false))),
        ("Barograph, clear", Box::new(ours(true, true))),
    ];
    let mut found: Vec<(Vec<f64>, Option<String>)> = copies.iter().map(|_| Default::default()).collect();
    for _ in 0..rounds {
        for ((what, copy), (rates, failure)) in copies.iter().zip(&mut found) {
            session.note(*what);
            match copy() {
                Ok(bytes_s) => rates.push(8.0 * bytes_s),
                Err(error) => *failure = Some(format!("{error:#}")),
            }
        }
    }
    let disk = found.first().and_then(|(rates, _)| median(rates));
    let (mut cells, mut rows) = (Vec::new(), Vec::new());
    for ((what, _), (rates, failure)) in copies.iter().zip(&found) {
        let (text, share) = match median(rates) {
            Some(bps) => (gbit_s(bps), ratio(bps, disk)),
            None => (format!("did not run: {}", failure.clone().unwrap_or_default()), "–".to_owned()),
        };
        cells.push(vec![(*what).to_owned(), text, share]);
        rows.push(json!({ "what": what, "bit_s": median(rates), "failure": failure, "bytes": bytes }));
    }
    let legend = format!(
        "One file of {} MiB in {}, over veth; until it is on the disk, digest and name included, set-up too. Medians of {rounds}.",
        bytes >> 20,
        session.disk.display()
    );
    let sealed = found.iter().zip(&copies).find(|(_, (what, _))| *what == SEALED);
    let sealed = sealed.and_then(|((rates, _), _)| median(rates));
    let share = sealed.zip(disk).map(|(sealed, disk)| sealed / disk);
    let goal = goal::line("sealed ÷ what the disk writes", Bound::Least(0.9), share);
    Ok(Table::new("File to file", &legend, &["", "rate", "÷ the disk's"], cells, rows).with(&[goal]))
}

/// The row that the goal is about.
const SEALED: &str = "Barograph, sealed";

fn source_of(folder: &Path) -> std::path::PathBuf {
    folder.join("source")
}

/// What the disk takes (bytes a second), synced.
fn written(path: &Path, bytes: u64) -> anyhow::Result<f64> {
    let block: Vec<u8> = (0..1_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let began = Instant::now();
    let mut file = fs::File::create(path)?;
    for _ in 0..bytes >> 20 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    let seconds = began.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    Ok(bytes as f64 / seconds)
}

/// The same of a copy.
fn copied(from: &Path, to: &Path) -> anyhow::Result<f64> {
    let began = Instant::now();
    let bytes = std::io::copy(&mut fs::File::open(from)?, &mut fs::File::create(to)?)?;
    fs::File::open(to)?.sync_all()?;
    let seconds = began.elapsed().as_secs_f64();
    fs::remove_file(to)?;
    Ok(bytes as f64 / seconds)
}

/// `barograph send` to `barograph recv` (bytes a second): from the sender's start to its end, when all is verified and durable.
fn barograph(
    session: &Session,
    source: &Path,
    folder: &Path,
    is_clear: bool,
    has_ear: bool,
) -> anyhow::Result<f64> {
    let program = session.program.to_string_lossy();
    let mut asked = Command::new(&session.program);
    asked.args(["send", "--help"]).stdout(Stdio::null()).stderr(Stdio::null());
    let knows = asked.status().with_context(|| format!("{program} cannot be run"))?;
    ensure!(knows.success(), "{program} has no `send`");
    let network = Network::new(Link::Veth { rate_bps: None })?;
    let to = tempfile::tempdir_in(folder)?;
    let address = network.b.v4().to_string();
    let mut receiver = network.b.command(&program);
    receiver.args(["recv", "--once", "--quiet", "--host", &address, "--listen", &address]).arg(to.path());
    if is_clear {
        receiver.arg("--clear");
    }
    let mut receiver = Process::spawn(receiver.stdout(Stdio::piped()).stderr(Stdio::null()))?;
    let output = receiver.take_stdout().context("its output is piped")?;
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // A line may be a command to paste, with the address in it.
            let found = line.split_whitespace().find(|word| word.starts_with("brg://")).map(str::to_owned);
            // Nobody listens any more once there is one.
            let _ = found.map(|line| tell.send(line));
        }
    });
    let line = told.recv_timeout(START_MAX).context("`barograph recv` prints no line")?;
    let source_text = source.to_string_lossy();
    let mut words = vec![&*program, "send", "--quiet"];
    words.extend(is_clear.then_some("--clear"));
    words.extend((!has_ear).then_some("--no-classifier"));
    words.extend([&*source_text, &line]);
    let began = Instant::now();
    let Ended::Done(_) = run(&network.a, &words, SECONDS_MAX)? else {
        bail!("`barograph send` did not end within {SECONDS_MAX} s");
    };
    let seconds = began.elapsed().as_secs_f64();
    let (expected, arrived) = (fs::metadata(source)?.len(), fs::metadata(to.path().join("source"))?.len());
    ensure!(expected == arrived, "the copy has {arrived} bytes, expected {expected}");
    Ok(expected as f64 / seconds)
}

/// Half a second to some seconds of a disk.
const BYTES: u64 = 512 << 20;

const START_MAX: Duration = Duration::from_secs(10);
const SECONDS_MAX: u64 = 120;
