//! From disk to disk: the rate of the disk, other programs that copy files, and `barograph send` to
//! `barograph recv`.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use barograph_sim::{Link, Network};
use serde_json::json;

use super::peer::{Copied, Job, NAME, Peer, ProgramTestbed, SECONDS_MAX};
use super::session;
use super::session::{AROUND, Bound, Plan, Rounds, Session, prepare_tcp, ratio};
use crate::process::Process;
use crate::table::{Section, Table, cells, number, shown};
use crate::tool;
use crate::tool::Ended;

pub(crate) fn run(session: &Session) -> anyhow::Result<()> {
    for make in [one, limited, many] {
        session.report.section(make(session)?)?;
    }
    Ok(())
}

/// Estimates the time of all rows, as if all programs of the first table copied [`BYTES_S`].
pub(crate) fn plan(session: &Session) -> Plan {
    let of = |copies: usize, seconds: u64, rounds: usize| {
        Plan::of((copies * rounds) as u64, AROUND + Duration::from_secs(seconds), 1)
    };
    let [one, limited, many] = rounds(session);
    of(5 + PEERS.len(), file_bytes(session) / BYTES_S, one)
        + of(5, BYTES / SLOW_BYTES_S, limited)
        + of(6, 1, many)
}

fn rounds(session: &Session) -> [usize; 3] {
    if session.is_full { [3, 3, 5] } else { [2, 1, 1] }
}

fn file_bytes(session: &Session) -> u64 {
    if session.is_full { 4 * BYTES } else { BYTES }
}

fn one(session: &Session) -> anyhow::Result<Section> {
    let folder = tempfile::tempdir_in(&session.disk).context("--disk")?;
    let bytes = file_bytes(session);
    let job = Job::file(folder.path(), folder.path(), bytes)?;
    let mut study = FileStudy::new(session, &job, rounds(session)[0]);
    study.copies(&[Subject::Written, Subject::Copied, SEALED, UNCLASSIFIED, CLEAR]);
    study.copies(&PEERS);
    study.run();
    let legend = format!(
        "One file of {} MiB in {}, over veth; until it is on the disk, including set-up, digest and name, and an fsync after programs that do none. \
         UFTP's time is its own, without the 3 s for which it waits for receivers. Medians of {}.",
        bytes >> 20,
        session.disk.display(),
        study.rounds
    );
    let mut goals = vec![study.goal(SEALED, &[Subject::Written], Bound::Least(0.9))];
    goals.extend(study.peer_goals());
    Ok(study.table("File to file", &legend, Subject::Written, &goals))
}

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
    let mut study = FileStudy::new(session, &job, rounds(session)[1]);
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

fn many(session: &Session) -> anyhow::Result<Section> {
    let folder = tempfile::tempdir_in(&session.disk).context("--disk")?;
    let job = Job::tree(folder.path(), folder.path(), FILES)?;
    let mut study = FileStudy::new(session, &job, rounds(session)[2]);
    study.copies(&[Subject::Copied, SEALED, CLEAR]);
    study.copies(&[Peer::Scp, Peer::RsyncSsh, Peer::RsyncDaemon].map(Subject::Peer));
    study.run();
    let legend = format!(
        "{FILES} files of 4 to 16 KiB, {} MB in all, in {}; until all are on the disk (`sync -f` after programs that do none). Medians of {}.",
        job.bytes / 1_000_000,
        session.disk.display(),
        study.rounds
    );
    let goals: Vec<String> = study.peer_goals();
    Ok(study.table("Many small files", &legend, Subject::Copied, &goals))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Written,
    Copied,
    Ours(SendOptions),
    Peer(Peer),
}

/// Options of `barograph send` that the rows differ in.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SendOptions {
    /// Whether both ends permit a transfer without encryption.
    is_clear: bool,
    /// Whether losses are classified by cause.
    classify_losses: bool,
}

impl Subject {
    fn name(self) -> String {
        match self {
            Self::Written => "the disk: written and synced".to_owned(),
            Self::Copied => "the disk: copied by cp and synced".to_owned(),
            Self::Ours(SendOptions { is_clear, classify_losses }) => {
                let classifier = if classify_losses { "" } else { ", no classifier" };
                format!("Barograph, {}{classifier}", if is_clear { "clear" } else { "sealed" })
            }
            Self::Peer(peer) => peer.name(),
        }
    }

    /// Rate in bits per second.
    fn measure(self, session: &Session, job: &Job) -> anyhow::Result<f64> {
        match self {
            Self::Written => written(job).map(bits),
            Self::Copied => copied(job).map(bits),
            Self::Ours(options) => barograph(session, job, options).map(bits),
            Self::Peer(peer) => {
                peer.version(&session.tools).map_err(anyhow::Error::msg)?;
                let network = Network::new(Link::Veth { rate_bps: None })?;
                prepare_tcp(&network, peer)?;
                let (tools, seconds) = (&session.tools, session.seconds);
                peer.measure(&ProgramTestbed {
                    network: &network,
                    tools,
                    seconds,
                    rate_bps: None,
                    job: Some(job),
                })
            }
        }
    }
}

fn bits(bytes_s: f64) -> f64 {
    8.0 * bytes_s
}

struct FileStudy<'a> {
    session: &'a Session,
    job: &'a Job,
    rounds: usize,
    rows: Vec<Row>,
}

struct Row {
    subject: Subject,
    rounds: Rounds,
}

impl<'a> FileStudy<'a> {
    fn new(session: &'a Session, job: &'a Job, rounds: usize) -> Self {
        Self { session, job, rounds, rows: vec![] }
    }

    fn copies(&mut self, subjects: &[Subject]) {
        let wanted = subjects.iter().filter(|subject| self.session.wants(&subject.name()));
        self.rows.extend(wanted.map(|subject| Row { subject: *subject, rounds: Rounds::default() }));
    }

    /// Each round measures every row, so that other work of the machine affects all rows alike.
    fn run(&mut self) {
        for _ in 0..self.rounds {
            for row in &mut self.rows {
                self.session.note(row.subject.name());
                row.rounds.add(row.subject.measure(self.session, self.job));
            }
        }
    }

    fn best(&self, is_meant: impl Fn(Subject) -> bool) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| is_meant(row.subject));
        rows.filter_map(|row| row.rounds.median()).max_by(f64::total_cmp)
    }

    fn goal(&self, ours: Subject, others: &[Subject], bound: Bound) -> String {
        let names: Vec<String> = others.iter().map(|other| other.name()).collect();
        let (ours_bps, best) = (self.best(|row| row == ours), self.best(|row| others.contains(&row)));
        let what = format!("{} ÷ {}", ours.name(), names.join(" or "));
        if self.rounds < ROUNDS_MIN {
            return format!("- {what}: no verdict with fewer than {ROUNDS_MIN} rounds\n");
        }
        session::goal_line(&what, bound, ours_bps.zip(best).map(|(ours, best)| ours / best))
    }

    /// Goals beside other programs: at most 3 % slower than each.
    fn peer_goals(&self) -> Vec<String> {
        let peers = self.rows.iter().filter(|row| matches!(row.subject, Subject::Peer(_)));
        peers.map(|row| self.goal(SEALED, &[row.subject], Bound::Least(0.97))).collect()
    }

    /// Rates, and ratios to that of one row if it ran.
    fn table(&self, title: &str, legend: &str, base: Subject, goals: &[String]) -> Section {
        let base_bps = self.best(|row| row == base);
        let over = format!("÷ {}", if base == Subject::Written { "the disk's" } else { "cp's" });
        let files = (self.job.files > 1).then_some("files/s");
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

const SEALED: Subject = Subject::Ours(SendOptions { is_clear: false, classify_losses: true });
const UNCLASSIFIED: Subject = Subject::Ours(SendOptions { is_clear: false, classify_losses: false });
const CLEAR: Subject = Subject::Ours(SendOptions { is_clear: true, classify_losses: true });

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

/// A disk's rate differs from run to run by more than the goals allow.
const ROUNDS_MIN: usize = 3;
/// The disk takes from half a second to some seconds.
const BYTES: u64 = 512 << 20;
/// Mean rate of all programs to a fast disk; the slowest, at a tenth of the fastest, take most of
/// the time.
const BYTES_S: u64 = 300_000_000;
/// A good hard disk writes faster, a slow one slower; far below the rate that two processors
/// encrypt.
const SLOW_BYTES_S: u64 = 100_000_000;
/// Each has a few pages: names, times and disk space cost more than the bytes.
const FILES: u64 = 10_000;

/// Rate of the disk (bytes a second), including the sync.
pub(super) fn written(job: &Job) -> anyhow::Result<f64> {
    let block: Vec<u8> = (0..1_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let folder = job.new_folder()?;
    let began = Instant::now();
    let mut file = fs::File::create(folder.path().join(NAME))?;
    for _ in 0..job.bytes >> 20 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(job.bytes as f64 / began.elapsed().as_secs_f64())
}

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

/// Rate of `barograph send` to `barograph recv` (bytes a second): from the sender's start to its
/// end, when all is verified and durable.
fn barograph(session: &Session, job: &Job, options: SendOptions) -> anyhow::Result<f64> {
    let SendOptions { is_clear, classify_losses } = options;
    let program = session.program.to_string_lossy();
    let mut asked = Command::new(&session.program);
    asked.args(["send", "--help"]).stdout(Stdio::null()).stderr(Stdio::null());
    let knows = asked.status().with_context(|| format!("{program} cannot be run"))?;
    ensure!(knows.success(), "{program} has no verb `send`; build the current version");
    let network = Network::new(Link::Veth { rate_bps: None })?;
    let to = job.new_folder()?;
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
        let line = line.context("`barograph recv` printed no receiver address")?;
        // A line may be a command to run, with the address in it.
        if let Some(found) = line.split_whitespace().find(|word| word.starts_with("brg://")) {
            break found.to_owned();
        }
    };
    let source_text = job.source().to_string_lossy();
    let mut words = vec![&*program, "send", "--quiet"];
    words.extend(is_clear.then_some("--clear"));
    words.extend((!classify_losses).then_some("--classifier=none"));
    words.extend([&*source_text, &line]);
    let began = Instant::now();
    let Ended::Done(_) = tool::run(&network.a, &words, SECONDS_MAX)? else {
        bail!("`barograph send` did not end within {SECONDS_MAX} s");
    };
    let seconds = began.elapsed().as_secs_f64();
    job.check(to.path())?;
    Ok(job.bytes as f64 / seconds)
}

const START_MAX: Duration = Duration::from_secs(10);

/// A mounted disk; removed when it is dropped.
pub(super) struct Disk {
    mounted: PathBuf,
    /// Name of the loop device from `losetup`.
    device: Option<String>,
    /// Device numbers, once its writes are limited.
    limited: Option<String>,
}

impl Disk {
    /// A disk of `bytes` bytes in a file below `folder`, which writes at most `bytes_s`.
    ///
    /// It uses version 1 of control groups: there the root group's limit applies to all writes to
    /// the device, including the kernel's write-back.
    ///
    /// # Errors
    /// Something that this needs is missing.
    pub(super) fn new(folder: &Path, bytes: u64, bytes_s: u64) -> anyhow::Result<Self> {
        ensure!(
            Path::new(LIMITS).is_file(),
            "{LIMITS} does not exist (blkio of control groups, version 1); it is needed to slow down a disk"
        );
        let (image, mounted) = (folder.join("disk"), folder.join("mounted"));
        // Allocated beforehand, so that writes need no allocation.
        printed(Command::new("fallocate").args(["-l", &bytes.to_string()]).arg(&image))?;
        fs::create_dir(&mounted)?;
        let mut disk = Self { mounted, device: None, limited: None };
        let device =
            printed(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&image))?;
        let device = disk.device.insert(device.trim().to_owned()).clone();
        let made = ["-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];
        printed(Command::new("mkfs.ext4").args(made).arg(&device))?;
        printed(Command::new("mount").arg(&device).arg(&disk.mounted))?;
        let number = fs::metadata(&device)?.rdev();
        // For a loop device: a small major number, and a minor number of 8 bits.
        let numbers = format!("{}:{}", number >> 8 & 0xfff, number & 0xff);
        fs::write(LIMITS, format!("{numbers} {bytes_s}"))
            .with_context(|| format!("cannot write {LIMITS}"))?;
        disk.limited = Some(numbers);
        Ok(disk)
    }

    pub(super) fn path(&self) -> &Path {
        &self.mounted
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // First, so that the remaining data is written quickly. What cannot be undone remains, and
        // `losetup` shows it.
        let _ = self.limited.as_ref().map(|numbers| fs::write(LIMITS, format!("{numbers} 0")));
        if let Some(device) = &self.device {
            let _ = printed(Command::new("umount").arg(&self.mounted));
            let _ = printed(Command::new("losetup").args(["-d", device]));
        }
    }
}

fn printed(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{program} cannot be run"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {}", said.lines().last().unwrap_or_default());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

const LIMITS: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
