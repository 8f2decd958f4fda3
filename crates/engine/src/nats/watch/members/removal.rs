//! Removal of a station from the directory, as a watch reads it: a message of an archive, and a
//! mark at the key of the station.

use std::time::Duration;

/// The newest removal of a station, and the mark at the station's own key. An archive writes both.
#[derive(Default)]
pub(super) struct Removal {
    /// When the servers stored the removal, in nanoseconds since 1970-01-01 UTC; `None` if no
    /// removal was read, or if the time is unknown.
    pub(super) stored_unix_ns: Option<i64>,
    /// When the servers stored the mark, in nanoseconds since 1970-01-01 UTC; `None` if the newest
    /// message at the station's own key is not a mark, or if the time is unknown.
    pub(super) marked_unix_ns: Option<i64>,
    /// When the servers stored the newest removal after which the station has registered again, in
    /// nanoseconds since 1970-01-01 UTC. If the station repeats the mark of this removal, it is not
    /// removed again.
    pub(super) undone_unix_ns: Option<i64>,
    /// Whether the removal was reported to the reader of the watch.
    pub(super) is_reported: bool,
}

impl Removal {
    /// Returns whether the removal has a mark.
    ///
    /// The identifiers of the removal and the mark are not compared: if two archives remove a
    /// station at the same time, the keys may have the removal of one archive and the mark of the
    /// other. A mark that was stored before the removal also counts: the station has not registered
    /// since, because a registration overwrites the mark. A mark that was stored more than
    /// [`MARKED_WITHIN`] after the removal does not count: with lists of older versions, a station
    /// that was admitted again can write it.
    ///
    /// If the station registers between the marks of two concurrent removals, a watch that reads
    /// the second mark live does not report the removal. An operator then removes the station
    /// again.
    pub(super) fn is_marked(&self) -> bool {
        self.stored_unix_ns.zip(self.marked_unix_ns).is_some_and(|(removed, marked)| {
            let delay_ns = marked.saturating_sub(removed).max(0);
            let is_undone = self.undone_unix_ns.is_some_and(|undone| removed <= undone);
            !is_undone && Duration::from_nanos(delay_ns.cast_unsigned()) <= MARKED_WITHIN
        })
    }
}

/// Longest time from a removal to its mark, by the servers' clocks. An archive writes the mark when
/// the response to the removal has arrived, within some seconds; otherwise the archive reports an
/// error. The remaining time allows for differences between the clocks of servers.
const MARKED_WITHIN: Duration = Duration::from_mins(1);
