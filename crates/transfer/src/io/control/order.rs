//! Which message may follow which, and from whom.

use super::codec::Kind;

/// How far both ends are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Start,
    /// The sender said Hello.
    Greeted,
    /// The sender is let in.
    LetIn,
    /// The sender said what is to be sent.
    Offered,
    /// The receiver takes it; datagrams are under way.
    Moving,
    /// The sender said what should have come.
    Checking,
    /// Nothing more is to be said.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

impl Phase {
    /// What follows when `from` says a message of `kind`; `None` if it may not.
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
            // The last ones may cross what ends it.
            (_, Kind::Ping, _) if Self::LetIn <= self => self,
            // Strangers have nothing to refuse.
            (_, Kind::Refuse, Receiver) => Self::Ended,
            (_, Kind::Refuse, Sender) if Self::Greeted <= self => Self::Ended,
            _ => return None,
        })
    }
}
