//! Decides which connections are admitted, and which are shed to make room. Pure; all times count
//! from one fixed moment, which the caller chooses.
//!
//! A caller is *proved* if a token or a signature authorised it lately (members, peers, holders of
//! the token). All others are *strangers*; together they get half of all connections. A quarter is
//! kept for strangers: proved callers never get it.
//!
//! If there is no room, a connection without a request in progress is shed: among the connections
//! of the network that has most of these, the one that was silent longest. If all connections have
//! requests in progress, one of these is shed, but only if its network has at least two more
//! connections than the network of the new one.
//!
//! Connections from this host may use all room that others do not use. If they are more than an
//! eighth of all, the idle ones among them are shed first.
//!
//! Live streams and sessions of pages are admitted in the same way, as *seats*. Every seat can be
//! shed, so strangers may have all of them until proved callers come. For a caller of the same
//! class, a seat is shed only of a network with at least two more than the caller's. Otherwise
//! callers that reconnect would displace each other without end.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use crate::callers::{holder, network};
use crate::proved::Proved;

/// All connections of a station, or all seats of one kind.
#[derive(Clone, Debug)]
pub struct Admission {
    max: usize,
    kind: Kind,
    next: Id,
    open: BTreeMap<Id, Connection>,
}

/// Whether an [`Admission`] admits connections or seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Connections, which have requests or wait for one.
    Connections,
    /// Live streams, or sessions of pages.
    Seats,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The address already has as many as one address may have ([`EACH_SHARE`]).
    Share,
    /// No connection or seat is free for callers of this class, and none may be shed.
    All,
}

/// Identifier of a connection or seat, unique within one [`Admission`].
pub type Id = u64;

#[derive(Clone, Copy, Debug)]
struct Connection {
    /// The caller's address for limits; `None` = this host.
    holder: Option<IpAddr>,
    /// Whether the address was proved when the connection was accepted. A seat of a stranger does
    /// not become a proved one when its address is proved later: strangers may have more seats than
    /// proved callers.
    was_proved: bool,
    /// Number of requests in progress.
    requests: usize,
    /// Latest of these times: the connection was accepted, a request of it ended, or the system
    /// accepted a part of a response. Bytes of an incomplete head do not count.
    silent_since: Duration,
}

/// An admitted connection, and the connection that the caller must close to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Number of the admitted connection.
    pub id: Id,
    /// Identifier of the connection to close; `None` if there was room.
    pub shed: Option<Id>,
    /// Longest time until the head of the first request on the connection arrives.
    pub head_within: Duration,
}

impl Admission {
    /// Creates room for `max` connections. One address gets at most a quarter, and an eighth is
    /// reserved for connections from this host.
    pub fn new(max: usize, kind: Kind) -> Self {
        Self { max, kind, next: 0, open: BTreeMap::new() }
    }

    /// Admits or rejects a connection of `ip`; `is_here` = it comes from this host.
    ///
    /// # Errors
    /// [`Full`] if there is no room and no connection may be shed.
    pub fn accept(
        &mut self,
        ip: IpAddr,
        is_here: bool,
        proved: &Proved,
        now: Duration,
    ) -> Result<Admitted, Full> {
        let holder = (!is_here).then(|| holder(ip));
        let is_proved = holder.is_none_or(|holder| proved.contains(holder, now));
        let shed = self.place(holder, is_proved, |one| self.is_proved(one, proved, now))?;
        if let Some(shed) = shed {
            self.open.remove(&shed);
        }
        let id = self.next;
        self.next += 1;
        let connection = Connection { holder, was_proved: is_proved, requests: 0, silent_since: now };
        self.open.insert(id, connection);
        Ok(Admitted { id, shed, head_within: if is_proved { HEAD_OF_PROVED } else { HEAD_OF_STRANGER } })
    }

    /// Records that the head of a request has arrived.
    pub fn request_began(&mut self, id: Id) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.requests += 1;
        }
    }

    /// Records that a response was sent completely.
    pub fn request_ended(&mut self, id: Id, now: Duration) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.requests = connection.requests.saturating_sub(1);
            connection.silent_since = now;
        }
    }

    /// Records that the system accepted a part of a response, so the caller is reading it.
    pub fn progressed(&mut self, id: Id, now: Duration) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.silent_since = now;
        }
    }

    /// Whether an address may become proved. If its connections and those of the proved callers
    /// together exceed the room for proved callers, it stays a stranger. So an address that
    /// connects first and is authorised later gets no more connections than one that is authorised
    /// at once.
    pub fn may_be_proved(&self, ip: IpAddr, proved: &Proved, now: Duration) -> bool {
        let holder = holder(ip);
        let is_proved = |one: &Connection| one.holder == Some(holder) || self.is_proved(one, proved, now);
        proved.contains(holder, now) || self.count(is_proved) <= self.proved_max()
    }

    /// Records that a connection has ended.
    pub fn closed(&mut self, id: Id) {
        self.open.remove(&id);
    }

    /// Removes and returns the connection to close first, when the station has run out of a
    /// resource that each connection needs, such as file descriptors.
    pub fn shed_one(&mut self, proved: &Proved, now: Duration) -> Option<Id> {
        let stranger = self.shed(1, |one| !self.is_proved(one, proved, now));
        let shed = stranger.or_else(|| self.shed(1, |_| true)).or_else(|| self.shed_here())?;
        self.open.remove(&shed);
        Some(shed)
    }

    /// Most connections that may be open.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Number of open connections.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Number of connections from other hosts for which `such` returns true.
    fn count(&self, such: impl Fn(&Connection) -> bool) -> usize {
        self.open.values().filter(|connection| connection.holder.is_some() && such(connection)).count()
    }

    /// Whether a connection is a proved caller's.
    fn is_proved(&self, connection: &Connection, proved: &Proved, now: Duration) -> bool {
        (self.kind == Kind::Connections || connection.was_proved)
            && connection.holder.is_some_and(|holder| proved.contains(holder, now))
    }

    fn elsewhere_max(&self) -> usize {
        self.max - self.max / HERE_SHARE
    }

    /// Number of connections that are reserved for strangers; proved callers cannot use them.
    fn kept(&self) -> usize {
        usize::max(1, self.max / STRANGERS_KEPT)
    }

    fn proved_max(&self) -> usize {
        usize::max(1, self.elsewhere_max().saturating_sub(self.kept()))
    }

    fn strangers_max(&self) -> usize {
        match self.kind {
            Kind::Connections => usize::max(1, self.max / STRANGERS_SHARE),
            Kind::Seats => self.max,
        }
    }

    /// Determines whether a connection can be admitted. Returns the connection to shed; `None` if
    /// there is room.
    fn place(
        &self,
        from: Option<IpAddr>,
        is_proved: bool,
        of_proved: impl Fn(&Connection) -> bool,
    ) -> Result<Option<Id>, Full> {
        let is_full = self.max <= self.open.len();
        let Some(from) = from else {
            let shed = || self.shed_here().or_else(|| self.shed(1, |_| true));
            return if is_full { shed().map(Some).ok_or(Full::All) } else { Ok(None) };
        };
        let is_like = |connection: &Connection| of_proved(connection) == is_proved;
        let (mut elsewhere, mut of_one, mut like, mut of_network) = (0, 0, 0, 0);
        for connection in self.open.values() {
            let Some(holder) = connection.holder else { continue };
            let is_like = is_like(connection);
            elsewhere += 1;
            of_one += usize::from(holder == from);
            like += usize::from(is_like);
            of_network += usize::from(is_like && network(holder) == network(from));
        }
        let (proved, strangers) = if is_proved { (like, elsewhere - like) } else { (elsewhere - like, like) };
        if usize::max(1, self.max / EACH_SHARE) <= of_one {
            return match self.kind {
                Kind::Connections => {
                    self.shed(1, |one| one.holder == Some(from)).map(Some).ok_or(Full::Share)
                }
                Kind::Seats => Err(Full::Share),
            };
        }
        let has_room = if is_proved { proved < self.proved_max() } else { strangers < self.strangers_max() };
        if elsewhere < self.elsewhere_max() && has_room {
            // If this host has more than its eighth, one of its idle connections is shed.
            match is_full.then(|| self.shed_here()) {
                None => return Ok(None),
                Some(Some(shed)) => return Ok(Some(shed)),
                Some(None) => {}
            }
        }
        // While strangers have less than a quarter, a new stranger displaces a proved caller;
        // otherwise it displaces a different stranger. A new proved caller displaces a different
        // proved caller if these have all their room. Otherwise it displaces a stranger while
        // strangers have more than a quarter, and first a proved caller when they have not.
        let shed = |may_be_at_work: bool| {
            let larger = of_network + 2;
            let crowd = if may_be_at_work || self.kind == Kind::Seats { larger } else { 1 };
            let of_like = || self.shed_of(crowd, may_be_at_work, is_like);
            let crowd = if may_be_at_work { larger } else { 1 };
            let of_others = || self.shed_of(crowd, may_be_at_work, |one| !is_like(one));
            match (is_proved, strangers) {
                (true, _) if self.proved_max() <= proved => of_like(),
                (true, strangers) if self.kept() < strangers => of_others().or_else(of_like),
                (true, _) => of_like().or_else(of_others),
                (false, strangers) if strangers < self.kept() => of_others().or_else(of_like),
                (false, _) => of_like(),
            }
        };
        shed(false).or_else(|| shed(true)).map(Some).ok_or(Full::All)
    }

    /// Selects the idle connection of this host that was silent longest, if this host has more than
    /// its share.
    fn shed_here(&self) -> Option<Id> {
        let here = || self.open.iter().filter(|(_, connection)| connection.holder.is_none());
        // A seat is never idle, so no seat of this host is shed.
        if self.kind == Kind::Seats || here().count() <= self.max / HERE_SHARE {
            return None;
        }
        let idle = here().filter(|(_, connection)| connection.requests == 0);
        idle.min_by_key(|(id, connection)| (connection.silent_since, **id)).map(|(id, _)| *id)
    }

    /// Selects the connection to close first, among connections from other hosts without a request
    /// in progress. Only networks with at least `crowd` such connections are considered.
    fn shed(&self, crowd: usize, may_go: impl Fn(&Connection) -> bool) -> Option<Id> {
        self.shed_of(crowd, false, may_go)
    }

    /// Like [`Self::shed`], but if `may_be_at_work`, connections with a request in progress can be
    /// selected too.
    fn shed_of(
        &self,
        crowd: usize,
        may_be_at_work: bool,
        may_go: impl Fn(&Connection) -> bool,
    ) -> Option<Id> {
        let may_go = |connection: &Connection| {
            let is_idle = connection.requests == 0;
            connection.holder.filter(|_| (is_idle || may_be_at_work) && may_go(connection))
        };
        let mut of_networks = HashMap::<IpAddr, (usize, Duration, Id)>::new();
        for (&id, connection) in &self.open {
            let Some(holder) = may_go(connection) else { continue };
            let longest = of_networks.entry(network(holder)).or_insert((0, connection.silent_since, id));
            longest.0 += 1;
            (longest.1, longest.2) = (longest.1, longest.2).min((connection.silent_since, id));
        }
        let order =
            |&(count, silent_since, id): &(usize, Duration, Id)| (usize::MAX - count, silent_since, id);
        let crowds = of_networks.into_values().filter(|(count, ..)| crowd <= *count);
        crowds.min_by_key(order).map(|(_, _, id)| id)
    }
}

/// One address gets a quarter of all connections.
pub const EACH_SHARE: usize = 4;
/// An eighth is kept for this host.
pub const HERE_SHARE: usize = 8;
/// Strangers get half of all connections.
pub const STRANGERS_SHARE: usize = 2;
/// A quarter is reserved for strangers: as much as one proved address may have.
const STRANGERS_KEPT: usize = 4;
/// Time for the first head of a stranger: a head is one packet, and a lost packet is sent again
/// within some seconds, also after a TLS handshake.
pub const HEAD_OF_STRANGER: Duration = Duration::from_secs(8);
/// Time for the first head of a proved caller, which does not open connections without a request,
/// but may have a slow network.
pub const HEAD_OF_PROVED: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::proved::Prover;

    /// An [`Admission`] under test, with the table of proved callers.
    #[derive(Clone)]
    struct Tested {
        admission: Admission,
        proved: Proved,
    }

    impl std::ops::Deref for Tested {
        type Target = Admission;

        fn deref(&self) -> &Admission {
            &self.admission
        }
    }

    impl std::ops::DerefMut for Tested {
        fn deref_mut(&mut self) -> &mut Admission {
            &mut self.admission
        }
    }

    impl Tested {
        fn new(max: usize, kind: Kind) -> Self {
            Self { admission: Admission::new(max, kind), proved: Proved::default() }
        }

        fn accept(&mut self, ip: IpAddr, is_here: bool, now: Duration) -> Result<Admitted, Full> {
            self.admission.accept(ip, is_here, &self.proved, now)
        }

        fn proved(&mut self, ip: IpAddr, now: Duration) {
            if self.admission.may_be_proved(ip, &self.proved, now) {
                self.proved.insert(ip, Prover::Operator, now);
            }
        }

        fn count_of(&self, is_proved: bool, now: Duration) -> usize {
            self.admission.count(|one| self.admission.is_proved(one, &self.proved, now) == is_proved)
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn ip(network: u8, host: u8) -> IpAddr {
        [198, 18, network, host].into()
    }

    #[test]
    fn the_longest_silent_of_the_largest_crowd_goes_first() {
        let mut admission = Tested::new(16, Kind::Connections);
        let lone = admission.accept(ip(1, 1), false, at(0)).unwrap().id;
        let mut crowd: Vec<Id> =
            (0..7).map(|i| admission.accept(ip(2, i), false, at(1)).unwrap().id).collect();
        // The first of these connections has a request in progress, and on the second a request has
        // just ended.
        admission.request_began(crowd[0]);
        admission.request_began(crowd[1]);
        admission.request_ended(crowd[1], at(2));
        let page = admission.accept(ip(3, 1), false, at(3)).unwrap();
        assert_eq!(page.shed, Some(crowd[2]), "strangers have half of 16");
        crowd.remove(2);
        for _ in 0..20 {
            let again = admission.accept(ip(2, 9), false, at(4)).unwrap();
            assert!(![lone, page.id, crowd[0]].contains(&again.shed.unwrap()), "{again:?}");
        }
        assert_eq!(admission.open_count(), 8);
    }

    #[test]
    fn proved_callers_have_room_that_strangers_cannot_take() {
        let mut admission = Tested::new(16, Kind::Connections);
        for i in 0..40 {
            admission.accept(ip(i % 4, i), false, at(0)).unwrap();
        }
        assert_eq!(admission.open_count(), 8);
        admission.proved(ip(9, 1), at(0));
        admission.proved(ip(9, 2), at(0));
        let members: Vec<Id> = (0..6)
            .map(|i| {
                let admitted = admission.accept(ip(9, 1 + i % 2), false, at(1)).unwrap();
                assert_eq!((admitted.shed, admitted.head_within), (None, HEAD_OF_PROVED));
                admitted.id
            })
            .collect();
        let another = admission.accept(ip(9, 2), false, at(2)).unwrap();
        assert!(another.shed.is_some_and(|shed| !members.contains(&shed)), "a stranger makes room");
        let stranger = admission.accept(ip(5, 1), false, at(3)).unwrap();
        assert!(stranger.shed.is_some_and(|shed| !members.contains(&shed)));
        assert_eq!(stranger.head_within, HEAD_OF_STRANGER);
        // This host's eighth.
        assert_eq!(admission.accept([127, 0, 0, 1].into(), true, at(3)).unwrap().shed, None);
        assert_eq!(admission.accept([127, 0, 0, 1].into(), true, at(3)).unwrap().shed, None);
        assert!(admission.accept([127, 0, 0, 1].into(), true, at(3)).unwrap().shed.is_some());
        // After an hour no address is proved any more.
        assert!(!admission.proved.contains(ip(9, 1), at(3600)));
    }

    /// Callers with one token from four networks take all connections that proved callers may have.
    /// Strangers still get a quarter, and are not shed.
    #[test]
    fn proved_callers_do_not_shut_strangers_out() {
        let mut admission = Tested::new(64, Kind::Connections);
        let prove = |admission: &mut Tested, i: u8, now| {
            admission.proved(ip(i % 4, i), now);
            admission.accept(ip(i % 4, i), false, now)
        };
        for i in 0..200 {
            prove(&mut admission, i, at(0)).unwrap();
        }
        assert_eq!(admission.open_count(), 40, "a quarter of 64 is kept for strangers");
        let page = admission.accept(ip(9, 1), false, at(1)).unwrap();
        assert_eq!(page.shed, None);
        for i in 0..200 {
            let shed = prove(&mut admission, i, at(2)).unwrap().shed;
            assert!(shed.is_some() && shed != Some(page.id), "it is not closed before it has asked");
        }
    }

    /// Proved callers with requests in progress never use the quarter that is reserved for
    /// strangers, whether they are proved before or after they connect.
    #[test]
    fn proved_callers_at_work_leave_a_quarter_to_strangers() {
        for is_late in [false, true] {
            let mut admission = Tested::new(64, Kind::Connections);
            for i in 0..200_u8 {
                let from = ip(i % 4, i % 20);
                if !is_late {
                    admission.proved(from, at(0));
                }
                if let Ok(admitted) = admission.accept(from, false, at(0)) {
                    admission.request_began(admitted.id);
                }
                if is_late && i % 20 == 19 {
                    (0..20).for_each(|i| admission.proved(ip(i % 4, i), at(0)));
                }
            }
            assert!(admission.count_of(true, at(1)) <= 40, "late: {is_late}");
            if !is_late {
                for i in 0..16 {
                    assert!(admission.accept(ip(9, i), false, at(1)).is_ok_and(|page| page.shed.is_none()));
                }
            }
        }
    }

    /// A few addresses hold many long requests. A different caller of the same class is admitted
    /// and displaces one of these connections, and the addresses cannot displace it again.
    #[test]
    fn a_crowd_at_work_does_not_shut_its_own_class_out() {
        for is_proved in [false, true] {
            let mut admission = Tested::new(64, Kind::Connections);
            let enter = |admission: &mut Tested, from, seconds| {
                if is_proved {
                    admission.proved(from, at(seconds));
                }
                let admitted = admission.accept(from, false, at(seconds))?;
                admission.request_began(admitted.id);
                Ok::<_, Full>(admitted)
            };
            for i in 0..100 {
                let _ = enter(&mut admission, ip(i % 3, 1), 0);
            }
            let honest = enter(&mut admission, ip(9, 1), 1).unwrap();
            assert!(honest.shed.is_some());
            for i in 0..100 {
                let again = enter(&mut admission, ip(i % 3, 1), 2);
                assert!(again.is_err() || again.is_ok_and(|again| again.shed != Some(honest.id)));
            }
        }
    }

    #[test]
    fn this_host_gives_back_what_it_took_beyond_its_part() {
        let here = |admission: &mut Tested, now| admission.accept([127, 0, 0, 1].into(), true, at(now));
        let mut admission = Tested::new(16, Kind::Connections);
        let first: Vec<Id> = (0..16).map(|_| here(&mut admission, 0).unwrap().id).collect();
        assert_eq!(here(&mut admission, 1).unwrap().shed, Some(first[0]));
        admission.request_began(first[1]);
        assert_eq!(admission.accept(ip(1, 1), false, at(2)).unwrap().shed, Some(first[2]));
        let pages = (2..30).filter(|i| admission.accept(ip(*i, 1), false, at(3)).is_ok()).count();
        assert_eq!((pages, admission.open_count()), (28, 16));
        assert_eq!(admission.count(|_| true), 8, "strangers have half");
        assert!(here(&mut admission, 4).unwrap().shed.is_some_and(|shed| !first[..2].contains(&shed)));
    }

    #[test]
    fn a_crowd_s_oldest_seat_goes_to_a_smaller_crowd_and_never_back() {
        let mut seats = Tested::new(16, Kind::Seats);
        let take = |seats: &mut Tested, i: u8| seats.accept(ip(i % 4, i % 5), false, at(i.into()));
        let first: Vec<_> = (0..14).map(|i| take(&mut seats, i).unwrap().id).collect();
        for i in 14..100 {
            assert!(take(&mut seats, i).is_err(), "strangers may have all but this host's, in equal parts");
        }
        let page = seats.accept(ip(9, 1), false, at(100)).unwrap();
        assert_eq!(page.shed, Some(first[0]), "the oldest of the largest crowd");
        seats.proved(ip(9, 2), at(100));
        let member = seats.accept(ip(9, 2), false, at(101)).unwrap();
        assert_eq!(member.shed, Some(first[1]));
        for i in 100..200 {
            let shed = take(&mut seats, i).ok().and_then(|again| again.shed);
            assert!(shed != Some(page.id) && shed != Some(member.id));
        }
    }

    #[test]
    fn proved_callers_take_seats_down_to_the_quarter_of_strangers() {
        let mut seats = Tested::new(16, Kind::Seats);
        (0..14).for_each(|i| assert!(seats.accept(ip(i, 1), false, at(0)).is_ok()));
        for i in 0..100 {
            seats.proved(ip(100 + i % 8, i), at(1));
            let _ = seats.accept(ip(100 + i % 8, i), false, at(1));
        }
        assert_eq!(seats.count_of(true, at(1)), 10);
        assert_eq!(seats.count_of(false, at(1)), 4);
        assert_eq!(seats.accept(ip(200, 1), false, at(2)), Err(Full::All), "none has two");
    }

    #[test]
    fn one_address_gets_a_quarter_of_the_seats_and_no_more_for_its_own() {
        let mut seats = Tested::new(16, Kind::Seats);
        let held: Vec<Id> = (0..4).map(|_| seats.accept(ip(1, 1), false, at(0)).unwrap().id).collect();
        assert_eq!(seats.accept(ip(1, 1), false, at(1)), Err(Full::Share));
        let mapped = "::ffff:198.18.1.1".parse().unwrap();
        assert_eq!(seats.accept(mapped, false, at(1)), Err(Full::Share), "another spelling of it");
        seats.closed(held[0]);
        assert!(seats.accept(ip(1, 1), false, at(1)).is_ok());
        let v6 = |text: &str| text.parse().unwrap();
        (0..4).for_each(|_| assert!(seats.accept(v6("2001:db8::1"), false, at(1)).is_ok()));
        assert_eq!(seats.accept(v6("2001:db8::2"), false, at(1)), Err(Full::Share), "one /64");
        assert!(seats.accept(v6("2001:db8:0:1::1"), false, at(1)).is_ok());
    }

    #[test]
    fn a_caller_that_reads_its_answer_is_not_silent() {
        let mut admission = Tested::new(16, Kind::Connections);
        let ids: Vec<Id> = (0..4).map(|i| admission.accept(ip(1, i), false, at(0)).unwrap().id).collect();
        admission.progressed(ids[0], at(5));
        assert_eq!(admission.admission.shed_one(&admission.proved, at(6)), Some(ids[1]));
        assert_eq!(admission.open_count(), 3);
    }

    #[test]
    fn an_address_with_its_share_sheds_its_own_and_never_what_is_served() {
        let mut admission = Tested::new(8, Kind::Connections);
        let first = admission.accept(ip(1, 1), false, at(0)).unwrap().id;
        let second = admission.accept(ip(1, 1), false, at(0)).unwrap().id;
        admission.request_began(first);
        assert_eq!(admission.accept(ip(1, 1), false, at(1)).unwrap().shed, Some(second));
        let third = admission.next - 1;
        admission.request_began(third);
        assert_eq!(admission.accept(ip(1, 1), false, at(2)), Err(Full::Share));
        admission.closed(third);
        for i in 2..5 {
            let id = admission.accept(ip(i, 1), false, at(2)).unwrap().id;
            admission.request_began(id);
        }
        assert_eq!(admission.accept(ip(5, 1), false, at(3)), Err(Full::All), "none is a crowd");
        admission.request_ended(first, at(4));
        assert_eq!(admission.accept(ip(5, 1), false, at(4)).unwrap().shed, Some(first));
    }

    /// One random step of the test, such as a new connection or the end of a request.
    #[derive(Clone, Debug)]
    enum Step {
        Accept { network: u8, host: u8, is_here: bool },
        Began(usize),
        Ended(usize),
        Closed(usize),
        Proved { network: u8, host: u8 },
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..4_u8, 0..6_u8, prop::bool::weighted(0.1))
                .prop_map(|(network, host, is_here)| Step::Accept { network, host, is_here }),
            3 => any::<usize>().prop_map(Step::Began),
            2 => any::<usize>().prop_map(Step::Ended),
            1 => any::<usize>().prop_map(Step::Closed),
            1 => (0..2_u8, 0..2_u8).prop_map(|(network, host)| Step::Proved { network, host }),
            2 => (0..2000_u64).prop_map(Step::Wait),
        ]
    }

    proptest! {
        #[test]
        fn bounds_hold_and_nobody_at_work_is_shed_but_of_a_crowd(max in 1_usize..40, is_seats: bool, steps in prop::collection::vec(step(), 1..200)) {
            let kind = if is_seats { Kind::Seats } else { Kind::Connections };
            let (mut admission, mut now) = (Tested::new(max, kind), at(0));
            for step in steps {
                let ids: Vec<Id> = admission.open.keys().copied().collect();
                let nth = |n: usize| ids.get(n % ids.len().max(1)).copied().unwrap_or(u64::MAX);
                let before = admission.open.clone();
                match step {
                    Step::Wait(seconds) => now += at(seconds),
                    Step::Began(n) => admission.request_began(nth(n)),
                    Step::Ended(n) => admission.request_ended(nth(n), now),
                    Step::Closed(n) => admission.closed(nth(n)),
                    Step::Proved { network, host } => admission.proved(ip(network, host), now),
                    Step::Accept { network, host, is_here } => {
                        let is_proved = is_here || admission.proved.contains(ip(network, host), now);
                        let is_proved_one = |one: &Connection| admission.admission.is_proved(one, &admission.proved, now);
                        let of_strangers = |connection: &Connection| {
                            connection.holder.is_some() && !is_proved_one(connection)
                        };
                        let is_proved_full =
                            admission.proved_max() <= admission.count_of(true, now);
                        let has_silent = before.values().any(|one| of_strangers(one) && one.requests == 0);
                        match admission.clone().accept(ip(network, host), is_here, now) {
                            Ok(Admitted { shed: Some(shed), .. }) => {
                                let shed = before[&shed];
                                let crowd = |network, of_proved| {
                                    let is_of = |one: &&Connection| {
                                        one.holder.map(super::network) == Some(network) && is_proved_one(one) == of_proved
                                    };
                                    before.values().filter(is_of).count()
                                };
                                let own = crowd(super::network(holder(ip(network, host))), is_proved);
                                let of_shed = |from| crowd(super::network(from), is_proved_one(&shed));
                                let is_crowd = !is_here && shed.holder.is_some_and(|from| own + 2 <= of_shed(from));
                                prop_assert!(shed.requests == 0 || is_crowd, "it was at work");
                                let own = Some(holder(ip(network, host))) == shed.holder;
                                let strangers = before.values().filter(|one| of_strangers(one)).count();
                                let kept = usize::max(1, max / STRANGERS_KEPT);
                                prop_assert!(
                                    is_proved || own || of_strangers(&shed) || shed.holder.is_none() || strangers < kept,
                                    "a stranger took a proved one's above the quarter"
                                );
                                let here = before.values().filter(|one| one.holder.is_none()).count();
                                prop_assert!(
                                    shed.holder.is_some() || (!is_seats && max / HERE_SHARE < here),
                                    "this host's part"
                                );
                            }
                            Ok(_) => {}
                            Err(full) => prop_assert!(
                                full == Full::Share || !has_silent || is_seats || (is_proved && is_proved_full)
                            ),
                        }
                        let _ = admission.accept(ip(network, host), is_here, now);
                    }
                }
                prop_assert!(admission.open_count() <= max);
            }
        }
    }

    /// A thousand idle connections a second from 41 addresses: an honest stranger and a member are
    /// always admitted, and not shed before their request.
    #[test]
    fn honest_callers_get_in_during_a_flood() {
        let mut admission = Tested::new(256, Kind::Connections);
        admission.proved(ip(9, 1), at(0));
        for i in 0..10_000_u64 {
            let now = Duration::from_millis(i);
            admission.accept(ip((i % 4) as u8, (i % 41) as u8), false, now).unwrap();
            if i % 100 == 0 {
                let page = admission.accept(ip(200, 1), false, now).unwrap().id;
                let member = admission.accept(ip(9, 1), false, now).unwrap().id;
                for j in 0..50 {
                    let admitted = admission.accept(ip(j % 4, j), false, now).unwrap();
                    assert!(admitted.shed != Some(page) && admitted.shed != Some(member));
                }
                admission.closed(page);
                admission.closed(member);
            }
        }
    }
}
