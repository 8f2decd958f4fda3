//! Decides which connections are admitted, and which are shed to make room. Pure; all times count
//! from one fixed moment, which the caller chooses.
//!
//! A caller is *authenticated* if a token or a signature authorised it lately (members, peers,
//! holders of the token). All others are *anonymous*; together they get half of all connections. A
//! quarter is kept for anonymous callers: authenticated callers never get it.
//!
//! If there is no room, a connection without a request in progress is shed. The connection to shed
//! is from the network with the largest number of such connections, and is the connection that was
//! silent for the longest time in that network. If all connections have requests in progress, one
//! connection is shed, but only if the network of that connection has at least two connections more
//! than the network of the new connection.
//!
//! Connections from this host may use all room that others do not use. If connections from this
//! host are more than an eighth of all, the idle connections from this host are shed first.
//!
//! Live streams and sessions of pages are admitted in the same way, as *session slots*. Every slot
//! can be shed, so anonymous callers may have all of them until authenticated callers come. For a
//! new caller of the same class, a slot is shed only if the slot's network has at least two slots
//! more than the network of the new caller. Otherwise callers that reconnect would displace each
//! other without end.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use crate::authenticated::AuthenticatedAddresses;
use crate::caller_group::{limit_address, network};

/// All connections of a station, or all slots of one kind.
#[derive(Clone, Debug)]
pub struct Admission {
    max: usize,
    kind: AdmissionKind,
    next: ConnectionId,
    open: BTreeMap<ConnectionId, Connection>,
}

/// Whether an [`Admission`] admits connections or slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionKind {
    /// Open connections. A connection has requests in progress, or waits for a request.
    Connections,
    /// Session slots. Each live stream, or each session of a page, takes one slot.
    SessionSlots,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionError {
    /// The address already has the largest number of connections or slots that one address may have
    /// ([`ADDRESS_DIVISOR`]).
    Share,
    /// No connection or slot is free for callers of this class, and none may be shed.
    All,
}

/// Identifier of a connection or slot, unique within one [`Admission`].
pub type ConnectionId = u64;

#[derive(Clone, Copy, Debug)]
struct Connection {
    /// The caller's address for limits; `None` = this host.
    address: Option<IpAddr>,
    /// Whether the address was authenticated when the connection was accepted. A slot of an
    /// anonymous caller stays an anonymous slot when the address is authenticated later. Anonymous
    /// callers can have all slots, but the limit of authenticated callers is lower. If slots
    /// changed their class, authenticated callers could exceed their limit.
    was_authenticated: bool,
    /// Number of requests in progress.
    requests: usize,
    /// Time of the latest of these events: the connection was accepted, a request on the connection
    /// ended, the system accepted a part of a response, or a request arrived that does not count as
    /// in progress. Bytes of an incomplete head do not count.
    silent_since: Duration,
}

/// An admitted connection, and the connection that the caller must close to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Identifier of the admitted connection.
    pub id: ConnectionId,
    /// Identifier of the connection to close; `None` if there was room.
    pub shed: Option<ConnectionId>,
    /// Longest time until the head of the first request on the connection arrives.
    pub head_within: Duration,
}

impl Admission {
    /// Creates room for `max` connections. One address gets at most a quarter of `max`, and an
    /// eighth of `max` is reserved for connections from this host.
    pub fn new(max: usize, kind: AdmissionKind) -> Self {
        Self { max, kind, next: 0, open: BTreeMap::new() }
    }

    /// Admits or rejects a connection of `ip`; `is_local`: whether the connection comes from this
    /// host.
    ///
    /// # Errors
    /// [`AdmissionError`] if there is no room and no connection may be shed.
    pub fn accept(
        &mut self,
        ip: IpAddr,
        is_local: bool,
        authenticated: &AuthenticatedAddresses,
        now: Duration,
    ) -> Result<Admitted, AdmissionError> {
        let address = (!is_local).then(|| limit_address(ip));
        let is_authenticated = address.is_none_or(|address| authenticated.contains(address, now));
        let shed = self.select_to_shed(address, is_authenticated, |one| {
            self.is_authenticated(one, authenticated, now)
        })?;
        if let Some(shed) = shed {
            self.open.remove(&shed);
        }
        let id = self.next;
        self.next += 1;
        let connection =
            Connection { address, was_authenticated: is_authenticated, requests: 0, silent_since: now };
        self.open.insert(id, connection);
        Ok(Admitted {
            id,
            shed,
            head_within: if is_authenticated { HEAD_OF_AUTHENTICATED } else { HEAD_OF_ANONYMOUS },
        })
    }

    /// Records that the head of a request has arrived.
    pub fn request_began(&mut self, id: ConnectionId) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.requests += 1;
        }
    }

    /// Records that a response was sent completely.
    pub fn request_ended(&mut self, id: ConnectionId, now: Duration) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.requests = connection.requests.saturating_sub(1);
            connection.silent_since = now;
        }
    }

    /// Records progress of the caller. Either the caller read a part of a response, so the system
    /// accepted a further part of this response. Or the caller sent a request that does not count
    /// as in progress.
    pub fn progressed(&mut self, id: ConnectionId, now: Duration) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.silent_since = now;
        }
    }

    /// Whether an address may become authenticated. The address stays anonymous if its connections
    /// and the connections of authenticated callers together exceed the room for authenticated
    /// callers. So an address cannot get more connections by connecting first and being authorised
    /// later.
    pub fn may_be_authenticated(
        &self,
        ip: IpAddr,
        authenticated: &AuthenticatedAddresses,
        now: Duration,
    ) -> bool {
        let address = limit_address(ip);
        let is_authenticated =
            |one: &Connection| one.address == Some(address) || self.is_authenticated(one, authenticated, now);
        authenticated.contains(address, now) || self.count(is_authenticated) <= self.authenticated_max()
    }

    /// Records that a connection has ended.
    pub fn closed(&mut self, id: ConnectionId) {
        self.open.remove(&id);
    }

    /// Removes and returns the connection to close first, when the station has run out of a
    /// resource that each connection needs, such as file descriptors.
    pub fn shed_one(
        &mut self,
        authenticated: &AuthenticatedAddresses,
        now: Duration,
    ) -> Option<ConnectionId> {
        let anonymous = self.shed(1, |one| !self.is_authenticated(one, authenticated, now));
        let shed = anonymous.or_else(|| self.shed(1, |_| true)).or_else(|| self.shed_local())?;
        self.open.remove(&shed);
        Some(shed)
    }

    /// Largest number of connections that may be open.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Number of open connections.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Number of connections from other hosts for which `predicate` returns true.
    fn count(&self, predicate: impl Fn(&Connection) -> bool) -> usize {
        self.open.values().filter(|connection| connection.address.is_some() && predicate(connection)).count()
    }

    fn is_authenticated(
        &self,
        connection: &Connection,
        authenticated: &AuthenticatedAddresses,
        now: Duration,
    ) -> bool {
        (self.kind == AdmissionKind::Connections || connection.was_authenticated)
            && connection.address.is_some_and(|address| authenticated.contains(address, now))
    }

    fn remote_max(&self) -> usize {
        self.max - self.max / LOCAL_DIVISOR
    }

    /// Number of connections that are reserved for anonymous callers; authenticated callers cannot
    /// use them.
    fn anonymous_reserve(&self) -> usize {
        usize::max(1, self.max / ANONYMOUS_RESERVE_DIVISOR)
    }

    fn authenticated_max(&self) -> usize {
        usize::max(1, self.remote_max().saturating_sub(self.anonymous_reserve()))
    }

    fn anonymous_max(&self) -> usize {
        match self.kind {
            AdmissionKind::Connections => usize::max(1, self.max / ANONYMOUS_DIVISOR),
            AdmissionKind::SessionSlots => self.max,
        }
    }

    /// Determines whether a connection can be admitted. Returns the connection to shed; `None` if
    /// there is room.
    fn select_to_shed(
        &self,
        from: Option<IpAddr>,
        is_authenticated: bool,
        of_authenticated: impl Fn(&Connection) -> bool,
    ) -> Result<Option<ConnectionId>, AdmissionError> {
        let is_full = self.max <= self.open.len();
        let Some(from) = from else {
            let shed = || self.shed_local().or_else(|| self.shed(1, |_| true));
            return if is_full { shed().map(Some).ok_or(AdmissionError::All) } else { Ok(None) };
        };
        let is_like = |connection: &Connection| of_authenticated(connection) == is_authenticated;
        let (mut remote, mut of_one, mut like, mut of_network) = (0, 0, 0, 0);
        for connection in self.open.values() {
            let Some(address) = connection.address else { continue };
            let is_like = is_like(connection);
            remote += 1;
            of_one += usize::from(address == from);
            like += usize::from(is_like);
            of_network += usize::from(is_like && network(address) == network(from));
        }
        let (authenticated, anonymous) =
            if is_authenticated { (like, remote - like) } else { (remote - like, like) };
        if usize::max(1, self.max / ADDRESS_DIVISOR) <= of_one {
            return match self.kind {
                AdmissionKind::Connections => {
                    self.shed(1, |one| one.address == Some(from)).map(Some).ok_or(AdmissionError::Share)
                }
                AdmissionKind::SessionSlots => Err(AdmissionError::Share),
            };
        }
        let has_room = if is_authenticated {
            authenticated < self.authenticated_max()
        } else {
            anonymous < self.anonymous_max()
        };
        if remote < self.remote_max() && has_room {
            // If this host has more than an eighth of all connections, one idle connection of this
            // host is shed.
            match is_full.then(|| self.shed_local()) {
                None => return Ok(None),
                Some(Some(shed)) => return Ok(Some(shed)),
                Some(None) => {}
            }
        }
        // While anonymous callers have less than a quarter, a new anonymous caller displaces an
        // authenticated caller; otherwise it displaces a different anonymous caller. A new
        // authenticated caller displaces a different authenticated caller if authenticated callers
        // use all their room. Otherwise the choice depends on the anonymous callers. If they have
        // more than a quarter, an anonymous caller is displaced first; if not, an authenticated
        // caller is displaced first.
        let shed = |may_be_at_work: bool| {
            let larger = of_network + 2;
            let min_connections =
                if may_be_at_work || self.kind == AdmissionKind::SessionSlots { larger } else { 1 };
            let of_like = || self.select_from_largest_group(min_connections, may_be_at_work, is_like);
            let min_connections = if may_be_at_work { larger } else { 1 };
            let of_others =
                || self.select_from_largest_group(min_connections, may_be_at_work, |one| !is_like(one));
            match (is_authenticated, anonymous) {
                (true, _) if self.authenticated_max() <= authenticated => of_like(),
                (true, anonymous) if self.anonymous_reserve() < anonymous => of_others().or_else(of_like),
                (true, _) => of_like().or_else(of_others),
                (false, anonymous) if anonymous < self.anonymous_reserve() => of_others().or_else(of_like),
                (false, _) => of_like(),
            }
        };
        shed(false).or_else(|| shed(true)).map(Some).ok_or(AdmissionError::All)
    }

    /// Selects the idle connection of this host that was silent longest, if this host has more
    /// connections than its share.
    fn shed_local(&self) -> Option<ConnectionId> {
        let here = || self.open.iter().filter(|(_, connection)| connection.address.is_none());
        // A slot is never idle, so no slot of this host is shed.
        if self.kind == AdmissionKind::SessionSlots || here().count() <= self.max / LOCAL_DIVISOR {
            return None;
        }
        let idle = here().filter(|(_, connection)| connection.requests == 0);
        idle.min_by_key(|(id, connection)| (connection.silent_since, **id)).map(|(id, _)| *id)
    }

    /// Selects the connection to close first, among connections from other hosts without a request
    /// in progress. Only networks with at least `min_connections` such connections are considered.
    fn shed(
        &self,
        min_connections: usize,
        is_candidate: impl Fn(&Connection) -> bool,
    ) -> Option<ConnectionId> {
        self.select_from_largest_group(min_connections, false, is_candidate)
    }

    /// Selects like [`Self::shed`]. If `may_be_at_work` is true, connections with a request in
    /// progress can be selected too.
    fn select_from_largest_group(
        &self,
        min_connections: usize,
        may_be_at_work: bool,
        is_candidate: impl Fn(&Connection) -> bool,
    ) -> Option<ConnectionId> {
        let is_candidate = |connection: &Connection| {
            let is_idle = connection.requests == 0;
            connection.address.filter(|_| (is_idle || may_be_at_work) && is_candidate(connection))
        };
        let mut of_networks = HashMap::<IpAddr, (usize, Duration, ConnectionId)>::new();
        for (&id, connection) in &self.open {
            let Some(address) = is_candidate(connection) else { continue };
            let longest = of_networks.entry(network(address)).or_insert((0, connection.silent_since, id));
            longest.0 += 1;
            (longest.1, longest.2) = (longest.1, longest.2).min((connection.silent_since, id));
        }
        let order = |&(count, silent_since, id): &(usize, Duration, ConnectionId)| {
            (usize::MAX - count, silent_since, id)
        };
        let groups = of_networks.into_values().filter(|(count, ..)| min_connections <= *count);
        groups.min_by_key(order).map(|(_, _, id)| id)
    }
}

/// Divisor of the number of all connections: one address gets at most a quarter.
pub const ADDRESS_DIVISOR: usize = 4;
/// Divisor of the number of all connections: an eighth is reserved for this host.
pub const LOCAL_DIVISOR: usize = 8;
/// Divisor of the number of all connections: anonymous callers get at most half.
pub const ANONYMOUS_DIVISOR: usize = 2;
/// Divisor of the number of all connections: a quarter is reserved for anonymous callers. One
/// address may have the same number of connections ([`ADDRESS_DIVISOR`]).
const ANONYMOUS_RESERVE_DIVISOR: usize = 4;
/// Longest time until the first head of an anonymous caller arrives. A head is one packet, and a
/// lost packet is sent again within some seconds. The time also covers a TLS handshake before the
/// head.
pub const HEAD_OF_ANONYMOUS: Duration = Duration::from_secs(8);
/// Longest time until the first head of an authenticated caller arrives. An authenticated caller
/// may have a slow network, and does not open connections without a request.
pub const HEAD_OF_AUTHENTICATED: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::authenticated::CredentialOwner;

    /// An [`Admission`] under test, with the table of authenticated callers.
    #[derive(Clone)]
    struct Tested {
        admission: Admission,
        authenticated: AuthenticatedAddresses,
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
        fn new(max: usize, kind: AdmissionKind) -> Self {
            Self { admission: Admission::new(max, kind), authenticated: AuthenticatedAddresses::default() }
        }

        fn accept(&mut self, ip: IpAddr, is_local: bool, now: Duration) -> Result<Admitted, AdmissionError> {
            self.admission.accept(ip, is_local, &self.authenticated, now)
        }

        fn authenticated(&mut self, ip: IpAddr, now: Duration) {
            if self.admission.may_be_authenticated(ip, &self.authenticated, now) {
                self.authenticated.insert(ip, CredentialOwner::Operator, now);
            }
        }

        fn count_of(&self, is_authenticated: bool, now: Duration) -> usize {
            self.admission.count(|one| {
                self.admission.is_authenticated(one, &self.authenticated, now) == is_authenticated
            })
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn ip(network: u8, host: u8) -> IpAddr {
        [198, 18, network, host].into()
    }

    #[test]
    fn the_longest_idle_connection_of_the_largest_network_is_shed_first() {
        let mut admission = Tested::new(16, AdmissionKind::Connections);
        let lone = admission.accept(ip(1, 1), false, at(0)).unwrap().id;
        let mut group: Vec<ConnectionId> =
            (0..7).map(|i| admission.accept(ip(2, i), false, at(1)).unwrap().id).collect();
        // Connection 1 has a request in progress. A request on connection 2 has just ended.
        admission.request_began(group[0]);
        admission.request_began(group[1]);
        admission.request_ended(group[1], at(2));
        let page = admission.accept(ip(3, 1), false, at(3)).unwrap();
        assert_eq!(page.shed, Some(group[2]), "anonymous callers have half of 16");
        group.remove(2);
        for _ in 0..20 {
            let again = admission.accept(ip(2, 9), false, at(4)).unwrap();
            assert!(![lone, page.id, group[0]].contains(&again.shed.unwrap()), "{again:?}");
        }
        assert_eq!(admission.open_count(), 8);
    }

    #[test]
    fn authenticated_callers_have_connections_reserved_from_anonymous_callers() {
        let mut admission = Tested::new(16, AdmissionKind::Connections);
        for i in 0..40 {
            admission.accept(ip(i % 4, i), false, at(0)).unwrap();
        }
        assert_eq!(admission.open_count(), 8);
        admission.authenticated(ip(9, 1), at(0));
        admission.authenticated(ip(9, 2), at(0));
        let members: Vec<ConnectionId> = (0..6)
            .map(|i| {
                let admitted = admission.accept(ip(9, 1 + i % 2), false, at(1)).unwrap();
                assert_eq!((admitted.shed, admitted.head_within), (None, HEAD_OF_AUTHENTICATED));
                admitted.id
            })
            .collect();
        let another = admission.accept(ip(9, 2), false, at(2)).unwrap();
        assert!(another.shed.is_some_and(|shed| !members.contains(&shed)), "an anonymous caller makes room");
        let anonymous = admission.accept(ip(5, 1), false, at(3)).unwrap();
        assert!(anonymous.shed.is_some_and(|shed| !members.contains(&shed)));
        assert_eq!(anonymous.head_within, HEAD_OF_ANONYMOUS);
        // An eighth of the connections is reserved for this host.
        assert_eq!(admission.accept([127, 0, 0, 1].into(), true, at(3)).unwrap().shed, None);
        assert_eq!(admission.accept([127, 0, 0, 1].into(), true, at(3)).unwrap().shed, None);
        assert!(admission.accept([127, 0, 0, 1].into(), true, at(3)).unwrap().shed.is_some());
        // After an hour no address is authenticated any more.
        assert!(!admission.authenticated.contains(ip(9, 1), at(3600)));
    }

    /// Callers from four networks, all with the same token, take all connections that authenticated
    /// callers may have. Anonymous callers still get a quarter, and are not shed.
    #[test]
    fn authenticated_callers_leave_connections_to_anonymous_callers() {
        let mut admission = Tested::new(64, AdmissionKind::Connections);
        let enter = |admission: &mut Tested, i: u8, now| {
            admission.authenticated(ip(i % 4, i), now);
            admission.accept(ip(i % 4, i), false, now)
        };
        for i in 0..200 {
            enter(&mut admission, i, at(0)).unwrap();
        }
        assert_eq!(admission.open_count(), 40, "a quarter of 64 is kept for anonymous callers");
        let page = admission.accept(ip(9, 1), false, at(1)).unwrap();
        assert_eq!(page.shed, None);
        for i in 0..200 {
            let shed = enter(&mut admission, i, at(2)).unwrap().shed;
            assert!(shed.is_some() && shed != Some(page.id), "it is not closed before it has asked");
        }
    }

    /// A quarter of the connections is reserved for anonymous callers. Authenticated callers with
    /// requests in progress never use this quarter. The test covers authentication before a caller
    /// connects, and authentication after a caller has connected.
    #[test]
    fn authenticated_callers_with_requests_leave_a_quarter_to_anonymous_callers() {
        for is_late in [false, true] {
            let mut admission = Tested::new(64, AdmissionKind::Connections);
            for i in 0..200_u8 {
                let from = ip(i % 4, i % 20);
                if !is_late {
                    admission.authenticated(from, at(0));
                }
                if let Ok(admitted) = admission.accept(from, false, at(0)) {
                    admission.request_began(admitted.id);
                }
                if is_late && i % 20 == 19 {
                    (0..20).for_each(|i| admission.authenticated(ip(i % 4, i), at(0)));
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
    /// and displaces one of their connections. After that, these addresses cannot displace the
    /// connection of the new caller.
    #[test]
    fn busy_addresses_cannot_exclude_other_callers_of_their_class() {
        for is_authenticated in [false, true] {
            let mut admission = Tested::new(64, AdmissionKind::Connections);
            let enter = |admission: &mut Tested, from, seconds| {
                if is_authenticated {
                    admission.authenticated(from, at(seconds));
                }
                let admitted = admission.accept(from, false, at(seconds))?;
                admission.request_began(admitted.id);
                Ok::<_, AdmissionError>(admitted)
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
    fn loopback_callers_lose_connections_beyond_their_share_to_other_callers() {
        let here = |admission: &mut Tested, now| admission.accept([127, 0, 0, 1].into(), true, at(now));
        let mut admission = Tested::new(16, AdmissionKind::Connections);
        let first: Vec<ConnectionId> = (0..16).map(|_| here(&mut admission, 0).unwrap().id).collect();
        assert_eq!(here(&mut admission, 1).unwrap().shed, Some(first[0]));
        admission.request_began(first[1]);
        assert_eq!(admission.accept(ip(1, 1), false, at(2)).unwrap().shed, Some(first[2]));
        let pages = (2..30).filter(|i| admission.accept(ip(*i, 1), false, at(3)).is_ok()).count();
        assert_eq!((pages, admission.open_count()), (28, 16));
        assert_eq!(admission.count(|_| true), 8, "anonymous callers have half");
        assert!(here(&mut admission, 4).unwrap().shed.is_some_and(|shed| !first[..2].contains(&shed)));
    }

    #[test]
    fn the_oldest_slot_of_the_largest_network_goes_to_a_smaller_network() {
        let mut slots = Tested::new(16, AdmissionKind::SessionSlots);
        let take = |slots: &mut Tested, i: u8| slots.accept(ip(i % 4, i % 5), false, at(i.into()));
        let first: Vec<_> = (0..14).map(|i| take(&mut slots, i).unwrap().id).collect();
        for i in 14..100 {
            assert!(
                take(&mut slots, i).is_err(),
                "anonymous callers may have all but this host's, in equal parts"
            );
        }
        let page = slots.accept(ip(9, 1), false, at(100)).unwrap();
        assert_eq!(page.shed, Some(first[0]), "the oldest of the largest group");
        slots.authenticated(ip(9, 2), at(100));
        let member = slots.accept(ip(9, 2), false, at(101)).unwrap();
        assert_eq!(member.shed, Some(first[1]));
        for i in 100..200 {
            let shed = take(&mut slots, i).ok().and_then(|again| again.shed);
            assert!(shed != Some(page.id) && shed != Some(member.id));
        }
    }

    #[test]
    fn authenticated_callers_leave_a_quarter_of_the_slots_to_anonymous_callers() {
        let mut slots = Tested::new(16, AdmissionKind::SessionSlots);
        (0..14).for_each(|i| assert!(slots.accept(ip(i, 1), false, at(0)).is_ok()));
        for i in 0..100 {
            slots.authenticated(ip(100 + i % 8, i), at(1));
            let _ = slots.accept(ip(100 + i % 8, i), false, at(1));
        }
        assert_eq!(slots.count_of(true, at(1)), 10);
        assert_eq!(slots.count_of(false, at(1)), 4);
        assert_eq!(slots.accept(ip(200, 1), false, at(2)), Err(AdmissionError::All), "none has two");
    }

    #[test]
    fn one_address_gets_at_most_a_quarter_of_the_slots() {
        let mut slots = Tested::new(16, AdmissionKind::SessionSlots);
        let held: Vec<ConnectionId> =
            (0..4).map(|_| slots.accept(ip(1, 1), false, at(0)).unwrap().id).collect();
        assert_eq!(slots.accept(ip(1, 1), false, at(1)), Err(AdmissionError::Share));
        let mapped = "::ffff:198.18.1.1".parse().unwrap();
        assert_eq!(slots.accept(mapped, false, at(1)), Err(AdmissionError::Share), "another spelling of it");
        slots.closed(held[0]);
        assert!(slots.accept(ip(1, 1), false, at(1)).is_ok());
        let v6 = |text: &str| text.parse().unwrap();
        (0..4).for_each(|_| assert!(slots.accept(v6("2001:db8::1"), false, at(1)).is_ok()));
        assert_eq!(slots.accept(v6("2001:db8::2"), false, at(1)), Err(AdmissionError::Share), "one /64");
        assert!(slots.accept(v6("2001:db8:0:1::1"), false, at(1)).is_ok());
    }

    #[test]
    fn a_connection_with_progress_is_not_idle() {
        let mut admission = Tested::new(16, AdmissionKind::Connections);
        let ids: Vec<ConnectionId> =
            (0..4).map(|i| admission.accept(ip(1, i), false, at(0)).unwrap().id).collect();
        admission.progressed(ids[0], at(5));
        assert_eq!(admission.admission.shed_one(&admission.authenticated, at(6)), Some(ids[1]));
        assert_eq!(admission.open_count(), 3);
    }

    #[test]
    fn an_address_at_its_share_sheds_its_own_idle_connection_or_is_refused() {
        let mut admission = Tested::new(8, AdmissionKind::Connections);
        let first = admission.accept(ip(1, 1), false, at(0)).unwrap().id;
        let second = admission.accept(ip(1, 1), false, at(0)).unwrap().id;
        admission.request_began(first);
        assert_eq!(admission.accept(ip(1, 1), false, at(1)).unwrap().shed, Some(second));
        let third = admission.next - 1;
        admission.request_began(third);
        assert_eq!(admission.accept(ip(1, 1), false, at(2)), Err(AdmissionError::Share));
        admission.closed(third);
        for i in 2..5 {
            let id = admission.accept(ip(i, 1), false, at(2)).unwrap().id;
            admission.request_began(id);
        }
        assert_eq!(
            admission.accept(ip(5, 1), false, at(3)),
            Err(AdmissionError::All),
            "no group is large enough"
        );
        admission.request_ended(first, at(4));
        assert_eq!(admission.accept(ip(5, 1), false, at(4)).unwrap().shed, Some(first));
    }

    /// One random step of the test, such as a new connection or the end of a request.
    #[derive(Clone, Debug)]
    enum Step {
        Accept { network: u8, host: u8, is_local: bool },
        Began(usize),
        Ended(usize),
        Closed(usize),
        Authenticated { network: u8, host: u8 },
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..4_u8, 0..6_u8, prop::bool::weighted(0.1))
                .prop_map(|(network, host, is_local)| Step::Accept { network, host, is_local }),
            3 => any::<usize>().prop_map(Step::Began),
            2 => any::<usize>().prop_map(Step::Ended),
            1 => any::<usize>().prop_map(Step::Closed),
            1 => (0..2_u8, 0..2_u8).prop_map(|(network, host)| Step::Authenticated { network, host }),
            2 => (0..2000_u64).prop_map(Step::Wait),
        ]
    }

    proptest! {
        #[test]
        fn bounds_hold_and_a_busy_connection_is_shed_only_from_a_large_network(max in 1_usize..40, is_slots: bool, steps in prop::collection::vec(step(), 1..200)) {
            let kind = if is_slots { AdmissionKind::SessionSlots } else { AdmissionKind::Connections };
            let (mut admission, mut now) = (Tested::new(max, kind), at(0));
            for step in steps {
                let ids: Vec<ConnectionId> = admission.open.keys().copied().collect();
                let nth = |n: usize| ids.get(n % ids.len().max(1)).copied().unwrap_or(u64::MAX);
                let before = admission.open.clone();
                match step {
                    Step::Wait(seconds) => now += at(seconds),
                    Step::Began(n) => admission.request_began(nth(n)),
                    Step::Ended(n) => admission.request_ended(nth(n), now),
                    Step::Closed(n) => admission.closed(nth(n)),
                    Step::Authenticated { network, host } => admission.authenticated(ip(network, host), now),
                    Step::Accept { network, host, is_local } => {
                        let is_authenticated = is_local || admission.authenticated.contains(ip(network, host), now);
                        let is_authenticated_one = |one: &Connection| admission.admission.is_authenticated(one, &admission.authenticated, now);
                        let of_anonymous = |connection: &Connection| {
                            connection.address.is_some() && !is_authenticated_one(connection)
                        };
                        let is_authenticated_full =
                            admission.authenticated_max() <= admission.count_of(true, now);
                        let has_silent = before.values().any(|one| of_anonymous(one) && one.requests == 0);
                        match admission.clone().accept(ip(network, host), is_local, now) {
                            Ok(Admitted { shed: Some(shed), .. }) => {
                                let shed = before[&shed];
                                let count_in = |network, of_authenticated| {
                                    let is_of = |one: &&Connection| {
                                        one.address.map(super::network) == Some(network) && is_authenticated_one(one) == of_authenticated
                                    };
                                    before.values().filter(is_of).count()
                                };
                                let own = count_in(super::network(limit_address(ip(network, host))), is_authenticated);
                                let of_shed = |from| count_in(super::network(from), is_authenticated_one(&shed));
                                let is_crowd = !is_local && shed.address.is_some_and(|from| own + 2 <= of_shed(from));
                                prop_assert!(shed.requests == 0 || is_crowd, "it was at work");
                                let own = Some(limit_address(ip(network, host))) == shed.address;
                                let anonymous = before.values().filter(|one| of_anonymous(one)).count();
                                let kept = usize::max(1, max / ANONYMOUS_RESERVE_DIVISOR);
                                prop_assert!(
                                    is_authenticated || own || of_anonymous(&shed) || shed.address.is_none() || anonymous < kept,
                                    "an anonymous caller took an authenticated one's above the quarter"
                                );
                                let here = before.values().filter(|one| one.address.is_none()).count();
                                prop_assert!(
                                    shed.address.is_some() || (!is_slots && max / LOCAL_DIVISOR < here),
                                    "this host's part"
                                );
                            }
                            Ok(_) => {}
                            Err(full) => prop_assert!(
                                full == AdmissionError::Share || !has_silent || is_slots || (is_authenticated && is_authenticated_full)
                            ),
                        }
                        let _ = admission.accept(ip(network, host), is_local, now);
                    }
                }
                prop_assert!(admission.open_count() <= max);
            }
        }
    }

    /// A thousand idle connections a second from 41 addresses: an honest anonymous caller and a
    /// member are always admitted, and neither connection is shed before its request.
    #[test]
    fn honest_callers_are_admitted_during_a_flood() {
        let mut admission = Tested::new(256, AdmissionKind::Connections);
        admission.authenticated(ip(9, 1), at(0));
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
