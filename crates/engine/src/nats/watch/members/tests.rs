#![allow(clippy::unwrap_used)]
use async_nats::HeaderMap;
use barograph_forecast::Name;
use proptest::prelude::*;

use super::*;
use crate::{Capabilities, wire};

/// A message of the bucket: a registration of `north` in `local:a` with a lease of four
/// seconds.
fn stored(seq: u64) -> Stored {
    stored_by("north", seq)
}

fn stored_by(host: &str, seq: u64) -> Stored {
    stored_in("a", host, seq)
}

/// A message like that of [`stored`], but for `host`. The header with the time at which the
/// message was stored has the value `made`.
fn stored_in(made: &str, host: &str, seq: u64) -> Stored {
    let entry = Entry {
        host: Name::new(host).unwrap(),
        addresses: Vec::new(),
        version: "1".into(),
        groups: vec![Name::new("local:a").unwrap()],
        capabilities: Capabilities::default(),
        key: None,
    };
    let mut headers = HeaderMap::new();
    let own = [
        ("Nats-Subject", "x"),
        ("Nats-Sequence", "1"),
        ("Barograph-Registration", "r"),
        ("Nats-TTL", "4s"),
        ("Nats-Time-Stamp", made),
    ];
    for (name, value) in own {
        headers.insert(name, value);
    }
    let subject = format!("{}.{host}", super::super::subject::ENTRIES);
    Stored { seq, subject, headers, payload: wire::entry_text(&entry).into() }
}

/// A message without an entry about `north` that was stored at a minute of an hour; `key` is
/// the part of its key before the token.
fn marked(key: &str, id: &str, minute: u32, seq: u64) -> Stored {
    let mut stored = stored_in(&format!("2026-11-26T06:{minute:02}:00Z"), "north", seq);
    stored.subject = format!("{}.{key}north", super::super::subject::ENTRIES);
    stored.headers.insert("Barograph-Registration", id);
    stored.headers.insert("KV-Operation", "PURGE");
    stored.payload = bytes::Bytes::new();
    stored
}

#[test]
fn a_station_is_removed_while_its_key_has_the_removal_mark() {
    let host = Name::new("north").unwrap();
    let group = Name::new("local:a").unwrap();
    let since = Renewal::Since(Instant::now());
    let (removal, mark) = (marked("removed/", "r1", 5, 11), marked("", "r1", 5, 13));
    let (up, removed) = (stored(10), Some(Event::Removed(host.clone())));
    let mut members = Members::new(&group);
    assert!(matches!(members.process(&up, since), Some(Event::Up(_))));
    assert_eq!(members.process(&removal, since), None, "no mark yet");
    assert_eq!(members.process(&mark, since), removed);
    assert_eq!(members.process(&mark, since), None, "reported already");
    // A renewal between the removal and its mark does not undo the removal.
    let mut members = Members::new(&group);
    assert_eq!(members.process(&removal, since), None);
    assert!(matches!(members.process(&stored(12), since), Some(Event::Up(_))));
    assert_eq!(members.process(&mark, since), removed);
    // The station is admitted again, and repeats the mark of its former removal.
    assert!(matches!(members.process(&stored(14), since), Some(Event::Up(_))));
    let down = Some(Event::Down(host.clone()));
    assert_eq!(members.process(&marked("", "r1", 7, 15), since), down);
    // A mark alone is no removal.
    let mut members = Members::new(&group);
    assert!(matches!(members.process(&up, since), Some(Event::Up(_))));
    assert_eq!(members.process(&mark, since), down);
    // The watch read the station's own key before it read the removal.
    assert_eq!(members.process(&removal, since), removed);
    // The whole bucket is read: with the mark, without the mark, and with a newer registration.
    let (anew, again) = (stored(14), marked("removed/", "r2", 50, 20));
    let late = marked("", "r2", 52, 21);
    for (messages, is_removed) in [
        (vec![&removal, &mark], true),
        (vec![&removal], false),
        (vec![&removal, &anew], false),
        // The archive stopped before it wrote the mark of its second removal. The mark of its
        // first removal is still there.
        (vec![&mark, &again], true),
        // The same, but the station has registered since the first removal.
        (vec![&anew, &again], false),
        // The station wrote the mark two minutes after the removal.
        (vec![&again, &late], false),
    ] {
        assert_eq!(is_read_as_removed(&messages), is_removed, "{messages:?}");
    }
}

#[test]
fn a_readmitted_station_cannot_repeat_its_removal() {
    let mut members = Members::new(&Name::new("local:a").unwrap());
    let since = Renewal::Since(Instant::now());
    for message in [marked("removed/", "r1", 5, 11), marked("", "r1", 5, 12)] {
        members.process(&message, since);
    }
    assert!(matches!(members.process(&stored(13), since), Some(Event::Up(_))));
    let down = Some(Event::Down(Name::new("north").unwrap()));
    assert_eq!(members.process(&marked("", "r1", 5, 14), since), down);
    // The watch reads the whole bucket, which has the removal and the mark.
    let mut now = Members::new(&Name::new("local:a").unwrap());
    let mut read = WholeRead::default();
    for message in [marked("removed/", "r1", 5, 11), marked("", "r1", 5, 14)] {
        now.process(&message, since);
        read.add(&message);
    }
    now.complete(&members, &read, Instant::now());
    assert!(now.removed.is_empty());
    // An archive removes the station again.
    let mut members = now;
    members.process(&marked("removed/", "r2", 6, 15), since);
    assert!(members.removed.contains(&Name::new("north").unwrap()));
}

#[test]
fn an_entry_with_a_trace_is_no_registration() {
    let mut members = Members::new(&Name::new("local:a").unwrap());
    let mut traced = stored(1);
    for name in ["Nats-Trace-Dest", "nats-trace-dest"] {
        traced.headers = stored(1).headers;
        traced.headers.insert(name, "trace disabled");
        assert_eq!(members.process(&traced, Renewal::Since(Instant::now())), None, "{name}");
    }
    assert!(matches!(members.process(&stored(2), Renewal::Since(Instant::now())), Some(Event::Up(_))));
}

#[test]
fn an_entry_that_outlived_its_lease_is_not_reported_by_a_new_watch() {
    let group = Name::new("local:a").unwrap();
    let [old, newest] = [("old", 30, 1), ("new", 35, 2)]
        .map(|(host, second, seq)| stored_in(&format!("2026-11-26T06:05:{second}Z"), host, seq));
    // The lease is 4 s. The clocks of servers may differ by 5 s.
    let began = Instant::now() + Duration::from_hours(1);
    let read_at = |at: Instant, later_ns: i64, before: &Members| {
        let (mut now, mut read) = (Members::new(&group), WholeRead::default());
        for message in [&old, &newest] {
            now.process(message, Renewal::Before(at));
            read.add(message);
        }
        read.newest_unix_ns = read.newest_unix_ns.map(|newest| newest + later_ns);
        now.complete(before, &read, at);
        now
    };
    let hosts = |members: &Members| members.known.keys().map(ToString::to_string).collect::<Vec<_>>();
    let none = Members::new(&group);
    let known = read_at(began, 0, &none);
    assert_eq!(hosts(&known), ["new", "old"]);
    let two = read_at(began, 2_000_000_000, &none);
    let is_over = |after: u64| two.is_over(&Name::new("old").unwrap(), began + Duration::from_millis(after));
    assert!(is_over(2_000) && !is_over(1_999), "two seconds of its lease are left");
    assert_eq!(hosts(&read_at(began, 4_000_000_000, &none)), ["new"]);
    // A watch that knows the station follows its lease by this station's clock, also if a newer
    // message was read late.
    let later = began + Duration::from_secs(3);
    let again = read_at(later, 4_000_000_000, &known);
    assert_eq!(hosts(&again), ["new", "old"]);
    assert!(again.is_over(&Name::new("old").unwrap(), began + Duration::from_secs(4)));
    let mut older = known;
    older.known.values_mut().for_each(|member| member.message.seq = 0);
    let again = read_at(later, 2_000_000_000, &older);
    assert_eq!(hosts(&again), ["new", "old"]);
    assert!(again.is_over(&Name::new("old").unwrap(), later + Duration::from_secs(2)));
}

#[test]
fn an_entry_that_did_not_arrive_extends_no_lease() {
    let (host, began) = (Name::new("north").unwrap(), Instant::now());
    let group = Name::new("local:a").unwrap();
    let mut before = Members::new(&group);
    before.process(&stored(1), Renewal::Before(began));
    let later = began + Duration::from_secs(3);
    for (is_incomplete, end) in [(true, began), (false, later)] {
        let mut now = Members::new(&group);
        now.complete(&before, &WholeRead { is_incomplete, ..WholeRead::default() }, later);
        let end = end + Duration::from_secs(4);
        assert!(now.is_over(&host, end) && !now.is_over(&host, end - Duration::from_millis(1)));
    }
}

/// Returns whether a watch that reads these messages as the whole bucket reports `north` as
/// removed.
fn is_read_as_removed(messages: &[&Stored]) -> bool {
    let group = Name::new("local:a").unwrap();
    let mut now = Members::new(&group);
    for message in messages {
        now.process(message, Renewal::Before(Instant::now()));
    }
    let events = Members::new(&group).removed_since(&now);
    assert!(events.iter().all(|event| *event == Event::Removed(Name::new("north").unwrap())));
    !events.is_empty()
}

/// Two archives remove the same station. Each writes its removal, then its mark. For any order
/// of the four writes, the station is removed as soon as one archive has written its mark.
#[test]
fn concurrent_removals_of_one_station_hold() {
    let (group, since) = (Name::new("local:a").unwrap(), Renewal::Since(Instant::now()));
    let (removal, mark) = ("removed/", "");
    for order in [
        [(removal, "r1"), (mark, "r1"), (removal, "r2"), (mark, "r2")],
        [(removal, "r1"), (removal, "r2"), (mark, "r1"), (mark, "r2")],
        [(removal, "r1"), (removal, "r2"), (mark, "r2"), (mark, "r1")],
    ] {
        let messages: Vec<Stored> =
            order.into_iter().zip(11..).map(|((key, id), seq)| marked(key, id, 5, seq)).collect();
        let mut members = Members::new(&group);
        members.process(&stored(10), since);
        let mut is_reported = false;
        for (count, message) in (1..).zip(&messages) {
            match members.process(message, since) {
                Some(Event::Removed(_)) => is_reported = true,
                None => {}
                other => panic!("{order:?}, message {count}: {other:?}"),
            }
            let is_marked = order[..count].iter().any(|(key, _)| *key == mark);
            assert_eq!(is_reported, is_marked, "{order:?}, message {count}");
            // The bucket has the newest message of each key.
            let bucket: BTreeMap<&str, &Stored> =
                messages[..count].iter().map(|message| (message.subject.as_str(), message)).collect();
            let mut bucket: Vec<&Stored> = bucket.into_values().collect();
            bucket.sort_by_key(|message| message.seq);
            assert_eq!(is_read_as_removed(&bucket), is_marked, "{order:?}, message {count}");
        }
    }
}

#[test]
fn a_pause_of_the_watching_station_makes_no_station_lost() {
    let (host, second) = (Name::new("north").unwrap(), Duration::from_secs(1));
    let began = Instant::now();
    let mut members = Members::new(&Name::new("local:a").unwrap());
    members.process(&stored(5), Renewal::found(began, began + second / 2));
    assert!(members.is_over(&host, began + 5 * second));
    // The station renewed its registration meanwhile, at an unknown time.
    let woken = began + 15 * second;
    assert!(members.process(&stored(6), Renewal::found(began, woken)).is_none());
    assert!(!members.is_over(&host, woken + 3 * second));
    assert!(members.is_over(&host, woken + 4 * second));
}

#[test]
fn a_member_dropped_by_the_servers_is_lost_only_after_a_write() {
    let (host, second) = (Name::new("north").unwrap(), Duration::from_secs(1));
    let began = Instant::now();
    let mut members = Members::new(&Name::new("local:a").unwrap());
    members.process(&stored(5), Renewal::Since(began));
    let mut writes = DirectoryWrites::new(second);
    writes.stored(began, 4 * second);
    members.dropped(&host, began + 4 * second);
    let late = began + 5 * second;
    let overdue = members.late_renewals(late, &writes);
    assert!(overdue.hosts.is_empty() && overdue.needs_own_write, "nothing is asked where nothing is proved");
    assert!(!members.is_lost(&host, late, &writes) && members.first_overdue() > Some(late));
    writes.failed(late, "no quorum".into());
    writes.stored(began + 60 * second, 4 * second);
    assert!(members.late_renewals(began + 61 * second, &writes).hosts.is_empty());
    assert_eq!(members.first_overdue(), Some(began + 64 * second), "it has a lease to return");
    assert_eq!(members.late_renewals(began + 64 * second, &writes).hosts, std::slice::from_ref(&host));
    assert!(members.is_lost(&host, began + 64 * second, &writes));
    // The station returned.
    assert!(members.process(&stored(6), Renewal::Since(began + 62 * second)).is_none());
    assert!(!members.is_lost(&host, began + 64 * second, &writes));
}

/// Stations with long leases renew every ten seconds, so a missing renewal is noticed long before
/// the end of the lease.
#[test]
fn a_late_renewal_of_a_long_lease_is_read_for_soon() {
    let (host, second) = (Name::new("north").unwrap(), Duration::from_secs(1));
    let began = Instant::now();
    let mut members = Members::new(&Name::new("local:a").unwrap());
    let mut message = stored(5);
    message.headers.insert("Nats-TTL", "300s");
    members.process(&message, Renewal::Since(began));
    let mut writes = DirectoryWrites::new(second);
    writes.stored(began, 300 * second);
    assert!(members.late_renewals(began + 10 * second, &writes).hosts.is_empty(), "not due yet");
    assert_eq!(members.late_renewals(began + 12 * second, &writes).hosts, std::slice::from_ref(&host));
    assert!(!members.is_lost(&host, began + 299 * second, &writes), "its lease has not ended");
}

#[test]
fn a_member_missing_after_a_reread_may_return_within_one_lease() {
    let (host, second) = (Name::new("north").unwrap(), Duration::from_secs(1));
    let began = Instant::now();
    let group = Name::new("local:a").unwrap();
    let mut before = Members::new(&group);
    before.process(&stored(5), Renewal::Since(began));
    let read_at = began + 100 * second;
    let mut now = Members::new(&group);
    now.keep_missing(&before, &WholeRead::default(), read_at);
    assert!(before.changes_to(&now).is_empty(), "no event");
    let mut writes = DirectoryWrites::new(second);
    writes.stored(read_at + 5 * second, 400 * second);
    now.dropped(&host, read_at + second);
    assert!(!now.is_lost(&host, read_at + 3 * second, &writes));
    assert!(now.is_lost(&host, read_at + 4 * second, &writes));
    // A station that left or changed its groups has a message in the bucket, so it does not
    // count as missing.
    let mut now = Members::new(&group);
    now.keep_missing(&before, &WholeRead { named: [host.clone()].into(), ..WholeRead::default() }, read_at);
    assert_eq!(before.changes_to(&now), [Event::Down(host)]);
}

#[test]
fn the_same_stream_position_in_a_recreated_bucket_is_a_renewal() {
    let (host, second) = (Name::new("north").unwrap(), Duration::from_secs(1));
    let (began, group) = (Instant::now(), Name::new("local:a").unwrap());
    let mut before = Members::new(&group);
    before.process(&stored(5), Renewal::Before(began));
    for (made, is_over) in [("a", true), ("b", false)] {
        let mut now = Members::new(&group);
        now.process(&stored_in(made, "north", 5), Renewal::Before(began + 3 * second));
        now.keep_renewals(&before);
        assert_eq!(now.is_over(&host, began + 5 * second), is_over, "made at {made}");
    }
}

#[test]
fn frequent_rereads_of_the_bucket_do_not_hide_a_dead_member() {
    let (host, second) = (Name::new("north").unwrap(), Duration::from_secs(1));
    let (began, group) = (Instant::now(), Name::new("local:a").unwrap());
    // A server that is behind still has the entry; the other servers do not.
    for is_in_bucket in [true, false] {
        let mut writes = DirectoryWrites::new(second);
        let mut members = Members::new(&group);
        members.process(&stored(5), Renewal::Since(began));
        let lost_at = (1..20).map(|half| began + half * 2 * second).find(|at| {
            let mut anew = Members::new(&group);
            if is_in_bucket {
                anew.process(&stored(5), Renewal::Before(*at));
            }
            anew.keep_renewals(&members);
            anew.keep_missing(&members, &WholeRead::default(), *at);
            members = anew;
            writes.stored(*at, 4 * second);
            members.is_lost(&host, *at, &writes)
        });
        let late = lost_at.map(|at| at - began);
        assert!(late.is_some_and(|late| late <= 8 * second), "in the bucket: {is_in_bucket}, lost: {late:?}");
    }
}

/// Simulation of a directory, a station that watches the directory, a live peer, and a peer
/// that dies.
struct Mesh {
    began: Instant,
    /// Message of each host in the bucket: its number and its storage time in milliseconds.
    bucket: BTreeMap<&'static str, (u64, u64)>,
    last_seq: u64,
    members: Members,
    seen: u64,
    polled_at: Instant,
    writes: DirectoryWrites,
    lost: BTreeMap<HostId, u64>,
}

/// Time of day of the servers, `ms` milliseconds after the start of the test.
fn time(ms: u64) -> String {
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("2026-11-26T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", ms % 1000)
}

impl Mesh {
    fn new() -> Self {
        let began = Instant::now();
        let mut writes = DirectoryWrites::new(Duration::from_secs(1));
        writes.begun();
        let members = Members::new(&Name::new("local:a").unwrap());
        let (bucket, lost) = (BTreeMap::new(), BTreeMap::new());
        Self { began, bucket, last_seq: 0, members, seen: 0, polled_at: began, writes, lost }
    }

    fn renew(&mut self, host: &'static str, now_ms: u64) {
        self.last_seq += 1;
        self.bucket.insert(host, (self.last_seq, now_ms));
    }

    /// Works like a watch: reads the whole bucket or new messages, then the keys of late
    /// members.
    fn poll(&mut self, now_ms: u64, reads_anew: bool) {
        let now = self.began + Duration::from_millis(now_ms);
        self.bucket.retain(|_, (_, stored_ms)| now_ms < *stored_ms + 4000);
        let held: Vec<Stored> = self
            .bucket
            .iter()
            .map(|(host, (seq, stored_ms))| stored_in(&time(*stored_ms), host, *seq))
            .collect();
        if reads_anew {
            let mut anew = Members::new(&self.members.group);
            held.iter().for_each(|stored| drop(anew.process(stored, Renewal::Before(now))));
            let mut read = WholeRead::default();
            held.iter().for_each(|stored| read.add(stored));
            anew.complete(&self.members, &read, now);
            self.members = anew;
        } else {
            let renewal = Renewal::found(self.polled_at, now);
            let new = held.iter().filter(|stored| self.seen < stored.seq);
            new.for_each(|stored| drop(self.members.process(stored, renewal)));
        }
        (self.seen, self.polled_at) = (self.last_seq, now);
        for host in self.members.late_renewals(now, &self.writes).hosts {
            if !self.bucket.contains_key(host.as_str()) {
                self.members.dropped(&host, now);
            }
            if self.members.is_lost(&host, now, &self.writes) {
                self.members.remove(&host);
                self.lost.insert(host, now_ms);
            } else {
                self.members.check_later(&host, now);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any outages and any number of reads of the whole bucket: no live peer is reported as
    /// lost, and a dead peer is reported as lost soon after the last outage.
    #[test]
    fn only_dead_peers_are_lost_for_any_number_of_rereads(
        outages in prop::collection::vec((1_u64..60, 1_u64..40), 0..4),
        anew_every in 1_u64..12,
        phase in 0_u64..5,
        dies_ms in 5000_u64..60_000,
    ) {
        let mut at_ms = 0;
        let outages: Vec<(u64, u64)> = outages.into_iter().map(|(up_s, down_s)| {
            let begin = at_ms + 1000 * up_s;
            at_ms = begin + 1000 * down_s;
            (begin, at_ms)
        }).collect();
        let takes = |ms: u64| !outages.iter().any(|(begin, end)| (*begin..*end).contains(&ms));
        let mut mesh = Mesh::new();
        let mut next = [("own", 0), ("live", 250 * phase), ("dead", 250 * phase)];
        let quiet_ms = outages.last().map_or(0, |(_, end)| *end).max(dies_ms);
        for now_ms in (0..quiet_ms + 30_000).step_by(250) {
            for (host, at_ms) in &mut next {
                if now_ms < *at_ms || (*host == "dead" && dies_ms <= now_ms) {
                    continue;
                }
                *at_ms = now_ms + if takes(now_ms) { 1333 } else { 250 };
                let began = mesh.began + Duration::from_millis(now_ms);
                match (*host, takes(now_ms)) {
                    ("own", true) => mesh.writes.stored(began, Duration::from_secs(4)),
                    ("own", false) => mesh.writes.failed(began, String::new()),
                    (host, true) => mesh.renew(host, now_ms),
                    (_, false) => {}
                }
            }
            if now_ms % 500 == 0 {
                mesh.poll(now_ms, (now_ms / 500) % anew_every == 0);
            }
        }
        let [live, dead] = ["live", "dead"].map(|host| mesh.lost.get(&Name::new(host).unwrap()));
        prop_assert_eq!(live, None);
        let stored = (0..dies_ms).step_by(250).any(|ms| 250 * phase <= ms && takes(ms));
        prop_assert_eq!(dead.is_some(), stored, "read anew each {} looks", anew_every);
        prop_assert!(dead.is_none_or(|lost| *lost <= quiet_ms + 15_000), "{:?} after {}", dead, quiet_ms);
    }
}
