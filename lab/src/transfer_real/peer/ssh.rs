//! scp and rsync, over a server of OpenSSH's with keys of its own, and rsync's daemon.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use super::bench::Bench;
use crate::process::Process;
use crate::tool::{find, run};

pub(super) fn scp(bench: &Bench<'_>) -> anyhow::Result<f64> {
    let server = Server::start(bench)?;
    let address = bench.network.b.v4();
    bench.copied(|from, to, limit_s| {
        let (from, to) = (from.to_string_lossy(), format!("root@{address}:{}/", to.display()));
        let mut words = vec!["scp", "-q", "-r", "-P", PORT_TEXT];
        words.extend(server.options.iter().map(String::as_str));
        words.extend([&*from, &to]);
        run(&bench.network.a, &words, limit_s)
    })
}

pub(super) fn rsync(bench: &Bench<'_>) -> anyhow::Result<f64> {
    let server = Server::start(bench)?;
    let address = bench.network.b.v4();
    let shell = format!("ssh -p {PORT_TEXT} {}", server.options.join(" "));
    bench.copied(|from, to, limit_s| {
        let (from, to) = (from.to_string_lossy(), format!("root@{address}:{}/", to.display()));
        run(
            &bench.network.a,
            &["rsync", "--whole-file", "--inplace", "-r", "-e", &shell, &from, &to],
            limit_s,
        )
    })
}

pub(super) fn rsync_daemon(bench: &Bench<'_>) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir_in(bench.tools.path())?;
    let config = folder.path().join("rsyncd.conf");
    let root = bench.root().display();
    fs::write(
        &config,
        format!(
            "port = {DAEMON_PORT}\nuse chroot = no\nuid = root\ngid = root\n[there]\npath = {root}\nread only = no\n"
        ),
    )?;
    let words = ["--daemon", "--no-detach", &format!("--config={}", config.display())];
    let _server = bench.serve(&bench.network.b, Path::new("rsync"), &words, ("tcp", DAEMON_PORT))?;
    let address = bench.network.b.v4();
    bench.copied(|from, to, limit_s| {
        let below = to.strip_prefix(bench.root()).context("copies are below the folder")?;
        let to = format!("rsync://{address}:{DAEMON_PORT}/there/{}/", below.display());
        run(
            &bench.network.a,
            &["rsync", "--whole-file", "--inplace", "-r", &from.to_string_lossy(), &to],
            limit_s,
        )
    })
}

/// An sshd that takes one key, and the options with which it is asked.
struct Server {
    _process: Process,
    _keys: TempDir,
    options: Vec<String>,
}

impl Server {
    fn start(bench: &Bench<'_>) -> anyhow::Result<Self> {
        let keys = tempfile::tempdir()?;
        let (host, user) = (keys.path().join("host"), keys.path().join("user"));
        for key in [&host, &user] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(key)
                .stdin(Stdio::null())
                .status()?;
            ensure!(made.success(), "ssh-keygen makes no key");
        }
        let config = keys.path().join("sshd_config");
        let address = bench.network.b.v4();
        fs::write(
            &config,
            format!(
                "Port {PORT_TEXT}\nListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}.pub\n\
                 StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n",
                host.display(),
                user.display()
            ),
        )?;
        // Where sshd separates its privileges; a system that has not started it since boot lacks the folder.
        fs::create_dir_all("/run/sshd").context("sshd needs /run/sshd")?;
        let program = find("sshd").unwrap_or_else(|| PathBuf::from("sshd"));
        let words = ["-D", "-e", "-f", &config.to_string_lossy()];
        let process = bench.serve(&bench.network.b, &program, &words, ("tcp", PORT))?;
        let options = ["-F", "none", "-i", &user.to_string_lossy()].map(str::to_owned);
        let settings =
            ["UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=no", "LogLevel=ERROR", "BatchMode=yes"];
        let settings = settings.iter().flat_map(|setting| ["-o".to_owned(), (*setting).to_owned()]);
        let options = options.into_iter().chain(settings).collect();
        Ok(Self { _process: process, _keys: keys, options })
    }
}

const PORT: u16 = 2222;
const PORT_TEXT: &str = "2222";
const DAEMON_PORT: u16 = 8730;
