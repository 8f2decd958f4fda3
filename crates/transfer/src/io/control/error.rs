//! Errors that end a control connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

use super::Reason;
use super::codec::{FrameError, Kind};
use crate::io::identity::IdentityError;

/// Why a control connection ended, or did not begin.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum ControlError {
    /// The name of the host cannot be resolved.
    #[error("no address is known for {0}: {1}")]
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
    #[error("the other end does not take this end's certificate: {0}")]
    Unwelcome(rustls::Error),
    /// The other end does not use this protocol.
    #[error("the other end does not speak barograph-transfer/1")]
    Alpn,
    /// The other end is not the expected one.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("what the other end says cannot be read: {0}")]
    Frame(#[from] FrameError),
    #[error("the other end breaks the protocol: {0} is out of order")]
    Order(Kind),
    /// This end sent a message out of order.
    #[error("{0} cannot be said here")]
    Misuse(Kind),
    #[error("{what} took longer than {limit:?}")]
    Late { what: &'static str, limit: Duration },
    /// The other end closed the connection in order.
    #[error("the other end closed the connection")]
    Closed,
    /// The connection ended without TLS's close_notify.
    #[error("the connection was cut off")]
    CutOff,
    #[error("the other end says: {text}")]
    Refused { reason: Reason, text: String },
    #[error("stopped")]
    Stopped,
    #[error("the system has no random numbers to give")]
    Random,
}

impl From<ring::error::Unspecified> for ControlError {
    fn from(_: ring::error::Unspecified) -> Self {
        Self::Random
    }
}
