//! Hooks for peer events: a command that is run, and a URL that is posted to. The command and the
//! URL each have a thread of their own, which handles one event after the other. No other thread
//! waits for these two threads.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::http::Method;
use barograph_api::PeerEvent;
use barograph_api::client::{
    ApiRequest, BlockingClient, ClientConfig, ClientError, RootCertificates, TrustStore,
};
use barograph_engine::TaskStatus;
use barograph_probe::Target;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::event_queue::EventQueue;
use super::mesh_state::MeshState;
use crate::config::MeshConfig;
use crate::health::Health;

/// Threads of the hooks. Each thread starts with its first event, and ends after this value is
/// dropped.
pub(super) struct Hooks {
    mesh_state: Arc<MeshState>,
    health: Arc<Health>,
    command: Option<EventQueue>,
    webhook: Option<EventQueue>,
}

impl Hooks {
    pub(super) fn new(mesh_state: Arc<MeshState>, health: Arc<Health>) -> Self {
        Self { mesh_state, health, command: None, webhook: None }
    }

    /// Queues an event for the hooks of the current configuration. An event is dropped and counted
    /// if the queue is full, or if a newer event of the same host replaces the event.
    pub(super) fn enqueue(&mut self, config: &MeshConfig, event: &Arc<PeerEvent>) {
        let hooks = [
            (&config.on_change, &mut self.command, "on_change", run_all as fn(&EventQueue, &TaskStatus)),
            (&config.webhook, &mut self.webhook, "webhook", post_all as fn(&EventQueue, &TaskStatus)),
        ];
        for (setting, queue, name, work) in hooks {
            let Some(setting) = setting else { continue };
            if queue.is_none() {
                *queue = start(&self.health, name, work);
            }
            let push = |queue: &EventQueue| queue.push(setting.clone(), Arc::clone(event));
            if queue.as_ref().is_none_or(push) {
                self.mesh_state.hooks_dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.command.iter().chain(&self.webhook).for_each(EventQueue::end);
    }
}

fn start(health: &Health, name: &'static str, work: fn(&EventQueue, &TaskStatus)) -> Option<EventQueue> {
    let (queue, task) = (EventQueue::default(), health.task(name));
    let jobs = queue.clone();
    match std::thread::Builder::new().name(name.into()).spawn(move || work(&jobs, &task)) {
        Ok(_) => Some(queue),
        Err(error) => {
            tracing::warn!("cannot start a thread for mesh.{name}: {error}");
            None
        }
    }
}

fn run_all(jobs: &EventQueue, task: &TaskStatus) {
    while let Some((command, event)) = jobs.next() {
        if let Some(Err(why)) = task.run_job(|| run(&command, &event, RUN_LIMIT)) {
            tracing::warn!("mesh.on_change `{command}`: {why}");
        }
    }
}

/// Runs a command with an event, for at most `limit`; then kills its process group.
fn run(command: &str, event: &PeerEvent, limit: Duration) -> Result<(), String> {
    let mut words = command.split_whitespace();
    let program = words.next().ok_or("the command is empty")?;
    let json = serde_json::to_string(event).map_err(|error| error.to_string())?;
    let mut child = Command::new(program)
        .args(words)
        .env("BAROGRAPH_EVENT", event.event.as_str())
        .env("BAROGRAPH_HOST", &event.host)
        .env("BAROGRAPH_TIME_S", event.time_s.to_string())
        .env("BAROGRAPH_ADDRESSES", event.addresses.join(" "))
        .env("BAROGRAPH_GROUPS", event.groups.join(" "))
        // The command must not receive the invitation of this station.
        .env_remove("BAROGRAPH_JOIN_TOKEN")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    let input = child.stdin.take();
    // An event fits into the buffer of the pipe, so this write does not block, even if the command
    // does not read its input.
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
            Ok(None) if Instant::now() < ends => std::thread::park_timeout(EXIT_POLL_PERIOD),
            trouble => {
                if let Ok(id) = i32::try_from(child.id()) {
                    let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
                }
                let _ = child.wait();
                return Err(match trouble {
                    Err(error) => error.to_string(),
                    Ok(_) => format!("it was killed after {} s", limit.as_secs_f64()),
                });
            }
        }
    }
}

fn post_all(jobs: &EventQueue, task: &TaskStatus) {
    let webhook = match WebhookClient::new() {
        Ok(webhook) => webhook,
        Err(why) => {
            jobs.end();
            return tracing::warn!(
                "mesh.webhook: {why}; no events are posted; correct this and restart the station"
            );
        }
    };
    while let Some((url, event)) = jobs.next() {
        task.run_job(|| post_with_retries(&webhook, &url, &event));
    }
}

/// Posts an event. Retries after a failure, a few times at most.
fn post_with_retries(webhook: &WebhookClient, url: &str, event: &PeerEvent) {
    let mut pause = POST_RETRY;
    for attempt in 1..=POSTS_MAX {
        match webhook.post(url, event, POST_LIMIT) {
            Ok(()) => break,
            Err(why) if attempt == POSTS_MAX => {
                tracing::warn!("mesh.webhook at {}: {why}; this event is dropped", shown(url));
            }
            Err(why) => {
                tracing::debug!("mesh.webhook at {}: {why}", shown(url));
                std::thread::park_timeout(pause);
                pause *= 4;
            }
        }
    }
}

/// Origin of a webhook's URL, for the log. The path is left out, because it often is the secret
/// that permits posting.
fn shown(url: &str) -> String {
    Target::parse(url).map_or_else(|_| "its URL".into(), |target| target.origin())
}

/// Client that posts events to the webhook.
struct WebhookClient {
    tls: TrustStore,
}

impl WebhookClient {
    /// Trusts the certificates that the system has now.
    fn new() -> Result<Self, String> {
        Ok(Self { tls: TrustStore::new(&RootCertificates::System)? })
    }

    /// Posts an event. The time limit `limit` includes name resolution and the response. Any status
    /// except 2xx is a failure, also a redirect. The body of the response is ignored.
    fn post(&self, url: &str, event: &PeerEvent, limit: Duration) -> Result<(), String> {
        let target = Target::parse(url).map_err(|error| error.to_string())?;
        let client = BlockingClient::new(ClientConfig {
            connect_timeout: POST_LIMIT / 2,
            head_bytes_max: HEAD_BYTES_MAX,
            ..ClientConfig::new(target.origin(), self.tls.clone())
        })?;
        let ask = ApiRequest {
            method: Method::POST,
            path: target.path(),
            // Events are rare, so the connection is closed after each request. The header
            // `connection` announces this.
            headers: &[
                ("user-agent", concat!("barograph/", env!("CARGO_PKG_VERSION"))),
                ("connection", "close"),
            ],
            content_type: "application/json",
            body: serde_json::to_string(event).map_err(|error| error.to_string())?.into(),
        };
        match client.status(&ask, Instant::now() + limit) {
            Ok(status) if status.is_success() => Ok(()),
            Ok(status) => Err(format!("it answered {}", status.as_u16())),
            Err(ClientError::TimedOut) => Err(format!("no answer in {} s", limit.as_secs_f64())),
            Err(ClientError::NotSent(cause) | ClientError::Interrupted(cause)) => Err(cause.chain),
        }
    }
}

/// Time limit for one run of the command. A command that sends a mail or restarts a service takes
/// some seconds.
const RUN_LIMIT: Duration = Duration::from_secs(30);
/// Time between two checks whether the command has ended.
const EXIT_POLL_PERIOD: Duration = Duration::from_millis(20);
/// Time limit for one attempt to post, from name resolution to the response.
const POST_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of attempts, and the pause after the first attempt. The attempts take longer than
/// a restart of the receiver, but not longer than a long outage.
const POSTS_MAX: u32 = 3;
const POST_RETRY: Duration = Duration::from_secs(1);
/// Maximum size of a response head, in bytes: the smallest limit that the client accepts.
const HEAD_BYTES_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt;

    use barograph_api::PeerChange;

    use super::*;

    fn event() -> PeerEvent {
        PeerEvent {
            id: 7,
            event: PeerChange::Lost,
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
    fn a_command_that_hangs_or_fails_or_is_missing_returns_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let began = Instant::now();
        let hangs = script(directory.path(), "sleep 600 & sleep 600");
        let why = run(&hangs, &event(), Duration::from_millis(100)).unwrap_err();
        assert!(why.contains("killed after 0.1 s"), "{why}");
        assert!(began.elapsed() < Duration::from_secs(20));
        let fails = script(directory.path(), "exit 3");
        assert!(run(&fails, &event(), RUN_LIMIT).unwrap_err().contains('3'));
        assert!(run("/nonexistent/hook", &event(), RUN_LIMIT).is_err());
        assert!(run("  ", &event(), RUN_LIMIT).is_err());
    }

    /// Starts a server that sends the first of `answers` to the first request, the next to the next
    /// request, and so on. The thread of the server returns all requests. The thread keeps all
    /// connections open until it ends.
    fn serve(answers: &'static [&str]) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook?key=1", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            let (mut requests, mut streams) = (Vec::new(), Vec::new());
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                let mut bytes = Vec::new();
                let mut buffer = [0; 4096];
                while !bytes.ends_with(b"}") {
                    let read = stream.read(&mut buffer).unwrap();
                    bytes.extend_from_slice(&buffer[..read]);
                }
                // The client may close the connection during an endless response.
                let _ = stream.write_all(answer.as_bytes());
                requests.push(String::from_utf8(bytes).unwrap());
                streams.push(stream);
            }
            requests
        });
        (url, served)
    }

    #[test]
    fn a_webhook_receives_the_event_as_json_and_its_error_is_reported() {
        let (url, served) = serve(&[
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n",
            "HTTP/1.1 307 Elsewhere\r\nlocation: /there\r\ncontent-length: 0\r\n\r\n",
            "SSH-2.0-OpenSSH_9.9\r\n",
        ]);
        let webhook = WebhookClient::new().unwrap();
        let post = || webhook.post(&url, &event(), POST_LIMIT);
        post().unwrap();
        assert!(post().unwrap_err().contains("500"));
        assert_eq!(post(), Ok(()), "what comes before the answer is none, and its body is not waited for");
        assert!(post().unwrap_err().contains("307"));
        assert!(post().is_err());
        let requests = served.join().unwrap();
        assert!(requests[0].starts_with("POST /hook?key=1 HTTP/1.1\r\n"), "{}", requests[0]);
        let head = requests[0].to_ascii_lowercase();
        assert!(
            head.contains("content-type: application/json\r\n") && head.contains("user-agent: barograph/")
        );
        assert!(head.contains("connection: close\r\n"), "{head}");
        assert!(requests[0].contains("\"host\":\"b\""));
        assert_eq!(requests.len(), 5, "no redirect was followed");
        assert!(post().is_err(), "the server has ended");
        assert!(webhook.post("https://[::1", &event(), POST_LIMIT).is_err());
    }

    #[test]
    fn a_slow_or_endless_webhook_response_is_abandoned() {
        let endless: &'static str = Box::leak(format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(20_000)).into());
        let answers: &'static [&str] = Box::leak(Box::new(["HTTP/1.1 20", endless]));
        let (url, served) = serve(answers);
        let webhook = WebhookClient::new().unwrap();
        let why = webhook.post(&url, &event(), Duration::from_millis(200)).unwrap_err();
        assert!(why.contains("no answer in 0.2 s"), "{why}");
        let why = webhook.post(&url, &event(), POST_LIMIT).unwrap_err();
        assert!(!why.contains("no answer"), "{why}");
        served.join().unwrap();
    }

    #[test]
    fn the_log_hides_the_path_of_a_webhook() {
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
