//! Permissions: the configurations of `deploy/nats`, and a member that tries to evade them.

use std::time::Duration;

use async_nats::ConnectOptions;
use barograph_engine::{Engine, EngineError, Event, LeaseState, Nats, NatsConfig, NatsTls, token};

use crate::nats::attack::{Accounts, Attacker, Mesh};
use crate::nats::deployed::{
    ARCHIVE, NORTH, SOUTH, by_certificate, by_credentials, certificate_options, certificates, credentials,
    has_openssl, older_stations, refused, script, single, stations, stations_in_one_account, with_accounts,
    with_certificates,
};
use crate::nats::reflected_replies::{self, Inventory};
use crate::nats::server::{self, NatsServer};
use crate::nats::values::{entry, eventually, name, next_item, record};

#[tokio::test]
async fn a_certificate_grants_access_only_as_its_station() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &stations) else { return };
    let mesh = Mesh::new(|host| by_certificate(directory.path(), &server, host)).await;
    mesh.is_attacked_by(&server, certificate_options(directory.path(), NORTH), Accounts::Apart).await;

    let ca = Some(directory.path().join("tls/ca.pem"));
    let without = NatsTls { ca, ..NatsTls::default() };
    let without = NatsConfig { tls: Some(without), ..server::config(&server.url, NORTH) };
    let stranger = by_certificate(directory.path(), &server, "stranger.example.net");
    for config in [without, server::config(&server.url, NORTH), stranger] {
        let anonymous = Nats::new(config).unwrap().append(&[record(NORTH, "x", 1)]).await;
        assert!(matches!(anonymous, Err(EngineError::Unavailable(_))), "{anonymous:?}");
    }
}

/// With the list that an older `stations` script made, a server can be made to send responses to
/// subjects of other stations; no reader accepts these responses.
#[tokio::test]
async fn forged_responses_are_rejected_in_a_shared_account() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &older_stations) else { return };
    let mesh = Mesh::new(|host| by_certificate(directory.path(), &server, host)).await;
    mesh.is_attacked_by(&server, certificate_options(directory.path(), NORTH), Accounts::One).await;
}

/// The attack of `reflection` deletes a stream if all stations share one account. The attack has no
/// effect if each station has its own account.
#[tokio::test]
async fn the_reflection_attack_reaches_the_streams_in_a_shared_account() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &older_stations) else { return };
    let _mesh = Mesh::new(|host| by_certificate(directory.path(), &server, host)).await;
    let attacker = Attacker::new(&server.url, certificate_options(directory.path(), NORTH)).await;
    reflected_replies::control(&attacker, &server).await;
}

/// A server restarts with the list that the current `stations` script makes: stations continue, and
/// no stored record is lost.
#[tokio::test]
async fn a_mesh_with_certificates_migrates_to_separate_accounts() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &older_stations) else { return };
    let mesh = Mesh::new(|host| by_certificate(directory.path(), &server, host)).await;
    mesh.south.append(&[record(SOUTH, "x", 1)]).await.unwrap();
    let lease = mesh.south.register(&entry(SOUTH), Duration::from_secs(10)).await.unwrap();
    let before = Inventory::of(&server);
    let text = |names: &[&str]| single(directory.path(), &stations(directory.path(), names));
    let server = server.restart(directory.path(), &text(&[ARCHIVE, NORTH, SOUTH]));
    let attacker = Attacker::new(&server.url, certificate_options(directory.path(), NORTH)).await;
    mesh.goes_on(&server, &attacker, before).await;
    // The registration is renewed again.
    let mut events = mesh.north.watch(&name("local"));
    while next_item(&mut events).await != Event::Up(entry(SOUTH)) {}
    eventually("a renewal", async || (lease.state() == LeaseState::Held).then_some(())).await;

    // A further station needs at most two reloads: a server activates the imports of a new account
    // only at the second reload.
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

    // A withdrawn station is refused after one reload.
    server.reload(&text(&[ARCHIVE, SOUTH, "west"]));
    eventually("the refusal", async || mesh.north.append(&[record(NORTH, "x", 9)]).await.err()).await;
    server::canary(&mesh.south, SOUTH, 4).await;
}

/// Like the test above, but the older list has one account for all stations, and requests to
/// archives are requests to a service.
#[tokio::test]
async fn a_mesh_with_one_account_migrates_to_separate_accounts() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &stations_in_one_account) else { return };
    let mesh = Mesh::new(|host| by_certificate(directory.path(), &server, host)).await;
    mesh.south.append(&[record(SOUTH, "x", 1)]).await.unwrap();
    assert_eq!(mesh.south.watermark(&name(SOUTH)).await, Ok(1));
    let before = Inventory::of(&server);
    let text = single(directory.path(), &stations(directory.path(), &[ARCHIVE, NORTH, SOUTH]));
    let server = server.restart(directory.path(), &text);
    let attacker = Attacker::new(&server.url, certificate_options(directory.path(), NORTH)).await;
    mesh.goes_on(&server, &attacker, before).await;
}

#[tokio::test]
async fn credentials_grant_access_only_as_their_station() {
    let directory = tempfile::tempdir().unwrap();
    let (Some(_), true) = (server::binary(), has_openssl()) else { return };
    script(directory.path(), "accounts", &["setup", "4"]);
    for (role, host) in [("archive", ARCHIVE), ("station", NORTH), ("station", SOUTH), ("station", "west")] {
        script(directory.path(), "accounts", &[role, host]);
    }
    let text = || with_accounts(directory.path());
    let server = NatsServer::start_with(directory.path(), &text()).unwrap();
    let config = |host: &str| by_credentials(directory.path(), &server, host);
    let options = ConnectOptions::with_credentials_file(credentials(directory.path(), NORTH)).await.unwrap();
    let mesh = Mesh::new(config).await;
    mesh.is_attacked_by(&server, options, Accounts::Apart).await;

    // The server refuses a client without credentials, and a client with a key that a different
    // authority signed.
    let other = tempfile::tempdir().unwrap();
    script(other.path(), "accounts", &["setup", "4"]);
    script(other.path(), "accounts", &["station", NORTH]);
    let own = other.path().join(format!("{NORTH}.creds"));
    let own = NatsConfig { credentials: Some(own), ..server::config(&server.url, NORTH) };
    for config in [server::config(&server.url, NORTH), own] {
        let anonymous = Nats::new(config).unwrap().append(&[record(NORTH, "x", 1)]).await;
        assert!(matches!(anonymous, Err(EngineError::Unavailable(_))), "{anonymous:?}");
    }

    // The server refuses credentials that were withdrawn in its configuration.
    Nats::new(config("west")).unwrap().append(&[record("west", "x", 1)]).await.unwrap();
    script(directory.path(), "accounts", &["withdraw", "west"]);
    server.reload(&text());
    let west = Nats::new(config("west")).unwrap();
    let refused =
        eventually("the refusal", async || west.append(&[record("west", "x", 2)]).await.err()).await;
    assert!(refused.to_string().contains("certificate or credentials"), "{refused}");
}

/// Keys that were made before stations had accounts of their own: the archive's credentials stay
/// valid, and stations get new credentials.
#[tokio::test]
async fn a_mesh_with_credentials_migrates_to_separate_accounts() {
    let directory = tempfile::tempdir().unwrap();
    let (Some(_), true) = (server::binary(), has_openssl()) else { return };
    script(directory.path(), "accounts", &["setup", "4"]);
    for (role, host) in [("archive", ARCHIVE), ("station", NORTH), ("station", SOUTH)] {
        script(directory.path(), "accounts", &[role, host]);
    }
    let server = NatsServer::start_with(directory.path(), &with_accounts(directory.path())).unwrap();
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
    let server = server.restart(directory.path(), &with_accounts(directory.path()));

    // Older credentials belong to an account that does not accept them any more.
    let old = Nats::new(by_credentials(directory.path(), &server, SOUTH)).unwrap();
    let old = old.append(&[record(SOUTH, "x", 1)]).await.unwrap_err();
    assert!(old.to_string().contains("certificate or credentials"), "{old}");
    script(directory.path(), "accounts", &["station", NORTH]);
    // Each station has an account of its own, which stays the same.
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
