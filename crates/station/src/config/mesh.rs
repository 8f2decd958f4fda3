//! The `[mesh]` table: which mesh a station is part of, and as what.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use barograph_forecast::Name;
use barograph_mesh::{BudgetConfig, GLOBAL, LOCAL, PlanConfig, UNSET};
use barograph_probe::Target;
use barograph_probe::stream::StreamPlan;
use barograph_probe::target::Scheme;

use super::Config;
use super::kind::{DAY_S, choice, flag, integer, maybe, name, number, path, seconds, text, words};
use super::setting::settings;
use super::value::short;
use crate::target::Secret;

/// What makes the bulk tests between stations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkWith {
    /// Our own stream.
    Own,
    /// iperf3, where it is installed at both ends and both say so.
    Iperf3,
}

settings! {
    |config: Config| config.mesh;

    /// A mesh of stations that find, measure and forecast each other (docs/spec/mesh.md).
    pub struct MeshConfig {
        /// The station whose mesh this one joins: a host, host:port or URL (`--join`). Every
        /// station can be joined: `barograph invite` on it prints a token. A station that joins
        /// listens on `[::]:10132`, unless `listen` is set.
        join: Option<String> = None =>
            "mesh.join", maybe(text(station_url)), AtStart, example "head.example:10132";
        /// That token; the variable BAROGRAPH_JOIN_TOKEN goes before it.
        join_token_file: Option<PathBuf> = None =>
            "mesh.join_token_file", maybe(path()), AtStart, example "/etc/barograph/join-token";
        /// Certificates (PEM) to trust instead of the system's, when the station to join speaks
        /// HTTPS.
        join_ca: Option<PathBuf> = None =>
            "mesh.join_ca", maybe(path()), AtStart, example "/etc/barograph/ca.pem";
        /// Or: NATS servers (JetStream, 2.12 or newer), for a mesh that must survive the loss of a
        /// machine.
        nats: Vec<String> = Vec::new() => "mesh.nats", words(Ok), AtStart;
        /// How many servers keep each record, where this station makes the stream: 1, 3 or 5; 3 in
        /// a cluster of three.
        nats_replicas: u8 = 1 => "mesh.nats_replicas", integer(1..=5).checked(is_odd), AtStart;
        /// Credentials file for NATS.
        nats_credentials: Option<PathBuf> = None =>
            "mesh.nats_credentials", maybe(path()), AtStart, example "/etc/barograph/station.creds";
        /// Certificates (PEM) to trust as those of NATS servers.
        nats_ca: Option<PathBuf> = None =>
            "mesh.nats_ca", maybe(path()), AtStart, example "/etc/barograph/nats-ca.pem";
        /// This station's certificate for NATS, PEM.
        nats_certificate: Option<PathBuf> = None =>
            "mesh.nats_certificate", maybe(path()), AtStart, example "/etc/barograph/nats.pem";
        /// Its private key, PEM.
        nats_key: Option<PathBuf> = None =>
            "mesh.nats_key", maybe(path()), AtStart, example "/etc/barograph/nats-key.pem";
        /// With NATS: whether this station keeps the history of the whole mesh.
        archive: bool = false => "mesh.archive", flag(), AtStart;
        /// The site: the station is in the group local:SITE. Peers are the stations that share a
        /// group with it. `"default"` = no site was set: a site that was accepted (`barograph sites
        /// --accept`) or taken (`auto`) then goes before it.
        site: Name = Name::new(UNSET).expect("a plain word is a name") =>
            "mesh.site", name().checked(|site| local_group(site).map(drop)), AtStart;
        /// Which stations form a site is proposed from forecasts of their round trips (`barograph
        /// sites`). `"auto"`: where no site is set the station takes the site that is proposed for
        /// it, when the same was proposed at every look for sites_hold_s, unless an operator
        /// accepted one. Until then it represents itself, in `global`.
        sites_auto: bool = false => "mesh.sites", choice(&[("propose", false), ("auto", true)]), AtStart;
        /// How long (s) the same site must have been proposed before it is taken.
        sites_hold: Duration = Duration::from_secs(600) => "mesh.sites_hold_s", seconds(1.0..=DAY_S), AtStart;
        /// Further groups. A station names its own groups: every station that was invited can name
        /// any, and so be a peer of every station that shares one. No station is in `global` unless
        /// an operator, or `auto`, says so: it then represents its site.
        groups: Vec<Name> = Vec::new() => "mesh.groups", words(groups), AtStart;
        /// Where others reach this station, up to 16 addresses; `[]` = the addresses of its
        /// interfaces.
        advertise: Vec<SocketAddr> = Vec::new() => "mesh.advertise", words(addresses), AtStart;
        /// How long (s) others take the station for alive after it was heard last; renewed every
        /// third of it.
        lease: Duration = Duration::from_secs(10) => "mesh.lease_s", seconds(1.0..=300.0), AtStart;
        /// Most latency experiments (rtt, loss) with peers in a second, all peers together and on
        /// average. With more than five peers each is measured less often than every
        /// probe.period_s: what a station costs stays the same.
        latency_per_s: f64 = 1.0 => "mesh.latency_per_s", number(0.01..=1000.0), AtStart;
        /// Records that wait on disk for the mesh; when so many wait, further ones are not
        /// acknowledged. As many again may wait that a mesh had and lost.
        spool_records_max: u64 = 1_000_000 =>
            "mesh.spool_records_max", integer(1000..=1_000_000_000), AtStart;
        /// Run when a peer joined, was lost, returned or was removed: a program and its arguments,
        /// split at spaces, without a shell. It gets BAROGRAPH_EVENT (joined, lost, returned,
        /// removed) and BAROGRAPH_HOST, and the event as JSON on its standard input; it is ended
        /// after 30 s.
        on_change: Option<String> = None =>
            "mesh.on_change", maybe(text(Ok)), AtOnce, example "/usr/local/bin/peer-changed";
        /// The same event as a POST of JSON.
        webhook: Option<String> = None =>
            "mesh.webhook", maybe(text(webhook)), AtOnce, example "https://alerts.example/barograph";
        /// Whether this station and its peers make bulk tests with each other, within both ends'
        /// budgets.
        bulk: bool = true => "mesh.bulk", flag(), AtStart;
        /// The budget: the share of time that tests may take in any hour, those that this station
        /// starts and those that it is asked for together. Default: as the plan has it
        /// (bulk_paper).
        bulk_share: Option<f64> = None =>
            "mesh.bulk_share", maybe(number(0.0001..=1.0)), AtStart, example 0.01;
        /// And the bytes that they may move. Half of the bytes bounds one test.
        bulk_bytes_per_hour: Option<u64> = None =>
            "mesh.bulk_bytes_per_hour", maybe(integer(BULK_BYTES_MIN..=BULK_BYTES_MAX)), AtStart, example 1250000000;
        /// How long (s) a full test is; the first one of a path takes 2 s at most.
        bulk_length: Duration = BudgetConfig::default().test_max =>
            "mesh.bulk_seconds", seconds(StreamPlan::SECONDS_MIN..=30.0), AtStart;
        /// How often (s) it is this station's turn to start a test.
        bulk_every: Duration = PlanConfig::default().every =>
            "mesh.bulk_every_s", seconds(1.0..=DAY_S), AtStart;
        /// Whether a test may end early, on paths whose full tests have shown when that is right.
        bulk_early_stop: bool = true => "mesh.bulk_early_stop", flag(), AtStart;
        /// Plan as Gloperf did: one test to each peer in a random order, and a budget of 1/20 of
        /// time instead of 1/100 and of 22.5 GB an hour, unless it is set above. The plan itself
        /// takes 1/30: 1/60 to start tests and as much to be asked.
        bulk_paper: bool = false => "mesh.bulk_paper", flag(), AtStart;
        /// What makes the tests that this station starts: own, or iperf3 (3.10 or newer, better
        /// 3.18; installed at both ends, both set so), for those who must compare. The first test
        /// of a path is always our own, and those whose rate would take more than
        /// bulk_bytes_per_hour allows. iperf3 does not authenticate callers: for the time of a
        /// granted test the port is open to every host that reaches this station's address, which
        /// can take the test's place, and make this station send (SECURITY.md).
        bulk_with: BulkWith = BulkWith::Own =>
            "mesh.bulk_with", choice(&[("own", BulkWith::Own), ("iperf3", BulkWith::Iperf3)]), AtStart;
        /// The port of iperf3's server; 0 = as the system chooses for each test.
        bulk_iperf3_port: u16 = 0 => "mesh.bulk_iperf3_port", integer(0..=65_535), AtStart;
    }
    and {
        /// The token for joining itself, from the variable `BAROGRAPH_JOIN_TOKEN`; it goes before
        /// the file.
        join_token: Option<Secret> = None;
    }
}

impl MeshConfig {
    /// Whether the station is part of another's mesh, and so wants to be reached by others.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        self.join.is_some() || !self.nats.is_empty()
    }

    /// Whether somebody said which site the station is at.
    pub(crate) fn has_site(&self) -> bool {
        self.site.as_str() != UNSET
    }

    /// The groups that the station is in, its site's first, unless it takes another place.
    #[must_use]
    pub fn all_groups(&self) -> Vec<Name> {
        self.groups_at(&self.site, false)
    }

    /// The groups of a station at `site`, which represents it or not; an operator's `global` stays.
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

    /// The shortest period at which each of `peers` may be measured by `experiments`, so that all
    /// of them together
    /// stay below [`MeshConfig::latency_per_s`].
    pub(crate) fn latency_period(&self, peers: usize, experiments: usize) -> Duration {
        Duration::from_secs_f64(peers as f64 * experiments as f64 / self.latency_per_s)
    }

    /// Whether this station is to be tested, and to test, with iperf3.
    pub(crate) fn wants_iperf3(&self) -> bool {
        self.bulk && self.bulk_with == BulkWith::Iperf3
    }

    /// How bulk tests are planned, and what they may cost.
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

    /// What is wrong with the settings together: a key, and a sentence.
    ///
    /// # Errors
    /// The key that must go, or is missing.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let has_nats = !self.nats.is_empty();
        let refuse = |key, message: &str| Err((key, message.to_string()));
        if self.join.is_some() && has_nats {
            return refuse("mesh.join", "a mesh has one engine: give mesh.join or mesh.nats");
        }
        if self.archive && !has_nats {
            return refuse(
                "mesh.archive",
                "keeping the mesh's history needs mesh.nats; without it the station \
                that others join keeps it",
            );
        }
        if self.nats_certificate.is_some() != self.nats_key.is_some() {
            return refuse("mesh.nats_key", "mesh.nats_certificate and mesh.nats_key belong together");
        }
        if let Err(error) = self.plan().check() {
            return Err(("mesh.bulk_share", error.to_string()));
        }
        Ok(())
    }
}

/// The group of a site's stations.
pub(crate) fn local_group(site: &Name) -> Result<Name, String> {
    if let Some(site) = site.as_str().strip_prefix(LOCAL) {
        return Err(format!("`{LOCAL}{}` is the group of a site: say the site alone, {0}", short(site)));
    }
    Name::new(&format!("{LOCAL}{site}"))
        .map_err(|error| format!("the group {LOCAL}{}: {error}", short(site.as_str())))
}

/// The group of stations that were told no site.
pub(crate) fn unset_group() -> Name {
    Name::new(&format!("{LOCAL}{UNSET}")).expect("a plain word is a name")
}

/// The address of a station, from a name, `host:port` or a URL.
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
    // `http://host` alone is the port of web servers; a station's own is meant unless one is named.
    let authority = url.split("://").nth(1).unwrap_or_default().trim_end_matches('/');
    let names_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = if names_port { target.port() } else { super::PORT };
    let host =
        if target.host().contains(':') { format!("[{}]", target.host()) } else { target.host().into() };
    let scheme = if target.scheme() == Scheme::Https { "https" } else { "http" };
    Ok(format!("{scheme}://{host}:{port}/"))
}

/// An even number of replicas stands no more losses than the odd one below it.
fn is_odd(replicas: &u8) -> Result<(), String> {
    match replicas % 2 {
        1 => Ok(()),
        _ => Err(format!("expected 1, 3 or 5, found {replicas}")),
    }
}

fn groups(words: Vec<String>) -> Result<Vec<Name>, String> {
    if GROUPS_MAX < words.len() {
        return Err(format!("expected at most {GROUPS_MAX} groups, found {}", words.len()));
    }
    let group = |word: &String| match Name::new(word) {
        // Who is in a site's group is said by `mesh.site` alone.
        Ok(_) if word.starts_with(LOCAL) => {
            Err(format!("`{}` is the group of a site: say mesh.site = …", short(word)))
        }
        Ok(group) => Ok(group),
        Err(error) => Err(format!("`{}` is no group: {error}", short(word))),
    };
    words.iter().map(group).collect()
}

fn addresses(words: Vec<String>) -> Result<Vec<SocketAddr>, String> {
    if ADDRESSES_MAX < words.len() {
        return Err(format!("expected at most {ADDRESSES_MAX} addresses, found {}", words.len()));
    }
    let address = |word: &String| -> Result<SocketAddr, String> {
        let parsed = word.parse::<SocketAddr>().or_else(|_| {
            // Behind a forwarded port the number may differ; else it is the usual one.
            word.parse().map(|ip| SocketAddr::new(ip, super::PORT))
        });
        let parsed = parsed.map_err(|_| {
            format!(
                "expected addresses such as 192.0.2.7:10132 or [2001:db8::7]:10132, found `{}`",
                short(word)
            )
        })?;
        match unusable(parsed) {
            Some(why) => Err(format!("`{}` cannot be advertised: {why}", short(word))),
            None => Ok(parsed),
        }
    };
    words.iter().map(address).collect()
}

/// Why nobody can be reached at an address; `None` = somebody might.
pub(crate) fn unusable(address: SocketAddr) -> Option<&'static str> {
    let ip = address.ip().to_canonical();
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    match () {
        () if address.port() == 0 => Some("port 0 is nobody's"),
        () if ip.is_unspecified() => Some("it is no address of a host"),
        () if ip.is_multicast() || broadcast => Some("it is a group's address, not a host's"),
        () => None,
    }
}

fn webhook(text: String) -> Result<String, String> {
    match Target::parse(&text) {
        Ok(target) if target.scheme() != Scheme::Address => Ok(target.to_string()),
        _ => Err(format!("expected http://… or https://…, found `{}`", short(&text))),
    }
}

/// Three less than the directory takes, for the site's own, `global` and that of stations without a site.
const GROUPS_MAX: usize = barograph_engine::Entry::GROUPS_MAX - 3;
const ADDRESSES_MAX: usize = barograph_engine::Entry::ADDRESSES_MAX;
/// Half of it bounds a test; with less than 2 MB no path's start-up is over.
pub(crate) const BULK_BYTES_MIN: u64 = 4_000_000;
/// A day's worth of 100 Gbit/s: a bound against slips of the pen.
const BULK_BYTES_MAX: u64 = 1_000_000_000_000_000;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
