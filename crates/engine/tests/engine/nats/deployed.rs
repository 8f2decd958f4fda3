//! Servers and stations with the files of `deploy/nats`: the current files, and lists of stations
//! in the form that older scripts made.

use std::path::{Path, PathBuf};
use std::process::Command;

use async_nats::ConnectOptions;
use barograph_engine::{NatsConfig, NatsTls, token};
use serde_json::{Value, json};

use crate::nats::server::{self, NatsServer};

pub(crate) const ARCHIVE: &str = "archive.example.net";
pub(crate) const NORTH: &str = "north.example.net";
pub(crate) const SOUTH: &str = "south.example.net";

/// Starts a server with lists of the stations `ARCHIVE`, `NORTH` and `SOUTH`. Returns `None` if a
/// program is missing.
pub(crate) fn with_certificates(
    directory: &Path,
    stations: &dyn Fn(&Path, &[&str]) -> String,
) -> Option<NatsServer> {
    let (Some(_), true) = (server::binary(), has_openssl()) else { return None };
    for arguments in [&["authority"][..], &["server", "nats", "127.0.0.1", "localhost"]] {
        certificates(directory, arguments);
    }
    for station in [ARCHIVE, NORTH, SOUTH, "stranger.example.net"] {
        certificates(directory, &["station", station]);
    }
    NatsServer::start_with(directory, &single(directory, &stations(directory, &[ARCHIVE, NORTH, SOUTH])))
}

pub(crate) fn by_certificate(directory: &Path, server: &NatsServer, host: &str) -> NatsConfig {
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

pub(crate) fn credentials(directory: &Path, host: &str) -> PathBuf {
    directory.join(format!("{host}.creds"))
}

pub(crate) fn by_credentials(directory: &Path, server: &NatsServer, host: &str) -> NatsConfig {
    NatsConfig { credentials: Some(credentials(directory, host)), ..server::config(&server.url, host) }
}

/// A server's configuration with `accounts.conf` of `directory`.
pub(crate) fn with_accounts(directory: &Path) -> String {
    let accounts = std::fs::read_to_string(directory.join("accounts.conf")).unwrap();
    let store = directory.join("jetstream");
    format!("listen: 127.0.0.1:-1\nhttp: 127.0.0.1:-1\njetstream {{ store_dir: {store:?} }}\n{accounts}")
}

/// The shipped `single.conf` with a port of its own and files below `directory`.
pub(crate) fn single(directory: &Path, stations: &str) -> String {
    std::fs::read_to_string(deploy("single.conf"))
        .unwrap()
        .replace("0.0.0.0:4222", "127.0.0.1:-1\nhttp: 127.0.0.1:-1")
        .replace("include stations.conf", stations)
        .replace("\"./", &format!("\"{}/", directory.display()))
}

pub(crate) fn certificates(directory: &Path, arguments: &[&str]) {
    script(directory, "certificates", arguments);
}

/// Makes `stations.conf` in `directory`. Returns its text.
pub(crate) fn stations(directory: &Path, names: &[&str]) -> String {
    let text = script(directory, "stations", names);
    std::fs::write(directory.join("stations.conf"), &text).unwrap();
    text
}

/// Returns the list of stations that an older `stations` script made, when stations had no account
/// of their own.
pub(crate) fn older_stations(_: &Path, names: &[&str]) -> String {
    let user = |(index, host): (usize, &&str)| {
        let mut permissions = older_permissions(index == 0, host, "barograph.m.{{name()}}.*.*");
        let of_streams = ["STREAM.INFO.BAROGRAPH", "STREAM.INFO.KV_barograph_dir", "DIRECT.GET.BAROGRAPH"];
        let allowed = permissions["pub"]["allow"].as_array_mut().unwrap();
        allowed.extend(of_streams.map(|call| format!("$JS.API.{call}").into()));
        for subject in allowed {
            *subject = subject.as_str().unwrap().replace("barograph.g.", "$JS.API.DIRECT.GET.").into();
        }
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

/// Returns the list of stations that an older `stations` script made, when all stations had one
/// account and requests to archives were requests to a service.
pub(crate) fn stations_in_one_account(_: &Path, names: &[&str]) -> String {
    let user = |(index, host): (usize, &&str)| {
        let mut permissions = older_permissions(index == 0, host, "barograph.r.{{name()}}");
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

/// Returns the list of stations that the script of the previous version made: stations have
/// accounts of their own, and publish to the streams.
pub(crate) fn stations_that_publish(directory: &Path, names: &[&str]) -> String {
    let mut text = stations(directory, names).replace("\"barograph.r.*\", ", "");
    let given = ["barograph.r.*", "$KV.barograph_dir.*"]
        .map(|subject| format!("{{ service: \"{subject}\", response: Singleton, threshold: \"5s\" }}\n"));
    text = text.replacen("exports: [\n", &format!("exports: [\n{}", given.concat()), 1);
    for host in &names[1..] {
        let token = token(host);
        let own = [format!("barograph.r.{token}"), format!("$KV.barograph_dir.{token}")];
        let asked = format!("\"barograph.g.KV_barograph_dir\", \"barograph.a.{token}.*\"");
        text = text.replace(&asked, &format!("\"{}\", {asked}", own.join("\", \"")));
        let taken =
            own.map(|subject| format!("{{ service: {{ account: BAROGRAPH, subject: \"{subject}\" }} }}\n"));
        let answers = format!("{{ stream: {{ account: BAROGRAPH, subject: \"barograph.b.{token}.*.*\" }} }}");
        let mapped = "], mappings: {";
        let of_records = format!("{mapped}\n\"barograph.m.{token}.*.*\": \"barograph.r.{token}\"");
        let (before, station) = text.split_once(&answers).unwrap();
        let station = station.replacen(mapped, &of_records, 1);
        text = format!("{before}{answers}\n{}{station}", taken.concat());
    }
    text
}

/// Permissions of an older list, which does not have the subjects of responses: stations publish
/// their records to `records` and their entries to the directory, and archives write no records of
/// stations.
fn older_permissions(is_archive: bool, host: &str, records: &str) -> Value {
    let role = if is_archive { "archive" } else { "station" };
    let template = std::fs::read_to_string(deploy(&format!("{role}.template.json"))).unwrap();
    let mut permissions: Value = serde_json::from_str(&template.replace("{{name()}}", &token(host))).unwrap();
    for kind in ["pub", "sub"] {
        let allowed = permissions[kind]["allow"].as_array_mut().unwrap();
        allowed.retain(|subject| {
            let subject = subject.as_str().unwrap();
            !subject.starts_with("barograph.b.") && subject != "barograph.r.*"
        });
    }
    if !is_archive {
        let own = [records, "$KV.barograph_dir.{{name()}}"]
            .map(|subject| subject.replace("{{name()}}", &token(host)));
        permissions["pub"]["allow"].as_array_mut().unwrap().extend(own.map(Value::from));
    }
    permissions
}

/// Runs a shipped script in `directory`.
pub(crate) fn script(directory: &Path, name: &str, arguments: &[&str]) -> String {
    let made = Command::new(deploy(name)).args(arguments).current_dir(directory).output().unwrap();
    assert!(made.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap()
}

/// Runs a shipped script that must fail. Returns its error message.
pub(crate) fn refused(directory: &Path, line: &[&str]) -> String {
    let ran = Command::new(deploy(line[0])).args(&line[1..]).current_dir(directory).output().unwrap();
    let why = String::from_utf8(ran.stderr).unwrap();
    assert!(!ran.status.success() && !why.is_empty(), "{line:?}: {why}");
    why
}

pub(crate) fn has_openssl() -> bool {
    let found = Command::new("openssl").arg("version").output().is_ok();
    if !found {
        barograph_sim::report_missing("certificates for NATS: there is no openssl");
    }
    found
}

pub(crate) fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats").join(file)
}
