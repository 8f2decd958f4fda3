//! The station's configuration: documented defaults, a TOML file, `BAROGRAPH_…` variables, flags.
//!
//! Each later layer overrides the earlier. Every key exists in all of them: `limits.series_max` in the
//! file is `BAROGRAPH_LIMITS_SERIES_MAX` in the environment and `--set limits.series_max=…` as a flag.

mod echo;
mod file;
mod mesh;
mod transfer;
mod value;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use barograph_forecast::Name;

use crate::measure::target::{Provenance, Secret, Target};

pub use echo::EchoConfig;
pub use file::{Place, nearest};
pub(crate) use mesh::{BULK_BYTES_MIN, local_group, unset_group};
pub use mesh::{BulkWith, MeshConfig};
pub use transfer::TransferConfig;
pub use value::Value;

/// All settings of a station. The defaults are in [`Config::default`]; `docs/barograph.toml` explains each.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where to listen, TCP and UDP.
    pub listen: SocketAddr,
    /// Whether that follows from joining a mesh, and was not set.
    pub listen_implied: bool,
    /// Directory of the archive, the token and the added targets.
    pub state: PathBuf,
    /// The station's name, the source of its series; `None` = the system's host name.
    pub host: Option<Name>,
    /// Names under which it may be asked for, beside addresses, `localhost` and the host name.
    pub allowed_hosts: Vec<String>,
    /// Whether targets may be added by others than this host.
    pub allow_remote_targets: bool,
    /// Whether callers on this host need the token too: behind a reverse proxy they are anybody.
    pub loopback_needs_token: bool,
    /// Whether the own responder, the gateway and the resolver are measured.
    pub default_targets: bool,
    /// TCP port of the gateway that is connected to.
    pub gateway_port: u16,
    /// Period of the sensors.
    pub sensor_period: Duration,
    /// Period of probes.
    pub probe_period: Duration,
    /// Deadline of one experiment.
    pub probe_timeout: Duration,
    /// Period of bulk tests.
    pub goodput_period: Duration,
    /// Bytes of one bulk test.
    pub goodput_bytes: u64,
    /// Most experiments at once.
    pub workers_max: usize,
    /// File with the token presented to the targets of the configuration that name none themselves.
    pub token_file: Option<PathBuf>,
    /// Shortest time between two commits of the archive.
    pub commit: Duration,
    /// How long records are kept.
    pub keep: Duration,
    /// The size of the archive beyond which the oldest records are removed, in bytes.
    pub keep_bytes: u64,
    /// Most series.
    pub series_max: usize,
    /// Most connections at once.
    pub connections_max: usize,
    /// Most live streams at once.
    pub streams_max: usize,
    /// Most records that wait for the archive.
    pub spool_records_max: usize,
    /// Probes over WebSocket.
    pub echo: EchoConfig,
    /// The station's part in a mesh.
    pub mesh: MeshConfig,
    /// Files that are sent and received when somebody asks.
    pub transfer: TransferConfig,
    /// Certificate chain, PEM.
    pub tls_certificate: Option<PathBuf>,
    /// Private key, PEM.
    pub tls_key: Option<PathBuf>,
    /// What to measure beside the default targets.
    pub targets: Vec<Target>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], PORT)),
            listen_implied: false,
            state: default_state(|name| std::env::var_os(name).map(PathBuf::from)),
            host: None,
            allowed_hosts: Vec::new(),
            allow_remote_targets: false,
            loopback_needs_token: false,
            default_targets: true,
            gateway_port: 80,
            sensor_period: Duration::from_secs(10),
            probe_period: Duration::from_secs(10),
            probe_timeout: Duration::from_secs(5),
            goodput_period: Duration::from_mins(10),
            goodput_bytes: 1 << 20,
            workers_max: 32,
            token_file: None,
            commit: Duration::from_secs(1),
            keep: Duration::from_hours(400 * 24),
            keep_bytes: 1 << 30,
            series_max: 40_000,
            connections_max: 1024,
            streams_max: 64,
            spool_records_max: 100_000,
            echo: EchoConfig::default(),
            mesh: MeshConfig::default(),
            transfer: TransferConfig::default(),
            tls_certificate: None,
            tls_key: None,
            targets: Vec::new(),
        }
    }
}

/// Where settings come from: everything needed to read them again on SIGHUP.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file, if one is used. A file that was named must exist.
    pub file: Option<PathBuf>,
    /// `(variable, text)` pairs; others than `BAROGRAPH_…` are ignored.
    pub variables: Vec<(String, String)>,
    /// `(key, text)` pairs, from flags.
    pub flags: Vec<(String, String)>,
    /// `--target` flags, added to the file's.
    pub targets: Vec<String>,
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {error}", path = path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Not TOML.
    #[error("{place}: {message}")]
    Syntax {
        /// Where.
        place: Place,
        /// What the parser says.
        message: String,
    },
    /// A key that does not exist.
    #[error("{place}: unknown key `{key}`{}", suggestion.map(|s| format!("; did you mean `{s}`?")).unwrap_or_default())]
    UnknownKey {
        /// Where.
        place: Place,
        /// The key as given.
        key: String,
        /// The nearest key that exists, if one is near.
        suggestion: Option<&'static str>,
    },
    /// A value that the key does not take.
    #[error("{place}: `{key}`: {message}")]
    Value {
        /// Where.
        place: Place,
        /// Which key.
        key: String,
        /// What is wrong, and what would be right.
        message: String,
    },
}

impl Sources {
    /// Reads all layers.
    ///
    /// # Errors
    /// [`ConfigError`], naming the file and line, the variable or the flag.
    pub fn read(&self) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        let mut noted = Noted::default();
        if let Some(path) = &self.file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| ConfigError::Unreadable { path: path.clone(), error })?;
            config.apply_noting(path, &text, &mut noted)?;
        }
        for (name, text) in &self.variables {
            let place = Place::Variable(name.clone());
            match key_of_variable(name) {
                Some(key) => {
                    noted.note(key, &place);
                    config.set(key, &Value::Raw(text.clone()), place)?;
                }
                None if name == JOIN_TOKEN_VARIABLE => {
                    // Empty is what scripts and service files leave of a variable that is not set.
                    let token = Some(text.trim()).filter(|token| !token.is_empty());
                    config.mesh.join_token = token.map(|token| Secret::new(token.to_string()));
                }
                None if name.starts_with(PREFIX) && !OTHER_VARIABLES.contains(&name.as_str()) => {
                    let suggestion = None;
                    return Err(ConfigError::UnknownKey { place, key: name.clone(), suggestion });
                }
                None => {}
            }
        }
        for (key, text) in &self.flags {
            let place = Place::Flag(key.clone());
            noted.note(key, &place);
            config.set(key, &Value::Raw(text.clone()), place)?;
        }
        for text in &self.targets {
            let target = Target::parse(text, &[], None, Provenance::Config).map_err(|error| {
                let place = Place::Flag("target".into());
                ConfigError::Value { place, key: "target".into(), message: error.to_string() }
            })?;
            config.targets.push(target);
        }
        noted.judge(&mut config)?;
        Ok(config)
    }
}

/// Where settings were last spoken of that are judged together, when all was read.
#[derive(Default)]
struct Noted {
    tls: Option<Place>,
    mesh: Option<Place>,
    listen: bool,
}

impl Noted {
    fn note(&mut self, key: &str, place: &Place) {
        match key.split_once('.') {
            Some(("tls", _)) => self.tls = Some(place.clone()),
            Some(("mesh", _)) => self.mesh = Some(place.clone()),
            _ => self.listen |= key == "listen",
        }
    }

    /// Judges what depends on more than one setting, and sets what follows from others.
    fn judge(self, config: &mut Config) -> Result<(), ConfigError> {
        if let Some(place) = self.mesh {
            let judged = config.mesh.check();
            judged.map_err(|(key, message)| ConfigError::Value { place, key: key.into(), message })?;
        }
        if config.mesh.is_joined() && !self.listen {
            // A member that nobody reaches is none: its peers measure it.
            config.listen = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, PORT));
            config.listen_implied = true;
        }
        if let Some(place) = self.tls {
            let loaded = crate::http::tls::load(config.tls_certificate.as_deref(), config.tls_key.as_deref());
            loaded.map_err(|error| ConfigError::Value {
                place,
                key: "tls".into(),
                message: error.to_string(),
            })?;
        }
        Ok(())
    }
}

impl Config {
    /// How the station keeps its archive.
    pub(crate) fn archive(&self) -> barograph_engine::Config {
        let usual = barograph_engine::Config::new(&self.state);
        barograph_engine::Config {
            commit_interval: self.commit,
            keep: self.keep,
            keep_bytes: self.keep_bytes,
            // Twice as many as are forecast: those of stations that left stay until their records are
            // old, and a member's eighth here is its quarter of what is forecast.
            series_max: usual.series_max.max(2 * self.series_max),
            ..usual
        }
    }

    /// Overrides settings with those of a file's text.
    ///
    /// # Errors
    /// [`ConfigError`] with the line.
    pub fn apply_file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        self.apply_noting(path, text, &mut Noted::default())
    }

    /// The same, noting what is judged when all was read.
    fn apply_noting(&mut self, path: &Path, text: &str, noted: &mut Noted) -> Result<(), ConfigError> {
        let entries = file::entries(path, text)?;
        for entry in entries.values {
            noted.note(&entry.key, &entry.place);
            self.set(&entry.key, &entry.value, entry.place)?;
        }
        for table in entries.targets {
            let target = file::target(&table)?;
            if self.targets.iter().any(|other| other.name == target.name) {
                let message = format!("`{}` has a table already; name all its quantities there", target.name);
                let place = table.place().clone();
                return Err(ConfigError::Value { place, key: "target".into(), message });
            }
            self.targets.push(target);
        }
        Ok(())
    }

    /// Sets one key.
    ///
    /// # Errors
    /// [`ConfigError::UnknownKey`] with the nearest key, [`ConfigError::Value`] with what it takes.
    pub fn set(&mut self, key: &str, value: &Value, place: Place) -> Result<(), ConfigError> {
        let refuse = |message| ConfigError::Value { place: place.clone(), key: key.to_string(), message };
        match self.assign(key, value) {
            Some(result) => result.map_err(refuse),
            None => {
                Err(ConfigError::UnknownKey { place, key: key.to_string(), suggestion: nearest(key, KEYS) })
            }
        }
    }

    /// `None` = there is no such key.
    fn assign(&mut self, key: &str, value: &Value) -> Option<Result<(), String>> {
        let result = match key {
            "listen" => value.address().map(|v| self.listen = v),
            "state" => value.path().map(|v| self.state = v),
            "host" => value.name().map(|v| self.host = Some(v)),
            "allowed_hosts" => value.words().map(|v| self.allowed_hosts = v),
            "allow_remote_targets" => value.flag().map(|v| self.allow_remote_targets = v),
            "loopback_needs_token" => value.flag().map(|v| self.loopback_needs_token = v),
            "default_targets" => value.flag().map(|v| self.default_targets = v),
            "gateway_port" => value.integer(1, 65_535).map(|v| self.gateway_port = v as u16),
            "sensors.period_s" => value.seconds(0.1, DAY_S).map(|v| self.sensor_period = v),
            "probe.period_s" => value.seconds(0.1, DAY_S).map(|v| self.probe_period = v),
            "probe.timeout_s" => value.seconds(0.01, 600.0).map(|v| self.probe_timeout = v),
            "probe.goodput_period_s" => value.seconds(1.0, 30.0 * DAY_S).map(|v| self.goodput_period = v),
            "probe.goodput_bytes" => value.integer(1, 1 << 30).map(|v| self.goodput_bytes = v),
            "probe.workers_max" => value.integer(1, 1024).map(|v| self.workers_max = v as usize),
            "probe.token_file" => value.path().map(|v| self.token_file = Some(v)),
            "archive.commit_s" => value.seconds(0.0, 60.0).map(|v| self.commit = v),
            "archive.keep_days" => value.seconds(0.01, 100_000.0).map(|days| self.keep = days.mul_f64(DAY_S)),
            "archive.keep_bytes" => value.integer(1 << 20, 1 << 50).map(|v| self.keep_bytes = v),
            "limits.series_max" => value.integer(1, 1_000_000).map(|v| self.series_max = v as usize),
            "limits.connections_max" => value.integer(1, 65_536).map(|v| self.connections_max = v as usize),
            "limits.streams_max" => value.integer(0, 65_536).map(|v| self.streams_max = v as usize),
            "limits.spool_records_max" => {
                value.integer(1, 10_000_000).map(|v| self.spool_records_max = v as usize)
            }
            "tls.certificate" => value.path().map(|v| self.tls_certificate = Some(v)),
            "tls.key" => value.path().map(|v| self.tls_key = Some(v)),
            _ => {
                return match key.split_once('.')? {
                    ("mesh", key) => self.mesh.assign(key, value),
                    ("echo", key) => self.echo.assign(key, value),
                    ("transfer", key) => self.transfer.assign(key, value),
                    _ => None,
                };
            }
        };
        Some(result)
    }

    /// The settings that differ and are read only at the start, by key.
    #[must_use]
    pub fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let differences = [
            ("listen", self.listen != new.listen),
            ("state", self.state != new.state),
            ("host", self.host != new.host),
            ("probe.workers_max", self.workers_max != new.workers_max),
            ("archive", (self.commit, self.keep, self.keep_bytes) != (new.commit, new.keep, new.keep_bytes)),
            (
                "limits",
                (self.series_max, self.connections_max, self.streams_max, self.spool_records_max)
                    != (new.series_max, new.connections_max, new.streams_max, new.spool_records_max),
            ),
            ("echo", self.echo.needs_restart(&new.echo)),
            ("mesh", self.mesh.needs_restart(&new.mesh)),
        ];
        differences.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

/// Every key, for suggestions and the environment; `[[target]]` tables come on top.
pub const KEYS: &[&str] = &[
    "listen",
    "state",
    "host",
    "allowed_hosts",
    "allow_remote_targets",
    "loopback_needs_token",
    "default_targets",
    "gateway_port",
    "sensors.period_s",
    "probe.period_s",
    "probe.timeout_s",
    "probe.goodput_period_s",
    "probe.goodput_bytes",
    "probe.workers_max",
    "probe.token_file",
    "archive.commit_s",
    "archive.keep_days",
    "archive.keep_bytes",
    "limits.series_max",
    "limits.connections_max",
    "limits.streams_max",
    "limits.spool_records_max",
    "echo.enabled",
    "echo.origins",
    "echo.sessions_max",
    "echo.transfers_max",
    "echo.bytes_per_hour",
    "echo.peer_bytes_per_hour",
    "echo.keep",
    "echo.keep_sources_max",
    "echo.keep_reports_per_hour",
    "mesh.join",
    "mesh.join_token_file",
    "mesh.join_ca",
    "mesh.nats",
    "mesh.nats_replicas",
    "mesh.nats_credentials",
    "mesh.nats_ca",
    "mesh.nats_certificate",
    "mesh.nats_key",
    "mesh.archive",
    "mesh.site",
    "mesh.sites",
    "mesh.sites_hold_s",
    "mesh.groups",
    "mesh.advertise",
    "mesh.lease_s",
    "mesh.latency_per_s",
    "mesh.spool_records_max",
    "mesh.on_change",
    "mesh.webhook",
    "mesh.bulk",
    "mesh.bulk_share",
    "mesh.bulk_bytes_per_hour",
    "mesh.bulk_seconds",
    "mesh.bulk_every_s",
    "mesh.bulk_early_stop",
    "mesh.bulk_paper",
    "mesh.bulk_with",
    "mesh.bulk_iperf3_port",
    "tls.certificate",
    "tls.key",
    "transfer.send",
    "transfer.receive",
    "transfer.bytes_max",
    "transfer.transfers_max",
    "transfer.ports",
    "transfer.replace",
];

/// The port that a station listens on unless told otherwise: the standard atmosphere, 1013.2 hPa.
///
/// It is assigned to no service by IANA, lies above the ports that need privileges and below those
/// that Linux takes for outgoing connections (32768), so that it is rarely taken.
pub const PORT: u16 = 10132;

/// The environment variable of `key`.
#[must_use]
pub fn variable_of_key(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_ascii_uppercase())
}

fn key_of_variable(name: &str) -> Option<&'static str> {
    KEYS.iter().copied().find(|key| variable_of_key(key) == name)
}

/// `$XDG_STATE_HOME/barograph`, else `$HOME/.local/state/barograph` (XDG base directories, 0.8), else
/// a directory of the working directory.
fn default_state(variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    // The specification says that a relative path there is to be ignored.
    let state_home = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let home = variable("HOME").filter(|path| path.is_absolute());
    match (state_home, home) {
        (Some(path), _) => path.join("barograph"),
        (None, Some(path)) => path.join(".local/state/barograph"),
        (None, None) => PathBuf::from("barograph-state"),
    }
}

const PREFIX: &str = "BAROGRAPH_";

/// Variables with our prefix that are not settings of the station: the file's path, the log's level,
/// and what other verbs read.
const OTHER_VARIABLES: &[&str] =
    &["BAROGRAPH_CONFIG", "BAROGRAPH_LOG", "BAROGRAPH_TOKEN", "BAROGRAPH_STATION"];

/// The token for joining a mesh; no setting, because flags can be read by others on a host.
const JOIN_TOKEN_VARIABLE: &str = "BAROGRAPH_JOIN_TOKEN";

const DAY_S: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        config.apply_file(Path::new("b.toml"), text)?;
        Ok(config)
    }

    #[test]
    fn every_key_can_be_assigned() {
        for key in KEYS {
            assert!(Config::default().assign(key, &Value::Raw(String::new())).is_some(), "{key}");
        }
    }

    #[test]
    fn the_shipped_example_equals_the_defaults() {
        let text = include_str!("../../../docs/barograph.toml");
        assert_eq!(read(text).unwrap(), Config::default());
        // The same with every example switched on: nothing in it may have become stale.
        let all: String =
            text.lines().map(|line| line.strip_prefix("#:").unwrap_or(line).to_string() + "\n").collect();
        read(&all).unwrap();
        for key in KEYS {
            let last = key.rsplit('.').next().unwrap();
            assert!(all.lines().any(|line| line.starts_with(&format!("{last} ="))), "{key} is not explained");
        }
    }

    #[test]
    fn unknown_keys_name_the_line_and_the_nearest() {
        for (text, line, suggestion) in [
            ("lisen = \"x\"", 1, Some("listen")),
            ("\n\n[probe]\nperiods_s = 3\n", 4, Some("probe.period_s")),
            ("[probes]\nperiod_s = 3", 2, Some("probe.period_s")),
            ("\n[limits]\nx = 1", 3, None),
            ("wholly_different = 1", 1, None),
        ] {
            let ConfigError::UnknownKey { place, suggestion: found, .. } = read(text).unwrap_err() else {
                panic!("{text}")
            };
            assert_eq!(place, Place::Line { path: "b.toml".into(), line }, "{text}");
            assert_eq!(found, suggestion, "{text}");
        }
    }

    #[test]
    fn wrong_values_name_the_line_and_what_is_taken() {
        for text in [
            "listen = 8",
            "listen = \"nowhere\"",
            "default_targets = \"maybe\"",
            "[probe]\nperiod_s = -1",
            "[probe]\nperiod_s = nan",
            "[probe]\nperiod_s = inf",
            "[probe]\ngoodput_bytes = 0",
            "[probe]\nworkers_max = 2.5",
            "[limits]\nseries_max = 99999999999999999999",
            "allowed_hosts = [1]",
            "host = \"a b\"",
            "probe = 3",
            "state = \"\"",
        ] {
            let error = read(text).unwrap_err();
            assert!(matches!(error, ConfigError::Value { .. }), "{text}: {error}");
            assert!(error.to_string().starts_with("b.toml:"), "{error}");
        }
    }

    #[test]
    fn broken_toml_names_the_line_in_one_line() {
        let error = read("listen = \"127.0.0.1:0\"\n[probe\n").unwrap_err().to_string();
        assert!(error.starts_with("b.toml:2: "), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn targets_are_tables_with_their_own_keys() {
        let config =
            read("[[target]]\ntarget = \"a:1\"\nquantities = [\"connect\"]\nperiod_s = 3\n").unwrap();
        assert_eq!(config.targets[0].period, Some(Duration::from_secs(3)));
        for (text, line) in [
            ("[[target]]\nquantities = []", 1),
            ("[[target]]\ntarget = \"a:1\"\nquantity = []", 3),
            ("[[target]]\ntarget = \"a\"", 2),
            ("[[target]]\ntarget = \"a:1\"\nquantities = [\"x\"]", 3),
            ("[[target]]\ntarget = \"a:1\"\nperiod_s = 0", 3),
            ("[[target]]\ntarget = \"a:1\"\ntoken_file = 0", 3),
            ("target = \"a:1\"", 1),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("b.toml:{line}: ")), "{text}: {error}");
        }
    }

    #[test]
    fn a_target_has_one_table() {
        let text = "[[target]]\ntarget = \"http://A:1\"\n[[target]]\ntarget = \"http://a:1/\"\n";
        let error = read(text).unwrap_err().to_string();
        assert!(error.starts_with("b.toml:3: ") && error.contains("`http://a:1/`"), "{error}");
    }

    #[test]
    fn certificates_that_cannot_be_used_name_their_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("b.toml");
        let pem = directory.path().join("empty.pem");
        std::fs::write(&pem, "no certificate").unwrap();
        let half = format!("[tls]\ncertificate = {pem:?}\n");
        for (text, line, word) in
            [(half.clone(), 2, "tls.key"), (format!("{half}key = {pem:?}\n"), 3, "empty.pem")]
        {
            std::fs::write(&file, text).unwrap();
            let error = Sources { file: Some(file.clone()), ..Sources::default() }.read().unwrap_err();
            let error = error.to_string();
            assert!(error.contains(&format!("b.toml:{line}: ")) && error.contains(word), "{error}");
        }
    }

    #[test]
    fn later_layers_override_earlier_ones() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("b.toml");
        std::fs::write(&file, "[probe]\nperiod_s = 1\ntimeout_s = 1\n[limits]\nseries_max = 1").unwrap();
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        let sources = Sources {
            file: Some(file),
            variables: vec![
                pair("BAROGRAPH_PROBE_PERIOD_S", "2"),
                pair("BAROGRAPH_LIMITS_SERIES_MAX", "2"),
                pair("BAROGRAPH_CONFIG", "x"),
                pair("PATH", "x"),
            ],
            flags: vec![pair("limits.series_max", "3")],
            targets: vec!["a:1".into()],
        };
        let config = sources.read().unwrap();
        assert_eq!(config.probe_timeout, Duration::from_secs(1));
        assert_eq!(config.probe_period, Duration::from_secs(2));
        assert_eq!(config.series_max, 3);
        assert_eq!(config.targets.len(), 1);
        let wrong = Sources { variables: vec![pair("BAROGRAPH_LISEN", "x")], ..Sources::default() };
        assert!(wrong.read().unwrap_err().to_string().contains("BAROGRAPH_LISEN"));
    }

    #[test]
    fn who_joins_listens_for_others_and_keeps_its_invitation_to_itself() {
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        let variables = vec![pair("BAROGRAPH_JOIN_TOKEN", "sesame\n"), pair("BAROGRAPH_MESH_SITE", "lab")];
        let sources = Sources { variables, flags: vec![pair("mesh.join", "head")], ..Sources::default() };
        let config = sources.read().unwrap();
        assert_eq!(config.mesh.join.as_deref(), Some("http://head:10132/"));
        assert_eq!(config.mesh.join_token.as_ref().map(Secret::reveal), Some("sesame"));
        assert!(!format!("{config:?}").contains("sesame"));
        let empty = Sources { variables: vec![pair("BAROGRAPH_JOIN_TOKEN", " ")], ..Sources::default() };
        assert_eq!(empty.read().unwrap().mesh.join_token, None);
        assert_eq!((config.listen.to_string().as_str(), config.listen_implied), ("[::]:10132", true));
        assert_eq!(config.mesh.all_groups()[0].as_str(), "local:lab");
        let told = Sources {
            flags: vec![pair("mesh.join", "head"), pair("listen", "127.0.0.1:0")],
            ..Sources::default()
        };
        let config = told.read().unwrap();
        assert_eq!((config.listen.to_string().as_str(), config.listen_implied), ("127.0.0.1:0", false));
        let both =
            Sources { flags: vec![pair("mesh.join", "a"), pair("mesh.nats", "b")], ..Sources::default() };
        let error = both.read().unwrap_err().to_string();
        assert!(error.contains("`mesh.join`: a mesh has one engine"), "{error}");
        assert_eq!(
            Config::default().needs_restart(&Config { mesh: config.mesh, ..Config::default() }),
            ["mesh"]
        );
    }

    #[test]
    fn the_state_directory_follows_xdg() {
        let state = |xdg: Option<&str>, home: Option<&str>| {
            default_state(|name| match name {
                "XDG_STATE_HOME" => xdg.map(PathBuf::from),
                _ => home.map(PathBuf::from),
            })
        };
        assert_eq!(state(Some("/x"), Some("/h")), PathBuf::from("/x/barograph"));
        assert_eq!(state(Some("x"), Some("/h")), PathBuf::from("/h/.local/state/barograph"));
        assert_eq!(state(None, None), PathBuf::from("barograph-state"));
    }
}
