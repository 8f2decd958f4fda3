//! The `[mesh]` table: the mesh of a station, and the role of the station in the mesh.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use barograph_forecast::Name;
use barograph_mesh::{BudgetConfig, GLOBAL, LOCAL, PlanConfig, UNSET};
use barograph_probe::Target;
use barograph_probe::stream::StreamPlan;
use barograph_probe::target::Scheme;

use super::Config;
use super::kind::{DAY_S, choice, flag, integer, list, name, number, optional, path, seconds, text};
use super::setting::settings;
use super::value::short;
use crate::target::Secret;

/// Program for the bulk tests between stations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkWith {
    /// The stream of the probe protocol.
    Own,
    /// iperf3, if both ends have it installed and enabled.
    Iperf3,
}

settings! {
    |config: Config| config.mesh;

    /// A mesh of stations that find, measure and forecast each other (docs/spec/mesh.md).
    pub struct MeshConfig {
        /// Join the mesh of this station: a host, host:port or URL (flag `--join`). Every station
        /// can be joined; `barograph invite` on the station to join prints a token. A station that
        /// joins listens on `[::]:10132`, unless `listen` is set.
        join: Option<String> = None =>
            "mesh.join", optional(text(station_url)), AtStart, example "head.example:10132";
        /// File with the token from `barograph invite`. BAROGRAPH_JOIN_TOKEN overrides it.
        join_token_file: Option<PathBuf> = None =>
            "mesh.join_token_file", optional(path()), AtStart, example "/etc/barograph/join-token";
        /// Certificates (PEM) to trust instead of those of the system, if the station to join
        /// serves HTTPS.
        join_ca: Option<PathBuf> = None =>
            "mesh.join_ca", optional(path()), AtStart, example "/etc/barograph/ca.pem";
        /// NATS servers (JetStream, 2.12 or newer), instead of `join`: for a mesh that must survive
        /// the loss of a machine.
        nats: Vec<String> = Vec::new() => "mesh.nats", list(Ok), AtStart;
        /// Number of servers that keep each record, if this station creates the stream: 1, 3 or 5.
        /// Use 3 in a cluster of three.
        nats_replicas: u8 = 1 => "mesh.nats_replicas", integer(1..=5).checked(is_odd), AtStart;
        /// Credentials file for the NATS servers.
        nats_credentials: Option<PathBuf> = None =>
            "mesh.nats_credentials", optional(path()), AtStart, example "/etc/barograph/station.creds";
        /// Certificates (PEM) to trust for NATS servers.
        nats_ca: Option<PathBuf> = None =>
            "mesh.nats_ca", optional(path()), AtStart, example "/etc/barograph/nats-ca.pem";
        /// Certificate (PEM) of this station for NATS.
        nats_certificate: Option<PathBuf> = None =>
            "mesh.nats_certificate", optional(path()), AtStart, example "/etc/barograph/nats.pem";
        /// Private key (PEM) of this station's certificate for NATS.
        nats_key: Option<PathBuf> = None =>
            "mesh.nats_key", optional(path()), AtStart, example "/etc/barograph/nats-key.pem";
        /// Whether this station keeps the history of the whole mesh. Only with NATS.
        archive: bool = false => "mesh.archive", flag(), AtStart;
        /// Site of the station: it is in the group local:SITE. Peers are stations that share a
        /// group. `"default"` means that no site is set; then a site that was accepted
        /// (`barograph sites --accept`) or taken (`sites = "auto"`) applies.
        site: Name = Name::new(UNSET).expect("a plain word is a name") =>
            "mesh.site", name().checked(|site| local_group(site).map(drop)), AtStart;
        /// What to do with the site that the station's forecasts of round-trip times suggest
        /// (`barograph sites` shows it). `"propose"`: nothing until an operator accepts it.
        /// `"auto"`: if no site is set or accepted, take the proposed site when the same site has
        /// been proposed for sites_hold_s. Until then the station represents itself in `global`.
        sites_auto: bool = false => "mesh.sites", choice(&[("propose", false), ("auto", true)]), AtStart;
        /// Time (s) for which the same site must be proposed before it is taken.
        sites_hold: Duration = Duration::from_secs(600) => "mesh.sites_hold_s", seconds(1.0..=DAY_S), AtStart;
        /// Further groups of the station. A station chooses its own groups: any invited station can
        /// name any group, and so become a peer of all stations in it. A station is in `global`
        /// only if it is named here, or by `sites = "auto"`; it then represents its site.
        groups: Vec<Name> = Vec::new() => "mesh.groups", list(groups), AtStart;
        /// Addresses at which other stations reach this station, up to 16. `[]` = the addresses of
        /// its interfaces.
        advertise: Vec<SocketAddr> = Vec::new() => "mesh.advertise", list(addresses), AtStart;
        /// Length (s) of the lease: for this time after the last renewal, other stations consider
        /// this station up. The station renews the lease after every third of this time.
        lease: Duration = Duration::from_secs(10) => "mesh.lease_s", seconds(1.0..=300.0), AtStart;
        /// Maximum number of latency experiments (rtt, loss) per second, on average and for all
        /// peers together. With more than five peers, each peer is measured less often than every
        /// probe.period_s, so that the cost of a station stays the same.
        latency_per_s: f64 = 1.0 => "mesh.latency_per_s", number(0.01..=1000.0), AtStart;
        /// Maximum number of records on disk that wait for the mesh. When this number is reached,
        /// further records are not acknowledged. Twice as many may wait if the mesh lost records
        /// that it had stored.
        spool_records_max: u64 = 1_000_000 =>
            "mesh.spool_records_max", integer(1000..=100_000_000), AtStart;
        /// Program to run when a peer joined, was lost, returned or was removed, and its arguments,
        /// split at spaces, without a shell. The program gets the variables BAROGRAPH_EVENT
        /// (joined, lost, returned, removed) and BAROGRAPH_HOST, and the event as JSON on its
        /// standard input. The station ends the program after 30 s.
        on_change: Option<String> = None =>
            "mesh.on_change", optional(text(Ok)), AtOnce, example "/usr/local/bin/peer-changed";
        /// URL to which the station posts the JSON of each peer event (joined, lost, returned,
        /// removed).
        webhook: Option<String> = None =>
            "mesh.webhook", optional(text(webhook)), AtOnce, example "https://alerts.example/barograph";
        /// Whether this station and its peers make bulk tests with each other, within the budgets
        /// of both ends.
        bulk: bool = true => "mesh.bulk", flag(), AtStart;
        /// Budget of time: largest share of any hour for tests that this station or its peers
        /// start. Default: 0.01, with bulk_paper 0.05.
        bulk_share: Option<f64> = None =>
            "mesh.bulk_share", optional(number(0.0001..=1.0)), AtStart, example 0.01;
        /// Budget of bytes per hour for bulk tests. One test may use half of the budget. Default:
        /// 1.25 GB, with bulk_paper 22.5 GB.
        bulk_bytes_per_hour: Option<u64> = None =>
            "mesh.bulk_bytes_per_hour", optional(integer(BULK_BYTES_MIN..=BULK_BYTES_MAX)), AtStart, example 1250000000;
        /// Length (s) of a full test. The first test of a path takes at most 2 s.
        bulk_length: Duration = BudgetConfig::default().test_max =>
            "mesh.bulk_seconds", seconds(StreamPlan::SECONDS_MIN..=30.0), AtStart;
        /// Time (s) between the turns of this station to start a test.
        bulk_every: Duration = PlanConfig::default().every =>
            "mesh.bulk_every_s", seconds(1.0..=DAY_S), AtStart;
        /// Whether a test may end early, on paths where full tests have shown that an early result
        /// is accurate.
        bulk_early_stop: bool = true => "mesh.bulk_early_stop", flag(), AtStart;
        /// Whether a change of a path brings its next bulk test forward, within the budgets. This
        /// station then sends a packet train of 59 kB to each peer that has this setting too, every
        /// 20 s and at most one in 4 s on average, and less often on slow paths. Not with
        /// bulk_paper.
        bulk_early_tests: bool = true => "mesh.bulk_early_tests", flag(), AtStart;
        /// Whether to plan tests as Gloperf did: one test to each peer in a random order. The
        /// default budgets are then 1/20 of time instead of 1/100, and 22.5 GB an hour. The plan
        /// itself takes 1/30 of time: 1/60 for tests that the station starts, and 1/60 for tests
        /// that peers start.
        bulk_paper: bool = false => "mesh.bulk_paper", flag(), AtStart;
        /// Program for the tests that this station starts: own, or iperf3 to compare with other
        /// results of iperf3. The value iperf3 needs iperf3 3.10 or newer (better 3.18), installed
        /// and set at both ends. The first test of a path is always our own, and so is a test at a
        /// rate that would take more than bulk_bytes_per_hour allows. WARNING: iperf3 does not
        /// authenticate callers. During a granted test the port is open to every host that reaches
        /// this station's address. Such a host can run a test of its own instead of the granted
        /// test, and make this station send data (SECURITY.md).
        bulk_with: BulkWith = BulkWith::Own =>
            "mesh.bulk_with", choice(&[("own", BulkWith::Own), ("iperf3", BulkWith::Iperf3)]), AtStart;
        /// Port of the iperf3 server. 0 = the system chooses one for each test.
        bulk_iperf3_port: u16 = 0 => "mesh.bulk_iperf3_port", integer(0..=65_535), AtStart;
    }
    and {
        /// The token for joining, from the variable `BAROGRAPH_JOIN_TOKEN`; it overrides the file.
        join_token: Option<Secret> = None;
    }
}

impl MeshConfig {
    /// Whether the station has joined a mesh, so that other stations must be able to reach it.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        self.join.is_some() || !self.nats.is_empty()
    }

    /// Whether an operator set the site.
    pub(crate) fn has_site(&self) -> bool {
        self.site.as_str() != UNSET
    }

    /// Groups of the station at the configured site. The group of the site is first.
    #[must_use]
    pub fn all_groups(&self) -> Vec<Name> {
        self.groups_at(&self.site, false)
    }

    /// Groups of a station at `site`. If `represents` is true, the groups include `global`. The
    /// operator may also have set `global`.
    pub(crate) fn groups_at(&self, site: &Name, represents: bool) -> Vec<Name> {
        let global = represents.then(|| Name::new(GLOBAL).expect("a plain word is a name"));
        let mut groups = vec![local_group(site).expect("checked when the site was set")];
        for group in self.groups.iter().chain(&global) {
            if !groups.contains(group) {
                groups.push(group.clone());
            }
        }
        groups
    }

    /// Shortest period at which a station with `peers` peers may run `experiments` experiments with
    /// each peer, so that all experiments together do not exceed [`MeshConfig::latency_per_s`].
    pub(crate) fn latency_period(&self, peers: usize, experiments: usize) -> Duration {
        Duration::from_secs_f64(peers as f64 * experiments as f64 / self.latency_per_s)
    }

    /// Whether this station makes and accepts tests by iperf3.
    pub(crate) fn wants_iperf3(&self) -> bool {
        self.bulk && self.bulk_with == BulkWith::Iperf3
    }

    /// Whether changes of a path bring bulk tests of this station forward.
    pub(crate) fn wants_early_tests(&self) -> bool {
        self.bulk && self.bulk_early_tests && !self.bulk_paper
    }

    /// Plan of bulk tests, with their budget.
    #[must_use]
    pub fn plan(&self) -> PlanConfig {
        let usual = if self.bulk_paper { PlanConfig::paper() } else { PlanConfig::default() };
        let budget = BudgetConfig {
            share: self.bulk_share.unwrap_or(usual.budget.share),
            bytes_per_hour: self.bulk_bytes_per_hour.unwrap_or(usual.budget.bytes_per_hour),
            test_max: self.bulk_length,
        };
        PlanConfig { every: self.bulk_every, budget, ..usual }
    }

    /// Checks settings that depend on each other.
    ///
    /// # Errors
    /// The key that must be removed or is missing, and a sentence.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let has_nats = !self.nats.is_empty();
        let refuse = |key, message: &str| Err((key, message.to_string()));
        if self.join.is_some() && has_nats {
            return refuse("mesh.join", "set only one of mesh.join and mesh.nats");
        }
        if self.archive && !has_nats {
            return refuse(
                "mesh.archive",
                "mesh.archive needs mesh.nats; without NATS the station that others join keeps \
                the history",
            );
        }
        if self.nats_certificate.is_some() != self.nats_key.is_some() {
            return refuse("mesh.nats_key", "set both mesh.nats_certificate and mesh.nats_key, or neither");
        }
        if let Err(error) = self.plan().check() {
            return Err(("mesh.bulk_share", error.to_string()));
        }
        Ok(())
    }
}

/// Group of the stations at a site.
pub(crate) fn local_group(site: &Name) -> Result<Name, String> {
    if let Some(site) = site.as_str().strip_prefix(LOCAL) {
        return Err(format!(
            "`{LOCAL}{}` is the group of a site; set mesh.site = \"{0}\" instead",
            short(site)
        ));
    }
    Name::new(&format!("{LOCAL}{site}"))
        .map_err(|error| format!("the group {LOCAL}{}: {error}", short(site.as_str())))
}

/// Group of the stations without a site.
pub(crate) fn unset_group() -> Name {
    Name::new(&format!("{LOCAL}{UNSET}")).expect("a plain word is a name")
}

/// URL of a station, from a name, `host:port` or a URL.
fn station_url(text: String) -> Result<String, String> {
    let text = text.as_str();
    let refuse = |why: &dyn std::fmt::Display| {
        format!("expected a host, host:port, http://… or https://…, found `{}`: {why}", short(text))
    };
    let bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    let is_url = text.contains("://");
    let has_port = !is_url && !bare_v6 && Target::parse(text).is_ok();
    let url = match (is_url, bare_v6, has_port) {
        (true, ..) => text.to_string(),
        (_, true, _) => format!("http://[{text}]:{}/", super::PORT),
        (_, _, true) => format!("http://{text}/"),
        _ => format!("http://{text}:{}/", super::PORT),
    };
    let target = Target::parse(&url).map_err(|error| refuse(&error.expected))?;
    if target.scheme() == Scheme::Address || target.path() != "/" {
        return Err(refuse(&"a station has no path"));
    }
    // A URL without a port means the port of stations, not the port of web servers.
    let authority = url.split("://").nth(1).unwrap_or_default().trim_end_matches('/');
    let names_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = if names_port { target.port() } else { super::PORT };
    let host =
        if target.host().contains(':') { format!("[{}]", target.host()) } else { target.host().into() };
    let scheme = if target.scheme() == Scheme::Https { "https" } else { "http" };
    Ok(format!("{scheme}://{host}:{port}/"))
}

/// Requires an odd number of replicas: an even number of replicas tolerates no more failures than
/// the next lower odd number.
fn is_odd(replicas: &u8) -> Result<(), String> {
    match replicas % 2 {
        1 => Ok(()),
        _ => Err(format!("expected 1, 3 or 5, found {replicas}")),
    }
}

fn groups(words: Vec<String>) -> Result<Vec<Name>, String> {
    if words.len() > GROUPS_MAX {
        return Err(format!("expected at most {GROUPS_MAX} groups, found {}", words.len()));
    }
    let group = |word: &String| match Name::new(word) {
        // Only `mesh.site` sets the group of a site.
        Ok(_) if word.starts_with(LOCAL) => {
            Err(format!("`{}` is the group of a site; set mesh.site instead", short(word)))
        }
        Ok(group) => Ok(group),
        Err(error) => Err(format!("`{}` is not a valid group: {error}", short(word))),
    };
    words.iter().map(group).collect()
}

fn addresses(words: Vec<String>) -> Result<Vec<SocketAddr>, String> {
    if words.len() > ADDRESSES_MAX {
        return Err(format!("expected at most {ADDRESSES_MAX} addresses, found {}", words.len()));
    }
    let address = |word: &String| -> Result<SocketAddr, String> {
        let parsed = word.parse::<SocketAddr>().or_else(|_| {
            // An address without a port gets the default port. A given port may differ from the
            // port on which this station listens, because a router may forward connections.
            word.parse().map(|ip| SocketAddr::new(ip, super::PORT))
        });
        let parsed = parsed.map_err(|_| {
            format!(
                "expected addresses such as 192.0.2.7:10132 or [2001:db8::7]:10132, found `{}`",
                short(word)
            )
        })?;
        match unreachable_reason(parsed) {
            Some(why) => Err(format!("`{}` cannot be advertised: {why}", short(word))),
            None => Ok(parsed),
        }
    };
    words.iter().map(address).collect()
}

/// Reason why no station can be reached at `address`; `None` if a station may be reachable there.
pub(crate) fn unreachable_reason(address: SocketAddr) -> Option<&'static str> {
    let ip = address.ip().to_canonical();
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    match () {
        () if address.port() == 0 => Some("no station can listen on port 0"),
        () if ip.is_unspecified() => Some("it is not the address of a host"),
        () if ip.is_multicast() || broadcast => Some("it is a multicast or broadcast address"),
        () => None,
    }
}

fn webhook(text: String) -> Result<String, String> {
    match Target::parse(&text) {
        Ok(target) if target.scheme() != Scheme::Address => Ok(target.to_string()),
        _ => Err(format!("expected http://… or https://…, found `{}`", short(&text))),
    }
}

/// Maximum number of configured groups: three fewer than an entry may have, because the station may
/// add the group of its site, `global`, and the group of stations without a site.
const GROUPS_MAX: usize = barograph_engine::Entry::GROUPS_MAX - 3;
const ADDRESSES_MAX: usize = barograph_engine::Entry::ADDRESSES_MAX;
/// Smallest budget of bytes per hour. A test may use half of it, and a test with less than 2 MB
/// does not get beyond slow start.
pub(crate) const BULK_BYTES_MIN: u64 = 4_000_000;
/// Largest budget of bytes per hour: about the number of bytes that 100 Gbit/s transfer in a day.
/// This limit detects typing errors.
const BULK_BYTES_MAX: u64 = 1_000_000_000_000_000;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
