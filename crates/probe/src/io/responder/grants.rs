//! Who may send datagrams, and how many.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use super::Shared;

/// The leave of one session: at most one at a time, and none once the session is over.
pub(super) struct SessionLeave<'a> {
    session: u64,
    peer: IpAddr,
    shared: &'a Shared,
}

impl<'a> SessionLeave<'a> {
    pub(super) fn new(peer: IpAddr, shared: &'a Shared) -> Self {
        Self { session: shared.leaves().session(), peer, shared }
    }

    pub(super) fn give(&self, n: u32) -> u64 {
        self.shared.leaves().give(self.session, self.peer, n)
    }
}

impl Drop for SessionLeave<'_> {
    fn drop(&mut self) {
        self.shared.leaves().end(self.session);
    }
}

/// Who may send datagrams, and how many more; as many as there are sessions.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    given: Vec<Leave>,
    /// Keyed at random by the system, so that nonces cannot be guessed.
    keys: RandomState,
    sessions: u64,
    count: u64,
}

#[derive(Debug)]
struct Leave {
    session: u64,
    peer: IpAddr,
    nonce: u64,
    left: u32,
}

impl Leaves {
    /// The number of a new session.
    fn session(&mut self) -> u64 {
        self.sessions += 1;
        self.sessions
    }

    /// Leave for `n` datagrams from `peer`, in place of what `session` had before.
    fn give(&mut self, session: u64, peer: IpAddr, n: u32) -> u64 {
        self.end(session);
        self.count += 1;
        let nonce = self.keys.hash_one(self.count);
        // The network may double a datagram; its copy is not taken from the others.
        let left = n.saturating_mul(2);
        self.given.push(Leave { session, peer: peer.to_canonical(), nonce, left });
        nonce
    }

    fn end(&mut self, session: u64) {
        self.given.retain(|leave| leave.session != session);
    }

    pub(super) fn take(&mut self, nonce: u64, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        let ours = |leave: &&mut Leave| leave.nonce == nonce && leave.peer == peer && 0 < leave.left;
        match self.given.iter_mut().find(ours) {
            Some(leave) => {
                leave.left -= 1;
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
    fn leave_is_for_a_count_an_address_and_a_session() {
        let here = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
        let mut leaves = Leaves::default();
        let (one, other) = (leaves.session(), leaves.session());
        let nonce = leaves.give(one, here, 1);
        let theirs = leaves.give(other, elsewhere, 1);
        assert!(!leaves.take(nonce ^ 1, here), "never given");
        assert!(!leaves.take(nonce, elsewhere), "given to another address");
        assert!(leaves.take(nonce, here) && leaves.take(nonce, mapped), "one and its copy");
        assert!(!leaves.take(nonce, here), "used up");
        let mut last = 0;
        for _ in 0..1000 {
            last = leaves.give(one, here, 1);
        }
        assert_eq!(leaves.given.len(), 2, "a new leave replaces the session's own");
        assert!(leaves.take(theirs, elsewhere), "and no other's");
        leaves.end(one);
        assert!(!leaves.take(last, here), "the session is over");
    }
}
