//! Hosts in threads, and trees of files.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_transfer::io::{
    ReceiveConfig, ReceiveEvent, ReceiveServer, ReceiverEndpoint, SendConfig, SessionError, TransferEvent,
    TransferSummary, send,
};
use barograph_transfer::testkit::files::{Source, WalkConfig};
use barograph_transfer::testkit::io::control::{Channel, Connector, Message};
use barograph_transfer::testkit::io::seal::Suite;
use tempfile::{TempDir, tempdir};

/// Maximum time that a test waits for an event.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A receiver that runs in a thread of the test.
pub(crate) struct Served {
    pub(crate) host: Arc<ReceiveServer>,
    pub(crate) stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), SessionError>>>,
    ends: Receiver<Result<TransferSummary, SessionError>>,
}

/// Whether this file is compiled for the tests of the portable sockets.
fn is_portable() -> bool {
    env!("CARGO_CRATE_NAME") == "portable"
}

pub(crate) fn config(directory: &Path) -> ReceiveConfig {
    ReceiveConfig {
        at: SocketAddr::from(([127, 0, 0, 1], 0)),
        portable: is_portable(),
        ..ReceiveConfig::new(directory.into())
    }
}

impl Served {
    pub(crate) fn new(config: ReceiveConfig, once: bool) -> Self {
        Self::watched(config, once, |_| {})
    }

    /// `on_event` is called with the events of all transfers.
    pub(crate) fn watched(
        config: ReceiveConfig,
        once: bool,
        on_event: impl Fn(&TransferEvent) + Send + Sync + 'static,
    ) -> Self {
        let host = Arc::new(ReceiveServer::bind(config).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let (ended, ends) = channel();
        let thread = std::thread::spawn({
            let (host, stop) = (Arc::clone(&host), Arc::clone(&stop));
            move || {
                host.run(once, &stop, &|_, event| match event {
                    ReceiveEvent::Transfer(event) => on_event(&event),
                    ReceiveEvent::Done(summary) => ended.send(Ok(summary)).unwrap(),
                    ReceiveEvent::Failed(error) => ended.send(Err(error)).unwrap(),
                    _ => {}
                })
            }
        });
        Self { host, stop, thread: Some(thread), ends }
    }

    pub(crate) fn to(&self) -> ReceiverEndpoint {
        ReceiverEndpoint::Address(self.host.receiver_address("127.0.0.1"))
    }

    /// Waits for the end of the next transfer, and returns its result.
    pub(crate) fn ended(&self) -> Result<TransferSummary, SessionError> {
        self.ends.recv_timeout(TEST_TIMEOUT).unwrap()
    }

    /// Waits until the receiver ends. The receiver ends after one transfer (`once`), or after
    /// [`Served::stop`] is set.
    pub(crate) fn join(mut self) {
        let thread = self.thread.take().unwrap();
        thread.join().unwrap().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Ignore the error: if the test failed, it has already reported the reason.
            let _ = thread.join();
        }
    }
}

/// Returns a file with these bytes in its own directory, and a directory into which files are
/// received.
pub(crate) fn file_to_send(bytes: &[u8]) -> ([TempDir; 2], PathBuf) {
    let directories = [(); 2].map(|()| tempdir().unwrap());
    let path = directories[0].path().join("file");
    fs::write(&path, bytes).unwrap();
    (directories, path)
}

pub(crate) fn to_send(path: &Path, to: ReceiverEndpoint) -> SendConfig {
    SendConfig { portable: is_portable(), ..SendConfig::new(vec![path.into()], to) }
}

pub(crate) fn sent(config: SendConfig) -> Result<TransferSummary, SessionError> {
    send(config, &AtomicBool::new(false), &mut |_| {})
}

/// Returns the control connection of a sender after `Welcome`. The test itself sends the further
/// messages.
pub(crate) fn connect(served: &Served) -> Channel {
    let ReceiverEndpoint::Address(line) = served.to() else { panic!("it has an address") };
    let connector = Connector::to_address(&line, "test");
    connector.connect(&line.host, line.port, &AtomicBool::new(false)).unwrap().channel
}

pub(crate) fn offer(manifest: Vec<u8>) -> Message {
    let id = *blake3::hash(&manifest).as_bytes().first_chunk().unwrap();
    Message::Offer { id, manifest, suites: vec![Suite::fastest()], datagram_bytes_max: 1200 }
}

/// The manifest of one file, `file`.
pub(crate) fn manifest(bytes: usize) -> Vec<u8> {
    let from = tempdir().unwrap();
    let path = from.path().join("file");
    fs::write(&path, noise(1, bytes)).unwrap();
    let (source, _) = Source::walk(&[path], WalkConfig::default()).unwrap();
    source.manifest().encode()
}

/// Pseudo-random bytes; the same seed gives the same bytes.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(bytes).collect()
}

/// Attributes of a path that must be the same at both ends.
#[derive(PartialEq, Eq)]
pub(crate) struct Found {
    kind: char,
    mode: u32,
    modified: (i64, i64),
    contents: Vec<u8>,
}

/// Returns the kind, permissions, time and contents of each path below a directory. The times of
/// links are left out.
pub(crate) fn listing(root: &Path) -> BTreeMap<Vec<u8>, Found> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let (kind, contents) = if metadata.is_dir() {
                open.push(path.clone());
                ('d', vec![])
            } else if metadata.is_symlink() {
                ('l', fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
            } else {
                ('f', fs::read(&path).unwrap())
            };
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            let (mode, modified) = match kind {
                'l' => (0, (0, 0)),
                _ => (metadata.mode() & 0o777, (metadata.mtime(), metadata.mtime_nsec())),
            };
            found.insert(name, Found { kind, mode, modified, contents });
        }
    }
    found
}

/// Creates a tree with every kind of file that can be sent.
pub(crate) fn tree(root: &Path) {
    use std::ffi::OsStr;
    use std::fs::{File, FileTimes, Permissions};
    use std::io::{Seek, SeekFrom, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::time::SystemTime;

    fs::create_dir_all(root.join("deep/er/still")).unwrap();
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::write(root.join("nothing"), b"").unwrap();
    for number in 0..40 {
        fs::write(root.join(format!("deep/{number}")), noise(number, number as usize * 37)).unwrap();
    }
    fs::write(root.join("deep/er/large"), noise(1000, 3 << 20)).unwrap();
    fs::write(root.join(OsStr::from_bytes(b"latin-1 \xE9t\xE9")), b"\xE9t\xE9").unwrap();
    fs::write(root.join("ünï\ncode"), "name").unwrap();
    let mut sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all(&noise(1, 5000)).unwrap();
    sparse.seek(SeekFrom::Start(8 << 20)).unwrap();
    sparse.write_all(&noise(2, 5000)).unwrap();
    std::os::unix::fs::symlink("deep/er/large", root.join("link")).unwrap();
    let script = root.join("deep/script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o750)).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_007, 123_456_789);
    File::options()
        .write(true)
        .open(&script)
        .unwrap()
        .set_times(FileTimes::new().set_modified(then))
        .unwrap();
}
