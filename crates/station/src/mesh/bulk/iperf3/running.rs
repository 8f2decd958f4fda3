//! Checks whether a usable version of iperf3 is installed, and runs iperf3 as a process.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::NAME;

/// Minor version of the installed iperf3. Each call detects the version until a call finds a usable
/// version. Later calls return that version.
///
/// # Errors
/// A sentence that describes what is missing.
pub(crate) fn usable() -> Result<u32, String> {
    static USABLE: OnceLock<u32> = OnceLock::new();
    if let Some(minor) = USABLE.get() {
        return Ok(*minor);
    }
    let minor = version(NAME.as_ref())?;
    Ok(*USABLE.get_or_init(|| minor))
}

/// Logs what is wrong with the installed iperf3, if anything. Called at the start.
pub(crate) fn warn() {
    match usable() {
        Err(why) => {
            tracing::warn!(
                "mesh.bulk_with is \"iperf3\", but {why}; no bulk tests until a usable iperf3 is installed"
            )
        }
        Ok(minor) if minor < FIRST_FIXED => tracing::warn!(
            "iperf3 3.{minor} is older than 3.{FIRST_FIXED}: unless your distribution has patched it, any host that reaches \
             its port can crash it or worse; update iperf3 (SECURITY.md)"
        ),
        Ok(_) => {}
    }
}

fn version(program: &OsStr) -> Result<u32, String> {
    let mut running = Running::start(program, &["--version".into()]).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "iperf3 is not installed here".to_string(),
        _ => format!("iperf3 cannot be started here: {error}"),
    })?;
    let text = running.ended(VERSION_TIMEOUT).ok_or("`iperf3 --version` did not finish in time")?;
    let text = String::from_utf8_lossy(&text);
    let minor = text.strip_prefix("iperf 3.").and_then(|rest| {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().ok()
    });
    match minor {
        None => Err("the installed iperf3 is not iperf 3, by its --version".into()),
        Some(minor) if minor < OLDEST => {
            Err(format!("the installed iperf3 is 3.{minor}; 3.{OLDEST} or newer is needed"))
        }
        Some(minor) => Ok(minor),
    }
}

/// A running process and its output. Dropping this value kills the process.
pub(super) struct Running {
    child: Child,
    output: Receiver<Vec<u8>>,
}

impl Running {
    /// Starts a process without a shell, so that no argument is interpreted.
    pub(super) fn start(program: &OsStr, arguments: &[String]) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (sender, output) = channel();
        let stdout = child.stdout.take();
        let running = Self { child, output };
        let read = move || {
            let mut text = Vec::new();
            // An output longer than this is not a report: reading stops, and the pipe closes.
            let _ = stdout.map(|stdout| stdout.take(REPORT_BYTES_MAX).read_to_end(&mut text));
            let _ = sender.send(text);
        };
        std::thread::Builder::new().name(NAME.into()).spawn(read)?;
        Ok(running)
    }

    /// Waits for the end of the process and returns its output. `None` if the process still runs
    /// after the time `within`.
    pub(super) fn ended(&mut self, within: Duration) -> Option<Vec<u8>> {
        match self.output.recv_timeout(within) {
            Ok(text) => Some(text),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Vec::new()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Oldest minor version that can be used. Version 3.10 added `--server-bitrate-limit`, the newest
/// option that Barograph uses.
const OLDEST: u32 = 10;
/// First minor version without two security flaws. Before 3.14 a length on the control connection
/// overflows (CVE-2023-38403), and before 3.18 the types of received parameters are not checked
/// (CVE-2024-53580).
const FIRST_FIXED: u32 = 18;
const VERSION_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of a report, in bytes. The report of a test of 30 s has 40 kB.
const REPORT_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::mesh::bulk::iperf3::fake;

    #[test]
    fn a_missing_or_unusable_iperf3_is_reported_with_its_reason() {
        let of = |script: &str| {
            let (_directory, program) = fake(script);
            version(program.as_os_str())
        };
        assert_eq!(of("echo 'iperf 3.12 (cJSON 1.7.15)'; echo Linux"), Ok(12));
        assert_eq!(of("echo 'iperf 3.20'"), Ok(20));
        for (script, word) in [
            ("echo 'iperf 3.9'", "3.10 or newer"),
            ("echo 'iperf 2.1.9'", "is not iperf 3"),
            ("exit 1", "is not iperf 3"),
            ("exec sleep 60", "in time"),
        ] {
            let why = of(script).unwrap_err();
            assert!(why.contains(word), "{script}: {why}");
        }
        assert_eq!(version("/nowhere/iperf3".as_ref()).unwrap_err(), "iperf3 is not installed here");
    }
}
