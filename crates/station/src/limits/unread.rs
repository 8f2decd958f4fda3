//! Limits for responses that their callers have not read yet: bytes in memory, and reading speed.
//!
//! A response larger than [`CHUNK_BYTES`] is passed to the connection chunk by chunk as the caller
//! reads. So only the text of such a response waits in memory, and this module counts its bytes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use crate::limits::connections::ConnectionGuard;
use crate::sync::lock;
use barograph_limits::authenticated::CredentialOwner;
use barograph_limits::caller_group::{CallerGroup, limit_address, network};
use barograph_limits::pace::transfer_time_max;

/// Texts of all unread responses; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadResponses(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    all: ResponseTexts,
    /// Parts of `all`: texts of responses to callers on this host, to authenticated callers, and to
    /// anonymous callers.
    local: ResponseTexts,
    authenticated: ResponseTexts,
    anonymous: ResponseTexts,
    /// Texts of callers from other hosts, by share.
    shares: HashMap<CallerGroup, ResponseTexts>,
}

/// A set of texts; responses that share a text count it once.
#[derive(Debug, Default)]
struct ResponseTexts {
    bytes: usize,
    /// Number of responses for each text, by its address in memory.
    responses: HashMap<usize, usize>,
}

/// Bytes of a response, which count against the budget until this value is dropped.
#[derive(Debug)]
pub(crate) struct UnreadBytes {
    unread: UnreadResponses,
    class: CallerClass,
    text: Bytes,
}

/// Class of the caller that reads a response.
#[derive(Clone, Debug)]
pub(crate) enum CallerClass {
    /// A caller on this host.
    Local,
    /// An address that a token or a signature authorised.
    Authenticated(IpAddr, CredentialOwner),
    /// A caller at any other address.
    Anonymous(IpAddr),
}

impl UnreadResponses {
    /// Whether there is room for a further response.
    pub(crate) fn has_room(&self, class: &CallerClass) -> bool {
        let state = lock(&self.0);
        state.has_room(None, class)
    }

    /// Whether there is room for a further response of any caller. Every limit is at least
    /// [`LOCAL_MAX`], and no part has more bytes than all, so [`UnreadResponses::has_room`] is then
    /// true for every class.
    pub(crate) fn has_room_for_all(&self) -> bool {
        self.bytes() < LOCAL_MAX
    }

    /// Takes the bytes of a response from the budget. The last response may exceed its share;
    /// otherwise a response larger than a share could never be read. The excess does not reduce
    /// other shares.
    pub(crate) fn hold(&self, class: CallerClass, text: &Bytes) -> Option<UnreadBytes> {
        let mut state = lock(&self.0);
        if !state.has_room(Some(text), &class) {
            return None;
        }
        state.all.add(text);
        state.class(&class).add(text);
        for share in class.shares() {
            state.shares.entry(share).or_default().add(text);
        }
        Some(UnreadBytes { unread: self.clone(), class, text: text.clone() })
    }

    /// Number of bytes of responses that wait for their callers.
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.0).all.bytes
    }
}

impl State {
    fn has_room(&self, text: Option<&Bytes>, class: &CallerClass) -> bool {
        let has_part = match class {
            CallerClass::Local => self.local.bytes < LOCAL_MAX || self.all.bytes < BYTES_MAX,
            CallerClass::Authenticated(..) => {
                self.authenticated.bytes < AUTHENTICATED_MAX || self.all.bytes < BYTES_MAX - LOCAL_MAX
            }
            CallerClass::Anonymous(_) => self.anonymous.bytes < ANONYMOUS_MAX,
        };
        let is_in = |texts: &ResponseTexts| text.is_some_and(|text| texts.has(text));
        let mut own = class.shares().filter_map(|share| self.shares.get(&share));
        (has_part || is_in(&self.all)) && own.all(|own| own.bytes < SHARE_MAX || is_in(own))
    }

    fn class(&mut self, class: &CallerClass) -> &mut ResponseTexts {
        match class {
            CallerClass::Local => &mut self.local,
            CallerClass::Authenticated(..) => &mut self.authenticated,
            CallerClass::Anonymous(_) => &mut self.anonymous,
        }
    }
}

impl ResponseTexts {
    fn has(&self, text: &Bytes) -> bool {
        self.responses.contains_key(&text.as_ptr().addr())
    }

    fn add(&mut self, text: &Bytes) {
        let responses = self.responses.entry(text.as_ptr().addr()).or_default();
        *responses += 1;
        if *responses == 1 {
            self.bytes += text.len();
        }
    }

    fn remove(&mut self, text: &Bytes) {
        let Some(responses) = self.responses.get_mut(&text.as_ptr().addr()) else { return };
        *responses -= 1;
        if *responses == 0 {
            self.responses.remove(&text.as_ptr().addr());
            self.bytes -= text.len();
        }
    }
}

impl Drop for UnreadBytes {
    fn drop(&mut self) {
        let mut state = lock(&self.unread.0);
        state.all.remove(&self.text);
        state.class(&self.class).remove(&self.text);
        for share in self.class.shares() {
            let Some(own) = state.shares.get_mut(&share) else { continue };
            own.remove(&self.text);
            if own.responses.is_empty() {
                state.shares.remove(&share);
            }
        }
    }
}

impl CallerClass {
    /// The shares that a response counts against; none for callers on this host.
    fn shares(&self) -> impl Iterator<Item = CallerGroup> {
        let network = |ip: &IpAddr| network(limit_address(*ip));
        let (of_network, owner) = match self {
            Self::Local => (None, None),
            Self::Authenticated(ip, owner) => {
                (Some(CallerGroup::AuthenticatedOfNetwork(network(ip))), CallerGroup::authenticated_by(owner))
            }
            Self::Anonymous(ip) => (Some(CallerGroup::Network(network(ip))), None),
        };
        of_network.into_iter().chain(owner)
    }
}

/// Body of a response that is passed on in chunks as its caller reads.
struct ChunkedBody {
    text: Bytes,
    sent: usize,
    began: Instant,
    connection: Arc<ConnectionGuard>,
    _held: UnreadBytes,
}

/// Makes a body from `text`, which counts against the budget until the body is dropped. The
/// connection is closed if the caller reads too slowly.
pub(crate) fn in_chunks(text: Bytes, held: UnreadBytes, connection: Arc<ConnectionGuard>) -> Body {
    Body::new(ChunkedBody { text, sent: 0, began: Instant::now(), connection, _held: held })
}

impl HttpBody for ChunkedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let end = usize::min(self.sent + CHUNK_BYTES, self.text.len());
        if self.sent == end {
            return Poll::Ready(None);
        }
        // Copy the chunk: a slice would keep the whole text in memory while the last chunk waits in
        // the connection.
        let chunk = Bytes::copy_from_slice(&self.text[self.sent..end]);
        self.sent = end;
        self.connection.set_read_deadline(Some(self.began + transfer_time_max(end as u64)));
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent == self.text.len()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.text.len() - self.sent) as u64)
    }
}

impl Drop for ChunkedBody {
    fn drop(&mut self) {
        self.connection.set_read_deadline(None);
    }
}

/// Number of bytes of a chunk: the connection keeps one chunk of a response in addition to the
/// text. A response that is not larger than a chunk is not counted, so that errors and `/healthz`
/// are always sent.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;
/// Maximum number of bytes of unread responses. `/metrics` of 40 000 series, the default maximum,
/// is about 67 MB: one network that reads this response slowly leaves room for a second network.
pub(crate) const BYTES_MAX: usize = 128 << 20;
/// Share of one network (/24, /48), and of all addresses that one station authenticated: a quarter,
/// as for connections.
pub(crate) const SHARE_MAX: usize = BYTES_MAX / 4;
/// Number of bytes reserved for callers on this host: an eighth, as for connections. These callers
/// may also use the bytes that others leave.
const LOCAL_MAX: usize = BYTES_MAX / 8;
/// Share of anonymous callers: half of the bytes, however much others use. Authenticated callers,
/// including members, get the bytes that anonymous callers and the reserve of this host leave.
pub(crate) const ANONYMOUS_MAX: usize = BYTES_MAX / 2;
/// Number of bytes reserved for authenticated callers: the rest of the budget.
const AUTHENTICATED_MAX: usize = BYTES_MAX - LOCAL_MAX - ANONYMOUS_MAX;
/// [`UnreadResponses::has_room_for_all`] depends on these orders.
const _: () = assert!(LOCAL_MAX <= SHARE_MAX && LOCAL_MAX <= ANONYMOUS_MAX && LOCAL_MAX <= AUTHENTICATED_MAX);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use http_body_util::BodyExt as _;

    use barograph_forecast::Name;
    use barograph_limits::admission::AdmissionKind;

    use super::*;
    use crate::limits::authenticated::AuthenticatedCallers;
    use crate::limits::connections::Connections;

    fn station(number: u8) -> CredentialOwner {
        CredentialOwner::Station(Name::new(&format!("station-{number}")).unwrap())
    }

    fn ip(host: u8, network: u8) -> IpAddr {
        IpAddr::from([198, 18, network, host])
    }

    #[test]
    fn a_network_gets_a_quarter_of_the_budget_and_all_networks_get_the_whole() {
        let unread = UnreadResponses::default();
        let text = || Bytes::from(vec![0; BYTES_MAX / 16]);
        let mut held: Vec<UnreadBytes> =
            (0..4).map(|host| unread.hold(CallerClass::Anonymous(ip(host, 0)), &text()).unwrap()).collect();
        let more = CallerClass::Anonymous(ip(9, 0));
        assert!(unread.hold(more.clone(), &text()).is_none() && !unread.has_room(&more));
        let authenticated = CallerClass::Authenticated(ip(9, 0), CredentialOwner::Operator);
        assert!(unread.has_room(&authenticated), "anonymous callers of its network leave it its share");
        held.extend((0..4).map(|host| unread.hold(CallerClass::Anonymous(ip(host, 1)), &text()).unwrap()));
        let anonymous = CallerClass::Anonymous(ip(9, 2));
        assert!(unread.hold(anonymous, &text()).is_none(), "half is kept for authenticated callers");
        held.extend((2..4).flat_map(|net| (0..4).map(move |host| (host, net))).filter_map(|(host, net)| {
            unread.hold(CallerClass::Authenticated(ip(host, net), CredentialOwner::Operator), &text())
        }));
        assert_eq!(held.len(), 14, "an eighth is kept for this host");
        held.extend((0..2).map(|_| unread.hold(CallerClass::Local, &text()).unwrap()));
        assert!(unread.hold(CallerClass::Local, &text()).is_none());
        assert_eq!(unread.bytes(), BYTES_MAX);
        drop(held);
        assert_eq!(unread.bytes(), 0);
        assert!(lock(&unread.0).shares.is_empty(), "nothing is kept of a network that is gone");
    }

    #[test]
    fn a_shared_response_counts_once_and_a_response_of_any_size_is_sent() {
        let unread = UnreadResponses::default();
        let text = Bytes::from(vec![0; 2 * BYTES_MAX]);
        let held: Vec<UnreadBytes> =
            (0..3).map(|_| unread.hold(CallerClass::Anonymous(ip(1, 1)), &text).unwrap()).collect();
        assert_eq!(unread.bytes(), text.len());
        assert!(unread.hold(CallerClass::Anonymous(ip(1, 2)), &Bytes::from(vec![0])).is_none());
        drop(held);
        assert!(unread.hold(CallerClass::Anonymous(ip(1, 2)), &Bytes::from(vec![0])).is_some());
    }

    #[test]
    fn a_response_larger_than_a_share_leaves_other_shares_available() {
        let huge = || Bytes::from(vec![0; BYTES_MAX]);
        let small = || Bytes::from(vec![0; 1]);
        let (local, authenticated, anonymous) = (
            CallerClass::Local,
            |net| CallerClass::Authenticated(ip(1, net), CredentialOwner::Operator),
            |net| CallerClass::Anonymous(ip(1, net)),
        );
        let unread = UnreadResponses::default();
        let first_anonymous = unread.hold(anonymous(1), &huge()).unwrap();
        assert!(unread.hold(anonymous(2), &small()).is_none());
        // Anonymous callers reduce the room of authenticated callers by at most half of the budget.
        // Authenticated callers do not reduce the room of anonymous callers.
        let members = unread.hold(authenticated(3), &huge()).unwrap();
        assert!(unread.hold(authenticated(4), &small()).is_none());
        drop(first_anonymous);
        drop(unread.hold(anonymous(2), &small()).unwrap());
        let first = unread.hold(local.clone(), &huge()).unwrap();
        assert!(unread.hold(local.clone(), &small()).is_none());
        drop(members);
        drop(unread.hold(authenticated(4), &small()).unwrap());
        drop(first);
        assert_eq!(unread.bytes(), 0);
    }

    #[test]
    fn room_for_all_callers_is_room_for_each_caller() {
        let unread = UnreadResponses::default();
        let callers = [
            CallerClass::Local,
            CallerClass::Authenticated(ip(1, 1), station(1)),
            CallerClass::Anonymous(ip(1, 1)),
        ];
        for caller in &callers {
            let almost = unread.hold(caller.clone(), &Bytes::from(vec![0; LOCAL_MAX - 1])).unwrap();
            assert!(unread.has_room_for_all() && callers.iter().all(|other| unread.has_room(other)));
            let last = unread.hold(caller.clone(), &Bytes::from(vec![0; 1])).unwrap();
            assert!(!unread.has_room_for_all());
            drop((almost, last));
        }
    }

    #[test]
    fn all_addresses_of_one_station_have_one_share() {
        let unread = UnreadResponses::default();
        let huge = || Bytes::from(vec![0; BYTES_MAX / 2]);
        let first = unread.hold(CallerClass::Authenticated(ip(1, 1), station(1)), &huge()).unwrap();
        assert!(
            unread.hold(CallerClass::Authenticated(ip(1, 2), station(1)), &huge()).is_none(),
            "another network of it"
        );
        let honest = unread.hold(CallerClass::Authenticated(ip(1, 3), station(2)), &huge()).unwrap();
        drop(first);
        assert!(unread.hold(CallerClass::Authenticated(ip(1, 2), station(1)), &huge()).is_some());
        drop(honest);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slower_than_1_mbit_per_second_is_disconnected() {
        let connection = Connections::new(64, AdmissionKind::Connections, AuthenticatedCallers::new())
            .accept(ip(1, 1), false)
            .unwrap()
            .0;
        let text = Bytes::from(vec![7; 10 * CHUNK_BYTES + 1]);
        let body = |unread: &UnreadResponses| {
            let held = unread.hold(CallerClass::Anonymous(ip(1, 1)), &text).unwrap();
            in_chunks(text.clone(), held, Arc::clone(&connection))
        };
        let unread = UnreadResponses::default();
        for (pause, is_cut) in [(Duration::from_millis(500), false), (Duration::from_secs(2), true)] {
            let mut body = body(&unread);
            let reads = async {
                let mut bytes = 0;
                while let Some(frame) = body.frame().await {
                    let chunk = frame.unwrap().into_data().unwrap();
                    assert!(chunk.len() <= CHUNK_BYTES);
                    bytes += chunk.len();
                    tokio::time::sleep(pause).await;
                }
                bytes
            };
            let read = tokio::select! {
                read = reads => Some(read),
                () = connection.read_timeout() => None,
            };
            assert_eq!(read, (!is_cut).then_some(text.len()), "{pause:?} a chunk");
            drop(body);
            assert_eq!(unread.bytes(), 0);
        }
        let waits = tokio::time::timeout(Duration::from_hours(1), connection.read_timeout());
        assert!(waits.await.is_err(), "nothing is to be read");
    }
}
