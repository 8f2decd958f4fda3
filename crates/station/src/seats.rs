//! How many connections (or streams) one peer may hold, so that none locks the others out. Pure but for its lock.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use crate::health::lock;

/// Places of which one peer gets at most a quarter, and peers from elsewhere together all but an eighth.
///
/// This host itself is only bound by the number of all places, which whoever counts them keeps.
#[derive(Clone, Debug)]
pub(crate) struct Seats {
    each_max: usize,
    elsewhere_max: usize,
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The peer has its share.
    Share,
    /// All places are taken.
    All,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    /// `None` = it is one of this host's, which are not counted.
    key: Option<IpAddr>,
}

impl Seats {
    /// Places for `max` in all.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            each_max: usize::max(1, max / EACH_SHARE),
            elsewhere_max: max - max / RESERVE_SHARE,
            taken: Arc::default(),
        }
    }

    /// A place for a peer.
    ///
    /// # Errors
    /// Whether it, or all peers from elsewhere together, have theirs already.
    pub(crate) fn take(&self, ip: IpAddr, is_here: bool) -> Result<Seat, Full> {
        if is_here {
            return Ok(Seat { taken: Arc::clone(&self.taken), key: None });
        }
        let key = holder(ip);
        let mut taken = lock(&self.taken);
        let all: usize = taken.values().sum();
        let own = taken.get(&key).copied().unwrap_or(0);
        if self.each_max <= own {
            return Err(Full::Share);
        }
        if self.elsewhere_max <= all {
            return Err(Full::All);
        }
        taken.insert(key, own + 1);
        Ok(Seat { taken: Arc::clone(&self.taken), key: Some(key) })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut taken = lock(&self.taken);
        match taken.get_mut(&key) {
            Some(count) if 1 < *count => *count -= 1,
            _ => drop(taken.remove(&key)),
        }
    }
}

/// Who holds an address: an IPv6 host has a whole /64 of them (RFC 4291 §2.5.1).
pub(crate) fn holder(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

/// One peer gets a quarter of all places.
const EACH_SHARE: usize = 4;
/// An eighth of all places is kept for this host.
const RESERVE_SHARE: usize = 8;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_peer_gets_a_quarter_and_a_place_comes_back() {
        let seats = Seats::new(16);
        let mut held: Vec<Seat> = (0..4).map(|_| seats.take(ip("192.0.2.1"), false).unwrap()).collect();
        assert!(seats.take(ip("192.0.2.1"), false).is_err());
        assert!(seats.take(ip("::ffff:192.0.2.1"), false).is_err(), "another spelling of it");
        assert!(seats.take(ip("192.0.2.2"), false).is_ok());
        held.pop();
        assert!(seats.take(ip("192.0.2.1"), false).is_ok());
        drop(held);
        assert!(lock(&seats.taken).is_empty(), "nothing is kept of a peer that is gone");
    }

    #[test]
    fn a_v6_peer_is_its_network() {
        let seats = Seats::new(4);
        let _held = seats.take(ip("2001:db8::1"), false).unwrap();
        assert!(seats.take(ip("2001:db8::2"), false).is_err());
        assert!(seats.take(ip("2001:db8:0:1::1"), false).is_ok());
    }

    #[test]
    fn many_peers_leave_a_reserve_for_this_host() {
        let seats = Seats::new(16);
        let held: Vec<Option<Seat>> =
            (0..20).map(|i| seats.take(IpAddr::from([192, 0, 2, i]), false).ok()).collect();
        assert_eq!(held.iter().flatten().count(), 14);
        assert!(seats.take(ip("127.0.0.1"), true).is_ok());
    }
}
