//! Detects stations with a clock that is ahead of this station's clock, from the labels of their
//! records.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::HostId;
use crate::log_limiter::LogLimiter;

/// Stations with a clock ahead: the label of the station's newest record was later than the arrival
/// of that record.
#[derive(Debug, Default)]
pub(super) struct ClocksAhead {
    /// For each station, the time by which its clock is ahead, and the time at which that was
    /// detected.
    ahead: BTreeMap<HostId, (Duration, Instant)>,
    log_limiter: LogLimiter,
}

impl ClocksAhead {
    /// Records how far the label of a record of `host` was ahead. Returns whether to log a line
    /// about `host`.
    pub(super) fn record(&mut self, host: &HostId, ahead: Option<Duration>, now: Instant) -> bool {
        let Some(ahead) = ahead else {
            self.ahead.remove(host);
            return false;
        };
        if self.ahead.len() >= HOSTS_MAX {
            self.ahead.retain(|_, (_, at)| now < *at + SHOWN_FOR);
        }
        if self.ahead.len() < HOSTS_MAX || self.ahead.contains_key(host) {
            self.ahead.insert(host.clone(), (ahead, now));
        }
        self.log_limiter.is_due(host.as_str(), now)
    }

    /// Stations that are ahead, ordered by name, and by how much.
    pub(super) fn at(&self, now: Instant) -> Vec<(HostId, Duration)> {
        let recent = self.ahead.iter().filter(|(_, (_, at))| now < *at + SHOWN_FOR);
        recent.map(|(host, (ahead, _))| (host.clone(), *ahead)).collect()
    }
}

/// Time after which a station without new records is not reported any more: its clock may be right
/// by now.
const SHOWN_FOR: Duration = Duration::from_mins(10);

/// Largest number of stations in the list; a reader of `/healthz` needs no more.
const HOSTS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_clock_is_ahead_until_a_correct_label_and_is_logged_once_a_minute() {
        let (mut clocks, began) = (ClocksAhead::default(), Instant::now());
        let [a, b] = ["a", "b"].map(|name| HostId::new(name).unwrap());
        let hour = Some(Duration::from_hours(1));
        assert!(clocks.record(&a, hour, began) && !clocks.record(&a, hour, began));
        assert!(!clocks.record(&b, None, began));
        assert_eq!(clocks.at(began), [(a.clone(), Duration::from_hours(1))]);
        clocks.record(&a, None, began);
        assert_eq!(clocks.at(began), []);
        assert!(!clocks.record(&a, hour, began + Duration::from_secs(59)), "it comes and goes");
        assert!(clocks.record(&a, hour, began + Duration::from_mins(1)));
        assert_eq!(clocks.at(began + Duration::from_mins(12)), [], "nothing has come for long");
    }
}
