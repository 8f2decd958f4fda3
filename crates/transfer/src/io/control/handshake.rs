//! Limits of handshakes at a listener: in total, and for one address.

use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of simultaneous handshakes. Each handshake uses a thread and about 100 KiB of
/// memory.
pub(super) const HANDSHAKES_MAX: usize = 64;

/// Maximum number of simultaneous handshakes from one address, or from one /64 of IPv6 (what one
/// host usually has, RFC 4291 §2.5.4).
pub(super) const HANDSHAKES_OF_ONE_MAX: usize = 16;

/// Minimum age of a handshake before a newer one may take its slot: five round trips of 200 ms.
const GRACE: Duration = Duration::from_secs(1);

/// The slots of handshakes at a listener.
#[derive(Debug, Default)]
pub(super) struct HandshakeSlots(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<PendingHandshake>,
    next: u64,
    /// Number of slots in use, including those of handshakes that were cut off and have not ended
    /// yet.
    kept: usize,
}

#[derive(Debug)]
struct PendingHandshake {
    id: u64,
    of: IpAddr,
    since: Instant,
    stream: TcpStream,
}

impl HandshakeSlots {
    /// Takes a slot for a connection from this address; `None` if no slot is free. An older
    /// handshake may be cut off to free a slot:
    ///
    /// - if this address has [`HANDSHAKES_OF_ONE_MAX`] slots: the oldest handshake of this address
    ///   that is at least a second old;
    /// - if all slots are taken, and the address with the most slots has at least two slots more
    ///   than this address: the oldest handshake of the address with the most slots;
    /// - if all slots are taken, but no address has two slots more than this address: the oldest of
    ///   all handshakes, if it is at least a second old. Only the age decides here, because one
    ///   host may have thousands of IPv6 networks.
    pub(super) fn acquire(
        self: &Arc<Self>,
        stream: &TcpStream,
        from: IpAddr,
        now: Instant,
    ) -> Option<HandshakeSlot> {
        let of = address_prefix(from);
        let stream = stream.try_clone().ok()?;
        let mut state = self.state();
        // A handshake that was cut off usually ends at once. If too many of these handshakes have
        // not ended yet, accept no new handshake.
        if 2 * HANDSHAKES_MAX <= state.kept {
            return None;
        }
        let own = state.count(of);
        if own >= HANDSHAKES_OF_ONE_MAX {
            let oldest = state
                .waiting
                .iter()
                .position(|one| one.of == of && now.duration_since(one.since) >= GRACE)?;
            state.evict(oldest);
        } else if state.waiting.len() >= HANDSHAKES_MAX {
            let oldest = state.oldest_of_most(own + 2).or_else(|| state.oldest(now))?;
            state.evict(oldest);
        }
        let id = state.next;
        state.next += 1;
        state.kept += 1;
        state.waiting.push(PendingHandshake { id, of, since: now, stream });
        Some(HandshakeSlot { slots: Arc::clone(self), id })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&self, of: IpAddr) -> usize {
        self.waiting.iter().filter(|one| one.of == of).count()
    }

    /// Index of the oldest handshake of the address with the largest number of slots, if that
    /// address has at least `least` slots.
    fn oldest_of_most(&self, least: usize) -> Option<usize> {
        // If several addresses have the same count, take the oldest handshake: max_by_key returns
        // the last maximum, and the order is reversed.
        let counts = self.waiting.iter().enumerate().rev().map(|(index, one)| (index, self.count(one.of)));
        counts.max_by_key(|(_, count)| *count).filter(|(_, count)| least <= *count).map(|(index, _)| index)
    }

    /// Index of the oldest handshake, if it is at least [`GRACE`] old.
    fn oldest(&self, now: Instant) -> Option<usize> {
        let first = self.waiting.first()?;
        (now.duration_since(first.since) >= GRACE).then_some(0)
    }

    fn evict(&mut self, index: usize) {
        // The thread of the handshake then detects that the connection ended, and frees the slot.
        let _ = self.waiting.remove(index).stream.shutdown(Shutdown::Both);
    }
}

/// A slot of one handshake. The slot is free again when this value is dropped.
#[derive(Debug)]
pub(super) struct HandshakeSlot {
    slots: Arc<HandshakeSlots>,
    id: u64,
}

impl HandshakeSlot {
    /// Frees the slot of a sender that was accepted. Returns `false` if the sender's handshake was
    /// cut off before.
    pub(super) fn release(self) -> bool {
        // Remove the handshake under the lock, so that it cannot be cut off after this call
        // returned.
        let mut state = self.slots.state();
        let index = state.waiting.iter().position(|one| one.id == self.id);
        index.map(|index| state.waiting.remove(index)).is_some()
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        state.waiting.retain(|one| one.id != self.id);
        state.kept -= 1;
    }
}

/// The group of addresses that one host can easily have: a single IPv4 address, or a /64 of IPv6.
fn address_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A connection that the tests use for all handshakes.
    fn stream() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap()
    }

    #[test]
    fn one_address_cannot_take_all_handshake_slots() {
        let (slots, stream, now) = (Arc::<HandshakeSlots>::default(), stream(), Instant::now());
        let a = IpAddr::from([10, 0, 0, 1]);
        let held: Vec<_> =
            (0..HANDSHAKES_OF_ONE_MAX).map(|_| slots.acquire(&stream, a, now).unwrap()).collect();
        assert!(slots.acquire(&stream, a, now).is_none());
        // The same address, as IPv4 in IPv6.
        assert!(slots.acquire(&stream, "::ffff:10.0.0.1".parse().unwrap(), now).is_none());
        assert!(slots.acquire(&stream, IpAddr::from([10, 0, 0, 2]), now).is_some());
        // After one second, the oldest handshake of address `a` is cut off.
        let later = slots.acquire(&stream, a, now + GRACE).unwrap();
        assert!(slots.acquire(&stream, a, now + GRACE).is_some());
        let stay: Vec<_> = held.into_iter().map(HandshakeSlot::release).collect();
        assert_eq!(stay.iter().filter(|stay| !**stay).count(), 2);
        assert_eq!(stay[..2], [false, false]);
        assert!(later.release());
        assert_eq!(slots.state().kept, 0);
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let (slots, stream, now) = (Arc::<HandshakeSlots>::default(), stream(), Instant::now());
        let of = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, last, last, 0, last]);
        let held: Vec<_> = (0..20).filter_map(|last| slots.acquire(&stream, of(last), now)).collect();
        assert_eq!(held.len(), HANDSHAKES_OF_ONE_MAX);
        assert!(slots.acquire(&stream, IpAddr::from([0x2001, 0xdb8, 0, 2, 0, 0, 0, 1]), now).is_some());
    }

    #[test]
    fn a_host_with_many_networks_cannot_keep_all_handshake_slots() {
        let (slots, stream, now) = (Arc::<HandshakeSlots>::default(), stream(), Instant::now());
        let of = |network: u16| IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, 1]);
        let mut held: Vec<_> =
            (0..64).filter_map(|network| slots.acquire(&stream, of(network), now)).collect();
        assert_eq!(held.len(), HANDSHAKES_MAX);
        let honest = IpAddr::from([10, 0, 0, 9]);
        assert!(slots.acquire(&stream, honest, now).is_none());
        assert!(slots.acquire(&stream, honest, now + GRACE).is_some_and(HandshakeSlot::release));
        assert!(!held.remove(0).release() && held.remove(0).release());
    }

    #[test]
    fn a_new_address_gets_a_slot_when_few_addresses_hold_all_slots() {
        let (slots, stream, now) = (Arc::<HandshakeSlots>::default(), stream(), Instant::now());
        let mut held = vec![];
        for host in 0..4 {
            held.extend(
                (0..16).map(|_| slots.acquire(&stream, IpAddr::from([10, 0, 0, host]), now).unwrap()),
            );
        }
        assert_eq!(held.len(), HANDSHAKES_MAX);
        assert!(slots.acquire(&stream, IpAddr::from([10, 0, 0, 9]), now).is_some());
        assert!(!held.remove(0).release());
        // The number of handshakes that were cut off but have not ended is limited as well.
        let all: Vec<_> =
            (0..200).filter_map(|host| slots.acquire(&stream, IpAddr::from([10, 0, 1, host]), now)).collect();
        assert!(held.len() + all.len() <= 2 * HANDSHAKES_MAX);
    }
}
