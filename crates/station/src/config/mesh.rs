//! The `[mesh]` table: which mesh a station is part of, and as what.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use barograph_forecast::Name;
use barograph_mesh::{BudgetConfig, GLOBAL, LOCAL, PlanConfig, UNSET};
use barograph_probe::Target;
use barograph_probe::stream::StreamPlan;
use barograph_probe::target::Scheme;

use super::value::{Value, short};
use crate::measure::target::Secret;

/// What makes the bulk tests between stations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkWith {
    /// Our own stream.
    Own,
    /// iperf3, where it is installed at both ends and both say so.
    Iperf3,
}

/// Settings of the station's part in a mesh (docs/spec/mesh.md).
#[derive(Clone, Debug, PartialEq)]
pub struct MeshConfig {
    /// Address of a station whose mesh this one joins, as a URL; `None` = it has its own, which others may join.
    pub join: Option<String>,
    /// File with the token for joining, as `barograph invite` printed it.
    pub join_token_file: Option<PathBuf>,
    /// The token itself, from the variable `BAROGRAPH_JOIN_TOKEN`; it goes before the file.
    pub join_token: Option<Secret>,
    /// Certificates (PEM) to trust instead of the system's, for a station to join that speaks HTTPS.
    pub join_ca: Option<PathBuf>,
    /// NATS servers of the mesh; empty = it runs without.
    pub nats: Vec<String>,
    /// Servers that keep each record, where this station is the one that makes the stream.
    pub nats_replicas: u8,
    /// Credentials file for NATS.
    pub nats_credentials: Option<PathBuf>,
    /// Certificates (PEM) to trust as NATS servers'.
    pub nats_ca: Option<PathBuf>,
    /// This station's certificate for NATS, PEM.
    pub nats_certificate: Option<PathBuf>,
    /// Its private key, PEM.
    pub nats_key: Option<PathBuf>,
    /// Whether this station keeps the mesh's history; with NATS.
    pub archive: bool,
    /// The site: the station is in the group `local:SITE`.
    pub site: Name,
    /// Whether the station takes the place that its forecasts propose by itself, when no site was set.
    pub sites_auto: bool,
    /// For how long a place must have been proposed before it is taken.
    pub sites_hold: Duration,
    /// Further groups.
    pub groups: Vec<Name>,
    /// Where others reach this station; empty = the addresses of its interfaces.
    pub advertise: Vec<SocketAddr>,
    /// How long others take the station for alive after it was heard last.
    pub lease: Duration,
    /// Most latency experiments that the station begins with its peers, in a second, all of them together.
    pub latency_per_s: f64,
    /// Most records that wait for the mesh, on disk.
    pub spool_records_max: u64,
    /// Command that is run when a peer joined, was lost or returned.
    pub on_change: Option<String>,
    /// URL that the same is posted to.
    pub webhook: Option<String>,
    /// Whether the station and its peers may make bulk tests with each other.
    pub bulk: bool,
    /// Share of time that they may take; `None` = as the plan's policy has it.
    pub bulk_share: Option<f64>,
    /// Bytes that they may move in any hour; `None` = as the plan's policy has it.
    pub bulk_bytes_per_hour: Option<u64>,
    /// How long a full test is.
    pub bulk_length: Duration,
    /// One turn for a test every so often.
    pub bulk_every: Duration,
    /// Whether a test may end early, where its path is known well enough.
    pub bulk_early_stop: bool,
    /// Whether to plan as Gloperf does.
    pub bulk_paper: bool,
    /// What makes the tests.
    pub bulk_with: BulkWith,
    /// The port of iperf3's server; 0 = as the system chooses for each test.
    pub bulk_iperf3_port: u16,
}

impl Default for MeshConfig {
    fn default() -> Self {
        Self {
            join: None,
            join_token_file: None,
            join_token: None,
            join_ca: None,
            nats: Vec::new(),
            nats_replicas: 1,
            nats_credentials: None,
            nats_ca: None,
            nats_certificate: None,
            nats_key: None,
            archive: false,
            site: Name::new(UNSET).expect("a plain word is a name"),
            sites_auto: false,
            sites_hold: Duration::from_secs(600),
            groups: Vec::new(),
            advertise: Vec::new(),
            lease: Duration::from_secs(10),
            latency_per_s: 1.0,
            spool_records_max: 1_000_000,
            on_change: None,
            webhook: None,
            bulk: true,
            bulk_share: None,
            bulk_bytes_per_hour: None,
            bulk_length: BudgetConfig::default().test_max,
            bulk_every: PlanConfig::default().every,
            bulk_early_stop: true,
            bulk_paper: false,
            bulk_with: BulkWith::Own,
            bulk_iperf3_port: 0,
        }
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

    /// The shortest period at which each of `peers` may be measured by `experiments`, so that all of them together
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

    /// Sets a key of the table; `None` = there is no such key.
    pub(super) fn assign(&mut self, key: &str, value: &Value) -> Option<Result<(), String>> {
        let file = |slot: &mut Option<PathBuf>| value.path().map(|v| *slot = Some(v));
        Some(match key {
            "join" => value.text().and_then(|text| station_url(&text)).map(|v| self.join = Some(v)),
            "join_token_file" => file(&mut self.join_token_file),
            "join_ca" => file(&mut self.join_ca),
            "nats" => value.words().map(|v| self.nats = v),
            "nats_replicas" => value.integer(1, 5).and_then(|v| match v {
                1 | 3 | 5 => {
                    self.nats_replicas = v as u8;
                    Ok(())
                }
                // An even number stands no more losses than the odd one below it.
                _ => Err(format!("expected 1, 3 or 5, found {v}")),
            }),
            "nats_credentials" => file(&mut self.nats_credentials),
            "nats_ca" => file(&mut self.nats_ca),
            "nats_certificate" => file(&mut self.nats_certificate),
            "nats_key" => file(&mut self.nats_key),
            "archive" => value.flag().map(|v| self.archive = v),
            "site" => value.name().and_then(|site| {
                local_group(&site)?;
                self.site = site;
                Ok(())
            }),
            "sites" => value
                .text()
                .and_then(|text| match text.as_str() {
                    "propose" => Ok(false),
                    "auto" => Ok(true),
                    _ => Err(format!("expected `propose` or `auto`, found `{}`", short(&text))),
                })
                .map(|v| self.sites_auto = v),
            "sites_hold_s" => value.seconds(1.0, 86_400.0).map(|v| self.sites_hold = v),
            "groups" => value.words().and_then(groups).map(|v| self.groups = v),
            "advertise" => value.words().and_then(addresses).map(|v| self.advertise = v),
            "lease_s" => value.seconds(1.0, 300.0).map(|v| self.lease = v),
            "latency_per_s" => value.number(0.01, 1000.0).map(|v| self.latency_per_s = v),
            "spool_records_max" => value.integer(1000, 1_000_000_000).map(|v| self.spool_records_max = v),
            "on_change" => value.text().map(|v| self.on_change = Some(v)),
            "webhook" => value.text().and_then(webhook).map(|v| self.webhook = Some(v)),
            "bulk" => value.flag().map(|v| self.bulk = v),
            "bulk_share" => value.number(0.0001, 1.0).map(|v| self.bulk_share = Some(v)),
            "bulk_bytes_per_hour" => {
                value.integer(BULK_BYTES_MIN, BULK_BYTES_MAX).map(|v| self.bulk_bytes_per_hour = Some(v))
            }
            "bulk_seconds" => value.seconds(StreamPlan::SECONDS_MIN, 30.0).map(|v| self.bulk_length = v),
            "bulk_every_s" => value.seconds(1.0, 86_400.0).map(|v| self.bulk_every = v),
            "bulk_early_stop" => value.flag().map(|v| self.bulk_early_stop = v),
            "bulk_paper" => value.flag().map(|v| self.bulk_paper = v),
            "bulk_with" => value.text().and_then(|word| bulk_with(&word)).map(|v| self.bulk_with = v),
            "bulk_iperf3_port" => value.integer(0, u16::MAX.into()).map(|v| self.bulk_iperf3_port = v as u16),
            _ => return None,
        })
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

    /// Whether `new` differs in what is read only at the start.
    pub(super) fn needs_restart(&self, new: &Self) -> bool {
        // Hooks are read at every event.
        let fixed = |of: &Self| Self { on_change: None, webhook: None, ..of.clone() };
        fixed(self) != fixed(new)
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
fn station_url(text: &str) -> Result<String, String> {
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

fn bulk_with(word: &str) -> Result<BulkWith, String> {
    match word {
        "own" => Ok(BulkWith::Own),
        "iperf3" => Ok(BulkWith::Iperf3),
        _ => Err(format!("expected own or iperf3, found `{}`", short(word))),
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
        match crate::mesh::unusable(parsed) {
            Some(why) => Err(format!("`{}` cannot be advertised: {why}", short(word))),
            None => Ok(parsed),
        }
    };
    words.iter().map(address).collect()
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
