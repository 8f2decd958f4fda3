//! `kill -9` at random moments: each acknowledged record is stored exactly once.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use barograph_engine::{Engine as _, Local, LocalConfig};

use crate::archive::{name, open, record, records, stored};

const KILLS: u64 = 20;
const BATCH: u64 = 25;

/// Longest wait for a line of the child. Its appends take milliseconds.
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn acknowledged_records_survive_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = SplitMix(0x0062_6172_6f67);
    let mut acknowledged = BTreeSet::new();
    for round in 0..KILLS {
        let wanted = random.next() % 40;
        let pause = Duration::from_micros(random.next() % 20_000);
        acknowledged.extend(append_until_killed(directory.path(), wanted, pause));
        assert!(round == 0 || !acknowledged.is_empty());

        let engine = open(directory.path());
        let found = stored(&engine).await;
        assert!(found.is_sorted_by_key(|&(cursor, _)| cursor));
        let mut seqs = BTreeSet::new();
        for (_, found) in found {
            assert_eq!(found, record(found.seq), "round {round}");
            assert!(seqs.insert(found.seq), "round {round}: {} is there twice", found.seq);
        }
        let lost: Vec<_> = acknowledged.difference(&seqs).collect();
        assert!(lost.is_empty(), "round {round} lost {lost:?}");
        let contiguous = (1..).take_while(|seq| seqs.contains(seq)).count() as u64;
        assert_eq!(engine.watermark(&name("north")).await.unwrap(), contiguous, "round {round}");
        let next = seqs.last().map_or(1, |last| last + 1);
        assert_eq!(engine.next_seq(&name("north")).await.unwrap(), next, "round {round}");
    }
    assert!(KILLS * BATCH < acknowledged.len() as u64, "the child hardly got to work");
}

/// Runs the child until it has acknowledged `wanted` batches and the time `pause` has passed after
/// that. Returns the acknowledged sequence numbers.
fn append_until_killed(directory: &Path, wanted: u64, pause: Duration) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "archive::crash::child_appends_until_it_is_killed", "--nocapture"])
        .env(ARCHIVE, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, lines) = mpsc::channel();
    let reader = thread::spawn(move || stdout.split(b'\n').try_for_each(|line| sender.send(line.unwrap())));
    let mut acknowledged = Vec::new();
    let mut batches = 0;
    let mut note = |line: Vec<u8>| {
        let line = String::from_utf8(line).unwrap();
        // Ignore a line without its end mark: the child was killed while it wrote this line.
        if let Some(first) = line.strip_prefix("acknowledged ").and_then(|rest| rest.strip_suffix(" .")) {
            let first = first.parse::<u64>().unwrap();
            acknowledged.extend(first..first + BATCH);
            batches += 1;
        }
        batches
    };
    loop {
        match lines.recv_timeout(LIMIT) {
            Ok(line) => {
                if wanted <= note(line) {
                    break;
                }
            }
            Err(error) => {
                child.kill().unwrap();
                panic!("the child said nothing for {LIMIT:?}: {error}, {:?}", child.wait());
            }
        }
    }
    let until = Instant::now() + pause;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9), "the child ended by itself");
    for line in lines {
        note(line);
    }
    reader.join().unwrap().unwrap();
    acknowledged
}

/// The child process of the test above, not a test by itself. Four tasks append concurrently and
/// overtake each other. The tasks begin by repeating records that may be missing, like a station
/// with a spool.
#[tokio::test]
async fn child_appends_until_it_is_killed() {
    let Some(directory) = std::env::var_os(ARCHIVE) else { return };
    let commit_interval = Duration::from_millis(2);
    let config = LocalConfig { commit_interval, keep: Duration::MAX, ..LocalConfig::new(directory) };
    let engine = Arc::new(Local::open(config).unwrap());
    let start = engine.watermark(&name("north")).await.unwrap() + 1;
    let tasks = (0..4).map(|task| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            // End after a limited time, in case the parent does not kill this process.
            for batch in 0..10_000 {
                let first = start + (4 * batch + task) * BATCH;
                engine.append(&records(first..=first + BATCH - 1)).await.unwrap();
                let mut out = std::io::stdout().lock();
                writeln!(out, "acknowledged {first} .").unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

const ARCHIVE: &str = "BAROGRAPH_TEST_ARCHIVE";

/// The SplitMix generator of Steele, Lea and Flood (2014): the same random times in every run.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
