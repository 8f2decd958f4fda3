//! What others hear of peers: a command that is run, and a URL that is posted to. Each on a thread of its own,
//! one event after the other; nobody waits for them.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use barograph_probe::Target;
use barograph_probe::target::Scheme;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::board::Board;
use super::events::Event;
use crate::config::MeshConfig;

/// The threads of hooks; each begins with the first event that needs it, and ends with this.
pub(super) struct Hooks {
    board: Arc<Board>,
    command: Option<SyncSender<(String, Arc<Event>)>>,
    webhook: Option<SyncSender<(String, Arc<Event>)>>,
}

impl Hooks {
    pub(super) fn new(board: Arc<Board>) -> Self {
        Self { board, command: None, webhook: None }
    }

    /// Hands an event on as the configuration of now says; what finds no room is dropped and counted.
    pub(super) fn tell(&mut self, config: &MeshConfig, event: &Arc<Event>) {
        let hooks = [
            (&config.on_change, &mut self.command, "on_change", run_all as fn(&Receiver<_>)),
            (&config.webhook, &mut self.webhook, "webhook", post_all as fn(&Receiver<_>)),
        ];
        for (setting, sender, name, work) in hooks {
            let Some(setting) = setting else { continue };
            if sender.is_none() {
                *sender = start(name, work);
            }
            let job = (setting.clone(), Arc::clone(event));
            if sender.as_ref().is_none_or(|sender| sender.try_send(job).is_err()) {
                self.board.hooks_dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

type Jobs = Receiver<(String, Arc<Event>)>;

fn start(name: &str, work: fn(&Jobs)) -> Option<SyncSender<(String, Arc<Event>)>> {
    let (sender, jobs) = sync_channel(WAITING_MAX);
    match std::thread::Builder::new().name(name.into()).spawn(move || work(&jobs)) {
        Ok(_) => Some(sender),
        Err(error) => {
            tracing::warn!("no thread for mesh.{name}: {error}");
            None
        }
    }
}

fn run_all(jobs: &Jobs) {
    while let Ok((command, event)) = jobs.recv() {
        if let Err(why) = run(&command, &event, RUN_LIMIT) {
            tracing::warn!("mesh.on_change `{command}`: {why}");
        }
    }
}

/// Runs a command with an event, for at most `limit`; then it ends with all that it has started in its group.
fn run(command: &str, event: &Event, limit: Duration) -> Result<(), String> {
    let mut words = command.split_whitespace();
    let program = words.next().ok_or("it names no program")?;
    let json = serde_json::to_string(event).map_err(|error| error.to_string())?;
    let mut child = Command::new(program)
        .args(words)
        .env("BAROGRAPH_EVENT", event.event.as_str())
        .env("BAROGRAPH_HOST", &event.host)
        .env("BAROGRAPH_TIME_S", event.time_s.to_string())
        .env("BAROGRAPH_ADDRESSES", event.addresses.join(" "))
        .env("BAROGRAPH_GROUPS", event.groups.join(" "))
        // It is not told how to join the mesh in this station's name.
        .env_remove("BAROGRAPH_JOIN_TOKEN")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    let input = child.stdin.take();
    // An event is shorter than a pipe is long, so that this does not wait; a command need not read it.
    let written = input.map(|mut input| input.write_all(json.as_bytes()));
    drop(written);
    let status = wait(&mut child, limit)?;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

fn wait(child: &mut Child, limit: Duration) -> Result<std::process::ExitStatus, String> {
    let ends = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < ends => std::thread::park_timeout(LOOK_EVERY),
            trouble => {
                if let Ok(id) = i32::try_from(child.id()) {
                    let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
                }
                let _ = child.wait();
                return Err(match trouble {
                    Err(error) => error.to_string(),
                    Ok(_) => format!("it was ended after {} s", limit.as_secs_f64()),
                });
            }
        }
    }
}

fn post_all(jobs: &Jobs) {
    while let Ok((url, event)) = jobs.recv() {
        let mut pause = POST_AGAIN;
        for attempt in 1..=POSTS_MAX {
            match post(&url, &event) {
                Ok(()) => break,
                Err(why) if attempt == POSTS_MAX => {
                    tracing::warn!("mesh.webhook at {}: {why}; it was given up", shown(&url));
                }
                Err(why) => {
                    tracing::debug!("mesh.webhook at {}: {why}", shown(&url));
                    std::thread::park_timeout(pause);
                    pause *= 4;
                }
            }
        }
    }
}

/// Where a webhook is, for the log: its path often is the secret that lets whoever knows it post there.
fn shown(url: &str) -> String {
    let Ok(target) = Target::parse(url) else { return "its URL".into() };
    let scheme = if target.scheme() == Scheme::Https { "https" } else { "http" };
    format!("{scheme}://{}", target.authority())
}

/// One POST; anything but a 2xx is a failure.
fn post(url: &str, event: &Event) -> Result<(), String> {
    let target = Target::parse(url).map_err(|error| error.to_string())?;
    let body = serde_json::to_string(event).map_err(|error| error.to_string())?;
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: barograph/{}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        target.path(),
        target.authority(),
        env!("CARGO_PKG_VERSION"),
        body.len()
    );
    let ends = Instant::now() + POST_LIMIT;
    let tcp = connect(&target, ends)?;
    let head = if target.scheme() == Scheme::Https {
        let name = ServerName::try_from(target.host().to_string()).map_err(|error| error.to_string())?;
        let tls = ClientConnection::new(trust()?, name).map_err(|error| error.to_string())?;
        exchange(StreamOwned::new(tls, tcp), &request)?
    } else {
        exchange(tcp, &request)?
    };
    let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).unwrap_or("no HTTP");
    if status.starts_with('2') { Ok(()) } else { Err(format!("it answered {status:.20}")) }
}

/// A connection whose reads and writes end at a time, however they trickle.
struct Timed {
    tcp: TcpStream,
    ends: Instant,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.tcp.set_read_timeout(Some(left(self.ends)?))?;
        self.tcp.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.tcp.set_write_timeout(Some(left(self.ends)?))?;
        self.tcp.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.tcp.flush()
    }
}

fn left(ends: Instant) -> std::io::Result<Duration> {
    let left = ends.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(std::io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn connect(target: &Target, ends: Instant) -> Result<Timed, String> {
    let mut last = "the name has no address".to_string();
    let addresses = (target.host(), target.port()).to_socket_addrs().map_err(|error| error.to_string())?;
    for address in addresses {
        let limit = left(ends).map_err(|error| error.to_string())?.min(POST_LIMIT / 2);
        match TcpStream::connect_timeout(&address, limit) {
            Ok(tcp) => return Ok(Timed { tcp, ends }),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

/// Sends a request; gives the first line of the answer. What follows it is for nobody.
fn exchange(mut stream: impl Read + Write, request: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    let mut ask = || -> std::io::Result<()> {
        stream.write_all(request.as_bytes())?;
        stream.flush()?;
        while !bytes.contains(&b'\n') && bytes.len() < LINE_BYTES_MAX {
            match stream.read(&mut buffer)? {
                0 => break,
                read => bytes.extend_from_slice(&buffer[..read]),
            }
        }
        Ok(())
    };
    ask().map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().to_string())
}

/// The system's certificates, read once.
fn trust() -> Result<Arc<ClientConfig>, String> {
    static SYSTEM: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    let load = || {
        let mut roots = RootCertStore::empty();
        // Systems carry certificates that no strict reader takes; the rest is what counts.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        barograph_probe::io::trusting(roots).map(Arc::new).map_err(|error| error.to_string())
    };
    SYSTEM.get_or_init(load).clone()
}

/// Events that wait for a slow command or URL; a whole site of peers may be lost at once.
const WAITING_MAX: usize = 256;
/// A command that mails or restarts something takes seconds.
const RUN_LIMIT: Duration = Duration::from_secs(30);
/// How often a running command is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// One attempt to post, from the name to the answer.
const POST_LIMIT: Duration = Duration::from_secs(10);
/// Attempts, and the pause after the first: a restart of the receiver is waited for, an outage not.
const POSTS_MAX: u32 = 3;
const POST_AGAIN: Duration = Duration::from_secs(1);
/// The first line of an answer is short.
const LINE_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt;

    use super::super::events::What;
    use super::*;

    fn event() -> Event {
        Event {
            id: 7,
            event: What::Lost,
            time_s: 1.5,
            host: "b".into(),
            addresses: vec!["192.0.2.2:1".into()],
            version: "0.1.0".into(),
            groups: vec!["local:x".into()],
        }
    }

    fn script(directory: &std::path::Path, text: &str) -> String {
        let path = directory.join("hook.sh");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path.display().to_string()
    }

    #[test]
    fn a_command_gets_the_event_in_variables_and_as_json() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("out");
        let hook = script(
            directory.path(),
            &format!("{{ echo $1 $BAROGRAPH_EVENT $BAROGRAPH_HOST; cat; }} > {}", out.display()),
        );
        run(&format!("{hook} word"), &event(), RUN_LIMIT).unwrap();
        let text = std::fs::read_to_string(out).unwrap();
        let (line, json) = text.split_once('\n').unwrap();
        assert_eq!(line, "word lost b");
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!((json["event"].as_str(), json["id"].as_u64()), (Some("lost"), Some(7)));
    }

    #[test]
    fn a_command_that_hangs_fails_or_is_missing_is_told_and_over() {
        let directory = tempfile::tempdir().unwrap();
        let began = Instant::now();
        let hangs = script(directory.path(), "sleep 600 & sleep 600");
        let why = run(&hangs, &event(), Duration::from_millis(100)).unwrap_err();
        assert!(why.contains("ended after 0.1 s"), "{why}");
        assert!(began.elapsed() < Duration::from_secs(20));
        let fails = script(directory.path(), "exit 3");
        assert!(run(&fails, &event(), RUN_LIMIT).unwrap_err().contains('3'));
        assert!(run("/nonexistent/hook", &event(), RUN_LIMIT).is_err());
        assert!(run("  ", &event(), RUN_LIMIT).is_err());
    }

    #[test]
    fn a_url_gets_the_event_as_json_and_its_refusal_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            let mut requests = Vec::new();
            for answer in ["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 500 No\r\n\r\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                let mut bytes = Vec::new();
                let mut buffer = [0; 4096];
                while !bytes.ends_with(b"}") {
                    let read = stream.read(&mut buffer).unwrap();
                    bytes.extend_from_slice(&buffer[..read]);
                }
                stream.write_all(answer.as_bytes()).unwrap();
                requests.push(String::from_utf8(bytes).unwrap());
            }
            requests
        });
        post(&url, &event()).unwrap();
        assert!(post(&url, &event()).unwrap_err().contains("500"));
        let requests = served.join().unwrap();
        assert!(requests[0].starts_with("POST /hook HTTP/1.1\r\n"), "{}", requests[0]);
        assert!(requests[0].contains("\"host\":\"b\""));
        assert!(post(&url, &event()).is_err(), "nobody listens any more");
    }

    #[test]
    fn the_log_does_not_tell_the_path_of_a_webhook() {
        for (url, logged) in [
            ("https://hooks.example/T0/secret", "https://hooks.example"),
            ("http://192.0.2.1:8080/x?token=secret", "http://192.0.2.1:8080"),
        ] {
            let shown = shown(url);
            assert!(shown.starts_with(logged) && !shown.contains("secret"), "{shown}");
        }
        assert_eq!(shown("no url secret"), "its URL");
    }
}
