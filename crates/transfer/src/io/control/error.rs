//! Errors that end a control connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

use super::RefuseReason;
use super::codec::{FrameError, MessageKind};
use crate::io::identity::IdentityError;

/// Why a control connection ended, or did not begin.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum ControlError {
    /// The name of the host cannot be resolved.
    #[error("cannot resolve {0}: {1}")]
    Name(String, String),
    #[error("cannot connect to {0}: {1}")]
    Connect(SocketAddr, io::Error),
    #[error("cannot listen at {0}: {1}")]
    Listen(SocketAddr, io::Error),
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// Either end refused the TLS connection.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The other end refused this end's certificate.
    #[error("the other end rejected this end's certificate: {0}")]
    CertificateRejected(rustls::Error),
    /// The other end does not use this protocol.
    #[error("the other end does not use the protocol barograph-transfer/1")]
    Alpn,
    /// A certificate or a key cannot be used, or the other end does not have the expected
    /// certificate.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot decode a message of the other end: {0}")]
    Frame(#[from] FrameError),
    #[error("the other end breaks the protocol: {0} is out of order")]
    Order(MessageKind),
    /// This end sent a message out of order.
    #[error("{0} cannot be sent now: this is a defect of this program")]
    SentOutOfOrder(MessageKind),
    #[error("{}", timeout_text(what, limit))]
    Timeout { what: &'static str, limit: Duration },
    /// The other end closed the connection in order.
    #[error("the other end closed the connection")]
    Closed,
    /// The connection ended without close_notify of TLS, or within a message.
    #[error("the connection was cut off")]
    CutOff,
    #[error("the other end refused: {text}")]
    Refused { reason: RefuseReason, text: String },
    #[error("stopped")]
    Stopped,
    #[error("the system returned no random numbers")]
    Random,
}

/// A time limit was exceeded. Within `limit`, `what` was not received, or the other end did not
/// read the bytes that were sent (`what` is then [`SENDING`]).
fn timeout_text(what: &str, limit: &Duration) -> String {
    match what {
        SENDING => format!("the other end did not read for {limit:?}"),
        what => format!("no {what} within {limit:?}"),
    }
}

/// Value of `what` in [`ControlError::Timeout`] if sent bytes were not read.
pub(super) const SENDING: &str = "sending";

impl From<ring::error::Unspecified> for ControlError {
    fn from(_: ring::error::Unspecified) -> Self {
        Self::Random
    }
}
