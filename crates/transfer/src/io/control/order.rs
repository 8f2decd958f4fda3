//! Order of messages: which may follow which, and from which end.

use super::codec::Kind;

/// Phase of the exchange of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Start,
    /// The sender sent Hello.
    Greeted,
    /// The receiver sent Welcome.
    LetIn,
    /// The sender sent its Offer.
    Offered,
    /// The receiver sent Accept; datagrams are in flight.
    Moving,
    /// The sender sent its Digests.
    Checking,
    /// Done or Refuse was sent.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

impl Phase {
    /// The phase after a message of `kind` from the end `from`; `None` if it is out of order.
    pub(super) fn after(self, kind: Kind, from: End) -> Option<Self> {
        use End::{Receiver, Sender};
        Some(match (self, kind, from) {
            (Self::Start, Kind::Hello, Sender) => Self::Greeted,
            (Self::Greeted, Kind::Welcome, Receiver) => Self::LetIn,
            (Self::LetIn, Kind::Offer, Sender) => Self::Offered,
            (Self::Offered, Kind::Accept, Receiver) => Self::Moving,
            (Self::Moving, Kind::Digests, Sender) => Self::Checking,
            (Self::Checking, Kind::Done, Receiver) => Self::Ended,
            (Self::Moving | Self::Checking, Kind::Durable, Receiver) => self,
            // A Ping may be in flight when the other end sends the last message.
            (_, Kind::Ping, _) if Self::LetIn <= self => self,
            // A sender cannot refuse before it has sent Hello.
            (_, Kind::Refuse, Receiver) => Self::Ended,
            (_, Kind::Refuse, Sender) if Self::Greeted <= self => Self::Ended,
            _ => return None,
        })
    }
}
