//! Determines which requests an archive can answer, from the position up to which the archive has
//! read the stream. Pure: uses no clock and no connection.

use tokio::time::Instant;

use super::archive_request::{self, ArchiveRequest};

/// How far the archive has read the stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    pub(super) stream: String,
    /// Position in the stream up to which all records are in the archive.
    pub(super) seq: u64,
    /// End of the stream when the archive began to read it. Until the archive has read up to this
    /// position, a record that the archive lacks may still be in the stream. `None` if the archive
    /// has not begun.
    pub(super) end: Option<u64>,
    /// End of the stream as its leader reported it last; `None` before the first report.
    pub(super) leader: Option<LeaderEnd>,
    /// Watermark of the archive's own station; see
    /// [`StreamPosition::watermark`](super::stream_position::StreamPosition::watermark).
    pub(super) own: u64,
}

/// End of the stream, as its leader reported it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaderEnd {
    pub(super) seq: u64,
    /// Time of the request to the leader. Numbers acknowledged before this time are at most `seq`.
    pub(super) requested: Instant,
}

/// Whether a request can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// All records that the request needs are in the archive.
    Ready,
    /// The request has a position in another stream.
    OtherStream,
    /// The stream ended at this number after the request arrived, so no higher number was
    /// acknowledged.
    BeyondEnd(u64),
    /// The archive has not yet read all records that the request needs.
    Behind,
}

impl Progress {
    /// Returns whether a request of this `kind` can be answered; `came` is the time of its arrival.
    pub(super) fn readiness(&self, kind: &str, request: &ArchiveRequest, came: Instant) -> Readiness {
        let Some(wanted) = self.wanted(kind, request) else { return Readiness::Behind };
        if request.stream.as_ref().is_some_and(|stream| *stream != self.stream) {
            return Readiness::OtherStream;
        }
        if wanted <= self.seq && (kind != archive_request::NEXT_SEQ || self.has_all_before(came)) {
            return Readiness::Ready;
        }
        match self.leader {
            Some(end) if came <= end.requested && end.seq < request.after_place => {
                Readiness::BeyondEnd(end.seq)
            }
            _ => Readiness::Behind,
        }
    }

    /// Returns whether all records stored before `came` are in the archive. A station that lost its
    /// data needs all its records in the archive, because the station continues above its highest
    /// number in the archive.
    fn has_all_before(&self, came: Instant) -> bool {
        self.leader.is_some_and(|end| came <= end.requested && end.seq <= self.seq)
    }

    /// Returns the number up to which the archive must have read; `None` if the archive has not
    /// begun to read.
    ///
    /// To know the highest number of a station, the archive must have read all messages that were
    /// in the stream when the archive began.
    pub(super) fn wanted(&self, kind: &str, request: &ArchiveRequest) -> Option<u64> {
        let needs_end = matches!(kind, archive_request::WATERMARK | archive_request::NEXT_SEQ);
        self.end.map(|end| request.after_place.max(if needs_end { end } else { 0 }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use barograph_forecast::Name;

    use super::*;

    fn request(after_place: u64) -> ArchiveRequest {
        let mut request = ArchiveRequest::next_seq(&Name::new("north").unwrap());
        (request.after_place, request.stream) = (after_place, Some("s".into()));
        request
    }

    #[test]
    fn a_position_beyond_the_end_needs_a_leader_read_after_the_request() {
        let came = Instant::now();
        let (before, after) = (came - Duration::from_millis(1), came + Duration::from_millis(1));
        let leader = |seq, requested| Some(LeaderEnd { seq, requested });
        let progress = Progress { stream: "s".into(), seq: 5, end: Some(3), ..Progress::default() };
        let readiness = |leader, position| {
            Progress { leader, ..progress.clone() }.readiness(
                archive_request::WATERMARK,
                &request(position),
                came,
            )
        };
        assert_eq!(readiness(None, 5), Readiness::Ready);
        assert_eq!(readiness(None, u64::MAX), Readiness::Behind);
        assert_eq!(
            readiness(leader(5, before), u64::MAX),
            Readiness::Behind,
            "it may have been stored since"
        );
        assert_eq!(readiness(leader(5, after), u64::MAX), Readiness::BeyondEnd(5));
        // A replica behind its leader has not delivered the message yet.
        assert_eq!(readiness(leader(7, after), 7), Readiness::Behind);
        assert_eq!(readiness(leader(7, after), 8), Readiness::BeyondEnd(7));
    }

    #[test]
    fn next_seq_waits_for_messages_stored_before_the_request() {
        let came = Instant::now();
        let (before, after) = (came - Duration::from_millis(1), came + Duration::from_millis(1));
        let progress = Progress { stream: "s".into(), seq: 5, end: Some(3), ..Progress::default() };
        let readiness = |leader| {
            let progress = Progress { leader, ..progress.clone() };
            progress.readiness(archive_request::NEXT_SEQ, &request(0), came)
        };
        assert_eq!(readiness(None), Readiness::Behind);
        assert_eq!(readiness(Some(LeaderEnd { seq: 5, requested: before })), Readiness::Behind);
        assert_eq!(readiness(Some(LeaderEnd { seq: 7, requested: after })), Readiness::Behind);
        assert_eq!(readiness(Some(LeaderEnd { seq: 5, requested: after })), Readiness::Ready);
    }

    #[test]
    fn an_unread_archive_reports_no_watermark_and_refuses_another_stream() {
        let came = Instant::now();
        let progress = Progress { stream: "s".into(), seq: 2, ..Progress::default() };
        assert_eq!(progress.readiness(archive_request::LATEST, &request(0), came), Readiness::Behind);
        let progress = Progress { end: Some(3), ..progress };
        assert_eq!(progress.readiness(archive_request::LATEST, &request(0), came), Readiness::Ready);
        assert_eq!(progress.readiness(archive_request::WATERMARK, &request(0), came), Readiness::Behind);
        let mut other = request(0);
        other.stream = Some("t".into());
        assert_eq!(progress.readiness(archive_request::WATERMARK, &other, came), Readiness::OtherStream);
    }
}
