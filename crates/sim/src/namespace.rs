//! Named network namespaces. Dropping a namespace removes it. The next process that creates
//! namespaces removes the namespaces of killed processes.

use crate::Error;
use nix::{
    sched::{CloneFlags, setns},
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};
use std::{
    fs::{self, File},
    io::Write,
    panic::resume_unwind,
    path::Path,
    process::{self, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

/// A network namespace of this process.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates two namespaces that belong together.
    pub(crate) fn pair() -> Result<[Self; 2], Error> {
        if !geteuid().is_root() {
            return Err(Error::NotPermitted { action: "make network namespaces".into() });
        }
        remove_leftovers();
        // Increment the number before the namespaces are created. Then every namespace that has
        // this process id and a number that is not used yet is a leftover.
        let number = NEXT_NUMBER.fetch_add(1, Ordering::SeqCst);
        let add = |side: &str| Self::add(format!("{PREFIX}{}-{number}{side}", process::id()));
        Ok([add("a")?, add("b")?])
    }

    /// Creates a further namespace for a switch between the two namespaces of the pair.
    pub(crate) fn sibling(&self) -> Result<Self, Error> {
        Self::add(format!("{}c", self.name.trim_end_matches(SIDES)))
    }

    fn add(name: String) -> Result<Self, Error> {
        locked(|| ip(&["netns", "add", &name], ""))?;
        Ok(Self { name })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on a new thread inside the namespace; a panic in `work` continues in the caller.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let path = Path::new(NAMESPACES).join(&self.name);
        let enter = || -> Result<(), Error> {
            let file = File::open(&path).map_err(|e| Error::io(format!("open {}", path.display()), e))?;
            // Only this thread enters the namespace, and the thread ends with the work.
            setns(file, CloneFlags::CLONE_NEWNET).map_err(|e| Error::io(format!("enter {}", self.name), e))
        };
        let inside = || enter().map(|()| work());
        thread::scope(|scope| scope.spawn(inside).join()).unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Runs lines of `ip` commands inside the namespace, in a single process.
    pub(crate) fn configure(&self, lines: &str) -> Result<(), Error> {
        ip(&["-n", &self.name, "-batch", "-"], lines)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Runs `ip` with `input` on its standard input and a time limit.
fn ip(arguments: &[&str], input: &str) -> Result<(), Error> {
    system("ip", arguments, input).map(drop)
}

/// Runs a program of the system for at most [`COMMAND_LIMIT_S`] seconds; returns its standard
/// output.
pub(crate) fn system(program: &str, arguments: &[&str], input: &str) -> Result<String, Error> {
    let shown = || format!("{program} {}", arguments.join(" "));
    let io = |source| Error::io(format!("run `{}`", shown()), source);
    let mut child = Command::new("timeout")
        .args([COMMAND_LIMIT_S, program])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(io)?;
    let sent = child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(io)?;
    if output.status.success() && sent.is_ok() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // Even root may lack the capability in a container.
    if stderr.contains("Operation not permitted") || stderr.contains("Permission denied") {
        return Err(Error::NotPermitted { action: format!("run `{}`", shown()) });
    }
    let stderr = if stderr.is_empty() { output.status.to_string() } else { stderr };
    Err(Error::Command { command: shown(), stderr })
}

/// Kills the processes in the namespace, then removes it. Errors are ignored: the namespace may be
/// incomplete, or another process may be removing the same leftover.
fn remove(name: &str) {
    let own = process::id() as i32;
    for pid in system("ip", &["netns", "pids", name], "").unwrap_or_default().split_whitespace() {
        match pid.parse() {
            Ok(pid) if pid > 1 && pid != own => drop(kill(Pid::from_raw(pid), Signal::SIGKILL)),
            _ => {}
        }
    }
    let _ = locked(|| ip(&["netns", "del", name], ""));
}

/// Removes leftover namespaces of this crate. A namespace is a leftover if its process has ended. A
/// namespace is also a leftover if its name has the id of this process and a number that this
/// process has not used yet: an earlier process had the same id. Processes are identified by their
/// ids, so programs that share `/run/netns` must also share the process table.
fn remove_leftovers() {
    for entry in fs::read_dir(NAMESPACES).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((name, (pid, number))) = name.to_str().and_then(|name| Some((name, parse_name(name)?)))
        else {
            continue;
        };
        let own_leftover = || pid == process::id() && number >= NEXT_NUMBER.load(Ordering::SeqCst);
        if !is_alive(pid) || own_leftover() {
            remove(name);
        }
    }
}

/// Process id and number in the name of a namespace; `None` if this crate does not use such names.
fn parse_name(name: &str) -> Option<(u32, u64)> {
    let (pid, number) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((pid.parse().ok()?, number.strip_suffix(SIDES)?.parse().ok()?))
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Prevents processes and threads from creating or removing namespaces at the same time: the first
/// `ip netns add` after boot remounts the folder, and a different `ip netns add` fails at that
/// moment.
fn locked<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let lock = File::create(LOCK).map_err(|e| Error::io(format!("open {LOCK}"), e))?;
    // The wait is bounded, because each holder of the lock runs one command with a time limit.
    lock.lock().map_err(|e| Error::io(format!("lock {LOCK}"), e))?;
    work()
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

const SIDES: [char; 3] = ['a', 'b', 'c'];
const PREFIX: &str = "barograph-";
const NAMESPACES: &str = "/run/netns";
const LOCK: &str = "/run/barograph-sim.lock";

/// Time limit of a command, in seconds. `ip` and `tc` finish within milliseconds, or within a
/// second on a busy machine.
const COMMAND_LIMIT_S: &str = "10";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_names_contain_the_process_that_created_them() {
        assert_eq!(parse_name("barograph-123-7a"), Some((123, 7)));
        assert_eq!(parse_name("barograph-123-7c"), Some((123, 7)));
        for other in ["barograph-x-0a", "barograph-123-0", "barograph-123", "other-123-0a"] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }
}
