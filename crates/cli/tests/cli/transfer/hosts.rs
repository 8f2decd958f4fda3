//! Transfers between two hosts (network namespaces); an ordinary user runs both ends. Without root,
//! the tests are skipped with a message. Only the creation of the hosts needs root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use barograph_sim::{Link, LinkSpec, Network, network_or_skip};

use super::{Running, of, tree};

/// User ID of the user without privileges.
const USER: u32 = 65_534;

/// Copies the program into a directory where an ordinary user can run it, and gives the entries of
/// the directory to that user. Returns the path of the copy.
pub(crate) fn prepare(directory: &Path) -> PathBuf {
    fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    let program = directory.join("barograph");
    fs::copy(env!("CARGO_BIN_EXE_barograph"), &program).unwrap();
    for below in fs::read_dir(directory).unwrap() {
        chown(below.unwrap().path(), Some(USER), Some(USER)).unwrap();
    }
    program
}

/// The program, as an ordinary user runs it.
pub(crate) fn ordinary(program: &Path) -> Command {
    let mut command = of(program);
    command.uid(USER).gid(USER);
    command
}

#[test]
fn a_tree_is_sent_between_hosts_with_the_printed_receiver_address() {
    let spec = LinkSpec { delay: Duration::from_millis(5), ..LinkSpec::default() };
    let network: Network = network_or_skip!(Link::symmetric(spec));
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    tree::mixed(&from, 7, 2_000_000);
    fs::create_dir(&to).unwrap();
    let program = prepare(directory.path());
    let refused = ordinary(&program).args(["recv", "/proc"]).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && told.contains("cannot write to /proc"), "{told}");
    let mut recv = network
        .b
        .run(|| Running::start(ordinary(&program).arg("recv").arg(&to).args(["--once", "--links"])))
        .unwrap();
    let listening = recv.until("listening");
    let lines = listening["lines"].as_array().unwrap();
    let line = lines[0].as_str().unwrap();
    let hosts = [network.b.v4().to_string(), format!("[{}]", network.b.v6())];
    assert!(hosts.iter().any(|host| line.starts_with(&format!("brg://{host}:"))), "{line}");
    assert_eq!(lines.len(), 2, "both families, and no loopback: {lines:?}");
    let sender = network
        .a
        .run(|| Running::start(ordinary(&program).arg("send").arg(&from).arg(line).arg("--links")))
        .unwrap();
    let (code, events, stderr) = sender.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(events.iter().any(|event| event["event"] == "done"), "{events:?}");
    tree::assert_same(&from, &to.join("from"));
    assert_eq!(recv.end().0, Some(0));
}
