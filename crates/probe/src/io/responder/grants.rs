//! Grants that limit how many datagrams each session may send.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Mutex;

use crate::io::sync::lock;

/// Handle with which a session gets grants. A session has at most one grant at a time, and no grant
/// after the end of the session.
pub(super) struct SessionGrant<'a> {
    session: u64,
    peer: IpAddr,
    grants: &'a Mutex<DatagramGrants>,
}

impl<'a> SessionGrant<'a> {
    pub(super) fn new(peer: IpAddr, grants: &'a Mutex<DatagramGrants>) -> Self {
        Self { session: lock(grants).session(), peer, grants }
    }

    /// Grants `n` datagrams and returns their nonce.
    pub(super) fn issue(&self, n: u32) -> u64 {
        lock(self.grants).issue(self.session, self.peer, n)
    }
}

impl Drop for SessionGrant<'_> {
    fn drop(&mut self) {
        lock(self.grants).end(self.session);
    }
}

/// All current grants, at most one for each session.
#[derive(Debug, Default)]
pub(super) struct DatagramGrants {
    given: Vec<DatagramGrant>,
    /// Random keys of the system, so that nonces cannot be guessed.
    keys: RandomState,
    sessions: u64,
    count: u64,
}

/// Number of datagrams with this nonce that `peer` may still send.
#[derive(Debug)]
struct DatagramGrant {
    session: u64,
    peer: IpAddr,
    nonce: u64,
    left: u32,
}

impl DatagramGrants {
    /// Returns the number of a new session.
    fn session(&mut self) -> u64 {
        self.sessions += 1;
        self.sessions
    }

    /// Grants `n` datagrams from `peer`. The new grant replaces the earlier grant of `session`.
    /// Returns the nonce.
    fn issue(&mut self, session: u64, peer: IpAddr, n: u32) -> u64 {
        self.end(session);
        self.count += 1;
        let nonce = self.keys.hash_one(self.count);
        // The network may duplicate datagrams; the duplicates must not use up the grant.
        let left = n.saturating_mul(2);
        self.given.push(DatagramGrant { session, peer: peer.to_canonical(), nonce, left });
        nonce
    }

    fn end(&mut self, session: u64) {
        self.given.retain(|grant| grant.session != session);
    }

    /// Uses one datagram of a grant; returns whether the grant had a datagram left.
    pub(super) fn take(&mut self, nonce: u64, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        let ours = |grant: &&mut DatagramGrant| grant.nonce == nonce && grant.peer == peer && grant.left > 0;
        match self.given.iter_mut().find(ours) {
            Some(grant) => {
                grant.left -= 1;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_datagram_grant_is_limited_to_a_count_an_address_and_a_session() {
        let here = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
        let mut grants = DatagramGrants::default();
        let (one, other) = (grants.session(), grants.session());
        let nonce = grants.issue(one, here, 1);
        let theirs = grants.issue(other, elsewhere, 1);
        assert!(!grants.take(nonce ^ 1, here), "never given");
        assert!(!grants.take(nonce, elsewhere), "given to another address");
        assert!(grants.take(nonce, here) && grants.take(nonce, mapped), "one and its copy");
        assert!(!grants.take(nonce, here), "used up");
        let mut last = 0;
        for _ in 0..1000 {
            last = grants.issue(one, here, 1);
        }
        assert_eq!(grants.given.len(), 2, "a new grant replaces the session's own");
        assert!(grants.take(theirs, elsewhere), "and no other's");
        grants.end(one);
        assert!(!grants.take(last, here), "the session is over");
    }
}
