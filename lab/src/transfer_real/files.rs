//! From disk to disk: what the disk writes, the peers that copy files, and `barograph send` to `barograph recv`.

mod copies;
mod limited;

use std::time::Duration;

use anyhow::Context as _;
use barograph_sim::{Link, Network};
use serde_json::json;

use self::limited::Disk;
use super::cells::{AROUND, Plan};
use super::goal::{self, Bound};
use super::job::Job;
use super::peer::Peer;
use super::peer::bench::Bench;
use super::session::{Rounds, Session, prepare_tcp, ratio};
use crate::table::{Section, Table, cells, number, shown};

pub(crate) fn run(session: &Session) -> anyhow::Result<()> {
    for make in [one, limited, many] {
        session.report.section(make(session)?)?;
    }
    Ok(())
}

/// An estimate, of all rows: those of the first table as if all moved [`BYTES_S`].
pub(crate) fn plan(session: &Session) -> Plan {
    let of = |copies: usize, seconds: u64, rounds: usize| {
        Plan::of((copies * rounds) as u64, AROUND + Duration::from_secs(seconds), 1)
    };
    let [one, limited, many] = rounds(session);
    of(5 + PEERS.len(), file_bytes(session) / BYTES_S, one)
        + of(5, BYTES / SLOW_BYTES_S, limited)
        + of(6, 1, many)
}

/// Of the three tables.
fn rounds(session: &Session) -> [usize; 3] {
    if session.is_full { [3, 3, 5] } else { [2, 1, 1] }
}

fn file_bytes(session: &Session) -> u64 {
    if session.is_full { 4 * BYTES } else { BYTES }
}

/// One file, as fast as it goes.
fn one(session: &Session) -> anyhow::Result<Section> {
    let folder = tempfile::tempdir_in(&session.disk).context("--disk")?;
    let bytes = file_bytes(session);
    let job = Job::file(folder.path(), folder.path(), bytes)?;
    let mut study = Study::new(session, &job, rounds(session)[0]);
    study.copies(&[Subject::Written, Subject::Copied, SEALED, NO_EAR, CLEAR]);
    study.copies(&PEERS);
    study.run();
    let legend = format!(
        "One file of {} MiB in {}, over veth; until it is on the disk, digest and name included, set-up too, and fsync of those who do not \
         themselves. UFTP's time is its own, without the 3 s for which it waits for receivers. Medians of {}.",
        bytes >> 20,
        session.disk.display(),
        study.rounds
    );
    let mut goals = vec![study.goal(SEALED, &[Subject::Written], Bound::Least(0.9))];
    goals.extend(study.peer_goals());
    Ok(study.table("File to file", &legend, Subject::Written, &goals))
}

/// One file to a disk that is the limit.
fn limited(session: &Session) -> anyhow::Result<Section> {
    let title = "File to file, where the disk is the limit";
    let folder = tempfile::tempdir_in(&session.disk).context("--disk")?;
    let bytes = BYTES;
    let disk = match Disk::new(folder.path(), 2 * bytes, SLOW_BYTES_S) {
        Ok(disk) => disk,
        Err(error) => {
            let legend = format!("Did not run: {error:#}.");
            return Ok(Section::new(title, &legend, &Table::new([""]), vec![]));
        }
    };
    let job = Job::file(folder.path(), disk.path(), bytes)?;
    let mut study = Study::new(session, &job, rounds(session)[1]);
    study.copies(&[Subject::Copied, SEALED, CLEAR]);
    study.copies(&[Peer::Scp, Peer::RsyncDaemon].map(Subject::Peer));
    study.run();
    let legend = format!(
        "One file of {} MiB to a disk that writes {} MB/s at most: a file as a loop device with ext4, which the kernel delays (blkio). \
         Medians of {}.",
        bytes >> 20,
        SLOW_BYTES_S / 1_000_000,
        study.rounds
    );
    let goals = [study.goal(SEALED, &[Subject::Copied], Bound::Least(0.9))];
    Ok(study.table(title, &legend, Subject::Copied, &goals))
}

/// Many small files.
fn many(session: &Session) -> anyhow::Result<Section> {
    let folder = tempfile::tempdir_in(&session.disk).context("--disk")?;
    let job = Job::tree(folder.path(), folder.path(), FILES)?;
    let mut study = Study::new(session, &job, rounds(session)[2]);
    study.copies(&[Subject::Copied, SEALED, CLEAR]);
    study.copies(&[Peer::Scp, Peer::RsyncSsh, Peer::RsyncDaemon].map(Subject::Peer));
    study.run();
    let legend = format!(
        "{FILES} files of 4 to 16 KiB, {} MB in all, in {}; until all are on the disk (`sync -f` after those who do not). Medians of {}.",
        job.bytes / 1_000_000,
        session.disk.display(),
        study.rounds
    );
    let goals: Vec<String> = study.peer_goals();
    Ok(study.table("Many small files", &legend, Subject::Copied, &goals))
}

/// A row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Written,
    Copied,
    Ours { is_clear: bool, has_ear: bool },
    Peer(Peer),
}

impl Subject {
    fn name(self) -> String {
        match self {
            Self::Written => "the disk: written and synced".to_owned(),
            Self::Copied => "the disk: copied by cp and synced".to_owned(),
            Self::Ours { is_clear, has_ear } => {
                let ear = if has_ear { "" } else { ", no classifier" };
                format!("Barograph, {}{ear}", if is_clear { "clear" } else { "sealed" })
            }
            Self::Peer(peer) => peer.name(),
        }
    }

    /// Its rate (bit/s).
    fn measure(self, session: &Session, job: &Job) -> anyhow::Result<f64> {
        match self {
            Self::Written => copies::written(job).map(bits),
            Self::Copied => copies::copied(job).map(bits),
            Self::Ours { is_clear, has_ear } => copies::barograph(session, job, is_clear, has_ear).map(bits),
            Self::Peer(peer) => {
                peer.version(&session.tools).map_err(anyhow::Error::msg)?;
                let network = Network::new(Link::Veth { rate_bps: None })?;
                prepare_tcp(&network, peer)?;
                let (tools, seconds) = (&session.tools, session.seconds);
                peer.measure(&Bench { network: &network, tools, seconds, rate_bps: None, job: Some(job) })
            }
        }
    }
}

fn bits(bytes_s: f64) -> f64 {
    8.0 * bytes_s
}

/// Rows of one table.
struct Study<'a> {
    session: &'a Session,
    job: &'a Job,
    rounds: usize,
    rows: Vec<Row>,
}

struct Row {
    subject: Subject,
    rounds: Rounds,
}

impl<'a> Study<'a> {
    fn new(session: &'a Session, job: &'a Job, rounds: usize) -> Self {
        Self { session, job, rounds, rows: vec![] }
    }

    fn copies(&mut self, subjects: &[Subject]) {
        let wanted = subjects.iter().filter(|subject| self.session.wants(&subject.name()));
        self.rows.extend(wanted.map(|subject| Row { subject: *subject, rounds: Rounds::default() }));
    }

    /// Each round measures everything, so that what the machine does beside is in all rows alike.
    fn run(&mut self) {
        for _ in 0..self.rounds {
            for row in &mut self.rows {
                self.session.note(row.subject.name());
                row.rounds.add(row.subject.measure(self.session, self.job));
            }
        }
    }

    /// The best of some.
    fn best(&self, is_meant: impl Fn(Subject) -> bool) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| is_meant(row.subject));
        rows.filter_map(|row| row.rounds.median()).max_by(f64::total_cmp)
    }

    fn goal(&self, ours: Subject, others: &[Subject], bound: Bound) -> String {
        let names: Vec<String> = others.iter().map(|other| other.name()).collect();
        let (ours_bps, best) = (self.best(|row| row == ours), self.best(|row| others.contains(&row)));
        let what = format!("{} ÷ {}", ours.name(), names.join(" or "));
        if self.rounds < ROUNDS_MIN {
            return format!("- {what}: no verdict of fewer than {ROUNDS_MIN} rounds\n");
        }
        goal::line(&what, bound, ours_bps.zip(best).map(|(ours, best)| ours / best))
    }

    /// Never more than 3 % behind.
    fn peer_goals(&self) -> Vec<String> {
        let peers = self.rows.iter().filter(|row| matches!(row.subject, Subject::Peer(_)));
        peers.map(|row| self.goal(SEALED, &[row.subject], Bound::Least(0.97))).collect()
    }

    /// Rates, beside that of one row, where that ran.
    fn table(&self, title: &str, legend: &str, base: Subject, goals: &[String]) -> Section {
        let base_bps = self.best(|row| row == base);
        let over = format!("÷ {}", if base == Subject::Written { "the disk's" } else { "cp's" });
        let files = (1 < self.job.files).then_some("files/s");
        let (mut table, mut rows) = (Table::new(["", "rate", &over]).and(files), Vec::new());
        for row in &self.rows {
            let (what, bps) = (row.subject.name(), row.rounds.median());
            let text = row.rounds.told(self.rounds);
            let share = shown(bps, |bps| ratio(bps, base_bps));
            let files_s = bps.map(|bps| bps / 8.0 / self.job.bytes as f64 * self.job.files as f64);
            table.push(cells![what, text, share].into_iter().chain(files.map(|_| number(files_s, 0))));
            rows.push(json!({
                "table": title, "what": what, "bit_s": bps, "rounds": row.rounds.bps, "failure": row.rounds.failure,
                "bytes": self.job.bytes, "files": self.job.files,
            }));
        }
        Section::new(title, legend, &table, rows).with(goals)
    }
}

/// What the goals are about.
const SEALED: Subject = Subject::Ours { is_clear: false, has_ear: true };
const NO_EAR: Subject = Subject::Ours { is_clear: false, has_ear: false };
const CLEAR: Subject = Subject::Ours { is_clear: true, has_ear: true };

/// Those that copy files.
const PEERS: [Subject; 8] = [
    Subject::Peer(Peer::UdtFile),
    Subject::Peer(Peer::Uftp { has_control: false }),
    Subject::Peer(Peer::Uftp { has_control: true }),
    Subject::Peer(Peer::GridFtp { streams: 1 }),
    Subject::Peer(Peer::GridFtp { streams: 8 }),
    Subject::Peer(Peer::Scp),
    Subject::Peer(Peer::RsyncSsh),
    Subject::Peer(Peer::RsyncDaemon),
];

/// A disk's rate differs by more from run to run than the goals allow.
const ROUNDS_MIN: usize = 3;
/// Half a second to some seconds of a disk.
const BYTES: u64 = 512 << 20;
/// What ours and the peers make of a disk that is quick, in the mean; the slowest, a tenth of the quickest, take most of the time.
const BYTES_S: u64 = 300_000_000;
/// A good hard disk writes more, a slow one less; far below what two processors seal.
const SLOW_BYTES_S: u64 = 100_000_000;
/// Each of a few pages: names, times and room cost more than their bytes.
const FILES: u64 = 10_000;
