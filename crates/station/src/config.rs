//! The station's configuration: documented defaults, a TOML file, `BAROGRAPH_…` variables, flags.
//!
//! Each later layer overrides the earlier ones. Every key exists in all layers: `limits.series_max`
//! in the file is `BAROGRAPH_LIMITS_SERIES_MAX` in the environment and `--set limits.series_max=…`
//! as a flag.

#[cfg(test)]
mod documented;
mod echo;
mod file;
mod kind;
mod mesh;
mod setting;
mod target;
pub mod tls;
mod transfer;
mod value;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use barograph_forecast::Name;

use crate::target::{Provenance, Secret, Target, TargetError};
use kind::{DAY_S, address, days, flag, integer, list, name, optional, path, seconds};
use setting::{Applies, Setting, set, settings};
use value::Value;

pub use echo::EchoConfig;
pub(crate) use mesh::{BULK_BYTES_MIN, local_group, unreachable_reason, unset_group};
pub use mesh::{BulkWith, MeshConfig};
pub use transfer::TransferConfig;

settings! {
    |config: Config| config;

    /// Barograph: the station's configuration.
    ///
    /// Every value below is the default. A line that begins with "#:" is an example for a key
    /// without a default. The comment after a value has the accepted range, and "restart" if a
    /// change takes effect only after a restart.
    ///
    /// Each key is also an environment variable (limits.series_max = BAROGRAPH_LIMITS_SERIES_MAX)
    /// and a flag (--set limits.series_max=…). Flags override variables, and variables override
    /// this file. SIGHUP makes the station read the file again. If the file has a mistake, the
    /// station reports it and keeps its settings. Changes take effect at once, except those of keys
    /// marked "restart", which the log names.
    pub struct Config {
        /// Address and port. TCP serves the page, the API and probes; UDP on the same port serves
        /// datagram probes. Other hosts need the token in STATE/token to start traffic or change
        /// state (`[echo]` has the exceptions). 10132 stands for 1013.2 hPa, the standard
        /// atmosphere; no service is known to use it.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], PORT)) => "listen", address(), AtStart;
        /// Directory of the archive, the token and the targets added through the API. Default:
        /// $XDG_STATE_HOME/barograph, or ~/.local/state/barograph.
        state: PathBuf = default_state(|name| std::env::var_os(name).map(PathBuf::from)) =>
            "state", path(), AtStart, example "/var/lib/barograph";
        /// Name of the station, the source of its series. Default: the host name of the system.
        host: Option<Name> = None => "host", optional(name()), AtStart, example "office";
        /// Host names under which browsers may open the station, in addition to its addresses,
        /// localhost and `host`. The station refuses requests for other names.
        allowed_hosts: Vec<String> = Vec::new() => "allowed_hosts", list(Ok), AtOnce;
        /// Whether callers on other hosts may add targets for this host to probe, if the callers
        /// have the token.
        allow_remote_targets: bool = false => "allow_remote_targets", flag(), AtOnce;
        /// Whether callers on this host need the token, too. If false, two kinds of callers need no
        /// token: those that connect over loopback, and those that connect from an address of this
        /// host to the same address. WARNING: behind a reverse proxy on this host all callers
        /// connect in this way. The station recognises a proxy by HTTP/1.0 or by a Via, Forwarded,
        /// X-Forwarded-… or X-Real-IP header. It cannot recognise a proxy that speaks HTTP/1.1 and
        /// adds no such header. So behind a proxy set this to true; otherwise any caller may need
        /// no token.
        loopback_needs_token: bool = false => "loopback_needs_token", flag(), AtOnce;
        /// Whether to measure this station's responder, the default gateway and the resolver. No
        /// host further away is measured by default.
        default_targets: bool = true => "default_targets", flag(), AtOnce;
        /// TCP port of the gateway to connect to; most routers have a web page there. A refused
        /// connection also counts, with its time.
        gateway_port: u16 = 80 => "gateway_port", integer(1..=65_535), AtOnce;
        /// Period (s) of the sensors cpu_available and memory_free.
        sensor_period: Duration = Duration::from_secs(10) => "sensors.period_s", seconds(0.1..=DAY_S), AtOnce;
        /// Period (s) of targets without a period of their own. Jitter is ±10 %.
        probe_period: Duration = Duration::from_secs(10) => "probe.period_s", seconds(0.1..=DAY_S), AtOnce;
        /// Longest time (s) of one experiment; after this time, a failure is recorded.
        probe_timeout: Duration = Duration::from_secs(5) => "probe.timeout_s", seconds(0.01..=600.0), AtOnce;
        /// Period (s) of bulk tests. They run only for targets that list goodput or goodput_down in
        /// their quantities.
        goodput_period: Duration = Duration::from_mins(10) =>
            "probe.goodput_period_s", seconds(1.0..=30.0 * DAY_S), AtOnce;
        /// Number of bytes of one bulk test.
        goodput_bytes: u64 = 1 << 20 => "probe.goodput_bytes", integer(1..=1 << 30), AtOnce;
        /// Maximum number of experiments at once. Further experiments that are due are skipped and
        /// counted.
        workers_max: usize = 32 => "probe.workers_max", integer(1..=1024), AtStart;
        /// File with the token for other stations. The token is sent to those targets in this
        /// configuration file that have no token_file of their own. The token is never sent to
        /// targets added through the API. SIGHUP makes the station read the file again.
        token_file: Option<PathBuf> = None =>
            "probe.token_file", optional(path()), AtOnce, example "/etc/barograph/token";
        /// Shortest time (s) between two commits. A record is acknowledged after its commit.
        commit: Duration = Duration::from_secs(1) => "archive.commit_s", seconds(0.0..=60.0), AtStart;
        /// Longest time (days) to keep records. Records are removed when they are older, or when
        /// the archive is larger than keep_bytes. Records that wait for the mesh are kept.
        keep: Duration = Duration::from_hours(400 * 24) =>
            "archive.keep_days", days(0.01..=100_000.0), AtStart;
        /// Size (bytes) of the archive above which records are removed. The disk must have more
        /// space than this size: new records arrive during the removal, and the log of commits
        /// takes space, too. If the disk is full, nothing is removed until there is some space.
        keep_bytes: u64 = 1 << 30 => "archive.keep_bytes", integer(1 << 20..=1 << 50), AtStart;
        /// Maximum number of series with forecasts. Measurements of further series are refused and
        /// counted. A full series (512 points) takes 75 KB of memory; after the first 10 000
        /// series, which are also forecast up to an hour ahead, 35 KB. 40 000 series take 1.8 GB.
        ///
        /// Stations that all measure each other have five series for each ordered pair (round trip
        /// and loss, each also while a bulk test runs, and goodput) and up to ten of their own:
        /// 5·n·(n−1) + 10·n. The default is enough for 88 stations; 200 stations need 201 000
        /// series (7.4 GB). A mesh with sites (mesh.site) needs far fewer series.
        ///
        /// The station that other stations join keeps all of these series. This station refuses a
        /// new station if the series of the new station would not fit beside the series of all
        /// members, including members that are not up now. An archive on NATS refuses no station,
        /// and warns in /healthz. Series that a member measures beyond the formula take no room
        /// from others. The archive on disk has room for twice as many series, at least 100 000.
        /// All members together get seven eighths of this room, and each member gets an eighth.
        series_max: usize = 40_000 => "limits.series_max", integer(1..=1_000_000), AtStart;
        /// Maximum number of HTTP connections at once. Each address of another host gets at most a
        /// quarter of the connections. An eighth of the connections is reserved for callers on this
        /// host. Anonymous callers, which no token or signature has authorised within the last
        /// hour, get at most half of the connections; a quarter of the connections is reserved for
        /// anonymous callers. If there is no room, the station closes an idle connection, or the
        /// oldest stream of the network that has the most streams.
        ///
        /// Hosts behind one NAT are one address. With more than sixty members behind one NAT, or
        /// many open pages, raise this and streams_max (`address_share` in /healthz counts the
        /// refusals). Each connection needs a file descriptor. If the system allows fewer, the
        /// station admits fewer and logs it.
        connections_max: usize = 1024 => "limits.connections_max", integer(1..=65_536), AtStart;
        /// Maximum number of live streams among these connections, with the same shares.
        streams_max: usize = 64 => "limits.streams_max", integer(0..=65_536), AtStart;
        /// Maximum number of records kept in memory while the archive does not work. When there are
        /// more, the oldest records are dropped and counted.
        spool_records_max: usize = 100_000 => "limits.spool_records_max", integer(1..=10_000_000), AtStart;
        /// Certificate chain (PEM). If this and `key` are set, the port serves HTTPS. Probes still
        /// connect without TLS, with a single-use token.
        tls_certificate: Option<PathBuf> = None =>
            "tls.certificate", optional(path()), AtOnce, example "/etc/barograph/fullchain.pem";
        /// Private key of the certificate (PEM).
        tls_key: Option<PathBuf> = None =>
            "tls.key", optional(path()), AtOnce, example "/etc/barograph/key.pem";
    }
    and {
        /// Whether `listen` was not set, so that it has the default of a station that joins a mesh.
        listen_implied: bool = false;
        /// The `[echo]` table: probes over WebSocket.
        echo: EchoConfig = EchoConfig::default();
        /// The `[mesh]` table: membership, sites and bulk tests.
        mesh: MeshConfig = MeshConfig::default();
        /// The `[transfer]` table: files sent and received for callers.
        transfer: TransferConfig = TransferConfig::default();
        /// Targets of the file and of `--target` flags.
        targets: Vec<Target> = Vec::new();
    }
}

/// Sources of the settings: all that is needed to read them again on SIGHUP.
#[derive(Clone, Debug, Default)]
pub struct ConfigSources {
    /// Path of the file, if one is used. The file must exist.
    pub file: Option<PathBuf>,
    /// `(variable, text)` pairs; variables without the prefix `BAROGRAPH_` are ignored.
    pub variables: Vec<(String, String)>,
    /// `(key, text)` pairs, from flags.
    pub flags: Vec<(String, String)>,
    /// Targets of `--target` flags, in addition to those of the file.
    pub targets: Vec<String>,
}

/// Error of the configuration, as a sentence for users: the file and line, variable or flag, what
/// is wrong, and what is accepted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    fn of_key(location: &str, key: &str, message: &str) -> Self {
        Self(format!("{location}: `{key}`: {message}"))
    }
}

impl ConfigSources {
    /// Reads all layers and checks them.
    ///
    /// # Errors
    /// [`ConfigError`], with the file and line, the variable or the flag.
    pub fn read(&self) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        let mut origins = SettingOrigins::default();
        if let Some(path) = &self.file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| ConfigError(format!("{}: {error}", path.display())))?;
            config.apply_file(path, &text, &mut origins)?;
        }
        for (name, text) in &self.variables {
            let location = format!("variable {name}");
            match settings().find(|of| of.variable() == *name) {
                Some(Setting { key, .. }) => {
                    origins.record(key, &location);
                    set(TABLES, &mut config, key, Value::Raw(text), &location)?;
                }
                None if name == JOIN_TOKEN_VARIABLE => {
                    // Ignore an empty variable: scripts and service files set a variable to an
                    // empty text if they have no token.
                    let token = Some(text.trim()).filter(|token| !token.is_empty());
                    config.mesh.join_token = token.map(|token| Secret::new(token.to_string()));
                }
                None if name.starts_with(PREFIX) && !OTHER_VARIABLES.contains(&name.as_str()) => {
                    return Err(ConfigError(format!("{location}: unknown key `{name}`")));
                }
                None => {}
            }
        }
        for (key, text) in &self.flags {
            let location = flag_for(key);
            origins.record(key, &location);
            set(TABLES, &mut config, key, Value::Raw(text), &location)?;
        }
        for text in &self.targets {
            let target = Target::parse(text, &[], None, Provenance::Config);
            let refuse =
                |error: TargetError| ConfigError::of_key(&flag_for("target"), "target", &error.to_string());
            config.targets.push(target.map_err(refuse)?);
        }
        origins.check(&mut config)?;
        Ok(config)
    }
}

fn flag_for(key: &str) -> String {
    format!("flag for {key}")
}

/// Origin of the last setting in each table that is checked as a whole, and whether `listen` was
/// set.
#[derive(Default)]
struct SettingOrigins {
    tls: Option<String>,
    mesh: Option<String>,
    listen: bool,
}

impl SettingOrigins {
    fn record(&mut self, key: &str, location: &str) {
        match key.split_once('.') {
            Some(("tls", _)) => self.tls = Some(location.to_string()),
            Some(("mesh", _)) => self.mesh = Some(location.to_string()),
            _ => self.listen |= key == "listen",
        }
    }

    /// Checks settings that depend on other settings, and sets `listen` for a station that joins a
    /// mesh.
    fn check(self, config: &mut Config) -> Result<(), ConfigError> {
        if let Some(location) = self.mesh {
            config.mesh.check().map_err(|(key, message)| ConfigError::of_key(&location, key, &message))?;
        }
        if config.mesh.is_joined() && !self.listen {
            // Peers measure a member, so they must be able to connect to it.
            config.listen = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, PORT));
            config.listen_implied = true;
        }
        if let Some(location) = self.tls {
            let loaded = tls::load(config.tls_certificate.as_deref(), config.tls_key.as_deref());
            loaded.map_err(|error| ConfigError::of_key(&location, "tls", &error.to_string()))?;
        }
        Ok(())
    }
}

impl Config {
    /// Configuration of the station's archive.
    pub(crate) fn archive(&self) -> barograph_engine::LocalConfig {
        let usual = barograph_engine::LocalConfig::new(&self.state);
        barograph_engine::LocalConfig {
            commit_interval: self.commit,
            keep: self.keep,
            keep_bytes: self.keep_bytes,
            // The archive has room for twice as many series as the series table. Series of stations
            // that left stay in the archive until their records expire. An eighth of the archive,
            // the share of a member, is as many series as a quarter of the series table.
            series_max: usual.series_max.max(2 * self.series_max),
            ..usual
        }
    }

    /// Overrides settings with the settings of a file, and records the origin of each setting for
    /// the final check.
    fn apply_file(
        &mut self,
        path: &Path,
        text: &str,
        origins: &mut SettingOrigins,
    ) -> Result<(), ConfigError> {
        let file = file::Text { path, text };
        let document = file.parse()?;
        for entry in file.settings(&document)? {
            origins.record(&entry.key, &entry.location);
            set(TABLES, self, &entry.key, entry.value, &entry.location)?;
        }
        for (location, entries) in file.targets(&document)? {
            let target = target::target(&location, &entries)?;
            if self.targets.iter().any(|other| other.name == target.name) {
                let message = format!(
                    "`{}` has a [[target]] table already; list all quantities in that table",
                    target.name
                );
                return Err(ConfigError::of_key(&location, "target", &message));
            }
            self.targets.push(target);
        }
        Ok(())
    }

    /// Keys of changed settings that take effect only after a restart.
    #[must_use]
    pub fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let differs = |of: &&Setting<Self>| (of.shown)(self) != (of.shown)(new);
        let at_start = settings().filter(|of| of.applies == Applies::AtStart);
        at_start.filter(differs).map(|of| of.key).collect()
    }
}

/// All settings, in the order of the documented file.
fn settings() -> impl Iterator<Item = &'static Setting<Config>> {
    TABLES.iter().copied().flatten()
}

const TABLES: &[&[Setting<Config>]] =
    &[Config::SETTINGS, EchoConfig::SETTINGS, MeshConfig::SETTINGS, TransferConfig::SETTINGS];

/// Default port of a station: the standard atmosphere, 1013.2 hPa.
///
/// IANA has assigned this port to no service. The port is above the ports that need privileges and
/// below the ports that Linux uses for outgoing connections (from 32768), so it is rarely in use.
pub const PORT: u16 = 10132;

/// `$XDG_STATE_HOME/barograph`, otherwise `$HOME/.local/state/barograph` (XDG base directories,
/// 0.8), otherwise a directory below the working directory.
fn default_state(variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    // The specification requires that relative paths in this variable are ignored.
    let state_home = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let home = variable("HOME").filter(|path| path.is_absolute());
    match (state_home, home) {
        (Some(path), _) => path.join("barograph"),
        (None, Some(path)) => path.join(".local/state/barograph"),
        (None, None) => PathBuf::from("barograph-state"),
    }
}

const PREFIX: &str = "BAROGRAPH_";

/// Variables with our prefix that are not settings of the station: path of the file, log level, and
/// those of other verbs.
const OTHER_VARIABLES: &[&str] =
    &["BAROGRAPH_CONFIG", "BAROGRAPH_LOG", "BAROGRAPH_TOKEN", "BAROGRAPH_STATION"];

/// Variable with the token for joining a mesh. Not a setting, because other users of a host can
/// read flags.
const JOIN_TOKEN_VARIABLE: &str = "BAROGRAPH_JOIN_TOKEN";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        config.apply_file(Path::new("b.toml"), text, &mut SettingOrigins::default())?;
        Ok(config)
    }

    #[test]
    fn an_unknown_key_error_names_the_line_and_the_nearest_key() {
        for (text, message) in [
            ("lisen = \"x\"", "1: unknown key `lisen`; did you mean `listen`?"),
            (
                "\n\n[probe]\nperiods_s = 3\n",
                "4: unknown key `probe.periods_s`; did you mean `probe.period_s`?",
            ),
            ("[probes]\nperiod_s = 3", "2: unknown key `probes.period_s`; did you mean `probe.period_s`?"),
            ("\n[limits]\nx = 1", "3: unknown key `limits.x`"),
            ("wholly_different = 1", "1: unknown key `wholly_different`"),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), format!("b.toml:{message}"));
        }
    }

    #[test]
    fn a_wrong_value_error_names_the_line_and_the_accepted_values() {
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
            let error = read(text).unwrap_err().to_string();
            let line = text.lines().count();
            assert!(error.starts_with(&format!("b.toml:{line}: `")), "{text}: {error}");
            assert!(error.contains("expected") || error.contains("host"), "{text}: {error}");
        }
    }

    #[test]
    fn a_toml_syntax_error_is_one_line_with_the_line_number() {
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
    fn a_second_table_for_the_same_target_is_refused() {
        let text = "[[target]]\ntarget = \"http://A:1\"\n[[target]]\ntarget = \"http://a:1/\"\n";
        let error = read(text).unwrap_err().to_string();
        assert!(error.starts_with("b.toml:3: ") && error.contains("`http://a:1/`"), "{error}");
    }

    #[test]
    fn an_unusable_certificate_error_names_its_config_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("b.toml");
        let pem = directory.path().join("empty.pem");
        std::fs::write(&pem, "no certificate").unwrap();
        let half = format!("[tls]\ncertificate = {pem:?}\n");
        for (text, line, word) in
            [(half.clone(), 2, "tls.key"), (format!("{half}key = {pem:?}\n"), 3, "empty.pem")]
        {
            std::fs::write(&file, text).unwrap();
            let error =
                ConfigSources { file: Some(file.clone()), ..ConfigSources::default() }.read().unwrap_err();
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
        let sources = ConfigSources {
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
        let wrong =
            ConfigSources { variables: vec![pair("BAROGRAPH_LISEN", "x")], ..ConfigSources::default() };
        assert!(wrong.read().unwrap_err().to_string().contains("BAROGRAPH_LISEN"));
    }

    #[test]
    fn a_joining_station_listens_on_all_addresses_and_hides_its_token() {
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        let variables = vec![pair("BAROGRAPH_JOIN_TOKEN", "sesame\n"), pair("BAROGRAPH_MESH_SITE", "lab")];
        let sources =
            ConfigSources { variables, flags: vec![pair("mesh.join", "head")], ..ConfigSources::default() };
        let config = sources.read().unwrap();
        assert_eq!(config.mesh.join.as_deref(), Some("http://head:10132/"));
        assert_eq!(config.mesh.join_token.as_ref().map(Secret::reveal), Some("sesame"));
        assert!(!format!("{config:?}").contains("sesame"));
        let empty =
            ConfigSources { variables: vec![pair("BAROGRAPH_JOIN_TOKEN", " ")], ..ConfigSources::default() };
        assert_eq!(empty.read().unwrap().mesh.join_token, None);
        assert_eq!((config.listen.to_string().as_str(), config.listen_implied), ("[::]:10132", true));
        assert_eq!(config.mesh.all_groups()[0].as_str(), "local:lab");
        let told = ConfigSources {
            flags: vec![pair("mesh.join", "head"), pair("listen", "127.0.0.1:0")],
            ..ConfigSources::default()
        };
        let config = told.read().unwrap();
        assert_eq!((config.listen.to_string().as_str(), config.listen_implied), ("127.0.0.1:0", false));
        let both = ConfigSources {
            flags: vec![pair("mesh.join", "a"), pair("mesh.nats", "b")],
            ..ConfigSources::default()
        };
        let error = both.read().unwrap_err().to_string();
        assert!(error.contains("`mesh.join`: set only one of mesh.join and mesh.nats"), "{error}");
        assert_eq!(
            Config::default().needs_restart(&Config { mesh: config.mesh, ..Config::default() }),
            ["mesh.join"]
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
