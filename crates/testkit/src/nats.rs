//! `nats-server` processes, which are stopped when they are dropped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{ChildProcess, wait_for};

/// Size of the small disk in bytes. It has room for streams with few messages only.
const SMALL_DISK_BYTES: usize = 16 << 20;

/// A running `nats-server`, which is killed when it is dropped.
pub struct NatsServer {
    program: ChildProcess,
    configuration: tempfile::TempDir,
    /// The address for clients.
    pub url: String,
}

/// The path of the program: from `NATS_SERVER`, in `PATH`, or where `scripts/install-test-needs`
/// installs it. `None` = the program is missing; a message reports this.
pub fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("NATS_SERVER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join("nats-server"));
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/nats-server");
    let found = named.into_iter().chain(on_path).chain([tools]).find(|file| file.is_file());
    if found.is_none() {
        barograph_sim::report_missing(
            "the engine on NATS: nats-server is missing (run scripts/install-test-needs)",
        );
    }
    found
}

impl NatsServer {
    /// Starts a single server without access control. Its store is below `directory`. The server
    /// does not sync every record to the disk, so the tests take a tenth of the time. Records that
    /// were written survive when the server is killed. `None` = the program is missing.
    pub fn start(directory: &Path) -> Option<Self> {
        Self::start_on(directory, "127.0.0.1:-1")
    }

    /// As [`Self::start`], but the server listens on `listen`.
    pub fn start_on(directory: &Path, listen: &str) -> Option<Self> {
        let store = directory.join("jetstream");
        let text = format!("listen: \"{listen}\"\njetstream {{ store_dir: {store:?} }}\n");
        Self::start_with(directory, &text)
    }

    /// Starts a server with this configuration and waits until it listens.
    pub fn start_with(directory: &Path, configuration: &str) -> Option<Self> {
        Self::run(directory, configuration, Command::new(binary()?))
    }

    /// Starts a server that stores on a small disk of its own, `jetstream` below `directory`.
    /// `None` = the program is missing, or the user may not mount; in both cases a message is
    /// printed.
    pub fn on_small_disk(directory: &Path, listen: &str) -> Option<Self> {
        let binary = binary()?;
        let store = directory.join("jetstream");
        std::fs::create_dir_all(&store).unwrap();
        let mount = format!("mount -t tmpfs -o size={SMALL_DISK_BYTES} barograph {store:?}");
        let apart = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--map-root-user", "sh", "-c", script, "sh"]);
            command
        };
        if !apart(&mount).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            barograph_sim::report_missing(
                "a server with a full disk: `unshare` cannot mount in a namespace of its own",
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

    /// Fills the disk of [`Self::on_small_disk`].
    pub fn fill(&self) {
        let store = self.configuration.path().parent().unwrap().join("jetstream/ballast");
        // The mount exists only in the server's namespace.
        let inside = format!("/proc/{}/root{}", self.program.id(), store.display());
        std::fs::write(inside, vec![1; SMALL_DISK_BYTES]).expect_err("the disk is full");
    }

    fn run(directory: &Path, configuration: &str, mut program: Command) -> Option<Self> {
        let ports = tempfile::tempdir_in(directory).unwrap();
        let file = ports.path().join("server.conf");
        std::fs::write(&file, format!("{configuration}\nports_file_dir: {:?}\n", ports.path())).unwrap();
        let log = std::fs::File::create(
            directory.join(format!("{}.log", ports.path().file_name().unwrap().to_string_lossy())),
        );
        program.arg("-c").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.unwrap());
        let mut program = ChildProcess::start(&mut program);
        let file = ports.path().join(format!("nats-server_{}.ports", program.id()));
        let url = wait_for(|| {
            assert!(program.is_running(), "nats-server ended: {}", log_of(directory));
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let is_local = |part: &&str| part.starts_with("nats://127.") || part.starts_with("tls://127.");
            text.split('"').find(is_local).map(str::to_owned).ok_or("nats-server listens")
        });
        Some(Self { program, configuration: ports, url })
    }

    /// The address without its scheme.
    pub fn address(&self) -> &str {
        self.url.split("://").nth(1).unwrap()
    }

    /// Makes the running server replace its configuration by this configuration.
    pub fn reload(&self, configuration: &str) {
        let ports = self.configuration.path();
        let text = format!("{configuration}\nports_file_dir: {ports:?}\n");
        std::fs::write(ports.join("server.conf"), text).unwrap();
        let told = Command::new(binary().unwrap())
            .arg("--signal")
            .arg(format!("reload={}", self.program.id()))
            .output()
            .unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    }

    /// The address of the server's monitoring endpoint, which exists if the server's configuration
    /// has `http`.
    pub fn monitoring_address(&self) -> String {
        let file = self.configuration.path().join(format!("nats-server_{}.ports", self.program.id()));
        let text = std::fs::read_to_string(file).unwrap();
        let url = text.split('"').find_map(|part| part.strip_prefix("http://127."));
        format!("127.{}", url.expect("a port for monitoring"))
    }

    /// Kills the server and starts it on the same address with this configuration.
    pub fn restart(self, directory: &Path, configuration: &str) -> Self {
        let listen = self.address().to_owned();
        self.kill();
        Self::start_with(directory, &configuration.replacen("127.0.0.1:-1", &listen, 1))
            .expect("it ran before")
    }

    /// Kills the server with `SIGKILL`, like a crash.
    pub fn kill(mut self) {
        self.program.kill();
    }
}

/// The logs of all servers below a directory.
pub fn log_of(directory: &Path) -> String {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let logs = files.filter(|file| file.path().extension().is_some_and(|end| end == "log"));
    logs.map(|log| std::fs::read_to_string(log.path()).unwrap_or_default()).collect()
}
