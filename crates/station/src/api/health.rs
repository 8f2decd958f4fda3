//! `GET /healthz`: health of the station, and usage of its limits.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use axum::response::Response;
use barograph_api::{Health, Keyword, LimitUsage};
use barograph_forecast::Name;

use super::{ApiState, ApiStateExtractor, json};
use crate::limits::{Limit, too_many_series};
use crate::mesh::EngineLocation;
use crate::sync::lock;

pub(super) async fn health(axum::extract::State(shared): ApiStateExtractor) -> Response {
    shared.report_refusals();
    let limits = limits(&shared);
    let mut report = shared.health.report(shared.config().sensor_period);
    report.reasons.extend(shared.mesh_state.reasons());
    report.reasons.extend(shared.files.reasons());
    let well = report.reasons.is_empty();
    let (series, series_refused) = {
        let series_table = lock(&shared.series_table);
        (series_table.len(), series_table.refused())
    };
    let mut warnings: Vec<String> = clocks_ahead(shared.mesh_state.clocks_ahead()).into_iter().collect();
    warnings.extend(shared.health.warnings());
    warnings.extend(mesh_too_large(&shared));
    let answer = Health {
        status: if well { "ok" } else { "degraded" }.into(),
        reasons: report.reasons,
        warnings,
        uptime_s: report.uptime.as_secs_f64(),
        last_measurement_age_s: report.last_measurement_age.map(|age| age.as_secs_f64()),
        last_append_age_s: report.last_append_age.map(|age| age.as_secs_f64()),
        spool_records: shared.health.spool_records.load(Ordering::Relaxed),
        spool_dropped: shared.health.spool_dropped.load(Ordering::Relaxed),
        inbox_dropped: shared.health.inbox_dropped.load(Ordering::Relaxed),
        series,
        series_refused,
        limits,
    };
    json(if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &answer)
}

/// Warning that time labels of members are ahead of this station's clock. If the labels of several
/// members are ahead, this station's clock is more likely wrong than the clocks of all these
/// members.
fn clocks_ahead(mut hosts: Vec<(Name, Duration)>) -> Option<String> {
    hosts.sort_by_key(|(_, ahead)| *ahead);
    let (first, last) = (hosts.first()?, hosts.last()?);
    let (least, most) = (first.1.as_secs(), last.1.as_secs());
    Some(match hosts.len() {
        1 => format!(
            "the clock of {} is {least} s ahead of this station's; its records get the time of their arrival. Synchronise the clock (NTP)",
            first.0
        ),
        count => format!(
            "the clocks of {count} members, {} and {} among them, are {least} to {most} s ahead of this station's, \
             which may itself be behind; their records get the time of their arrival. Synchronise the clocks (NTP)",
            first.0, last.0
        ),
    })
}

/// Warning that a mesh on NATS, which refuses no station, is larger than the archive of this
/// station.
fn mesh_too_large(shared: &ApiState) -> Option<String> {
    if shared.mesh_state.location != (EngineLocation::Nats { archive: true }) {
        return None;
    }
    let mut groups = vec![shared.mesh_state.site_assignment().groups];
    groups.extend(shared.groups_of_others().into_values());
    too_many_series(&groups, shared.initial.archive().series_of_members())
        .map(|why| format!("the mesh is larger than this archive: {why}"))
}

fn limits(shared: &ApiState) -> Vec<LimitUsage> {
    let (refusals, uptime) = (shared.health.refusals(), shared.health.uptime());
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let row = |limit: Limit| {
        let (refused, (now, max)) = (refusals.of(limit), usage(shared, limit));
        let age_s = refused.since(uptime).map(|since| (uptime - since).as_secs_f64());
        LimitUsage {
            limit: limit.name().into(),
            setting: limit.setting().map(Keyword::from),
            max,
            now,
            refused: refused.count,
            since: age_s.map(|age_s| now_s - age_s),
        }
    };
    Limit::ALL.into_iter().map(row).collect()
}

/// Current usage and maximum of a limit, if single numbers can express them.
fn usage(shared: &ApiState, limit: Limit) -> (Option<u64>, Option<u64>) {
    let config = &shared.initial;
    let both = |now: usize, max: usize| (Some(now as u64), Some(max as u64));
    match limit {
        Limit::Series => both(lock(&shared.series_table).len(), config.series_max),
        Limit::Connections => both(shared.connections.len(), shared.connections.max()),
        Limit::Streams => both(shared.streams.len(), shared.streams.max()),
        Limit::Spool => {
            both(shared.health.spool_records.load(Ordering::Relaxed) as usize, config.spool_records_max)
        }
        Limit::MeshSpool => {
            let spool = shared.mesh_state.spool();
            (spool.map(|spool| spool.records), Some(config.mesh.spool_records_max))
        }
        Limit::ProbeSessions => both(shared.responder.sessions(), shared.responder.sessions_max()),
        Limit::EchoSessions => {
            let (now, max) = shared.echo.sessions();
            both(now, max)
        }
        Limit::Members => match &shared.served {
            Some(served) => both(served.members(), crate::mesh::members::MEMBERS_MAX),
            None => (None, None),
        },
        Limit::Peers => both(shared.mesh_state.peers().all().count(), crate::mesh::PEERS_MAX),
        Limit::Workers => (None, Some(config.workers_max as u64)),
        Limit::MemberSeries => {
            (None, Some((config.series_max / crate::forecast::series::MEMBER_SHARE) as u64))
        }
        Limit::Descriptors => (None, crate::http::server::descriptors_max().map(|max| max as u64)),
        Limit::MemberSpool => (None, Some((config.spool_records_max / 2) as u64)),
        Limit::Transfers => (None, Some(shared.config().transfer.transfers_max as u64)),
        Limit::UnreadAnswers => both(shared.unread.bytes(), crate::limits::unread::BYTES_MAX),
        Limit::MeshSeries => (None, Some(config.series_max as u64)),
        Limit::ArchiveSeries => {
            let archive = shared.mesh_state.archive();
            let max = archive.as_ref().map(|_| config.archive().series_of_members() as u64);
            (archive.map(|archive| archive.series), max)
        }
        Limit::ArchiveMemberSeries => {
            let archive = shared.mesh_state.archive();
            (None, archive.map(|_| config.archive().series_of_member() as u64))
        }
        Limit::AddressShare
        | Limit::Archive
        | Limit::Inbox
        | Limit::MemberRequests
        | Limit::MemberPace
        | Limit::Targets
        | Limit::Origins
        | Limit::BulkTests
        | Limit::Values
        | Limit::OwnRecords
        | Limit::FedRecords
        | Limit::InboxCallers
        | Limit::ConnectionsShed
        | Limit::ProbeRequests
        | Limit::EchoRequests
        | Limit::EchoReports
        | Limit::MeshRecords
        | Limit::Hooks
        | Limit::ArchiveOld
        | Limit::ArchiveForeign
        | Limit::ArchiveOrigins
        | Limit::ArchiveGaps
        | Limit::ArchiveNumbers
        | Limit::StreamMissed => (None, None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn several_clocks_ahead_suggest_that_the_own_clock_is_behind() {
        let host = |name: &str, seconds| (Name::new(name).unwrap(), Duration::from_secs(seconds));
        assert_eq!(clocks_ahead(Vec::new()), None);
        let one = clocks_ahead(vec![host("a", 90)]).unwrap();
        assert!(one.starts_with("the clock of a is 90 s ahead") && !one.contains("behind"), "{one}");
        let three = clocks_ahead(vec![host("a", 3700), host("b", 3600), host("c", 3650)]).unwrap();
        assert!(three.contains("of 3 members, b and a among them, are 3600 to 3700 s ahead"), "{three}");
        assert!(three.contains("may itself be behind"), "{three}");
    }
}
