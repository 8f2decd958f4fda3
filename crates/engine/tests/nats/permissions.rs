//! Who may do what: the configurations of `deploy/nats`, and somebody who tries to get round them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions, HeaderMap};
use barograph_engine::{
    Archiver, BoxStream, Engine, Entry, Error, Event, From, Lease, LeaseState, Local, Nats, NatsConfig,
    NatsTls, Range, Selector, token, wire,
};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::reflection::{self, Inventory};
use crate::server::{self, LIMIT, Server};
use crate::values::{entry, eventually, name, next, record};

pub(crate) const ARCHIVE: &str = "archive.example.net";
pub(crate) const NORTH: &str = "north.example.net";
pub(crate) const SOUTH: &str = "south.example.net";

#[tokio::test]
async fn a_certificate_allows_its_station_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &stations) else { return };
    let mesh = Mesh::new(|host| by_certificate(directory.path(), &server, host)).await;
    mesh.is_attacked_by(&server, certificate_options(directory.path(), NORTH), Accounts::Apart).await;

    let ca = Some(directory.path().join("tls/ca.pem"));
    let without = NatsTls { ca, ..NatsTls::default() };
    let without = NatsConfig { tls: Some(without), ..server::config(&server.url, NORTH) };
    let stranger = by_certificate(directory.path(), &server, "stranger.example.net");
    for config in [without, server::config(&server.url, NORTH), stranger] {
        let nobody = Nats::new(config).unwrap().append(&[record(NORTH, "x", 1)]).await;
        assert!(matches!(nobody, Err(Error::Unavailable(_))), "{nobody:?}");
    }
}

/// Where servers have what an older `stations` made, the server can be had to answer onto another's subjects; nobody believes it.
#[tokio::test]
async fn no_forgery_is_believed_where_all_share_an_account() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &older_stations) else { return };
    let mesh = Mesh::new(|host| by_certificate(directory.path(), &server, host)).await;
    mesh.is_attacked_by(&server, certificate_options(directory.path(), NORTH), Accounts::One).await;
}

/// The attack of which nothing comes where stations have an account of their own deletes a stream where they do not.
#[tokio::test]
async fn reflection_reaches_the_streams_where_all_share_an_account() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &older_stations) else { return };
    let _mesh = Mesh::new(|host| by_certificate(directory.path(), &server, host)).await;
    let attacker = Attacker::new(&server.url, certificate_options(directory.path(), NORTH)).await;
    reflection::control(&attacker, &server).await;
}

/// A server that is started again with what `stations` makes now: stations go on, and nothing that was stored is gone.
#[tokio::test]
async fn a_mesh_on_certificates_moves_apart() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &older_stations) else { return };
    let mesh = Mesh::new(|host| by_certificate(directory.path(), &server, host)).await;
    mesh.south.append(&[record(SOUTH, "x", 1)]).await.unwrap();
    let lease = mesh.south.register(&entry(SOUTH), Duration::from_secs(10)).await.unwrap();
    let before = Inventory::of(&server);
    let text = |names: &[&str]| single(directory.path(), &stations(directory.path(), names));
    let server = server.again(directory.path(), &text(&[ARCHIVE, NORTH, SOUTH]));
    let attacker = Attacker::new(&server.url, certificate_options(directory.path(), NORTH)).await;
    mesh.goes_on(&server, &attacker, before).await;
    // The registration is renewed again.
    let mut events = mesh.north.watch(&name("local"));
    assert_eq!(next(&mut events).await, Event::Up(entry(SOUTH)));
    eventually("a renewal", async || (lease.state() == LeaseState::Held).then_some(())).await;

    // Another station needs no more than two reloads: a server opens what a new account imports at the second.
    certificates(directory.path(), &["station", "west"]);
    let reloads = || server::log_of(directory.path()).matches("Reloaded server configuration").count();
    for count in [1, 2] {
        server.reload(&text(&[ARCHIVE, NORTH, SOUTH, "west"]));
        eventually("a reload", async || (count == reloads()).then_some(())).await;
    }
    let west = Nats::new(by_certificate(directory.path(), &server, "west")).unwrap();
    eventually("its first record", async || west.append(&[record("west", "x", 1)]).await.ok()).await;
    server::canary(&mesh.south, SOUTH, 3).await;
    assert_eq!(west.watermark(&name("west")).await, Ok(1));

    // One that is withdrawn is refused after one.
    server.reload(&text(&[ARCHIVE, SOUTH, "west"]));
    eventually("the refusal", async || mesh.north.append(&[record(NORTH, "x", 9)]).await.err()).await;
    server::canary(&mesh.south, SOUTH, 4).await;
}

/// The same from lists where all stations have one account, and questions to archives are requests to a service.
#[tokio::test]
async fn a_mesh_whose_stations_have_one_account_moves() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &stations_in_one_account) else { return };
    let mesh = Mesh::new(|host| by_certificate(directory.path(), &server, host)).await;
    mesh.south.append(&[record(SOUTH, "x", 1)]).await.unwrap();
    assert_eq!(mesh.south.watermark(&name(SOUTH)).await, Ok(1));
    let before = Inventory::of(&server);
    let text = single(directory.path(), &stations(directory.path(), &[ARCHIVE, NORTH, SOUTH]));
    let server = server.again(directory.path(), &text);
    let attacker = Attacker::new(&server.url, certificate_options(directory.path(), NORTH)).await;
    mesh.goes_on(&server, &attacker, before).await;
}

/// A server that knows the archive, the north and the south; `None` = something that it needs is missing.
pub(crate) fn with_certificates(
    directory: &Path,
    stations: &dyn Fn(&Path, &[&str]) -> String,
) -> Option<Server> {
    let (Some(_), true) = (server::binary(), has_openssl()) else { return None };
    for arguments in [&["authority"][..], &["server", "nats", "127.0.0.1", "localhost"]] {
        certificates(directory, arguments);
    }
    for station in [ARCHIVE, NORTH, SOUTH, "stranger.example.net"] {
        certificates(directory, &["station", station]);
    }
    Server::with(directory, &single(directory, &stations(directory, &[ARCHIVE, NORTH, SOUTH])))
}

pub(crate) fn by_certificate(directory: &Path, server: &Server, host: &str) -> NatsConfig {
    let file = |name: String| Some(directory.join("tls").join(name));
    let files = NatsTls {
        ca: file("ca.pem".into()),
        certificate: file(format!("{host}.pem")),
        key: file(format!("{host}.key")),
    };
    NatsConfig { tls: Some(files), ..server::config(&server.url, host) }
}

pub(crate) fn certificate_options(directory: &Path, host: &str) -> ConnectOptions {
    let file = |name: &str| directory.join("tls").join(name);
    ConnectOptions::new()
        .require_tls(true)
        .add_root_certificates(file("ca.pem"))
        .add_client_certificate(file(&format!("{host}.pem")), file(&format!("{host}.key")))
}

#[tokio::test]
async fn credentials_allow_their_station_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let (Some(_), true) = (server::binary(), has_openssl()) else { return };
    script(directory.path(), "accounts", &["setup", "4"]);
    for (role, host) in [("archive", ARCHIVE), ("station", NORTH), ("station", SOUTH), ("station", "west")] {
        script(directory.path(), "accounts", &[role, host]);
    }
    let text = || with_accounts(directory.path());
    let server = Server::with(directory.path(), &text()).unwrap();
    let config = |host: &str| by_credentials(directory.path(), &server, host);
    let options = ConnectOptions::with_credentials_file(credentials(directory.path(), NORTH)).await.unwrap();
    let mesh = Mesh::new(config).await;
    mesh.is_attacked_by(&server, options, Accounts::Apart).await;

    // Nobody, and somebody whose key another authority signed.
    let other = tempfile::tempdir().unwrap();
    script(other.path(), "accounts", &["setup", "4"]);
    script(other.path(), "accounts", &["station", NORTH]);
    let own = other.path().join(format!("{NORTH}.creds"));
    let own = NatsConfig { credentials: Some(own), ..server::config(&server.url, NORTH) };
    for config in [server::config(&server.url, NORTH), own] {
        let nobody = Nats::new(config).unwrap().append(&[record(NORTH, "x", 1)]).await;
        assert!(matches!(nobody, Err(Error::Unavailable(_))), "{nobody:?}");
    }

    // Credentials that were withdrawn, which the server hears of from its configuration.
    Nats::new(config("west")).unwrap().append(&[record("west", "x", 1)]).await.unwrap();
    script(directory.path(), "accounts", &["withdraw", "west"]);
    server.reload(&text());
    let west = Nats::new(config("west")).unwrap();
    let refused =
        eventually("the refusal", async || west.append(&[record("west", "x", 2)]).await.err()).await;
    assert!(refused.to_string().contains("certificate or credentials"), "{refused}");
}

/// Keys that were made before stations had an account of their own: the archive's credentials stay, stations get new ones.
#[tokio::test]
async fn a_mesh_on_credentials_moves_apart() {
    let directory = tempfile::tempdir().unwrap();
    let (Some(_), true) = (server::binary(), has_openssl()) else { return };
    script(directory.path(), "accounts", &["setup", "4"]);
    for (role, host) in [("archive", ARCHIVE), ("station", NORTH), ("station", SOUTH)] {
        script(directory.path(), "accounts", &[role, host]);
    }
    let server = Server::with(directory.path(), &with_accounts(directory.path())).unwrap();
    let mesh = Mesh::new(|host| by_credentials(directory.path(), &server, host)).await;
    mesh.south.append(&[record(SOUTH, "x", 1)]).await.unwrap();
    let before = Inventory::of(&server);
    drop(mesh.south);
    for file in ["accounts".into(), format!("account.{}", token(NORTH)), format!("account.{}", token(SOUTH))]
    {
        std::fs::remove_file(directory.path().join("accounts.keys").join(file)).unwrap();
    }
    let why = refused(directory.path(), &["accounts", "station", SOUTH]);
    assert!(why.contains("accounts upgrade"), "{why}");
    script(directory.path(), "accounts", &["upgrade", "1"]);
    let accounts = || std::fs::read_to_string(directory.path().join("accounts.keys/accounts")).unwrap();
    let before_upgrade = accounts();
    script(directory.path(), "accounts", &["upgrade"]);
    assert_eq!(accounts(), before_upgrade);
    let server = server.again(directory.path(), &with_accounts(directory.path()));

    // Those that were made before are of an account that knows them no more.
    let old = Nats::new(by_credentials(directory.path(), &server, SOUTH)).unwrap();
    let old = old.append(&[record(SOUTH, "x", 1)]).await.unwrap_err();
    assert!(old.to_string().contains("certificate or credentials"), "{old}");
    script(directory.path(), "accounts", &["station", NORTH]);
    // Each has an account of its own, the same for ever.
    script(directory.path(), "accounts", &["station", NORTH]);
    let why = refused(directory.path(), &["accounts", "station", SOUTH]);
    assert!(why.contains("accounts more"), "{why}");
    script(directory.path(), "accounts", &["more", "1"]);
    assert_eq!(accounts().lines().count(), 2);
    assert!(accounts().starts_with(&before_upgrade));
    script(directory.path(), "accounts", &["station", SOUTH]);
    server.reload(&with_accounts(directory.path()));
    let [north, south] =
        [NORTH, SOUTH].map(|host| Nats::new(by_credentials(directory.path(), &server, host)).unwrap());
    let options = ConnectOptions::with_credentials_file(credentials(directory.path(), NORTH)).await.unwrap();
    let attacker = Attacker::new(&server.url, options).await;
    Mesh { north, south, ..mesh }.goes_on(&server, &attacker, before).await;
}

pub(crate) fn credentials(directory: &Path, host: &str) -> PathBuf {
    directory.join(format!("{host}.creds"))
}

pub(crate) fn by_credentials(directory: &Path, server: &Server, host: &str) -> NatsConfig {
    NatsConfig { credentials: Some(credentials(directory, host)), ..server::config(&server.url, host) }
}

/// A server's configuration with `accounts.conf` of `directory`.
pub(crate) fn with_accounts(directory: &Path) -> String {
    let accounts = std::fs::read_to_string(directory.join("accounts.conf")).unwrap();
    let store = directory.join("jetstream");
    format!("listen: 127.0.0.1:-1\nhttp: 127.0.0.1:-1\njetstream {{ store_dir: {store:?} }}\n{accounts}")
}

#[test]
fn scripts_and_stations_agree_on_tokens() {
    for name in [NORTH, "a_b-C9", "-n", "..", "ca"] {
        assert_eq!(script(Path::new("."), "token", &[name]).trim_end(), token(name));
    }
}

/// What is more than a name to openssl, a configuration or a path; and nothing was made of it.
#[test]
fn scripts_refuse_what_is_no_name() {
    let directory = tempfile::tempdir().unwrap();
    if !has_openssl() {
        return;
    }
    certificates(directory.path(), &["authority"]);
    script(directory.path(), "accounts", &["setup", "4"]);
    for name in ["", "x/CN=y", "../x", "x,DNS:y", "x\nDNS:y", "x\"}", "x y", "$(x)", "ä", "x;y"] {
        for arguments in [
            &["token", name][..],
            &["stations", NORTH, name],
            &["certificates", "station", name],
            &["certificates", "server", name, "localhost"],
            &["certificates", "server", "n9", name],
            &["accounts", "station", name],
            &["accounts", "archive", name],
            &["accounts", "withdraw", name],
        ] {
            refused(directory.path(), arguments);
        }
    }
    for name in ["ca", &"x".repeat(65)] {
        refused(directory.path(), &["certificates", "station", name]);
        refused(directory.path(), &["certificates", "server", name, "localhost"]);
    }
    let files = |folder: &str| std::fs::read_dir(directory.path().join(folder)).unwrap().count();
    assert_eq!((files("tls"), files("tls/routes"), files("accounts.keys")), (3, 2, 8));
}

/// A station's certificate never takes the place of a server's or of the authority's, nor the other way round.
#[test]
fn certificates_of_one_kind_leave_the_others_alone() {
    let directory = tempfile::tempdir().unwrap();
    if !has_openssl() {
        return;
    }
    let why = refused(directory.path(), &["certificates", "station", NORTH]);
    assert!(why.contains("certificates authority"), "{why}");
    certificates(directory.path(), &["authority"]);
    // The same line again renews.
    for _ in 0..2 {
        certificates(directory.path(), &["server", "n1", "localhost", "127.0.0.1", "::1"]);
        certificates(directory.path(), &["station", NORTH]);
    }
    for arguments in [&["authority"][..], &["station", "n1"], &["server", NORTH, "localhost"]] {
        refused(directory.path(), &[&["certificates"], arguments].concat());
    }
}

/// Without a key it cannot sign, and what the servers read stays as it was.
#[test]
fn a_change_of_accounts_that_fails_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    if !has_openssl() {
        return;
    }
    for arguments in [&["setup", "4"][..], &["station", NORTH]] {
        script(directory.path(), "accounts", arguments);
    }
    let read = |file: &str| std::fs::read(directory.path().join(file)).unwrap();
    let before = ["accounts.conf", "accounts.keys/withdrawn"].map(read);
    std::fs::write(directory.path().join("accounts.keys/operator"), "no key").unwrap();
    refused(directory.path(), &["accounts", "withdraw", NORTH]);
    assert_eq!(["accounts.conf", "accounts.keys/withdrawn"].map(read), before);
    std::fs::remove_file(directory.path().join("accounts.keys/station")).unwrap();
    refused(directory.path(), &["accounts", "station", SOUTH]);
    assert!(!directory.path().join(format!("{SOUTH}.creds")).exists());
}

#[test]
fn every_configuration_is_one() {
    let directory = tempfile::tempdir().unwrap();
    let (Some(binary), true) = (server::binary(), has_openssl()) else { return };
    certificates(directory.path(), &["authority"]);
    for name in ["nats", "n1", "n2", "n3"] {
        certificates(directory.path(), &["server", name, "localhost", "127.0.0.1"]);
    }
    stations(directory.path(), &[ARCHIVE, NORTH]);
    for file in ["single.conf", "n1.conf", "n2.conf", "n3.conf"] {
        std::fs::copy(deploy(file), directory.path().join(file)).unwrap();
        let checked =
            Command::new(&binary).args(["-t", "-c", file]).current_dir(&directory).output().unwrap();
        assert!(checked.status.success(), "{file}: {}", String::from_utf8_lossy(&checked.stderr));
        let text = std::fs::read_to_string(deploy(file)).unwrap();
        assert!(!text.contains("store_dir") || text.contains("sync_interval: always"), "{file}");
    }
}

/// Where stations are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accounts {
    /// In an account without JetStream, as the shipped scripts have it.
    Apart,
    /// In that of the streams, as older scripts had it.
    One,
}

/// An archive and a victim.
struct Mesh {
    archive: Arc<Nats>,
    archiver: Archiver,
    /// Renewed all the time: a station without a registration knows by others' that one could be
    /// renewed.
    _lease: Box<dyn Lease>,
    _local: Arc<Local>,
    _directory: tempfile::TempDir,
    south: Nats,
    north: Nats,
}

impl Mesh {
    async fn new(config: impl Fn(&str) -> NatsConfig) -> Self {
        let archive = Arc::new(Nats::new(config(ARCHIVE)).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let (archiver, local) = server::archive(&archive, directory.path());
        server::canary(&*archive, ARCHIVE, 1).await;
        let [south, north] = [SOUTH, NORTH].map(|host| Nats::new(config(host)).unwrap());
        server::canary(&north, NORTH, 1).await;
        let own = Entry { groups: vec![name("archives")], ..entry(ARCHIVE) };
        let lease = archive.register(&own, Duration::from_secs(3)).await.unwrap();
        Self { archive, archiver, _lease: lease, _local: local, _directory: directory, south, north }
    }

    /// `options` are those of the north, which is up to no good.
    async fn is_attacked_by(&self, server: &Server, options: ConnectOptions, accounts: Accounts) {
        let mut events = self.south.watch(&name("local"));
        assert_eq!(next(&mut events).await, Event::Synced);
        let lease = self.south.register(&entry(SOUTH), Duration::from_secs(10)).await.unwrap();
        assert_eq!(next(&mut events).await, Event::Up(entry(SOUTH)));

        let attacker = Attacker::new(&server.url, options).await;
        assert_eq!(self.north.shares_account().await, Ok(accounts == Accounts::One));
        // Who knows one inbox of a station knows nothing of its next, and cannot answer there in an archive's place.
        let [one, other] =
            [(); 2].map(|()| attacker.client.new_inbox().rsplit('.').next().unwrap().to_owned());
        assert_ne!(one[..8], other[..8]);
        if accounts == Accounts::Apart {
            reflection::attack(&attacker, server, &self.north).await;
        }
        for subject in refused_publications() {
            attacker.cannot("Publish", &subject).await;
        }
        if accounts == Accounts::Apart {
            for subject in refused_reads() {
                attacker.cannot("Publish", &subject).await;
            }
            let all = self.north.subscribe(&Selector::default(), From::Oldest).next().await;
            assert!(matches!(all, Some(Err(Error::Denied(_)))), "{all:?}");
        }
        let victims = [format!("_INBOX_{}.>", token(SOUTH)), format!("barograph.b.{}.*.*", token(SOUTH))];
        let all = ["_INBOX.>", ">", "barograph.a.*", "barograph.m.>", "barograph.a.*.*", "barograph.b.>"];
        for subject in all.into_iter().chain(victims.iter().map(String::as_str)) {
            attacker.cannot("Subscription", subject).await;
        }
        let forged = self.north.append(&[record(SOUTH, "x", 1)]).await;
        assert!(matches!(forged, Err(Error::Denied(_))), "{forged:?}");
        let forged = self.north.register(&entry(SOUTH), Duration::from_secs(2)).await.map(drop);
        assert!(matches!(forged, Err(Error::Denied(_))), "{forged:?}");
        let removed = self.north.remove(&name(SOUTH)).await;
        assert!(matches!(removed, Err(Error::Denied(_))), "{removed:?}");

        if accounts == Accounts::Apart {
            self.answers_are_no_questions(&attacker).await;
        }
        self.questions_beyond_the_end(&attacker).await;
        self.forged_records(server, &attacker, accounts).await;
        self.a_taken_identity(&attacker).await;
        self.roll_ups(&attacker).await;
        self.forged_entries(&attacker, &mut events, accounts).await;
        self.a_key_that_never_rests(&attacker, &*lease).await;
        match accounts {
            Accounts::Apart => {
                let silence = tokio::time::timeout(Duration::from_millis(100), events.next()).await;
                assert!(silence.is_err(), "{silence:?}");
            }
            // Between two looks its renewals can be hidden there: it may be down, until the next one that is seen.
            Accounts::One => {
                let own = format!("$KV.barograph_dir.{}", token(SOUTH));
                let question = json!({ "last_by_subj": own }).to_string();
                eventually("the victim's renewal", async || {
                    let request = "$JS.API.DIRECT.GET.KV_barograph_dir";
                    let found = attacker.client.request(request, question.clone().into()).await.unwrap();
                    (found.payload == wire::entry_text(&entry(SOUTH)).as_bytes()).then_some(())
                })
                .await;
                events = self.south.watch(&name("local"));
                assert_eq!(next(&mut events).await, Event::Up(entry(SOUTH)));
                assert_eq!(next(&mut events).await, Event::Synced);
            }
        }

        // After all that the victim is up, and its lease ends when it says so.
        drop(lease);
        assert_eq!(next(&mut events).await, Event::Down(name(SOUTH)));
        self.archive.remove(&name(SOUTH)).await.unwrap();
        assert_eq!(next(&mut events).await, Event::Removed(name(SOUTH)), "an archive may remove it");
    }

    /// All goes on where the accounts are others, and the attacker is kept away. The south's first record was stored `before`.
    async fn goes_on(&self, server: &Server, attacker: &Attacker, before: Inventory) {
        server::canary(&self.south, SOUTH, 2).await;
        assert_eq!(self.archive.watermark(&name(SOUTH)).await, Ok(2));
        let found =
            self.north.history(&record(SOUTH, "x", 1).series, &Range::newest(10)).await.unwrap().items;
        assert_eq!(found, [record(SOUTH, "x", 1)]);
        assert_eq!(Inventory::of(server), before);
        reflection::attack(attacker, server, &self.north).await;
    }

    /// What looks as an answer of the servers is not taken for a question: a text that a station stored may be one in
    /// another's name where such an answer is published as the question's subject.
    async fn answers_are_no_questions(&self, attacker: &Attacker) {
        let north = token(NORTH);
        let mut answers = attacker.client.subscribe(format!("barograph.b.{north}.answers.*")).await.unwrap();
        let subject = format!("barograph.a.{north}.watermark");
        let ask = |number: u8| {
            json!({ "origin": NORTH, "after_place": 0, "answer": format!("answers.{number}") })
                .to_string()
                .into()
        };
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Subject", "x");
        attacker.client.publish_with_headers(subject.clone(), headers, ask(1)).await.unwrap();
        attacker.client.publish(subject, ask(2)).await.unwrap();
        let first = tokio::time::timeout(LIMIT, answers.next()).await.unwrap().unwrap();
        assert!(first.subject.ends_with(".2"), "{first:?}");
    }

    /// Questions for places that the stream does not have do not keep the archive from answering.
    async fn questions_beyond_the_end(&self, attacker: &Attacker) {
        // Held at once, these took the archive several deadlines.
        let asked = attacker.questions("watermark", 200, json!({ "origin": SOUTH, "after_place": u64::MAX }));
        let began = Instant::now();
        let victims = async {
            for _ in 0..5 {
                assert_eq!(self.south.watermark(&name(SOUTH)).await, Ok(0));
            }
            began.elapsed()
        };
        let (answers, victims) = futures_util::future::join(asked, victims).await;
        println!("the victim's answers after {victims:?}, the attacker's after {:?}", began.elapsed());
        let deadline = server::config("", SOUTH).deadline;
        assert!(victims < deadline / 2, "the archive was held up for {victims:?}");
        for answer in answers {
            let text = answer["error"]["text"].to_string();
            assert!(text.contains("the stream ends at") || text.contains("too many"), "{answer}");
        }
    }

    /// Records of the victim in the attacker's messages, and in answers of the server to nobody.
    async fn forged_records(&self, server: &Server, attacker: &Attacker, accounts: Accounts) {
        let before = self.archiver.statistics().discarded;
        let forged = record(SOUTH, "x", 1);
        let text = wire::record_text(&forged);
        let mut headers = HeaderMap::new();
        let own = format!("barograph.m.{}.x.rtt", token(NORTH));
        headers.insert("Nats-Msg-Id", format!("{}:1:own", token(SOUTH)));
        attacker.ask(own, Some(headers.clone()), text.clone()).await;
        headers.insert("Nats-Msg-Id", format!("{}:1", token(SOUTH)));
        attacker.ask(format!("barograph.m.{}.y.rtt", token(NORTH)), None, "{}".into()).await;

        if accounts == Accounts::Apart {
            // Whatever a station publishes has one subject: servers keep all of them in memory.
            let subjects = reflection::subjects(server);
            assert!(subjects <= 3, "{subjects} subjects of three stations");
        }
        let key = format!("$KV.barograph_dir.{}", token(NORTH));
        attacker.ask(key.clone(), Some(headers), text).await;
        let victims = format!("barograph.m.{}.x.rtt", token(SOUTH));
        for no_hdr in [false, true] {
            let question = json!({ "last_by_subj": key, "no_hdr": no_hdr }).to_string();
            let request = "$JS.API.DIRECT.GET.KV_barograph_dir";
            attacker.client.publish_with_reply(request, victims.clone(), question.into()).await.unwrap();
        }
        // The attacker's own are in the stream, and where the answers reach it those too; the archive takes none of them.
        let expected = before + if accounts == Accounts::Apart { 2 } else { 4 };
        eventually("the archive's judgement", async || {
            (expected <= self.archiver.statistics().discarded).then_some(())
        })
        .await;
        server::canary(&self.north, NORTH, 3).await;
        assert_eq!(self.archiver.statistics().discarded, expected);
        assert_eq!(self.archive.watermark(&name(SOUTH)).await, Ok(0));
    }

    /// The attacker's record under the identity of the victim's next one does not suppress that.
    async fn a_taken_identity(&self, attacker: &Attacker) {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("{}:2", token(SOUTH)));
        let own = record(NORTH, "x", 9);
        attacker
            .ask(format!("barograph.m.{}.x.rtt", token(NORTH)), Some(headers), wire::record_text(&own))
            .await;
        self.south
            .append(&[record(SOUTH, "x", 1), record(SOUTH, "x", 2), record(SOUTH, "x", 3)])
            .await
            .unwrap();
        assert_eq!(self.south.watermark(&name(SOUTH)).await, Ok(3));
        let found = self.south.history(&own.series, &Range::newest(10)).await.unwrap().items;
        assert_eq!(found, [], "a record under another's identity");
    }

    /// Entries of the victim, in answers of the server that are sent to its key; and leases without an end.
    async fn forged_entries(&self, attacker: &Attacker, events: &mut BoxStream<Event>, accounts: Accounts) {
        let forged = Entry { addresses: vec!["192.0.2.66:6".parse().unwrap()], ..entry(SOUTH) };
        let own = format!("$KV.barograph_dir.{}", token(NORTH));
        let victims = format!("$KV.barograph_dir.{}", token(SOUTH));
        let request = "$JS.API.DIRECT.GET.KV_barograph_dir";
        let get = async |key: &str, reply: Option<&String>, no_hdr: bool| {
            let question = json!({ "last_by_subj": key, "no_hdr": no_hdr }).to_string();
            match reply {
                Some(reply) => {
                    let sent = attacker.client.publish_with_reply(request, reply.clone(), question.into());
                    sent.await.unwrap();
                    None
                }
                None => Some(attacker.client.request(request, question.into()).await.unwrap()),
            }
        };
        for (operation, text) in [(None, wire::entry_text(&forged)), (Some("DEL"), String::new())] {
            let mut headers = HeaderMap::new();
            headers.insert("Barograph-Registration", "forged");
            headers.insert("Nats-TTL", "3600s");
            if let Some(operation) = operation {
                headers.insert("KV-Operation", operation);
            }
            attacker.ask(own.clone(), Some(headers), text.clone()).await;
            for no_hdr in [false, true] {
                get(&own, Some(&victims), no_hdr).await;
                // Where it reaches the directory it is stored, as any station can see ...
                if accounts == Accounts::One {
                    eventually("the bounce", async || {
                        let found = get(&victims, None, false).await.unwrap();
                        (found.payload == text.as_bytes()).then_some(())
                    })
                    .await;
                }
                // ... and the victim writes over it. Whoever comes then sees the victim.
                eventually("the victim's renewal", async || {
                    let found = get(&victims, None, false).await.unwrap();
                    (found.payload == wire::entry_text(&entry(SOUTH)).as_bytes()).then_some(())
                })
                .await;
                assert_eq!(next(&mut self.north.watch(&name("local"))).await, Event::Up(entry(SOUTH)));
            }
        }
        self.endless_leases(attacker).await;
        // Nothing of that was told to whoever watched all the time.
        let silence = tokio::time::timeout(Duration::from_millis(100), events.next()).await;
        assert!(silence.is_err(), "{silence:?}");
    }

    /// Answers of the server that come onto the victim's key without a pause do not cost it its registration.
    async fn a_key_that_never_rests(&self, attacker: &Attacker, lease: &dyn Lease) {
        let victims = format!("$KV.barograph_dir.{}", token(SOUTH));
        let own = format!("$KV.barograph_dir.{}", token(NORTH));
        // What it wrote itself, and what the server says where there is nothing, or nothing was asked.
        let questions = [json!({ "last_by_subj": own }), json!({ "last_by_subj": "nobody" }), json!({})];
        let began = Instant::now();
        while began.elapsed() < 2 * lease.ttl() {
            for question in &questions {
                let request = "$JS.API.DIRECT.GET.KV_barograph_dir";
                let text = question.to_string().into();
                attacker.client.publish_with_reply(request, victims.clone(), text).await.unwrap();
            }
            // It is stored with these, so that no more are under way than that.
            attacker.ask(own.clone(), None, "x".into()).await;
            assert_eq!(lease.state(), LeaseState::Held, "after {:?}", began.elapsed());
        }
    }

    /// An entry that never runs out, or only after longer than a lease may last, is none.
    async fn endless_leases(&self, attacker: &Attacker) {
        let own = format!("$KV.barograph_dir.{}", token(NORTH));
        for ttl in [None, Some("never"), Some("301s"), Some("3601s"), Some("2h")] {
            let mut headers = HeaderMap::new();
            headers.insert("Barograph-Registration", "endless");
            if let Some(ttl) = ttl {
                headers.insert("Nats-TTL", ttl);
            }
            let stored = attacker.ask(own.clone(), Some(headers), wire::entry_text(&entry(NORTH))).await;
            assert!(stored["seq"].is_number(), "{ttl:?}: {stored}");
            let mut events = self.north.watch(&name("local"));
            assert_eq!(next(&mut events).await, Event::Up(entry(SOUTH)), "{ttl:?}");
            assert_eq!(next(&mut events).await, Event::Synced, "{ttl:?}");
        }
    }

    /// A header that empties a stream is refused where the attacker may write.
    async fn roll_ups(&self, attacker: &Attacker) {
        for subject in
            [format!("barograph.m.{}.x.rtt", token(NORTH)), format!("$KV.barograph_dir.{}", token(NORTH))]
        {
            for what in ["all", "sub"] {
                let mut headers = HeaderMap::new();
                headers.insert("Nats-Rollup", what);
                let answer = attacker.ask(subject.clone(), Some(headers), "x".into()).await;
                assert!(answer["error"]["code"].is_number(), "{subject}: {answer}");
            }
        }
        let mut events = self.archive.watch(&name("local"));
        assert_eq!(next(&mut events).await, Event::Up(entry(SOUTH)), "the directory is as it was");
    }
}

/// A bare client with the rights of a station.
pub(crate) struct Attacker {
    pub(crate) client: Client,
    said: tokio::sync::Mutex<mpsc::UnboundedReceiver<String>>,
}

impl Attacker {
    pub(crate) async fn new(url: &str, options: ConnectOptions) -> Self {
        let (sender, said) = mpsc::unbounded_channel();
        let options =
            options.custom_inbox_prefix(format!("_INBOX_{}", token(NORTH))).event_callback(move |event| {
                let _ = sender.send(event.to_string());
                std::future::ready(())
            });
        let client = options.connect(url).await.unwrap();
        Self { client, said: said.into() }
    }

    /// The server says that this violates a permission.
    async fn cannot(&self, what: &str, subject: &str) {
        if what == "Publish" {
            self.client.publish(subject.to_owned(), "{}".into()).await.unwrap();
        } else {
            drop(self.client.subscribe(subject.to_owned()).await.unwrap());
        }
        self.client.flush().await.unwrap();
        // The server has mapped a record's subject when it looks whether that is allowed.
        let mapped = subject.strip_prefix("barograph.m.").and_then(|rest| rest.split('.').next());
        let mapped = mapped.map(|station| format!("barograph.r.{station}"));
        let expected: Vec<String> = [Some(subject.to_owned()), mapped]
            .into_iter()
            .flatten()
            .map(|subject| format!("Permissions Violation for {what} to \"{subject}\"").to_lowercase())
            .collect();
        let mut said = self.said.lock().await;
        loop {
            let heard = tokio::time::timeout(LIMIT, said.recv()).await;
            let Ok(Some(text)) = heard else { panic!("{what} to {subject} was not refused") };
            if expected.iter().any(|expected| text.to_lowercase().contains(expected)) {
                return;
            }
        }
    }

    /// Whether the server has said this since it was asked last.
    pub(crate) async fn said_any(&self, what: &str) -> bool {
        let mut said = self.said.lock().await;
        std::iter::from_fn(|| said.try_recv().ok()).any(|text| text.to_lowercase().contains(what))
    }

    /// Publishes where it may, and gives the server's answer.
    pub(crate) async fn ask(&self, subject: String, headers: Option<HeaderMap>, payload: String) -> Value {
        let headers = headers.unwrap_or_default();
        let answer = self.client.request_with_headers(subject, headers, payload.into()).await.unwrap();
        serde_json::from_slice(&answer.payload).unwrap()
    }

    /// Asks an archive this so many times at once, and gives its answers, however they come.
    async fn questions(&self, kind: &str, count: usize, question: Value) -> Vec<Value> {
        let inbox = self.client.new_inbox();
        let session = inbox.rsplit('.').next().unwrap();
        let answers = format!("barograph.b.{}.{session}.*", token(NORTH));
        let mut subscriptions = Vec::new();
        for subject in [answers, format!("{inbox}.*")] {
            subscriptions.push(self.client.subscribe(subject).await.unwrap());
        }
        for index in 0..count {
            let mut question = question.clone();
            question["answer"] = format!("{session}.{index}").into();
            let subject = format!("barograph.a.{}.{kind}", token(NORTH));
            let reply = format!("{inbox}.{index}");
            self.client.publish_with_reply(subject, reply, question.to_string().into()).await.unwrap();
        }
        let messages = futures_util::stream::select_all(subscriptions).take(count);
        let answers = messages.map(|message| serde_json::from_slice(&message.payload).unwrap());
        tokio::time::timeout(LIMIT, answers.collect()).await.unwrap()
    }
}

fn refused_publications() -> Vec<String> {
    let (south, north) = (token(SOUTH), token(NORTH));
    let mut subjects = vec![
        format!("barograph.m.{south}.x.rtt"),
        format!("barograph.n.{south}.x.rtt"),
        format!("barograph.r.{south}"),
        format!("barograph.d.{south}"),
        format!("barograph.m.{SOUTH}.x.rtt"),
        format!("$KV.barograph_dir.{south}"),
        format!("_INBOX_{south}.x"),
        format!("barograph.b.{south}.x.1"),
        format!("barograph.b.{north}.x.1"),
        format!("_INBOX_{north}.x"),
        "$SYS.REQ.SERVER.PING".into(),
        "$JS.API.STREAM.CREATE.OTHER".into(),
    ];
    for stream in ["BAROGRAPH", "KV_barograph_dir"] {
        let calls =
            ["STREAM.DELETE", "STREAM.PURGE", "STREAM.UPDATE", "STREAM.MSG.DELETE", "STREAM.SNAPSHOT"];
        subjects.extend(calls.map(|call| format!("$JS.API.{call}.{stream}")));
        subjects.extend([
            format!("$JS.API.STREAM.LEADER.STEPDOWN.{stream}"),
            format!("$JS.API.CONSUMER.CREATE.{stream}"),
            format!("$JS.API.CONSUMER.CREATE.{stream}.thief.barograph.m.x.x.rtt"),
            format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.archive"),
            format!("$JS.API.CONSUMER.DELETE.{stream}.archive"),
        ]);
    }
    subjects
}

/// What an asker can have a server copy or search without a bound: batches and scans of the stream of records, and
/// the extent of a stream with its subjects or its gaps.
fn refused_reads() -> Vec<String> {
    let stored = format!("barograph.m.{}.x.rtt", token(NORTH));
    let mut subjects = vec!["barograph.g.BAROGRAPH".into(), "$JS.API.DIRECT.GET.BAROGRAPH".into()];
    // Questions in another's name, or in none.
    subjects.extend([format!("barograph.a.{}.latest", token(SOUTH)), "barograph.a.latest".into()]);
    subjects.extend([format!("$JS.API.DIRECT.GET.BAROGRAPH.{stored}"), "$JS.API.INFO".into()]);
    for stream in ["BAROGRAPH", "KV_barograph_dir"] {
        subjects.extend([format!("$JS.API.STREAM.INFO.{stream}"), format!("barograph.i.{stream}")]);
    }
    subjects
}

/// `single.conf` as it is shipped, on a port of its own and below `directory`.
fn single(directory: &Path, stations: &str) -> String {
    std::fs::read_to_string(deploy("single.conf"))
        .unwrap()
        .replace("0.0.0.0:4222", "127.0.0.1:-1\nhttp: 127.0.0.1:-1")
        .replace("include stations.conf", stations)
        .replace("\"./", &format!("\"{}/", directory.display()))
}

pub(crate) fn certificates(directory: &Path, arguments: &[&str]) {
    script(directory, "certificates", arguments);
}

/// Makes `stations.conf` in `directory`, and gives its text.
pub(crate) fn stations(directory: &Path, names: &[&str]) -> String {
    let text = script(directory, "stations", names);
    std::fs::write(directory.join("stations.conf"), &text).unwrap();
    text
}

/// What `stations` made before stations had an account of their own.
fn older_stations(_: &Path, names: &[&str]) -> String {
    let user = |(index, host): (usize, &&str)| {
        let role = if index == 0 { "archive" } else { "station" };
        let template = std::fs::read_to_string(deploy(&format!("{role}.template.json"))).unwrap();
        let template = template
            .replace("barograph.r.{{name()}}", "barograph.m.{{name()}}.*.*")
            .replace("{{name()}}", &token(host))
            .replace("barograph.g.", "$JS.API.DIRECT.GET.");
        let mut permissions = without_answers(&template);
        let of_streams = ["STREAM.INFO.BAROGRAPH", "STREAM.INFO.KV_barograph_dir", "DIRECT.GET.BAROGRAPH"];
        let allowed = permissions["pub"]["allow"].as_array_mut().unwrap();
        allowed.extend(of_streams.map(|call| format!("$JS.API.{call}").into()));
        let bounds = permissions.as_object_mut().unwrap();
        bounds.retain(|key, _| key == "pub" || key == "sub");
        if index == 0 {
            bounds.insert("allow_responses".into(), true.into());
        }
        json!({ "user": host, "permissions": permissions }).to_string()
    };
    let users: Vec<String> = names.iter().enumerate().map(user).collect();
    format!("accounts {{ BAROGRAPH {{ jetstream: enabled, users: [{}] }} }}\n", users.join(", "))
}

/// What `stations` made when all stations had one account, and questions to archives were requests to a service.
pub(crate) fn stations_in_one_account(_: &Path, names: &[&str]) -> String {
    let user = |(index, host): (usize, &&str)| {
        let role = if index == 0 { "archive" } else { "station" };
        let template = std::fs::read_to_string(deploy(&format!("{role}.template.json"))).unwrap();
        let mut permissions = without_answers(&template.replace("{{name()}}", &token(host)));
        permissions.as_object_mut().unwrap().retain(|key, _| key == "pub" || key == "sub");
        if index == 0 {
            permissions["allow_responses"] = true.into();
        }
        json!({ "user": host, "permissions": permissions }).to_string()
    };
    let users: Vec<String> = names.iter().enumerate().map(user).collect();
    let shared =
        ["barograph.r.*", "$KV.barograph_dir.*", "$JS.API.DIRECT.GET.KV_barograph_dir", "barograph.a.*.*"];
    let given = shared.map(|subject| {
        let response = if subject.starts_with("$JS") { "Stream" } else { "Singleton" };
        json!({ "service": subject, "response": response, "threshold": "5s", "accounts": ["STATIONS"] })
    });
    let taken = shared.map(|subject| {
        let to = subject.replace("$JS.API.DIRECT.GET.", "barograph.g.");
        json!({ "service": { "account": "BAROGRAPH", "subject": subject }, "to": to })
    });
    let mappings = json!({
        shared[2]: "barograph.g.KV_barograph_dir",
        "barograph.m.*.*.*": "barograph.r.{{wildcard(1)}}",
    });
    let streams = format!("jetstream: enabled, users: [{}], exports: {}", users[0], json!(given));
    let stations =
        format!("users: [{}], imports: {}, mappings: {mappings}", users[1..].join(", "), json!(taken));
    format!("accounts {{ BAROGRAPH {{ {streams} }}, STATIONS {{ {stations} }} }}\n")
}

/// The permissions in a template of now without the subjects of answers, which older lists do not have.
fn without_answers(template: &str) -> Value {
    let mut permissions: Value = serde_json::from_str(template).unwrap();
    for kind in ["pub", "sub"] {
        let allowed = permissions[kind]["allow"].as_array_mut().unwrap();
        allowed.retain(|subject| !subject.as_str().unwrap().starts_with("barograph.b."));
    }
    permissions
}

/// Runs a shipped script in `directory`.
pub(crate) fn script(directory: &Path, name: &str, arguments: &[&str]) -> String {
    let made = Command::new(deploy(name)).args(arguments).current_dir(directory).output().unwrap();
    assert!(made.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap()
}

/// Runs a shipped script that has to fail, and gives what it says.
fn refused(directory: &Path, line: &[&str]) -> String {
    let ran = Command::new(deploy(line[0])).args(&line[1..]).current_dir(directory).output().unwrap();
    let why = String::from_utf8(ran.stderr).unwrap();
    assert!(!ran.status.success() && !why.is_empty(), "{line:?}: {why}");
    why
}

pub(crate) fn has_openssl() -> bool {
    let found = Command::new("openssl").arg("version").output().is_ok();
    if !found {
        barograph_sim::say_missing("certificates for NATS: there is no openssl");
    }
    found
}

pub(crate) fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats").join(file)
}
