//! Other programs that Barograph is compared with: their programs, versions, and rates over a
//! network.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use barograph_sim::{Host, Network};
use tempfile::TempDir;

use crate::iperf;
use crate::process::Process;
use crate::stats::mean;
use crate::tool::{Ended, find, make_file, package_version, run, wait_for_port};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Tcp(&'static str),
    Udp,
    /// Debian's example program `appclient`.
    UdtMemory,
    /// Debian's example program `sendfile`.
    UdtFile,
    /// At a given rate, or with TFMCC (RFC 4654).
    Uftp {
        has_control: bool,
    },
    GridFtp {
        streams: u32,
    },
    Quinn(&'static str),
    Scp,
    RsyncSsh,
    RsyncDaemon,
}

impl Peer {
    pub(crate) const ALL: [Self; 14] = [
        Self::Tcp("cubic"),
        Self::Tcp("bbr"),
        Self::Udp,
        Self::Quinn("cubic"),
        Self::Quinn("bbr"),
        Self::UdtMemory,
        Self::UdtFile,
        Self::Uftp { has_control: false },
        Self::Uftp { has_control: true },
        Self::GridFtp { streams: 1 },
        Self::GridFtp { streams: 8 },
        Self::Scp,
        Self::RsyncSsh,
        Self::RsyncDaemon,
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Tcp(congestion) => format!("iperf3 TCP, {congestion}"),
            Self::Udp => "iperf3 UDP".to_owned(),
            Self::UdtMemory => "UDT, memory".to_owned(),
            Self::UdtFile => "UDT, file".to_owned(),
            Self::Uftp { has_control: false } => "UFTP, given rate".to_owned(),
            Self::Uftp { has_control: true } => "UFTP, TFMCC".to_owned(),
            Self::GridFtp { streams } => format!("GridFTP, {streams} × TCP"),
            Self::Quinn(congestion) => format!("quinn, {congestion}"),
            Self::Scp => "scp".to_owned(),
            Self::RsyncSsh => "rsync over ssh".to_owned(),
            Self::RsyncDaemon => "rsync daemon".to_owned(),
        }
    }

    pub(crate) fn is_sealed(self) -> bool {
        matches!(self, Self::Quinn(_) | Self::Scp | Self::RsyncSsh)
    }

    /// Whether it sends over TCP with the system's default congestion control.
    pub(crate) fn uses_default_congestion_control(self) -> bool {
        matches!(self, Self::GridFtp { .. } | Self::Scp | Self::RsyncSsh | Self::RsyncDaemon)
    }

    /// Version of the program.
    ///
    /// # Errors
    /// A program that it needs is missing.
    pub(crate) fn version(self, tools: &Tools) -> Result<String, String> {
        if let Self::Quinn(_) = self {
            quinn_built(tools)?;
            return Ok(quinn_version());
        }
        let (programs, packages): (&[&str], &[&str]) = match self {
            Self::Tcp(_) | Self::Udp => (&["iperf3"], &["iperf3"]),
            Self::UdtMemory | Self::UdtFile => (&["g++"], &["libudt-dev"]),
            Self::Uftp { .. } => (&["uftp", "uftpd"], &["uftp"]),
            Self::GridFtp { .. } => (
                &["globus-gridftp-server", "globus-url-copy"],
                &["globus-gridftp-server-progs", "globus-gass-copy-progs"],
            ),
            Self::Scp | Self::Quinn(_) => (&["sshd", "scp", "ssh-keygen"], &["openssh-server"]),
            Self::RsyncSsh => (&["sshd", "rsync", "ssh-keygen"], &["rsync", "openssh-server"]),
            Self::RsyncDaemon => (&["rsync"], &["rsync"]),
        };
        if let Some(missing) = programs.iter().find(|program| find(program).is_none()) {
            return Err(format!("{missing} is not installed (Debian: {})", packages.join(", ")));
        }
        if matches!(self, Self::UdtMemory | Self::UdtFile) {
            udt_built(tools)?;
        }
        let version = |package: &&str| package_version(package).unwrap_or_else(|| "?".to_owned());
        Ok(packages.iter().map(version).collect::<Vec<String>>().join(", "))
    }

    /// Rate in bit/s of the user's bytes.
    ///
    /// # Errors
    /// Why it did not run.
    pub(crate) fn measure(self, testbed: &ProgramTestbed<'_>) -> anyhow::Result<f64> {
        match self {
            Self::Tcp(congestion) => {
                let report = report(testbed, &["-C", congestion])?;
                report["end"]["sum_received"]["bits_per_second"].as_f64().context("iperf3 reports no rate")
            }
            Self::Udp => {
                // Without a limit, or at the rate of the bottleneck.
                let rate = testbed.rate_bps.unwrap_or(0).to_string();
                let report = report(testbed, &["-u", "-l", "1472", "-b", &rate])?;
                let sum = &report["end"]["sum"];
                let (sent, lost) = (sum["bits_per_second"].as_f64(), sum["lost_percent"].as_f64());
                let (sent, lost) = sent.zip(lost).context("iperf3 reports no rate")?;
                Ok(sent * (1.0 - lost / 100.0))
            }
            Self::UdtMemory => udt_memory(testbed),
            Self::UdtFile => udt_file(testbed),
            Self::Uftp { has_control } => uftp(testbed, has_control),
            Self::GridFtp { streams } => gridftp(testbed, streams),
            Self::Quinn(congestion) => quinn(testbed, congestion),
            Self::Scp => scp(testbed),
            Self::RsyncSsh => rsync(testbed),
            Self::RsyncDaemon => rsync_daemon(testbed),
        }
    }
}

fn report(testbed: &ProgramTestbed<'_>, options: &[&str]) -> anyhow::Result<serde_json::Value> {
    let seconds = testbed.seconds.to_string();
    let options = [options, &["-t", &seconds]].concat();
    iperf::measured(testbed.network, testbed.seconds + iperf::GRACE_S, &options)
}

pub(crate) struct ProgramTestbed<'a> {
    pub(crate) network: &'a Network,
    pub(crate) tools: &'a Tools,
    /// Approximate length of a run.
    pub(crate) seconds: u64,
    /// Rate of the bottleneck, if there is one (bit/s).
    pub(crate) rate_bps: Option<u64>,
    /// Files to copy and their target; `None` for files in memory that the run makes.
    pub(crate) job: Option<&'a Job>,
}

pub(crate) struct Tools {
    /// Directory for files that the programs copy and for built programs; in memory if possible.
    folder: TempDir,
    pub(crate) udt: OnceLock<Result<PathBuf, String>>,
    pub(crate) quinn: OnceLock<Result<PathBuf, String>>,
}

impl Tools {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
        // Writable for the anonymous user of GridFTP's server.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
        Ok(Self { folder, udt: OnceLock::new(), quinn: OnceLock::new() })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl ProgramTestbed<'_> {
    /// Rate of a program that copies a file from one folder to another, without the time that it
    /// needs for a file of one byte.
    ///
    /// For a [`Job`], set-up and the sync count. Otherwise, on a path of a known rate, the file is
    /// four fifths of what the path carries in the run's time; without a known rate the file grows
    /// until the copy takes half of that time.
    ///
    /// # Errors
    /// The copy fails or has another length.
    pub(super) fn copied(
        &self,
        copy: impl Fn(&Path, &Path, u64) -> anyhow::Result<Ended>,
    ) -> anyhow::Result<f64> {
        if let Some(job) = self.job {
            let Copied { seconds, synced_s, bytes } = job.copied(&copy)?;
            return Ok(8.0 * bytes as f64 / (seconds + synced_s));
        }
        let set_up_s = self.copied_in(&copy, 1, self.limit_s())?.seconds;
        // A program that fills the path ends in time. Others are stopped then, so that no path
        // takes longer.
        let mut bytes = self.rate_bps.map_or(FILE_BYTES_MIN, |rate| rate / 10 * self.seconds);
        let limit_s = self.rate_bps.map_or(self.limit_s(), |_| self.seconds + set_up_s.ceil() as u64);
        loop {
            let Copied { seconds, bytes: arrived, .. } = self.copied_in(&copy, bytes, limit_s)?;
            let seconds = (seconds - set_up_s).max(1e-3);
            if self.rate_bps.is_some()
                || bytes >= FILE_BYTES_MAX
                || self.seconds as f64 / 2.0 <= seconds
                || arrived < bytes
            {
                return Ok(8.0 * arrived as f64 / seconds);
            }
            // A little more than needed, because the next copy may be faster.
            let wanted = bytes as f64 * 0.75 * self.seconds as f64 / seconds;
            bytes = (wanted as u64).max(2 * bytes).min(FILE_BYTES_MAX);
        }
    }

    /// Copies a file of `bytes` bytes, or the job; stopped after `limit_s`.
    fn copied_in(
        &self,
        copy: &impl Fn(&Path, &Path, u64) -> anyhow::Result<Ended>,
        bytes: u64,
        limit_s: u64,
    ) -> anyhow::Result<Copied> {
        if let Some(job) = self.job {
            return job.copied(copy);
        }
        let folder = tempfile::tempdir_in(self.tools.path())?;
        let (from, to) = (folder.path().join("source"), folder.path().join("there"));
        fs::create_dir(&to)?;
        for path in [folder.path(), &to] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        }
        make_file(&from, bytes)?;
        let began = Instant::now();
        let ended = copy(&from, &to, limit_s)?;
        let seconds = began.elapsed().as_secs_f64();
        let arrived = match ended {
            Ended::Done(_) => {
                let length = fs::metadata(to.join("source")).context("no copy was made")?.len();
                ensure!(length == bytes, "the copy has {length} bytes, expected {bytes}");
                bytes
            }
            // Bytes so far, whatever the file is called: programs that write in any order leave
            // holes.
            Ended::TimeUp => written(&to)?.min(bytes),
        };
        Ok(Copied { seconds, synced_s: 0.0, bytes: arrived })
    }

    /// Starts a server in a host, and waits until it has this port (of `tcp` or `udp`).
    pub(super) fn serve(
        &self,
        host: &Host,
        program: &Path,
        words: &[&str],
        port: (&str, u16),
    ) -> anyhow::Result<Process> {
        let mut command = host.command(&program.to_string_lossy());
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Process::spawn(&mut command)?;
        wait_for_port(host, port.0, port.1)?;
        Ok(server)
    }

    /// Folder that contains all copies.
    pub(super) fn root(&self) -> &Path {
        self.job.map_or(self.tools.path(), Job::to)
    }

    /// Time after which a run that should have ended is stopped.
    pub(super) fn limit_s(&self) -> u64 {
        2 * self.seconds + GRACE_S
    }
}

/// Bytes on the disk of all files of a folder.
fn written(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        bytes += 512 * entry?.metadata()?.blocks();
    }
    Ok(bytes)
}

/// First size if the path's rate is unknown: 0.1 s at 5 Gbit/s.
const FILE_BYTES_MIN: u64 = 64 << 20;
/// Source and copy, twice this size, are in memory.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// Set-up over 100 ms, on a machine with other work.
pub(super) const GRACE_S: u64 = 6;

pub(super) fn gridftp(testbed: &ProgramTestbed<'_>, streams: u32) -> anyhow::Result<f64> {
    let (address, streams) = (testbed.network.b.v4().to_string(), streams.to_string());
    let log = testbed.tools.path().join("gridftp.log").to_string_lossy().into_owned();
    let words = ["-p", GRIDFTP_PORT_TEXT, "-aa", "-anonymous-user", "nobody", "-anonymous-group", "nogroup"];
    let words = [&words[..], &["-data-interface", &address, "-l", &log]].concat();
    let program = Path::new("globus-gridftp-server");
    let _server = testbed.serve(&testbed.network.b, program, &words, ("tcp", GRIDFTP_PORT))?;
    testbed.copied(|from, to, limit_s| {
        let from = format!("file://{}", from.display());
        let to = format!("ftp://{address}:{GRIDFTP_PORT_TEXT}{}/source", to.display());
        run(&testbed.network.a, &["globus-url-copy", "-p", &streams, &from, &to], limit_s)
    })
}

const GRIDFTP_PORT: u16 = 2811;
const GRIDFTP_PORT_TEXT: &str = "2811";

pub(super) fn quinn_built(tools: &Tools) -> Result<PathBuf, String> {
    tools.quinn.get_or_init(|| build_quinn().map_err(|error| format!("{error:#}"))).clone()
}

fn build_quinn() -> anyhow::Result<PathBuf> {
    let folder = quinn_folder();
    ensure!(folder.join("Cargo.toml").is_file(), "the sources in {} are missing", folder.display());
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => PathBuf::from(target).join("quinn"),
        None => folder.join("target"),
    };
    let built = Command::new("cargo")
        .args(["build", "--release", "--locked", "--quiet", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", &target)
        .stdin(Stdio::null())
        .output()
        .context("lab/quinn cannot be built")?;
    let said = String::from_utf8_lossy(&built.stderr);
    ensure!(built.status.success(), "lab/quinn cannot be built: {}", said.lines().next().unwrap_or("?"));
    Ok(target.join("release/quinn-bulk"))
}

fn quinn_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("quinn")
}

/// Version of the library, from its lock file.
pub(super) fn quinn_version() -> String {
    let lock = std::fs::read_to_string(quinn_folder().join("Cargo.lock")).unwrap_or_default();
    let named = lock.split("[[package]]").find(|package| package.contains("name = \"quinn\"\n"));
    let version = named.and_then(|package| package.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("?").to_owned()
}

pub(super) fn quinn(testbed: &ProgramTestbed<'_>, congestion: &str) -> anyhow::Result<f64> {
    let program = quinn_built(testbed.tools).map_err(anyhow::Error::msg)?;
    let program = program.to_string_lossy();
    let at = format!("{}:{QUINN_PORT}", testbed.network.b.v4());
    let mut server = testbed.network.b.command("timeout");
    server.args([&testbed.limit_s().to_string(), &*program, "serve", &at]).stdout(Stdio::piped());
    let mut server = Process::spawn(server.stderr(Stdio::null()))?;
    let lines = server.lines()?;
    lines.recv().context("quinn's server ended before it listened")?;
    let seconds = testbed.seconds.to_string();
    run(&testbed.network.a, &[&program, "send", &at, &seconds, congestion], testbed.limit_s())?;
    let said = lines.recv().context("quinn's server ended without a result")?;
    let (bytes, seconds) = said.split_once(' ').context("quinn's server printed no rate")?;
    let (bytes, seconds): (f64, f64) = (bytes.parse()?, seconds.parse()?);
    ensure!(seconds > 0.0, "quinn moved nothing");
    Ok(8.0 * bytes / seconds)
}

const QUINN_PORT: u16 = 4433;

pub(super) fn scp(testbed: &ProgramTestbed<'_>) -> anyhow::Result<f64> {
    let server = SshServer::start(testbed)?;
    let address = testbed.network.b.v4();
    testbed.copied(|from, to, limit_s| {
        let (from, to) = (from.to_string_lossy(), format!("root@{address}:{}/", to.display()));
        let mut words = vec!["scp", "-q", "-r", "-P", SSH_PORT_TEXT];
        words.extend(server.options.iter().map(String::as_str));
        words.extend([&*from, &to]);
        run(&testbed.network.a, &words, limit_s)
    })
}

pub(super) fn rsync(testbed: &ProgramTestbed<'_>) -> anyhow::Result<f64> {
    let server = SshServer::start(testbed)?;
    let address = testbed.network.b.v4();
    let shell = format!("ssh -p {SSH_PORT_TEXT} {}", server.options.join(" "));
    testbed.copied(|from, to, limit_s| {
        let (from, to) = (from.to_string_lossy(), format!("root@{address}:{}/", to.display()));
        run(
            &testbed.network.a,
            &["rsync", "--whole-file", "--inplace", "-r", "-e", &shell, &from, &to],
            limit_s,
        )
    })
}

pub(super) fn rsync_daemon(testbed: &ProgramTestbed<'_>) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir_in(testbed.tools.path())?;
    let config = folder.path().join("rsyncd.conf");
    let root = testbed.root().display();
    fs::write(
        &config,
        format!(
            "port = {RSYNC_PORT}\nuse chroot = no\nuid = root\ngid = root\n[there]\npath = {root}\nread only = no\n"
        ),
    )?;
    let words = ["--daemon", "--no-detach", &format!("--config={}", config.display())];
    let _server = testbed.serve(&testbed.network.b, Path::new("rsync"), &words, ("tcp", RSYNC_PORT))?;
    let address = testbed.network.b.v4();
    testbed.copied(|from, to, limit_s| {
        let below = to.strip_prefix(testbed.root()).context("copies are below the folder")?;
        let to = format!("rsync://{address}:{RSYNC_PORT}/there/{}/", below.display());
        run(
            &testbed.network.a,
            &["rsync", "--whole-file", "--inplace", "-r", &from.to_string_lossy(), &to],
            limit_s,
        )
    })
}

/// An sshd that accepts one key, and the client's options for it.
struct SshServer {
    _process: Process,
    _keys: TempDir,
    options: Vec<String>,
}

impl SshServer {
    fn start(testbed: &ProgramTestbed<'_>) -> anyhow::Result<Self> {
        let keys = tempfile::tempdir()?;
        let (host, user) = (keys.path().join("host"), keys.path().join("user"));
        for key in [&host, &user] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(key)
                .stdin(Stdio::null())
                .status()?;
            ensure!(made.success(), "ssh-keygen failed to make a key");
        }
        let config = keys.path().join("sshd_config");
        let address = testbed.network.b.v4();
        fs::write(
            &config,
            format!(
                "Port {SSH_PORT_TEXT}\nListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}.pub\n\
                 StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n",
                host.display(),
                user.display()
            ),
        )?;
        // Directory for sshd's privilege separation; it is missing if sshd has not been started
        // since boot.
        fs::create_dir_all("/run/sshd").context("sshd needs /run/sshd")?;
        let program = find("sshd").unwrap_or_else(|| PathBuf::from("sshd"));
        let words = ["-D", "-e", "-f", &config.to_string_lossy()];
        let process = testbed.serve(&testbed.network.b, &program, &words, ("tcp", SSH_PORT))?;
        let options = ["-F", "none", "-i", &user.to_string_lossy()].map(str::to_owned);
        let settings =
            ["UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=no", "LogLevel=ERROR", "BatchMode=yes"];
        let settings = settings.iter().flat_map(|setting| ["-o".to_owned(), (*setting).to_owned()]);
        let options = options.into_iter().chain(settings).collect();
        Ok(Self { _process: process, _keys: keys, options })
    }
}

const SSH_PORT: u16 = 2222;
const SSH_PORT_TEXT: &str = "2222";
const RSYNC_PORT: u16 = 8730;

pub(super) fn udt_built(tools: &Tools) -> Result<PathBuf, String> {
    tools.udt.get_or_init(|| build_udt(tools.path()).map_err(|error| format!("{error:#}"))).clone()
}

fn build_udt(folder: &Path) -> anyhow::Result<PathBuf> {
    let source = Path::new("/usr/share/doc/libudt-dev/examples");
    let folder = folder.join("udt");
    fs::create_dir(&folder)?;
    for name in ["cc.h", "test_util.h", "sendfile.cpp", "recvfile.cpp", "appclient.cpp", "appserver.cpp"] {
        let text = read_example(source, name).context("no examples of UDT (Debian: libudt-dev)")?;
        fs::write(folder.join(name), text)?;
    }
    for name in ["sendfile", "recvfile", "appclient", "appserver"] {
        let built = Command::new("g++")
            .args(["-O2", "-w", "-I/usr/include/udt", "-o", name, &format!("{name}.cpp")])
            .args(["-ludt", "-lpthread"])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&built.stderr);
        ensure!(
            built.status.success(),
            "{name} of UDT cannot be built: {}",
            said.lines().next().unwrap_or("?")
        );
    }
    Ok(folder)
}

/// Reads a file of the documentation; Debian compresses long ones.
fn read_example(folder: &Path, name: &str) -> anyhow::Result<String> {
    let plain = folder.join(name);
    if plain.is_file() {
        return Ok(fs::read_to_string(plain)?);
    }
    let packed = fs::File::open(folder.join(format!("{name}.gz")))?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text)?;
    Ok(text)
}

/// Mean of the rates that its client prints each second, without the first.
pub(super) fn udt_memory(testbed: &ProgramTestbed<'_>) -> anyhow::Result<f64> {
    let folder = udt_built(testbed.tools).map_err(anyhow::Error::msg)?;
    let _server =
        testbed.serve(&testbed.network.b, &folder.join("appserver"), &[UDT_PORT_TEXT], ("udp", UDT_PORT))?;
    let (to, client) = (testbed.network.b.v4().to_string(), folder.join("appclient"));
    let log = folder.join("appclient.log");
    // It would end after 100 GB and is stopped before, so its output goes to a file.
    let line = format!(
        "exec timeout {} stdbuf -oL {} {to} {UDT_PORT_TEXT} > {}",
        testbed.seconds + 2,
        client.display(),
        log.display()
    );
    let _ = run(&testbed.network.a, &["sh", "-c", &line], testbed.seconds + GRACE_S)?;
    let text = fs::read_to_string(&log)?;
    let rates: Vec<f64> =
        text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).skip(1).collect();
    ensure!(!rates.is_empty(), "appclient showed no rate");
    Ok(1e6 * mean(&rates))
}

/// Copies a file that the far host requests.
pub(super) fn udt_file(testbed: &ProgramTestbed<'_>) -> anyhow::Result<f64> {
    let folder = udt_built(testbed.tools).map_err(anyhow::Error::msg)?;
    let client = folder.join("recvfile");
    let _server =
        testbed.serve(&testbed.network.a, &folder.join("sendfile"), &[UDT_PORT_TEXT], ("udp", UDT_PORT))?;
    let from_host = testbed.network.a.v4().to_string();
    testbed.copied(|from, to, limit_s| -> anyhow::Result<Ended> {
        let (from, to) = (from.to_string_lossy(), to.join("source"));
        let (client, to) = (client.to_string_lossy(), to.to_string_lossy());
        run(&testbed.network.b, &[&client, &from_host, UDT_PORT_TEXT, &from, &to], limit_s)
    })
}

const UDT_PORT: u16 = 9000;
const UDT_PORT_TEXT: &str = "9000";

/// At a given rate: that of the bottleneck, or the best of some. Its own time counts, because it
/// first waits three seconds for receivers.
pub(super) fn uftp(testbed: &ProgramTestbed<'_>, has_control: bool) -> anyhow::Result<f64> {
    if has_control {
        // TFMCC finds its rate; `-R` is its first rate.
        return uftp_at(testbed, testbed.rate_bps.map_or(1_000_000, |rate| rate / 10_000), true);
    }
    match testbed.rate_bps {
        // Its headers are not included in the given rate.
        Some(rate) => uftp_at(testbed, rate / 1000 * 94 / 100, false),
        None => {
            let rates = RATES_KBIT_S.map(|rate| uftp_at(testbed, rate, false));
            let best = rates.into_iter().flatten().max_by(f64::total_cmp);
            best.context("UFTP ended at no rate")
        }
    }
}

fn uftp_at(testbed: &ProgramTestbed<'_>, rate_kbit_s: u64, has_control: bool) -> anyhow::Result<f64> {
    let bytes = testbed.rate_bps.map_or(rate_kbit_s * 125, |rate| rate / 10) * testbed.seconds;
    let time = |text: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.starts_with("Total elapsed time:"))?;
        line.split_whitespace().nth(3)?.parse().ok()
    };
    let own = std::cell::Cell::new(None);
    let copied = testbed.copied_in(
        &|from: &Path, to: &Path, limit_s| {
            let words = ["-d", "-I", DEVICE, "-B", BUFFER_BYTES, "-D", &to.to_string_lossy()];
            let _server =
                testbed.serve(&testbed.network.b, Path::new("uftpd"), &words, ("udp", UFTP_PORT))?;
            let to = testbed.network.b.v4().to_string();
            let (rate, from) = (rate_kbit_s.to_string(), from.to_string_lossy());
            let mut words = vec!["uftp", "-M", &to, "-P", &to, "-I", DEVICE, "-R", &rate, "-B", BUFFER_BYTES];
            if has_control {
                words.extend(["-C", "tfmcc"]);
            }
            words.extend(["-Y", "none", &from]);
            let ended = run(&testbed.network.a, &words, limit_s + ANNOUNCE_S)?;
            if let Ended::Done(text) = &ended {
                own.set(time(text));
            }
            Ok(ended)
        },
        bytes,
        testbed.rate_bps.map_or(testbed.limit_s(), |_| testbed.seconds),
    )?;
    let seconds = own.get().unwrap_or(copied.seconds - ANNOUNCE_S as f64) + copied.synced_s;
    if seconds <= 0.0 {
        bail!("UFTP took no time");
    }
    Ok(8.0 * copied.bytes as f64 / seconds)
}

/// Default port of `uftpd`.
const UFTP_PORT: u16 = 1044;
/// Device of a network's hosts.
const DEVICE: &str = "link0";
/// Requested buffer: as by other programs, more than the system's default.
const BUFFER_BYTES: &str = "8000000";
/// Time that it waits for receivers (three times its estimate of a round trip, at first 1 s).
const ANNOUNCE_S: u64 = 3;
/// Rates to try without a bottleneck, from one that it certainly reaches to one that was never
/// reported.
const RATES_KBIT_S: [u64; 4] = [500_000, 1_000_000, 2_000_000, 4_000_000];

pub(crate) struct Job {
    source: PathBuf,
    to: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

pub(crate) struct Copied {
    pub(crate) seconds: f64,
    /// Time that the sync took after the copy.
    pub(crate) synced_s: f64,
    pub(crate) bytes: u64,
}

impl Job {
    /// A file of `bytes` bytes below `from`, to be copied to folders below `to`.
    pub(crate) fn file(from: &Path, to: &Path, bytes: u64) -> anyhow::Result<Self> {
        let source = from.join(NAME);
        make_file(&source, bytes)?;
        Self::new(source, to, bytes, 1)
    }

    /// `files` files of 4 to 16 KiB in folders of 100.
    pub(crate) fn tree(from: &Path, to: &Path, files: u64) -> anyhow::Result<Self> {
        let source = from.join(NAME);
        let mut bytes = 0;
        for number in 0..files {
            let folder = source.join(format!("{:04}", number / 100));
            fs::create_dir_all(&folder)?;
            // All lengths occur, in a random order (Knuth's multiplicative hash).
            let length = 4096 + (number * 2_654_435_761) % 12_289;
            make_file(&folder.join(format!("{:02}", number % 100)), length)?;
            bytes += length;
        }
        Self::new(source, to, bytes, files)
    }

    fn new(source: PathBuf, to: &Path, bytes: u64, files: u64) -> anyhow::Result<Self> {
        // Readable and writable for the anonymous user of GridFTP's server.
        let to = to.to_owned();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o777))?;
        let job = Self { source, to, bytes, files };
        job.sync(&job.source)?;
        Ok(job)
    }

    pub(crate) fn source(&self) -> &Path {
        &self.source
    }

    pub(crate) fn to(&self) -> &Path {
        &self.to
    }

    /// Creates an empty folder for one copy, removed when it is dropped.
    pub(crate) fn new_folder(&self) -> anyhow::Result<TempDir> {
        let folder = tempfile::tempdir_in(&self.to)?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
        Ok(folder)
    }

    /// Copies, and makes the copy durable.
    ///
    /// # Errors
    /// The copy does not end in time, or is not what it should be.
    pub(crate) fn copied(
        &self,
        copy: &impl Fn(&Path, &Path, u64) -> anyhow::Result<Ended>,
    ) -> anyhow::Result<Copied> {
        let folder = self.new_folder()?;
        let began = Instant::now();
        let Ended::Done(_) = copy(&self.source, folder.path(), SECONDS_MAX)? else {
            bail!("it did not end within {SECONDS_MAX} s");
        };
        let seconds = began.elapsed().as_secs_f64();
        self.sync(&folder.path().join(NAME))?;
        let synced_s = began.elapsed().as_secs_f64() - seconds;
        self.check(folder.path())?;
        Ok(Copied { seconds, synced_s, bytes: self.bytes })
    }

    pub(crate) fn check(&self, folder: &Path) -> anyhow::Result<()> {
        let (mut bytes, mut files) = (0, 0);
        let mut left = vec![folder.join(NAME)];
        while let Some(path) = left.pop() {
            let found = fs::symlink_metadata(&path).context("no copy was made")?;
            if found.is_dir() {
                for entry in fs::read_dir(&path)? {
                    left.push(entry?.path());
                }
            } else {
                (bytes, files) = (bytes + found.len(), files + 1);
            }
        }
        ensure!(
            (bytes, files) == (self.bytes, self.files),
            "the copy has {files} files, {bytes} bytes; expected {}, {}",
            self.files,
            self.bytes
        );
        Ok(())
    }

    /// Syncs a single file, or the whole file system of many.
    fn sync(&self, path: &Path) -> anyhow::Result<()> {
        if path.is_file() {
            return Ok(fs::File::open(path)?.sync_all()?);
        }
        let synced = Command::new("sync").arg("-f").arg(path).status()?;
        ensure!(synced.success(), "`sync -f` failed");
        Ok(())
    }
}

pub(crate) const NAME: &str = "source";
pub(crate) const SECONDS_MAX: u64 = 120;
