//! What is said of messages that are no records: they may come as quickly as anybody can send them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// When each origin was complained of last.
#[derive(Debug, Default)]
pub(super) struct Complaints(BTreeMap<String, Instant>);

impl Complaints {
    /// Whether it is time to say something of a message under `subject`: the first of its origin and minute.
    pub(super) fn is_due(&mut self, subject: &str, now: Instant) -> bool {
        let origin = subject.split('.').nth(2).unwrap_or_default();
        if self.0.get(origin).is_some_and(|said| now < *said + EVERY) {
            return false;
        }
        if ORIGINS_MAX <= self.0.len() {
            self.0.retain(|_, said| now < *said + EVERY);
        }
        let has_room = self.0.len() < ORIGINS_MAX;
        if has_room {
            self.0.insert(origin.to_owned(), now);
        }
        has_room
    }
}

/// Often enough to be seen, seldom enough not to hide the rest.
const EVERY: Duration = Duration::from_mins(1);

/// Origins complained of in a minute; more say nothing new.
const ORIGINS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_origin_is_complained_of_once_a_minute() {
        let (mut complaints, began) = (Complaints::default(), Instant::now());
        let mut is_due =
            |subject: &str, after_s| complaints.is_due(subject, began + Duration::from_secs(after_s));
        assert!(is_due("barograph.m.north.x.rtt", 0));
        assert!(!is_due("barograph.m.north.y.rtt", 59));
        assert!(is_due("barograph.m.south.x.rtt", 59));
        assert!(is_due("barograph.m.north.x.rtt", 60));
        let more = (0..1000).filter(|origin| is_due(&format!("barograph.m.{origin}.x.rtt"), 61)).count();
        assert_eq!(more, ORIGINS_MAX - 2, "and of so many only");
    }
}
