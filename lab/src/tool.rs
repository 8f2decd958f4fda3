//! Finds programs and runs them with a time limit in the hosts of a network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use barograph_sim::{Host, SeededRng};

pub(crate) enum Ended {
    /// The program succeeded: its standard output, then its standard error.
    Done(String),
    TimeUp,
}

/// Runs a program in a host for at most `seconds_max`.
///
/// # Errors
/// It cannot be run, or fails: with the last line that it printed.
pub(crate) fn run(host: &Host, words: &[&str], seconds_max: u64) -> anyhow::Result<Ended> {
    let mut command = host.command("timeout");
    command.args(["--kill-after=2", &seconds_max.to_string()]).args(words).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("{words:?} cannot be run"))?;
    if output.status.code() == Some(TIME_UP) {
        return Ok(Ended::TimeUp);
    }
    let text = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said)).concat();
    if !output.status.success() {
        let last =
            text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no error message").trim();
        bail!("{} failed: {last}", words.first().copied().unwrap_or_default());
    }
    Ok(Ended::Done(text))
}

/// Waits until a socket in the host has this port (of `tcp` or `udp`).
///
/// # Errors
/// None has it within five seconds.
pub(crate) fn wait_for_port(host: &Host, transport: &str, port: u16) -> anyhow::Result<()> {
    let until = Instant::now() + START_MAX;
    while Instant::now() < until {
        // The thread's own view: the process's is outside the namespace.
        let tables = host.run(|| {
            let read = |suffix| fs::read_to_string(format!("/proc/thread-self/net/{transport}{suffix}"));
            read("").unwrap_or_default() + &read("6").unwrap_or_default()
        })?;
        if has_port(&tables, transport == "tcp", port) {
            return Ok(());
        }
        thread::sleep(TICK);
    }
    bail!("no program listens on {transport} port {port}")
}

/// Whether a table of sockets (proc_net_tcp) has one with this local port; with TCP it must listen.
fn has_port(tables: &str, is_tcp: bool, port: u16) -> bool {
    let has = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        let state = fields.nth(1).unwrap_or_default();
        local.ends_with(&format!(":{port:04X}")) && (!is_tcp || state == LISTENS)
    };
    tables.lines().any(has)
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Folders of daemons, which an administrator's path may lack.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

pub(crate) fn package_version(package: &str) -> Option<String> {
    let asked = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output().ok()?;
    let version = String::from_utf8(asked.stdout).ok()?;
    (asked.status.success() && !version.is_empty()).then_some(version)
}

/// Makes a file of `bytes` random bytes, which repeat only from block to block, so that no disk
/// stores them as zeros.
pub(crate) fn make_file(path: &Path, bytes: u64) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut rng = SeededRng::new(bytes, 0);
    let block: Vec<u8> = std::iter::repeat_with(|| rng.next_u64().to_le_bytes())
        .take((bytes.min(BLOCK_BYTES as u64) as usize).div_ceil(8))
        .flatten()
        .collect();
    let mut file = fs::File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    let mut left = bytes;
    while left > 0 {
        let part = block.get(..left.min(BLOCK_BYTES as u64) as usize).unwrap_or(&block);
        file.write_all(part)?;
        left -= part.len() as u64;
    }
    Ok(())
}

/// Exit status of `timeout` (coreutils) at its limit.
const TIME_UP: i32 = 124;

/// Programs start in a fraction of a second, on a busy machine in some.
const START_MAX: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(20);

/// TCP_LISTEN (Linux, include/net/tcp_states.h).
const LISTENS: &str = "0A";
const BLOCK_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_found_in_the_tables_of_the_kernel() {
        let tables = "  sl  local_address rem_address   st\n   0: 020000C0:08AE 00000000:0000 0A 0\n   1: 020000C0:1F90 010000C0:1000 01 0\n";
        assert!(has_port(tables, true, 0x08ae));
        assert!(!has_port(tables, true, 0x1f90), "a connection is no listener");
        assert!(has_port(tables, false, 0x1f90));
        assert!(!has_port(tables, false, 0x0a), "a state is no port");
    }

    #[test]
    fn generated_files_have_their_length_and_no_zero_blocks() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let path = folder.path().join("a");
        make_file(&path, (1 << 20) + 5).unwrap_or_else(|error| panic!("{error}"));
        let bytes = fs::read(&path).unwrap_or_default();
        assert_eq!(bytes.len(), (1 << 20) + 5);
        assert!(bytes.chunks(64).all(|part| part.iter().any(|byte| *byte != 0)));
    }
}
