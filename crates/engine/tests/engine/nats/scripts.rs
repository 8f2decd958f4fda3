//! The scripts of `deploy/nats`: the names that they accept, and that they keep existing files.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use barograph_engine::{Nats, token};

use crate::nats::deployed::{
    ARCHIVE, NORTH, SOUTH, by_certificate, certificates, deploy, has_openssl, refused, script, single,
    stations, with_certificates,
};
use crate::nats::server;
use crate::nats::values::eventually;

#[test]
fn scripts_and_stations_agree_on_tokens() {
    for name in [NORTH, "a_b-C9", "-n", "..", "ca"] {
        assert_eq!(script(Path::new("."), "token", &[name]).trim_end(), token(name));
    }
}

/// Names with a meaning for openssl, a configuration or a path are refused, and no file is made.
#[test]
fn scripts_refuse_invalid_names() {
    let directory = tempfile::tempdir().unwrap();
    if !has_openssl() {
        return;
    }
    certificates(directory.path(), &["authority"]);
    script(directory.path(), "accounts", &["setup", "4"]);
    for name in ["", "x/CN=y", "../x", "x,DNS:y", "x\nDNS:y", "x\"}", "x y", "$(x)", "ä", "x;y"] {
        for arguments in [
            &["token", name][..],
            &["stations", name],
            &["stations", &format!("{ARCHIVE},{name}")],
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

/// A station that is named twice would have two roles, or make a list that servers refuse.
#[test]
fn a_list_names_each_station_once() {
    let archives = format!("{ARCHIVE},{SOUTH}");
    for names in [&[ARCHIVE, ARCHIVE][..], &[&archives, NORTH, SOUTH], &[ARCHIVE, NORTH, NORTH]] {
        let why = refused(Path::new("."), &[&["stations"], names].concat());
        assert!(why.contains(&format!("named twice: {}", names.last().unwrap())), "{why}");
    }
}

/// A station's certificate never replaces the certificate of a server or of the authority. The
/// certificate of a server or of the authority never replaces a station's certificate.
#[test]
fn a_new_certificate_never_replaces_a_certificate_of_another_kind() {
    let directory = tempfile::tempdir().unwrap();
    if !has_openssl() {
        return;
    }
    let why = refused(directory.path(), &["certificates", "station", NORTH]);
    assert!(why.contains("certificates authority"), "{why}");
    certificates(directory.path(), &["authority"]);
    // A repeated command renews the certificate.
    for _ in 0..2 {
        certificates(directory.path(), &["server", "n1", "localhost", "127.0.0.1", "::1"]);
        certificates(directory.path(), &["station", NORTH]);
    }
    for arguments in [&["authority"][..], &["station", "n1"], &["server", NORTH, "localhost"]] {
        refused(directory.path(), &[&["certificates"], arguments].concat());
    }
}

/// Without a key the script cannot sign, and the files of the servers stay unchanged.
#[test]
fn a_failed_change_of_accounts_changes_no_file() {
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

/// A station becomes the second archive at a reload. When the first archive is gone, stations write
/// through the second one.
#[tokio::test]
async fn a_mesh_with_certificates_gets_a_second_archive() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &stations) else { return };
    let nats = |host| Arc::new(Nats::new(by_certificate(directory.path(), &server, host)).unwrap());
    let [first_files, second_files] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (first, south) = (nats(ARCHIVE), nats(SOUTH));
    let running = server::archive(&first, first_files.path());
    server::canary(&*first, ARCHIVE, 1).await;
    for (host, station) in [(NORTH, &nats(NORTH)), (SOUTH, &south)] {
        server::canary(&**station, host, 1).await;
    }

    let reloads = || server::log_of(directory.path()).matches("Reloaded server configuration").count();
    let lists = stations(directory.path(), &[&format!("{ARCHIVE},{NORTH}"), SOUTH]);
    for count in 1..=2 {
        server.reload(&single(directory.path(), &lists));
        eventually("a reload", async || (count == reloads()).then_some(())).await;
    }
    let second = nats(NORTH);
    let _second = server::archive(&second, second_files.path());
    server::canary(&*second, NORTH, 2).await;
    server::canary(&*south, SOUTH, 2).await;
    drop((running, first));
    server::canary(&*south, SOUTH, 3).await;
}

#[test]
fn every_shipped_configuration_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    let (Some(binary), true) = (server::binary(), has_openssl()) else { return };
    certificates(directory.path(), &["authority"]);
    for name in ["nats", "n1", "n2", "n3"] {
        certificates(directory.path(), &["server", name, "localhost", "127.0.0.1"]);
    }
    stations(directory.path(), &[&format!("{ARCHIVE},{SOUTH}"), NORTH]);
    for file in ["single.conf", "n1.conf", "n2.conf", "n3.conf"] {
        std::fs::copy(deploy(file), directory.path().join(file)).unwrap();
        let checked =
            Command::new(&binary).args(["-t", "-c", file]).current_dir(&directory).output().unwrap();
        assert!(checked.status.success(), "{file}: {}", String::from_utf8_lossy(&checked.stderr));
        let text = std::fs::read_to_string(deploy(file)).unwrap();
        assert!(!text.contains("store_dir") || text.contains("sync_interval: always"), "{file}");
    }
}
