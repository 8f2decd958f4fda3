//! Which stations have a clock that is ahead of this one's, as their records show.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::HostId;
use crate::complaints::Complaints;

/// Stations whose newest record was labelled ahead of its arrival.
#[derive(Debug, Default)]
pub(super) struct ClocksAhead {
    /// By how much, and when it was seen.
    ahead: BTreeMap<HostId, (Duration, Instant)>,
    complaints: Complaints,
}

impl ClocksAhead {
    /// Takes note of a record of `host`, with how far its label was ahead; `true` = that is to be logged.
    pub(super) fn note(&mut self, host: &HostId, ahead: Option<Duration>, now: Instant) -> bool {
        let Some(ahead) = ahead else {
            self.ahead.remove(host);
            return false;
        };
        if HOSTS_MAX <= self.ahead.len() {
            self.ahead.retain(|_, (_, at)| now < *at + SHOWN_FOR);
        }
        if self.ahead.len() < HOSTS_MAX || self.ahead.contains_key(host) {
            self.ahead.insert(host.clone(), (ahead, now));
        }
        self.complaints.is_due(host.as_str(), now)
    }

    /// Those that are ahead, and by how much, by name.
    pub(super) fn at(&self, now: Instant) -> Vec<(HostId, Duration)> {
        let recent = self.ahead.iter().filter(|(_, (_, at))| now < *at + SHOWN_FOR);
        recent.map(|(host, (ahead, _))| (host.clone(), *ahead)).collect()
    }
}

/// A station that has sent nothing for so long may have been put right.
const SHOWN_FOR: Duration = Duration::from_mins(10);

/// No reader of `/healthz` wants more.
const HOSTS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_clock_is_ahead_until_its_next_honest_label_and_logged_once_a_minute() {
        let (mut clocks, began) = (ClocksAhead::default(), Instant::now());
        let [a, b] = ["a", "b"].map(|name| HostId::new(name).unwrap());
        let hour = Some(Duration::from_hours(1));
        assert!(clocks.note(&a, hour, began) && !clocks.note(&a, hour, began));
        assert!(!clocks.note(&b, None, began));
        assert_eq!(clocks.at(began), [(a.clone(), Duration::from_hours(1))]);
        clocks.note(&a, None, began);
        assert_eq!(clocks.at(began), []);
        assert!(!clocks.note(&a, hour, began + Duration::from_secs(59)), "it comes and goes");
        assert!(clocks.note(&a, hour, began + Duration::from_mins(1)));
        assert_eq!(clocks.at(began + Duration::from_mins(12)), [], "nothing has come for long");
    }
}
