//! Limits of a station. Counts the work that is refused because of a limit, and reports recent
//! refusals. Pure; times count from the station's start.

pub(crate) mod authenticated;
pub(crate) mod connections;
#[cfg(test)]
mod documented;
pub(crate) mod member_quota;
pub(crate) mod unread;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use barograph_forecast::Name;
use barograph_limits::admission::AdmissionError;

/// A limit of the station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Series,
    MemberSeries,
    Connections,
    AddressShare,
    Descriptors,
    Streams,
    Spool,
    Archive,
    MeshSpool,
    Inbox,
    Workers,
    ProbeSessions,
    EchoSessions,
    Members,
    MeshSeries,
    MemberRequests,
    MemberPace,
    MemberSpool,
    Peers,
    Targets,
    Origins,
    Transfers,
    BulkTests,
    Values,
    OwnRecords,
    FedRecords,
    InboxCallers,
    ConnectionsShed,
    ProbeRequests,
    EchoRequests,
    EchoReports,
    MeshRecords,
    Hooks,
    ArchiveSeries,
    ArchiveMemberSeries,
    ArchiveOld,
    ArchiveForeign,
    ArchiveOrigins,
    ArchiveGaps,
    ArchiveNumbers,
    StreamMissed,
    UnreadAnswers,
}

/// What refused work means for the station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The station loses measurements or peers of its own: `/healthz` is degraded.
    Fault,
    /// Callers are refused, and a caller can cause such refusals. This does not count as a fault,
    /// so that no caller can make monitoring report a fault.
    Warning,
    /// A rate limit or a budget works as intended: only counted.
    Pace,
}

impl Limit {
    pub(crate) const ALL: [Self; 42] = [
        Self::Series,
        Self::MemberSeries,
        Self::Connections,
        Self::AddressShare,
        Self::Descriptors,
        Self::Streams,
        Self::Spool,
        Self::Archive,
        Self::MeshSpool,
        Self::Inbox,
        Self::Workers,
        Self::ProbeSessions,
        Self::EchoSessions,
        Self::Members,
        Self::MeshSeries,
        Self::MemberRequests,
        Self::MemberPace,
        Self::MemberSpool,
        Self::Peers,
        Self::Targets,
        Self::Origins,
        Self::Transfers,
        Self::BulkTests,
        Self::Values,
        Self::OwnRecords,
        Self::FedRecords,
        Self::InboxCallers,
        Self::ConnectionsShed,
        Self::ProbeRequests,
        Self::EchoRequests,
        Self::EchoReports,
        Self::MeshRecords,
        Self::Hooks,
        Self::ArchiveSeries,
        Self::ArchiveMemberSeries,
        Self::ArchiveOld,
        Self::ArchiveForeign,
        Self::ArchiveOrigins,
        Self::ArchiveGaps,
        Self::ArchiveNumbers,
        Self::StreamMissed,
        Self::UnreadAnswers,
    ];

    /// Name in `/healthz` and `/metrics`.
    pub(crate) fn name(self) -> &'static str {
        self.words().0
    }

    /// The setting that raises the limit; `None` if the limit is fixed.
    pub(crate) fn setting(self) -> Option<&'static str> {
        Some(self.words().1).filter(|setting| !setting.is_empty())
    }

    /// Name, setting, and the work that is refused.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Series => ("series", "limits.series_max", "measurements of further series"),
            Self::MemberSeries => (
                "member_series",
                "limits.series_max",
                "a member's records of series beyond its share (at most a quarter, and no room that others need)",
            ),
            Self::Connections => ("connections", "limits.connections_max", "connections"),
            Self::AddressShare => (
                "address_share",
                "limits.connections_max, limits.streams_max, echo.sessions_max or echo.peer_bytes_per_hour",
                "requests beyond the share of one address (hosts behind one NAT are one address)",
            ),
            Self::Descriptors => {
                ("file_descriptors", "ulimit -n", "connections without a free file descriptor")
            }
            Self::Streams => ("streams", "limits.streams_max", "live streams"),
            Self::Spool => (
                "spool_records",
                "limits.spool_records_max",
                "records dropped or refused, because too many waited for the archive",
            ),
            Self::Archive => ("archive", "", "submitted records while the archive accepted none"),
            Self::MeshSpool => {
                ("mesh_spool_records", "mesh.spool_records_max", "records while the mesh accepted none")
            }
            Self::Inbox => ("inbox", "", "measurements, because the recorder was too slow"),
            Self::Workers => ("workers", "probe.workers_max", "experiments, because all workers were busy"),
            Self::ProbeSessions => ("probe_sessions", "", "probe sessions of other stations"),
            Self::EchoSessions => ("echo_sessions", "echo.sessions_max", "sessions of pages"),
            Self::Members => ("members", "", "invitations"),
            Self::MeshSeries => {
                ("mesh_series", "limits.series_max", "stations with too many series for this station")
            }
            Self::MemberRequests => ("member_requests", "", "requests of members beyond their share"),
            Self::MemberPace => ("member_pace", "", "requests of members above their rate"),
            Self::MemberSpool => (
                "member_spool_records",
                "limits.spool_records_max",
                "members' records beyond half of those that wait for the archive",
            ),
            Self::Peers => ("peers", "", "stations of the mesh"),
            Self::Targets => ("targets", "", "targets"),
            Self::Origins => ("origins", "", "records of further origins"),
            Self::Transfers => ("transfers", "transfer.transfers_max", "transfers"),
            Self::BulkTests => ("bulk_tests", "mesh.bulk_bytes_per_hour", "bulk tests requested by peers"),
            Self::Values => ("values", "", "values that their quantity cannot have"),
            Self::OwnRecords => {
                ("own_records", "", "measurements of this station that broke a limit of its archive")
            }
            Self::FedRecords => ("fed_records", "", "submitted records that broke a limit of the archive"),
            Self::InboxCallers => {
                ("inbox_callers", "", "submitted records, because the recorder was too slow")
            }
            Self::ConnectionsShed => {
                ("connections_shed", "limits.connections_max", "connections closed to make room for others")
            }
            Self::ProbeRequests => (
                "probe_requests",
                "",
                "experiments of other stations, because another bulk test ran or they were too large",
            ),
            Self::EchoRequests => (
                "echo_requests",
                "echo.bytes_per_hour, echo.peer_bytes_per_hour or echo.transfers_max",
                "experiments of pages",
            ),
            Self::EchoReports => (
                "echo_reports",
                "echo.keep_sources_max, echo.keep_reports_per_hour or limits.series_max",
                "reports of pages",
            ),
            Self::MeshRecords => (
                "mesh_records",
                "",
                "records that the mesh refused or whose numbers another station used; they are only in \
                 the archive of this station",
            ),
            Self::Hooks => (
                "mesh_hooks",
                "",
                "events that were dropped on their way to a hook, or replaced by a newer one of their host",
            ),
            Self::ArchiveSeries => (
                "archive_series",
                "limits.series_max",
                "members' records of series that find no room in the archive, acknowledged and not kept",
            ),
            Self::ArchiveMemberSeries => (
                "archive_member_series",
                "limits.series_max",
                "a member's records of more than an eighth of the archive's series, acknowledged and not kept",
            ),
            Self::ArchiveOld => (
                "archive_old",
                "archive.keep_days",
                "members' records older than what the archive keeps, acknowledged and not kept",
            ),
            Self::ArchiveForeign => (
                "archive_foreign",
                "",
                "records that were not measured by the member that sent them, not kept",
            ),
            Self::ArchiveOrigins => ("archive_origins", "", "members' records of further origins"),
            Self::ArchiveGaps => {
                ("archive_gaps", "", "members' records that would leave further gaps in a sequence")
            }
            Self::ArchiveNumbers => (
                "archive_numbers",
                "",
                "members' records under numbers that their station cannot have reached",
            ),
            Self::StreamMissed => (
                "stream_missed",
                "",
                "records that left the NATS stream before this archive had read them (their stations send \
                 them again)",
            ),
            Self::UnreadAnswers => {
                ("unread_answer_bytes", "", "large reads, because too many responses were in progress")
            }
        }
    }

    /// Severity of work that is refused because of this limit.
    pub(crate) fn severity(self) -> Severity {
        match self {
            Self::Series
            | Self::Descriptors
            | Self::Spool
            | Self::MeshSpool
            | Self::Inbox
            | Self::Workers
            | Self::Peers
            | Self::OwnRecords
            | Self::ArchiveSeries => Severity::Fault,
            Self::Archive
            | Self::MemberSeries
            | Self::Connections
            | Self::AddressShare
            | Self::Streams
            | Self::ProbeSessions
            | Self::EchoSessions
            | Self::Members
            | Self::MeshSeries
            | Self::MemberRequests
            | Self::MemberSpool
            | Self::Targets
            | Self::Origins
            | Self::Transfers
            | Self::Values
            | Self::FedRecords
            | Self::InboxCallers
            | Self::ConnectionsShed
            | Self::EchoRequests
            | Self::EchoReports
            | Self::MeshRecords
            | Self::Hooks
            | Self::ArchiveMemberSeries
            | Self::ArchiveOld
            | Self::ArchiveForeign
            | Self::ArchiveOrigins
            | Self::ArchiveGaps
            | Self::ArchiveNumbers
            | Self::StreamMissed
            | Self::UnreadAnswers => Severity::Warning,
            Self::MemberPace | Self::BulkTests | Self::ProbeRequests => Severity::Pace,
        }
    }
}

/// Amount of work refused for each limit.
#[derive(Clone, Debug)]
pub(crate) struct Refusals([RefusalCount; Limit::ALL.len()]);

impl Default for Refusals {
    fn default() -> Self {
        Self([RefusalCount::default(); Limit::ALL.len()])
    }
}

/// Work refused because of one limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RefusalCount {
    /// Amount of work refused since the start of the station.
    pub(crate) count: u64,
    /// Times of the first and the newest refusal of the current episode of refusals.
    episode: Option<(Duration, Duration)>,
}

impl RefusalCount {
    /// Start of the current episode of refusals; `None` if nothing was refused recently.
    pub(crate) fn since(&self, now: Duration) -> Option<Duration> {
        self.episode.filter(|(_, newest)| now.saturating_sub(*newest) < MATTERS_FOR).map(|(began, _)| began)
    }
}

impl Refusals {
    /// Adds `work` that was refused because of `limit`.
    pub(crate) fn add(&mut self, limit: Limit, work: u64, now: Duration) {
        let refused = &mut self.0[limit as usize];
        if work == 0 {
            return;
        }
        refused.count += work;
        refused.episode = Some((refused.since(now).unwrap_or(now), now));
    }

    /// Sets the work refused since the start, as counted by another part of the station.
    pub(crate) fn set(&mut self, limit: Limit, total: u64, now: Duration) {
        let new = total.saturating_sub(self.0[limit as usize].count);
        self.add(limit, new, now);
    }

    pub(crate) fn of(&self, limit: Limit) -> RefusalCount {
        self.0[limit as usize]
    }

    /// A sentence for each limit that `wanted` selects and that refused work recently.
    pub(crate) fn sentences(&self, now: Duration, wanted: impl Fn(Limit) -> bool) -> Vec<String> {
        let sentence = |limit: Limit| {
            let refused = self.of(limit);
            let since = now.saturating_sub(refused.since(now)?);
            let (_, setting, work) = limit.words();
            let setting = if setting.is_empty() { String::new() } else { format!("; raise {setting}") };
            Some(format!(
                "{work}: refused in the last {} s, {} since the start{setting}",
                since.as_secs() + 1,
                refused.count
            ))
        };
        Limit::ALL.into_iter().filter(|limit| wanted(*limit)).filter_map(sentence).collect()
    }
}

impl Limit {
    /// The limit that refused a connection: the share of its address, or `all`.
    pub(crate) fn from_full(full: AdmissionError, all: Self) -> Self {
        match full {
            AdmissionError::Share => Self::AddressShare,
            AdmissionError::All => all,
        }
    }

    /// Whether other code makes the sentence in `/healthz` for this limit, with a reporting time of
    /// its own.
    pub(crate) fn has_own_reason(self) -> bool {
        matches!(self, Self::MeshSpool | Self::Inbox | Self::Workers)
    }
}

/// Time for which a refusal is reported.
const MATTERS_FOR: Duration = Duration::from_mins(10);

/// Number of series that each station needs: [`SERIES_OF_A_STATION`], and [`SERIES_OF_A_PAIR`] for
/// each other station that shares a group with it.
pub(crate) fn series_of_each<T: PartialEq>(groups_of_each: &[impl AsRef<[T]>]) -> Vec<usize> {
    // Compare kinds of stations, not pairs: `/healthz` must stay fast with a thousand stations,
    // most of which are in the same groups.
    let mut kinds: Vec<(&[T], usize)> = Vec::new();
    let mut kind_of_each = Vec::with_capacity(groups_of_each.len());
    for groups in groups_of_each.iter().map(AsRef::as_ref) {
        let known = kinds.iter().position(|(of_kind, _)| *of_kind == groups);
        let kind = known.unwrap_or(kinds.len());
        if known.is_none() {
            kinds.push((groups, 0));
        }
        kinds[kind].1 += 1;
        kind_of_each.push(kind);
    }
    let peers = |one: &[T]| -> usize {
        let shares = |(other, _): &&(&[T], usize)| other.iter().any(|group| one.contains(group));
        kinds.iter().filter(shares).map(|(_, stations)| stations).sum()
    };
    let needed: Vec<usize> = kinds
        .iter()
        .map(|(groups, _)| SERIES_OF_A_PAIR * peers(groups).saturating_sub(1) + SERIES_OF_A_STATION)
        .collect();
    kind_of_each.into_iter().map(|kind| needed[kind]).collect()
}

/// Number of series to reserve for each station of a mesh; empty while the station is alone.
pub(crate) fn reserved(
    mut others: HashMap<Name, Vec<Name>>,
    host: &Name,
    own: &[Name],
) -> BTreeMap<Name, usize> {
    if others.is_empty() {
        return BTreeMap::new();
    }
    others.insert(host.clone(), own.to_vec());
    let (hosts, groups): (Vec<Name>, Vec<Vec<Name>>) = others.into_iter().unzip();
    hosts.into_iter().zip(series_of_each(&groups)).collect()
}

/// Number of series that all stations need together.
pub(crate) fn series_of_mesh<T: PartialEq>(groups_of_each: &[impl AsRef<[T]>]) -> usize {
    series_of_each(groups_of_each).into_iter().sum()
}

/// What to change if a mesh needs more series than the station keeps; `None` if they fit.
pub(crate) fn too_many_series<T: PartialEq>(
    groups_of_each: &[impl AsRef<[T]>],
    series_max: usize,
) -> Option<String> {
    let (stations, needed) = (groups_of_each.len(), series_of_mesh(groups_of_each));
    (needed > series_max).then(|| {
        format!(
            "{stations} stations need {needed} series, and limits.series_max is {series_max}: set it to {needed} \
             or more, or divide the mesh into sites (mesh.site)"
        )
    })
}

/// Number of series of a pair: round trip and loss, each also while a bulk test runs at either end
/// (`rtt_loaded`, `loss_loaded`), and goodput.
const SERIES_OF_A_PAIR: usize = 5;

/// Number of a station's own series: one series of the CPU, one of the memory, and two series of
/// each of four targets (idle and loaded). The targets are the station's own responder, a gateway
/// of each address family, and a resolver. Configured targets are not included.
const SERIES_OF_A_STATION: usize = 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_limit_has_a_unique_name_and_its_own_index() {
        for (at, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, at);
            assert_eq!(Limit::ALL.iter().filter(|other| other.name() == limit.name()).count(), 1);
        }
    }

    #[test]
    fn a_refusal_is_recent_for_ten_minutes_and_stays_counted() {
        let mut refusals = Refusals::default();
        let at = Duration::from_secs;
        let all = |_| true;
        assert!(refusals.sentences(at(0), all).is_empty());
        refusals.add(Limit::Series, 2, at(100));
        refusals.add(Limit::Series, 1, at(400));
        let series = refusals.of(Limit::Series);
        assert_eq!((series.count, series.since(at(999))), (3, Some(at(100))));
        let reasons = refusals.sentences(at(500), all);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].contains("3 since the start; raise limits.series_max"), "{reasons:?}");
        assert_eq!(series.since(at(1000)), None);
        refusals.set(Limit::Series, 3, at(1000));
        assert!(refusals.sentences(at(1000), all).is_empty(), "nothing new");
        refusals.set(Limit::Series, 5, at(2000));
        assert_eq!(refusals.of(Limit::Series).since(at(2001)), Some(at(2000)), "these are others");
    }

    #[test]
    fn a_full_mesh_needs_the_documented_series_and_a_mesh_with_sites_fewer() {
        let full = |stations| vec![["all"]; stations];
        // Numbers of docs/barograph.toml.
        assert_eq!([88, 89, 200].map(|n| series_of_mesh(&full(n))), [39_160, 40_050, 201_000]);
        let max = crate::Config::default().series_max;
        assert_eq!(too_many_series(&full(88), max), None);
        let why = too_many_series(&full(89), max).unwrap_or_default();
        assert!(why.contains("89 stations need 40050 series, and limits.series_max is 40000"), "{why}");
        let sites: Vec<[String; 1]> = (0..200).map(|i| [format!("site-{}", i / 20)]).collect();
        assert_eq!(series_of_mesh(&sites), 10 * 5 * 20 * 19 + 10 * 200);
        assert_eq!(series_of_mesh::<String>(&[[String::new()]]), 10);
    }

    /// All default series of stations with bulk tests: the computed number is exactly what they
    /// need.
    #[test]
    fn a_series_table_sized_for_a_mesh_accepts_all_series_of_the_mesh() {
        use crate::forecast::series::{Measurement, SeriesTable};
        use crate::quantity::loaded_form;
        use barograph_forecast::{Name, Outcome, Quantity, SeriesId};
        const STATIONS: usize = 9;
        let mut series_table = SeriesTable::new(series_of_mesh(&[["all"]; STATIONS]));
        let mut observe = |source: &str, target: &str, quantity: &Quantity| {
            let name = |text| Name::new(text).unwrap_or_else(|_| panic!("{text}"));
            let series = SeriesId { source: name(source), target: name(target), quantity: quantity.clone() };
            let outcome = Outcome::Value(0.5);
            series_table.observe(&Measurement { series, time_unix_ns: 1, outcome, detail: String::new() });
        };
        let names: Vec<String> = (0..STATIONS).map(|at| format!("station-{at}")).collect();
        for one in &names {
            for quantity in [Quantity::CPU_AVAILABLE, Quantity::MEMORY_FREE] {
                observe(one, one, &quantity);
            }
            let around = ["gateway", "gateway-6", "resolver"].map(|target| (target, Quantity::CONNECT));
            for (target, quantity) in [(one.as_str(), Quantity::RTT)].into_iter().chain(around) {
                observe(one, target, &quantity);
                observe(one, target, &loaded_form(&quantity));
            }
            for other in names.iter().filter(|other| *other != one) {
                for quantity in [Quantity::RTT, Quantity::LOSS] {
                    observe(one, other, &quantity);
                    observe(one, other, &loaded_form(&quantity));
                }
                observe(one, other, &Quantity::GOODPUT);
            }
        }
        assert_eq!((series_table.refused(), series_table.room()), (0, 0));
    }

    proptest! {
        /// For any order of additions, the counts are complete, and no episode of refusals begins
        /// in the future.
        #[test]
        fn refusal_counts_are_complete_and_no_episode_begins_in_the_future(steps in prop::collection::vec((0_u64..2000, 0_u64..4, 0..Limit::ALL.len()), 0..60)) {
            let (mut refusals, mut now, mut counts) = (Refusals::default(), Duration::ZERO, [0; Limit::ALL.len()]);
            for (wait_s, work, at) in steps {
                now += Duration::from_secs(wait_s);
                refusals.add(Limit::ALL[at], work, now);
                counts[at] += work;
            }
            for limit in Limit::ALL {
                let refused = refusals.of(limit);
                prop_assert_eq!(refused.count, counts[limit as usize]);
                prop_assert!(refused.since(now).is_none_or(|since| since <= now && refused.count > 0));
            }
        }
    }
}
