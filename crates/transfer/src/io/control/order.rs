//! Checks the order of messages: which kind may follow in each phase, and from which end.

use super::codec::MessageKind;

/// Phase of the exchange of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ControlPhase {
    Start,
    /// The sender sent Hello.
    HelloSent,
    /// The receiver sent Welcome.
    Welcomed,
    /// The sender sent its Offer.
    Offered,
    /// The receiver sent Accept; datagrams are in flight.
    Transferring,
    /// The sender sent its Digests.
    Verifying,
    /// Done or Refuse was sent.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlEnd {
    Sender,
    Receiver,
}

impl ControlPhase {
    /// The phase after a message of `kind` from the end `from`; `None` if the message is out of
    /// order.
    pub(super) fn after(self, kind: MessageKind, from: ControlEnd) -> Option<Self> {
        use ControlEnd::{Receiver, Sender};
        Some(match (self, kind, from) {
            (Self::Start, MessageKind::Hello, Sender) => Self::HelloSent,
            (Self::HelloSent, MessageKind::Welcome, Receiver) => Self::Welcomed,
            (Self::Welcomed, MessageKind::Offer, Sender) => Self::Offered,
            (Self::Offered, MessageKind::Accept, Receiver) => Self::Transferring,
            (Self::Transferring, MessageKind::Digests, Sender) => Self::Verifying,
            (Self::Verifying, MessageKind::Done, Receiver) => Self::Ended,
            (Self::Transferring | Self::Verifying, MessageKind::Durable, Receiver) => self,
            // Accept a Ping in every phase from Welcome on, also after the last message: a Ping may
            // be in flight when the other end sends the last message.
            (_, MessageKind::Ping, _) if Self::Welcomed <= self => self,
            // A sender cannot refuse before it has sent Hello.
            (_, MessageKind::Refuse, Receiver) => Self::Ended,
            (_, MessageKind::Refuse, Sender) if Self::HelloSent <= self => Self::Ended,
            _ => return None,
        })
    }
}
