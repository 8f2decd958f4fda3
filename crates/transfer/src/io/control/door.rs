//! Who waits at a listener's door: bounds in all and of one address.

use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// At the door at once: a thread and about 100 KiB each.
pub(super) const WAITING_MAX: usize = 64;

/// Of them from one address, or one /64 of IPv6 (what one host usually has, RFC 4291 §2.5.4).
pub(super) const WAITING_OF_ONE_MAX: usize = 16;

/// So long a place is safe from others of the same address: five round trips of 200 ms.
const GRACE: Duration = Duration::from_secs(1);

/// The places at a door.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Waiting>,
    next: u64,
    /// Places that are kept, those among them who were sent away and have not noticed.
    kept: usize,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    of: IpAddr,
    since: Instant,
    stream: TcpStream,
}

impl Places {
    /// A place for who comes from there; `None` if it has to go away. Where all places are taken, another may have to:
    ///
    /// - one of the same address, if that has its share and the oldest of them is more than a second old;
    /// - the oldest of the address with the most places, if all are taken, and that address has two more than this;
    /// - the oldest of all, if all are taken by as many addresses (of IPv6 one host may have thousands of networks), and it is more than a
    ///   second old.
    pub(super) fn take(self: &Arc<Self>, stream: &TcpStream, from: IpAddr, now: Instant) -> Option<Place> {
        let of = neighbourhood(from);
        let stream = stream.try_clone().ok()?;
        let mut state = self.state();
        // Who was sent away ends within moments; if not, nobody else is taken in.
        if 2 * WAITING_MAX <= state.kept {
            return None;
        }
        let own = state.count(of);
        if WAITING_OF_ONE_MAX <= own {
            let oldest = state
                .waiting
                .iter()
                .position(|one| one.of == of && GRACE <= now.duration_since(one.since))?;
            state.send_away(oldest);
        } else if WAITING_MAX <= state.waiting.len() {
            let oldest = state.oldest_of_most(own + 2).or_else(|| state.oldest(now))?;
            state.send_away(oldest);
        }
        let id = state.next;
        state.next += 1;
        state.kept += 1;
        state.waiting.push(Waiting { id, of, since: now, stream });
        Some(Place { places: Arc::clone(self), id })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&self, of: IpAddr) -> usize {
        self.waiting.iter().filter(|one| one.of == of).count()
    }

    /// The oldest of the address that has the most places, if that is at least `least`.
    fn oldest_of_most(&self, least: usize) -> Option<usize> {
        // The oldest of equals: max_by_key takes the last.
        let places = self.waiting.iter().enumerate().rev().map(|(place, one)| (place, self.count(one.of)));
        places.max_by_key(|(_, count)| *count).filter(|(_, count)| least <= *count).map(|(place, _)| place)
    }

    /// The oldest, if no grace is left to it.
    fn oldest(&self, now: Instant) -> Option<usize> {
        let first = self.waiting.first()?;
        (GRACE <= now.duration_since(first.since)).then_some(0)
    }

    fn send_away(&mut self, place: usize) {
        // Its thread reads the end, and gives its place back.
        let _ = self.waiting.remove(place).stream.shutdown(Shutdown::Both);
    }
}

/// A place at the door, for as long as this is kept.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    id: u64,
}

impl Place {
    /// Gives it back, to who was let in: `false` if it was sent away before.
    pub(super) fn leave(self) -> bool {
        // At once, so that nobody sends it away after this was said.
        let mut state = self.places.state();
        let place = state.waiting.iter().position(|one| one.id == self.id);
        place.map(|place| state.waiting.remove(place)).is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state();
        state.waiting.retain(|one| one.id != self.id);
        state.kept -= 1;
    }
}

/// What one host can easily have all of: an address, or a /64.
fn neighbourhood(address: IpAddr) -> IpAddr {
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

    /// A connection to nobody in particular.
    fn stream() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap()
    }

    #[test]
    fn one_address_cannot_have_all_places() {
        let (places, stream, now) = (Arc::<Places>::default(), stream(), Instant::now());
        let a = IpAddr::from([10, 0, 0, 1]);
        let held: Vec<_> = (0..WAITING_OF_ONE_MAX).map(|_| places.take(&stream, a, now).unwrap()).collect();
        assert!(places.take(&stream, a, now).is_none());
        // As IPv4 in IPv6, it is the same.
        assert!(places.take(&stream, "::ffff:10.0.0.1".parse().unwrap(), now).is_none());
        assert!(places.take(&stream, IpAddr::from([10, 0, 0, 2]), now).is_some());
        // After a second its oldest has to go.
        let later = places.take(&stream, a, now + GRACE).unwrap();
        assert!(places.take(&stream, a, now + GRACE).is_some());
        let stay: Vec<_> = held.into_iter().map(Place::leave).collect();
        assert_eq!(stay.iter().filter(|stay| !**stay).count(), 2);
        assert_eq!(stay[..2], [false, false]);
        assert!(later.leave());
        assert_eq!(places.state().kept, 0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let (places, stream, now) = (Arc::<Places>::default(), stream(), Instant::now());
        let of = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, last, last, 0, last]);
        let held: Vec<_> = (0..20).filter_map(|last| places.take(&stream, of(last), now)).collect();
        assert_eq!(held.len(), WAITING_OF_ONE_MAX);
        assert!(places.take(&stream, IpAddr::from([0x2001, 0xdb8, 0, 2, 0, 0, 0, 1]), now).is_some());
    }

    #[test]
    fn a_host_of_many_networks_cannot_keep_all_places() {
        let (places, stream, now) = (Arc::<Places>::default(), stream(), Instant::now());
        let of = |network: u16| IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, 1]);
        let mut held: Vec<_> = (0..64).filter_map(|network| places.take(&stream, of(network), now)).collect();
        assert_eq!(held.len(), WAITING_MAX);
        let honest = IpAddr::from([10, 0, 0, 9]);
        assert!(places.take(&stream, honest, now).is_none());
        assert!(places.take(&stream, honest, now + GRACE).is_some_and(Place::leave));
        assert!(!held.remove(0).leave() && held.remove(0).leave());
    }

    #[test]
    fn a_newcomer_gets_in_where_a_few_have_all_places() {
        let (places, stream, now) = (Arc::<Places>::default(), stream(), Instant::now());
        let mut held = vec![];
        for host in 0..4 {
            held.extend((0..16).map(|_| places.take(&stream, IpAddr::from([10, 0, 0, host]), now).unwrap()));
        }
        assert_eq!(held.len(), WAITING_MAX);
        assert!(places.take(&stream, IpAddr::from([10, 0, 0, 9]), now).is_some());
        assert!(!held.remove(0).leave());
        // Those who were sent away and do not go are bounded as well.
        let all: Vec<_> =
            (0..200).filter_map(|host| places.take(&stream, IpAddr::from([10, 0, 1, host]), now)).collect();
        assert!(held.len() + all.len() <= 2 * WAITING_MAX);
    }
}
