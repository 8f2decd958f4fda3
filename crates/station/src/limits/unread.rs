//! Limits for responses that their callers have not read yet: bytes in memory, and reading speed.
//!
//! A response larger than [`PIECE_BYTES`] is passed to the connection piece by piece as the caller
//! reads. So only the text of such a response waits in memory, and this module counts its bytes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use crate::limits::connections::Open;
use crate::sync::lock;
use barograph_limits::callers::{Callers, holder, network};
use barograph_limits::pace::transfer_max;
use barograph_limits::proved::Prover;

/// Texts of all unread responses; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadAnswers(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    all: Texts,
    /// Parts of `all`: texts of callers on this host, of proved callers, and of strangers.
    here: Texts,
    proved: Texts,
    strangers: Texts,
    /// Texts of callers from other hosts, by share.
    shares: HashMap<Callers, Texts>,
}

/// A set of texts; responses that share a text count it once.
#[derive(Debug, Default)]
struct Texts {
    bytes: usize,
    /// Number of responses for each text, by its address in memory.
    answers: HashMap<usize, usize>,
}

/// Bytes of the budget, held until dropped.
#[derive(Debug)]
pub(crate) struct Held {
    unread: UnreadAnswers,
    reader: Reader,
    text: Bytes,
}

/// Class of the caller that reads a response.
#[derive(Clone, Debug)]
pub(crate) enum Reader {
    /// A caller on this host.
    Here,
    /// An address that a token or a signature authorised.
    Proved(IpAddr, Prover),
    /// A caller at any other address.
    Stranger(IpAddr),
}

impl UnreadAnswers {
    /// Whether there is room for a further response.
    pub(crate) fn has_room(&self, reader: &Reader) -> bool {
        let state = lock(&self.0);
        state.has_room(None, reader)
    }

    /// Takes the bytes of a response from the budget. The last response may exceed its share;
    /// otherwise a response larger than a share could never be read. The excess does not reduce
    /// other shares.
    pub(crate) fn hold(&self, reader: Reader, text: &Bytes) -> Option<Held> {
        let mut state = lock(&self.0);
        if !state.has_room(Some(text), &reader) {
            return None;
        }
        state.all.add(text);
        state.class(&reader).add(text);
        for share in reader.shares() {
            state.shares.entry(share).or_default().add(text);
        }
        Some(Held { unread: self.clone(), reader, text: text.clone() })
    }

    /// Number of bytes of responses that wait for their callers.
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.0).all.bytes
    }
}

impl State {
    fn has_room(&self, text: Option<&Bytes>, reader: &Reader) -> bool {
        let has_part = match reader {
            Reader::Here => self.here.bytes < HERE_MAX || self.all.bytes < BYTES_MAX,
            Reader::Proved(..) => self.proved.bytes < PROVED_MAX || self.all.bytes < BYTES_MAX - HERE_MAX,
            Reader::Stranger(_) => self.strangers.bytes < STRANGERS_MAX,
        };
        let is_in = |texts: &Texts| text.is_some_and(|text| texts.has(text));
        let mut own = reader.shares().filter_map(|share| self.shares.get(&share));
        (has_part || is_in(&self.all)) && own.all(|own| own.bytes < SHARE_MAX || is_in(own))
    }

    fn class(&mut self, reader: &Reader) -> &mut Texts {
        match reader {
            Reader::Here => &mut self.here,
            Reader::Proved(..) => &mut self.proved,
            Reader::Stranger(_) => &mut self.strangers,
        }
    }
}

impl Texts {
    fn has(&self, text: &Bytes) -> bool {
        self.answers.contains_key(&text.as_ptr().addr())
    }

    fn add(&mut self, text: &Bytes) {
        let answers = self.answers.entry(text.as_ptr().addr()).or_default();
        *answers += 1;
        if *answers == 1 {
            self.bytes += text.len();
        }
    }

    fn remove(&mut self, text: &Bytes) {
        let Some(answers) = self.answers.get_mut(&text.as_ptr().addr()) else { return };
        *answers -= 1;
        if *answers == 0 {
            self.answers.remove(&text.as_ptr().addr());
            self.bytes -= text.len();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = lock(&self.unread.0);
        state.all.remove(&self.text);
        state.class(&self.reader).remove(&self.text);
        for share in self.reader.shares() {
            let Some(own) = state.shares.get_mut(&share) else { continue };
            own.remove(&self.text);
            if own.answers.is_empty() {
                state.shares.remove(&share);
            }
        }
    }
}

impl Reader {
    /// The shares that a response counts against; none for callers on this host.
    fn shares(&self) -> impl Iterator<Item = Callers> {
        let network = |ip: &IpAddr| network(holder(*ip));
        let (of_network, prover) = match self {
            Self::Here => (None, None),
            Self::Proved(ip, prover) => {
                (Some(Callers::ProvedOfNetwork(network(ip))), Callers::proved_by(prover))
            }
            Self::Stranger(ip) => (Some(Callers::Network(network(ip))), None),
        };
        of_network.into_iter().chain(prover)
    }
}

/// Body of a response that is passed on in pieces as its caller reads.
struct Pieces {
    text: Bytes,
    sent: usize,
    began: Instant,
    open: Arc<Open>,
    _held: Held,
}

/// Makes a body for a held text. Its connection is closed if the caller reads too slowly.
pub(crate) fn in_pieces(text: Bytes, held: Held, open: Arc<Open>) -> Body {
    Body::new(Pieces { text, sent: 0, began: Instant::now(), open, _held: held })
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let end = usize::min(self.sent + PIECE_BYTES, self.text.len());
        if self.sent == end {
            return Poll::Ready(None);
        }
        // Copy the piece: a slice would keep the whole text in memory while the last piece waits in
        // the connection.
        let piece = Bytes::copy_from_slice(&self.text[self.sent..end]);
        self.sent = end;
        self.open.must_read_until(Some(self.began + transfer_max(end as u64)));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent == self.text.len()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.text.len() - self.sent) as u64)
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.open.must_read_until(None);
    }
}

/// Bytes that a connection holds of a response besides its text. A smaller response is not counted,
/// so that errors and `/healthz` are always sent.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;
/// Maximum number of bytes of unread responses. `/metrics` of 40 000 series, the default maximum,
/// is about 67 MB: one network that reads it slowly leaves room for a second one.
pub(crate) const BYTES_MAX: usize = 128 << 20;
/// Share of one network (/24, /48), and of all addresses that one station proved: a quarter, as for
/// connections.
pub(crate) const SHARE_MAX: usize = BYTES_MAX / 4;
/// Bytes reserved for callers on this host: an eighth, as for connections. These callers may also
/// use the bytes that others leave.
const HERE_MAX: usize = BYTES_MAX / 8;
/// Share of strangers: half of the bytes, however much others use. Proved callers, including
/// members, get the bytes that strangers and the reserve of this host leave.
pub(crate) const STRANGERS_MAX: usize = BYTES_MAX / 2;
/// Bytes reserved for proved callers: the rest of the budget.
const PROVED_MAX: usize = BYTES_MAX - HERE_MAX - STRANGERS_MAX;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use http_body_util::BodyExt as _;

    use barograph_forecast::Name;
    use barograph_limits::admission::Kind;

    use super::*;
    use crate::limits::connections::Connections;
    use crate::limits::proved::ProvedCallers;

    fn station(number: u8) -> Prover {
        Prover::Station(Name::new(&format!("station-{number}")).unwrap())
    }

    fn ip(host: u8, network: u8) -> IpAddr {
        IpAddr::from([198, 18, network, host])
    }

    #[test]
    fn a_network_gets_a_quarter_and_all_get_the_budget() {
        let unread = UnreadAnswers::default();
        let text = || Bytes::from(vec![0; BYTES_MAX / 16]);
        let mut held: Vec<Held> =
            (0..4).map(|host| unread.hold(Reader::Stranger(ip(host, 0)), &text()).unwrap()).collect();
        let more = Reader::Stranger(ip(9, 0));
        assert!(unread.hold(more.clone(), &text()).is_none() && !unread.has_room(&more));
        let proved = Reader::Proved(ip(9, 0), Prover::Operator);
        assert!(unread.has_room(&proved), "strangers of its network leave it its share");
        held.extend((0..4).map(|host| unread.hold(Reader::Stranger(ip(host, 1)), &text()).unwrap()));
        let stranger = Reader::Stranger(ip(9, 2));
        assert!(unread.hold(stranger, &text()).is_none(), "half is kept for proved callers");
        held.extend(
            (2..4).flat_map(|net| (0..4).map(move |host| (host, net))).filter_map(|(host, net)| {
                unread.hold(Reader::Proved(ip(host, net), Prover::Operator), &text())
            }),
        );
        assert_eq!(held.len(), 14, "an eighth is kept for this host");
        held.extend((0..2).map(|_| unread.hold(Reader::Here, &text()).unwrap()));
        assert!(unread.hold(Reader::Here, &text()).is_none());
        assert_eq!(unread.bytes(), BYTES_MAX);
        drop(held);
        assert_eq!(unread.bytes(), 0);
        assert!(lock(&unread.0).shares.is_empty(), "nothing is kept of a network that is gone");
    }

    #[test]
    fn a_text_that_answers_share_counts_once_and_one_of_any_size_is_answered() {
        let unread = UnreadAnswers::default();
        let text = Bytes::from(vec![0; 2 * BYTES_MAX]);
        let held: Vec<Held> =
            (0..3).map(|_| unread.hold(Reader::Stranger(ip(1, 1)), &text).unwrap()).collect();
        assert_eq!(unread.bytes(), text.len());
        assert!(unread.hold(Reader::Stranger(ip(1, 2)), &Bytes::from(vec![0])).is_none());
        drop(held);
        assert!(unread.hold(Reader::Stranger(ip(1, 2)), &Bytes::from(vec![0])).is_some());
    }

    #[test]
    fn an_answer_larger_than_a_share_leaves_the_others_theirs() {
        let huge = || Bytes::from(vec![0; BYTES_MAX]);
        let small = || Bytes::from(vec![0; 1]);
        let (here, proved, stranger) = (
            Reader::Here,
            |net| Reader::Proved(ip(1, net), Prover::Operator),
            |net| Reader::Stranger(ip(1, net)),
        );
        let unread = UnreadAnswers::default();
        let strangers = unread.hold(stranger(1), &huge()).unwrap();
        assert!(unread.hold(stranger(2), &small()).is_none());
        // Strangers reduce the room of proved callers by at most half of the budget. Proved callers
        // do not reduce the room of strangers.
        let members = unread.hold(proved(3), &huge()).unwrap();
        assert!(unread.hold(proved(4), &small()).is_none());
        drop(strangers);
        drop(unread.hold(stranger(2), &small()).unwrap());
        let first = unread.hold(here.clone(), &huge()).unwrap();
        assert!(unread.hold(here.clone(), &small()).is_none());
        drop(members);
        drop(unread.hold(proved(4), &small()).unwrap());
        drop(first);
        assert_eq!(unread.bytes(), 0);
    }

    #[test]
    fn all_addresses_of_one_station_have_one_share() {
        let unread = UnreadAnswers::default();
        let huge = || Bytes::from(vec![0; BYTES_MAX / 2]);
        let first = unread.hold(Reader::Proved(ip(1, 1), station(1)), &huge()).unwrap();
        assert!(
            unread.hold(Reader::Proved(ip(1, 2), station(1)), &huge()).is_none(),
            "another network of it"
        );
        let honest = unread.hold(Reader::Proved(ip(1, 3), station(2)), &huge()).unwrap();
        drop(first);
        assert!(unread.hold(Reader::Proved(ip(1, 2), station(1)), &huge()).is_some());
        drop(honest);
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_slower_than_a_megabit_a_second_is_cut() {
        let open =
            Connections::new(64, Kind::Connections, ProvedCallers::new()).accept(ip(1, 1), false).unwrap().0;
        let text = Bytes::from(vec![7; 10 * PIECE_BYTES + 1]);
        let body = |unread: &UnreadAnswers| {
            let held = unread.hold(Reader::Stranger(ip(1, 1)), &text).unwrap();
            in_pieces(text.clone(), held, Arc::clone(&open))
        };
        let unread = UnreadAnswers::default();
        for (pause, is_cut) in [(Duration::from_millis(500), false), (Duration::from_secs(2), true)] {
            let mut body = body(&unread);
            let reads = async {
                let mut bytes = 0;
                while let Some(frame) = body.frame().await {
                    let piece = frame.unwrap().into_data().unwrap();
                    assert!(piece.len() <= PIECE_BYTES);
                    bytes += piece.len();
                    tokio::time::sleep(pause).await;
                }
                bytes
            };
            let read = tokio::select! {
                read = reads => Some(read),
                () = open.reads_too_slowly() => None,
            };
            assert_eq!(read, (!is_cut).then_some(text.len()), "{pause:?} a piece");
            drop(body);
            assert_eq!(unread.bytes(), 0);
        }
        let waits = tokio::time::timeout(Duration::from_hours(1), open.reads_too_slowly());
        assert!(waits.await.is_err(), "nothing is to be read");
    }
}
