//! Runs the operator's guide, `docs/guide/nats.md`, as it is written: its scripts, configurations
//! and stations. The test replaces the addresses and ports of the guide by addresses and ports of
//! this host.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use barograph_testkit::{ChildProcess, fenced};

/// Time limit of every wait.
const LIMIT: Duration = Duration::from_secs(180);

const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[test]
fn a_newcomer_gets_a_secured_mesh() {
    let Some(server) = server() else { return };
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let guide = std::fs::read_to_string(repository("docs/guide/nats.md")).unwrap();
    for file in std::fs::read_dir(repository("deploy/nats")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), root.join(file.file_name())).unwrap();
    }
    let commands = fenced(&guide, "sh");
    for line in commands.lines().filter(|line| line.starts_with("./")) {
        run(
            root,
            &(1..=3).fold(line.to_owned(), |line, n| line.replace(&format!("192.0.2.1{n}"), &address(n))),
        );
    }
    for file in ["single.conf", "n1.conf", "n2.conf", "n3.conf"] {
        assert!(guide.contains(file), "{file} is in the guide");
        run(root, &format!("{} -t -c {file}", server.display()));
    }

    assert!(commands.contains("nats-server -c single.conf"));
    let configuration = std::fs::read_to_string(root.join("single.conf")).unwrap();
    let ports = format!("ports_file_dir: {root:?}\n");
    let local = configuration.replace("0.0.0.0:4222", &format!("{}:-1", address(1))) + &ports;
    std::fs::write(root.join("single.conf"), local).unwrap();
    let nats = nats_server(&server, root, "single.conf");
    let file = root.join(format!("nats-server_{}.ports", nats.id()));
    let listening = until(root, "the server listens", || {
        let text = std::fs::read_to_string(&file).ok()?;
        let (_, there) = text.split('"').find_map(|part| part.split_once("://"))?;
        there.starts_with(&address(1)).then(|| there.to_string())
    });

    let toml = fenced(&guide, "toml").replace("/etc/barograph", root.join("tls").to_str().unwrap());
    let servers = "\"north.example.net:4222\"";
    assert!(toml.contains(servers));
    let one = toml.replace(servers, &format!("{listening:?}"));
    let stations = mesh(root, &one);

    // Starts the servers of step 5 of the guide: three, each in a folder of its own.
    drop(stations);
    drop(nats);
    for line in commands.lines().filter(|line| line.starts_with("mv ")) {
        run(root, line);
    }
    let ports: Vec<[u16; 2]> = (1..=3).map(free_ports).collect();
    let folders: Vec<PathBuf> = (1..=3).map(|number| folder(root, number, &ports)).collect();
    let start = || -> Vec<ChildProcess> {
        (1..)
            .zip(&folders)
            .map(|(number, folder)| nats_server(&server, folder, &format!("n{number}.conf")))
            .collect()
    };
    let mut cluster = start();
    let addresses: Vec<String> =
        (1..).zip(&ports).map(|(number, [port, _])| format!("\"{}:{port}\"", address(number))).collect();
    assert!(guide.contains("nats_replicas = 3"));
    let three = toml
        .replace(servers, &addresses.join(", "))
        .replace("archive = true\n", "archive = true\nnats_replicas = 3\n");
    let stations = mesh(root, &three);
    for stream in folders.iter().flat_map(|folder| {
        let streams = folder.join("jetstream/jetstream/BAROGRAPH/streams");
        [streams.join("BAROGRAPH"), streams.join("KV_barograph_dir")]
    }) {
        until(root, "a copy on each server", || stream.is_dir().then_some(()));
    }
    cluster.truncate(2);
    let east = station(root, "east.example.net", &member(&three, "east.example.net"));
    shows(root, "north.example.net", "east.example.net up");

    // Runs step 6 of the guide: withdraws one station.
    let reload = "nats-server --signal reload=nats.pid";
    assert!(guide.contains(reload));
    run(root, "./stations north.example.net east.example.net >stations.conf");
    for folder in &folders[..2] {
        std::fs::copy(root.join("stations.conf"), folder.join("stations.conf")).unwrap();
        run(folder, &reload.replace("nats-server", server.to_str().unwrap()));
    }
    shows(root, "north.example.net", "south.example.net lost");
    shows(root, "south.example.net", "not connected");
    shows(root, "south.example.net", "the servers do not accept this station's certificate");
    assert!(guide.contains("barograph members --remove NAME"));
    let archive = root.join("north.example.net");
    let removed =
        said(root, &["members", "--remove", "south.example.net", "--state", archive.to_str().unwrap()]);
    assert!(removed.contains("Removed member south.example.net"), "{removed}");
    for host in ["north.example.net", "east.example.net"] {
        shows(root, host, "peers: 1 up, 0 lost, 0 ignored");
    }

    // Stop everything, and start the servers again with credentials instead of certificates.
    drop((stations, east));
    drop(cluster);
    for (number, folder) in (1..).zip(&folders) {
        run(folder, "mv jetstream jetstream.certificates");
        std::fs::copy(root.join("accounts.conf"), folder.join("accounts.conf")).unwrap();
        change(&folder.join(format!("n{number}.conf")), |text| {
            let maps = "  verify_and_map: true\n";
            assert!(text.contains(maps) && text.contains("include stations.conf"));
            text.replace(maps, "").replace("include stations.conf", "include accounts.conf")
        });
    }
    let _cluster = start();
    let own = root.join("north.example.net.creds");
    let files = |line: &str| line.starts_with("nats_certificate") || line.starts_with("nats_key");
    let lines: Vec<&str> = three.lines().filter(|line| !files(line)).collect();
    let credentials = format!("{}\nnats_credentials = {own:?}\n", lines.join("\n"));
    let _stations = mesh(root, &credentials);
}

/// Starts the station north, which has the archive, and the station south, and waits until each
/// lists the other.
fn mesh(root: &Path, toml: &str) -> [ChildProcess; 2] {
    let stations = [
        station(root, "north.example.net", toml),
        station(root, "south.example.net", &member(toml, "south.example.net")),
    ];
    shows(root, "north.example.net", "north.example.net (archive)");
    shows(root, "north.example.net", "south.example.net up");
    shows(root, "south.example.net", "south.example.net (member)");
    shows(root, "south.example.net", "north.example.net up");
    stations
}

/// Makes the configuration of a station without the archive from `toml`, the configuration of the
/// station with the archive.
fn member(toml: &str, host: &str) -> String {
    let lines =
        toml.lines().filter(|line| !line.starts_with("archive") && !line.starts_with("nats_replicas"));
    lines.map(|line| line.replace("north.example.net", host) + "\n").collect()
}

fn shows(root: &Path, host: &str, what: &str) {
    let peers = || said(root, &["peers", "--state", root.join(host).to_str().unwrap()]);
    // Ignore the number of spaces: the width of a column depends on the longest name.
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let found = || peers().lines().any(|line| words(line).contains(what)).then_some(());
    until(root, &format!("{what}, among the peers of {host}"), found);
}

/// The logs of stations and servers, to print when a test fails.
fn logs(root: &Path) -> String {
    let folders =
        [root.to_owned()].into_iter().chain((1..=3).map(|number| root.join(format!("server{number}"))));
    let files = folders
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|kind| kind == "log")).collect();
    files.sort();
    let log = |file: &PathBuf| {
        format!("{}:\n{}\n", file.display(), std::fs::read_to_string(file).unwrap_or_default())
    };
    files.iter().map(log).collect()
}

/// A NATS server, which appends to its log.
fn nats_server(program: &Path, folder: &Path, configuration: &str) -> ChildProcess {
    let log = std::fs::File::options().create(true).append(true).open(folder.join("nats.log")).unwrap();
    let mut nats = Command::new(program);
    ChildProcess::start(nats.args(["-c", configuration]).current_dir(folder).stderr(log))
}

/// Creates the folder of one of the three servers, with the files of the guide, in which ports of
/// this host replace the guide's ports.
fn folder(root: &Path, number: usize, ports: &[[u16; 2]]) -> PathBuf {
    let folder = root.join(format!("server{number}"));
    std::fs::create_dir_all(folder.join("tls/routes")).unwrap();
    let server = format!("n{number}");
    let files = [
        format!("{server}.conf"),
        "stations.conf".into(),
        "tls/ca.pem".into(),
        format!("tls/{server}.pem"),
        format!("tls/{server}.key"),
        "tls/routes/ca.pem".into(),
        format!("tls/routes/{server}.pem"),
        format!("tls/routes/{server}.key"),
    ];
    for file in files {
        std::fs::copy(root.join(&file), folder.join(&file)).unwrap();
    }
    let [client, route] = ports[number - 1];
    change(&folder.join(format!("{server}.conf")), |mut text| {
        for (other, [_, route]) in (1..).zip(ports) {
            text =
                text.replace(&format!("nats://n{other}:6222"), &format!("nats://{}:{route}", address(other)));
        }
        let own = address(number);
        text.replace("0.0.0.0:4222", &format!("{own}:{client}"))
            .replace("0.0.0.0:6222", &format!("{own}:{route}"))
            .replace("127.0.0.1:8222", "127.0.0.1:-1")
    });
    folder
}

fn change(file: &Path, text: impl FnOnce(String) -> String) {
    let changed = text(std::fs::read_to_string(file).unwrap());
    std::fs::write(file, changed).unwrap();
}

/// Returns a loopback address that only this process uses, a different one for each server. So no
/// connection of a different process takes a port of the server.
fn address(number: usize) -> String {
    let id = std::process::id();
    format!("127.{}.{}.{number}", 1 + id / 254 % 254, 1 + id % 254)
}

/// Two different free ports, chosen before the servers start, because the configuration of each
/// member of a cluster contains the ports of the other members.
fn free_ports(number: usize) -> [u16; 2] {
    let listeners = [(); 2].map(|()| std::net::TcpListener::bind((address(number), 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Starts a station with this configuration, and waits until the station has printed its address.
fn station(root: &Path, host: &str, configuration: &str) -> ChildProcess {
    let file = root.join(format!("{host}.toml"));
    std::fs::write(&file, configuration).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_barograph"));
    command.args(["up", "--no-default-targets", "--listen", "127.0.0.1:0", "--host", host, "--config"]);
    command.arg(file).arg("--state").arg(root.join(host));
    let log = std::fs::File::create(root.join(format!("{host}.log"))).unwrap();
    let (mut station, line) = ChildProcess::with_line(command.env_clear().stderr(log));
    assert!(line.starts_with("listening on"), "{line}");
    drop(station.take_stdout());
    station
}

/// Output of the program; empty if it fails.
fn said(root: &Path, arguments: &[&str]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_barograph"))
        .args(arguments)
        .current_dir(root)
        .env_clear()
        .output()
        .unwrap();
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn run(root: &Path, line: &str) {
    let done = Command::new("sh").args(["-c", line]).current_dir(root).output().unwrap();
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
}

fn until<T>(root: &Path, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "{what}: not within {LIMIT:?}\n{}", logs(root));
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// `nats-server`, if it and the tools of the scripts are installed.
fn server() -> Option<PathBuf> {
    let has_tools = Command::new("openssl").arg("version").output().is_ok();
    if !has_tools {
        barograph_sim::report_missing("the operator's guide: there is no openssl");
    }
    barograph_testkit::nats::binary().filter(|_| has_tools)
}
