//! `nats-server` processes, stopped when they are dropped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use barograph_engine::{Archiver, Config, Engine, Local, Nats, NatsConfig, Range};
use barograph_forecast::Name;

use crate::values;

/// The longest wait of a test.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Room for the files of streams that hold little.
const SMALL_DISK_BYTES: usize = 16 << 20;

/// A running server.
pub(crate) struct Server {
    child: Child,
    configuration: tempfile::TempDir,
    pub(crate) url: String,
}

/// The program: `NATS_SERVER`, or on the path, or where `scripts/install-test-needs` puts it; `None` = there is
/// none, and it was said.
pub(crate) fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("NATS_SERVER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join("nats-server"));
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/nats-server");
    let found = named.into_iter().chain(on_path).chain([tools]).find(|file| file.is_file());
    if found.is_none() {
        barograph_sim::say_missing(
            "the engine on NATS: there is no nats-server (scripts/install-test-needs gets it)",
        );
    }
    found
}

impl Server {
    /// A single server without permissions, storing below `directory`. It does not sync every record: killing
    /// it keeps what it wrote, and the tests are ten times as quick.
    pub(crate) fn start(directory: &Path) -> Option<Self> {
        Self::start_on(directory, "127.0.0.1:-1")
    }

    /// The same, listening where it is told to.
    pub(crate) fn start_on(directory: &Path, listen: &str) -> Option<Self> {
        let store = directory.join("jetstream");
        let text = format!("listen: \"{listen}\"\njetstream {{ store_dir: {store:?} }}\n");
        Self::with(directory, &text)
    }

    /// A server with this configuration; waits until it listens.
    pub(crate) fn with(directory: &Path, configuration: &str) -> Option<Self> {
        Self::run(directory, configuration, Command::new(binary()?))
    }

    /// A server that stores on a small disk of its own, in `jetstream` below `directory`; `None` =
    /// there is no program, or nobody may mount here, and it was said.
    pub(crate) fn on_small_disk(directory: &Path, listen: &str) -> Option<Self> {
        let binary = binary()?;
        let store = directory.join("jetstream");
        std::fs::create_dir_all(&store).expect("a directory");
        let mount = format!("mount -t tmpfs -o size={SMALL_DISK_BYTES} barograph {store:?}");
        let apart = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--map-root-user", "sh", "-c", script, "sh"]);
            command
        };
        if !apart(&mount).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            barograph_sim::say_missing(
                "a server with a full disk: no mount in a namespace of its own (unshare)",
            );
            return None;
        }
        let text = format!(
            "listen: \"{listen}\"\njetstream {{ store_dir: {store:?}, sync_interval: always, max_file_store: 20GB }}\n"
        );
        let mut command = apart(&format!("{mount} && exec \"$@\""));
        command.arg(binary);
        Self::run(directory, &text, command)
    }

    /// Fills the small disk.
    pub(crate) fn fill(&self) {
        let store = self.configuration.path().parent().expect("a directory").join("jetstream/ballast");
        // The mount is in the server's namespace alone.
        let inside = format!("/proc/{}/root{}", self.child.id(), store.display());
        std::fs::write(inside, vec![1; SMALL_DISK_BYTES]).expect_err("the disk is full");
    }

    fn run(directory: &Path, configuration: &str, mut program: Command) -> Option<Self> {
        let ports = tempfile::tempdir_in(directory).expect("a directory");
        let file = ports.path().join("server.conf");
        std::fs::write(&file, format!("{configuration}\nports_file_dir: {:?}\n", ports.path()))
            .expect("a file");
        let log = std::fs::File::create(
            directory.join(format!("{}.log", ports.path().file_name().expect("a name").to_string_lossy())),
        );
        let child = program
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log"))
            .spawn()
            .expect("nats-server runs");
        let mut server = Self { child, configuration: ports, url: String::new() };
        let file = server.configuration.path().join(format!("nats-server_{}.ports", server.child.id()));
        let until = Instant::now() + LIMIT;
        while server.url.is_empty() {
            assert!(Instant::now() < until, "nats-server listens within {LIMIT:?}");
            assert!(
                server.child.try_wait().expect("a child").is_none(),
                "nats-server ended: {}",
                log_of(directory)
            );
            if let Ok(text) = std::fs::read_to_string(&file)
                && let Some(url) = text
                    .split('"')
                    .find(|part| part.starts_with("nats://127.") || part.starts_with("tls://127."))
            {
                server.url = url.to_owned();
            } else {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Some(server)
    }

    /// The address without its scheme.
    pub(crate) fn address(&self) -> &str {
        self.url.split("://").nth(1).expect("an address")
    }

    /// Has it read this configuration instead.
    pub(crate) fn reload(&self, configuration: &str) {
        let ports = self.configuration.path();
        let text = format!("{configuration}\nports_file_dir: {ports:?}\n");
        std::fs::write(ports.join("server.conf"), text).expect("a file");
        let told = Command::new(binary().expect("it runs"))
            .arg("--signal")
            .arg(format!("reload={}", self.child.id()))
            .output()
            .expect("nats-server runs");
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    }

    /// Where it tells about itself, if its configuration has `http`.
    pub(crate) fn monitoring(&self) -> String {
        let file = self.configuration.path().join(format!("nats-server_{}.ports", self.child.id()));
        let text = std::fs::read_to_string(file).expect("the ports");
        let url = text.split('"').find_map(|part| part.strip_prefix("http://127."));
        format!("127.{}", url.expect("a port for monitoring"))
    }

    /// Kills it, and starts it where it listened with this configuration instead.
    pub(crate) fn again(self, directory: &Path, configuration: &str) -> Self {
        let listen = self.address().to_owned();
        self.kill();
        Self::with(directory, &configuration.replacen("127.0.0.1:-1", &listen, 1)).expect("it ran before")
    }

    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // SIGKILL, so that nothing is tidied up.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the servers below a directory logged.
pub(crate) fn log_of(directory: &Path) -> String {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let logs = files.filter(|file| file.path().extension().is_some_and(|end| end == "log"));
    logs.map(|log| std::fs::read_to_string(log.path()).unwrap_or_default()).collect()
}

/// A client that gives up quickly enough for a test.
pub(crate) fn config(server: &str, host: &str) -> NatsConfig {
    let host = Name::new(host).expect("a name");
    NatsConfig { keep_bytes: 256 << 20, ..NatsConfig::new(vec![server.to_owned()], host) }
}

/// An archive in `directory` on `nats`.
pub(crate) fn archive(nats: &Arc<Nats>, directory: &Path) -> (Archiver, Arc<Local>) {
    let commit_interval = Duration::from_millis(1);
    let local = Config { commit_interval, keep: Duration::MAX, ..Config::new(directory) };
    let local = Arc::new(Local::open(local).expect("an archive"));
    (Archiver::start(nats, Arc::clone(&local), directory).expect("an archiver"), local)
}

/// Waits until a record of `origin` is acknowledged and read back: only that shows that all of it works
/// (<https://github.com/nats-io/nats-server/issues/8519>: servers may report health and store nothing).
pub(crate) async fn canary(engine: &dyn Engine, origin: &str, seq: u64) {
    let record = values::record(origin, "canary", seq);
    let until = Instant::now() + LIMIT;
    loop {
        let appended = engine.append(std::slice::from_ref(&record)).await;
        let found = engine.history(&record.series, &Range::newest(1)).await;
        if appended.is_ok() && found.as_ref().is_ok_and(|page| page.items == [record.clone()]) {
            return;
        }
        assert!(Instant::now() < until, "neither acknowledged nor read back: {appended:?}, {found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
