//! Why a transfer failed, and what to do about it, as a sentence.

use std::net::SocketAddr;

use barograph_transfer::files::{FileError, ManifestError};
use barograph_transfer::io::FlowError;
use barograph_transfer::io::SessionError;
use barograph_transfer::io::{ControlError, RefuseReason};

use crate::client::printable;

/// An error of a transfer as it is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransferFailure {
    /// Code of the error in JSON output.
    pub(crate) code: &'static str,
    /// Text for people; safe to print on a terminal.
    pub(crate) message: String,
    /// Whether the same command resumes the transfer.
    pub(crate) is_resumable: bool,
}

impl TransferFailure {
    fn new(code: &'static str, is_resumable: bool, message: impl AsRef<str>) -> Self {
        Self { code, message: printable(&without_numbers(message.as_ref())), is_resumable }
    }

    pub(crate) fn of(error: &SessionError) -> Self {
        match error {
            SessionError::Flow(FlowError::Stopped) => Self::stopped("stopped"),
            SessionError::Flow(FlowError::File(error)) | SessionError::File(error) => Self::of_file(error),
            SessionError::Flow(FlowError::NoFeedback(..)) => Self::new("silent", true, error.to_string()),
            SessionError::Flow(FlowError::Violation(_)) => Self::new("protocol", true, error.to_string()),
            SessionError::Refused { reason, text } => Self::refused(*reason, text),
            SessionError::Control(error) => Self::of_control(error),
            SessionError::ReceiverOverloaded { .. } => Self::new("contended", true, error.to_string()),
            SessionError::ConnectionLost(_) => Self::new("lost", true, error.to_string()),
            SessionError::Identity(_) => Self::new("identity", true, error.to_string()),
            SessionError::Protocol(_) => Self::new("protocol", false, error.to_string()),
            SessionError::Incompatible(_) => Self::new("unsuited", true, error.to_string()),
            SessionError::TooManyTransfers(_) => Self::new("busy", true, error.to_string()),
            other => Self::new("failed", true, other.to_string()),
        }
    }

    /// The control connection failed.
    fn of_control(error: &ControlError) -> Self {
        let told = error.to_string();
        match error {
            ControlError::Connect(SocketAddr::V6(peer), _)
                if peer.ip().is_unicast_link_local() && peer.scope_id() == 0 =>
            {
                Self::new(
                    "unreachable",
                    true,
                    format!("{} is a link-local address: add the interface, such as [{0}%eth0]", peer.ip()),
                )
            }
            ControlError::Connect(peer, _) => Self::new(
                "unreachable",
                true,
                format!(
                    "{told}; is `barograph recv` running there, and does a firewall let TCP through to port {}?",
                    peer.port()
                ),
            ),
            ControlError::Name(..) => {
                Self::new("unreachable", true, format!("{told}; check the name, or use an address"))
            }
            ControlError::Alpn | ControlError::Frame(_) | ControlError::Order(_) => {
                Self::new("protocol", false, format!("{told}; is it `barograph recv` of the same version?"))
            }
            ControlError::Tls(_) | ControlError::Identity(_) => Self::new(
                "identity",
                true,
                format!(
                    "{told}; `barograph recv` has a new certificate each time it starts, unless it has --identity: \
                     use the receiver address that it shows now"
                ),
            ),
            _ => Self::new("failed", true, told),
        }
    }

    fn stopped(how: &str) -> Self {
        Self::new("stopped", true, format!("{how}. Run the same command again to resume"))
    }

    fn of_file(error: &FileError) -> Self {
        let told = error.to_string();
        match error {
            FileError::Full { .. } | FileError::NoRoom { .. } => Self::new("full", true, told),
            FileError::Exists(_) => Self::new(
                "exists",
                true,
                format!("{told}; `barograph recv --replace` replaces existing files"),
            ),
            FileError::Link(_) => {
                Self::new("quota", true, format!("{told}; `barograph recv --links` accepts them"))
            }
            FileError::Quota { .. } => Self::new(
                "quota",
                true,
                format!("{told}; the limits are --quota and --max-files of `barograph recv`"),
            ),
            FileError::Changed(_) | FileError::Shrank { .. } => Self::new("changed", false, told),
            FileError::Manifest(ManifestError::Order(path)) => Self::new(
                "file",
                false,
                format!(
                    "two paths would have the name {path:?} at the receiver: send them separately, to two directories"
                ),
            ),
            FileError::Digest(_) => Self::new("digest", true, told),
            FileError::Busy(_) => Self::new("busy", true, told),
            _ => Self::new("file", true, told),
        }
    }

    /// The other end ended the transfer, with its reason in `text`.
    fn refused(reason: RefuseReason, text: &str) -> Self {
        let said = format!("the other end reports: {text}");
        let (code, is_resumable, advice) = match reason {
            RefuseReason::NotAllowed => (
                "not_allowed",
                true,
                "`barograph recv` prints a new receiver address each time it starts: use the one it shows now",
            ),
            RefuseReason::Protocol => ("protocol", false, "both ends need the same version of Barograph"),
            RefuseReason::Quota => {
                ("quota", true, "the limits are --quota, --max-files and --links of `barograph recv`")
            }
            RefuseReason::Exists => ("exists", true, "`barograph recv --replace` replaces existing files"),
            RefuseReason::Full => {
                ("full", true, "free some space there, and run the same command again to resume")
            }
            RefuseReason::Changed => ("changed", false, "send it again when no program writes to it"),
            RefuseReason::Digest => {
                ("digest", true, "run the same command again: the damaged data is sent again")
            }
            RefuseReason::Busy => {
                ("busy", true, "wait until the other transfer has ended, and run the same command again")
            }
            RefuseReason::Stopped => return Self::stopped("the other end was stopped"),
            _ => ("failed", true, "run the same command again to resume"),
        };
        // The text of some file errors contains advice already.
        let is_advised = ADVICE.iter().any(|advice| text.contains(advice));
        let message = if is_advised { said } else { format!("{said} – {advice}") };
        Self::new(code, is_resumable, message)
    }
}

/// Parts of the texts of file errors that contain advice: no space, a changed file, a damaged file.
const ADVICE: [&str; 3] = ["start the transfer again", "free some space", "send it again"];

/// Why the transfer to one of several receivers ended, and the receiver that gets the rest.
pub(crate) fn fallback_message(why: &SessionError, host: &str, port: u16) -> String {
    let why = match why {
        SessionError::ConnectionLost(error) => format!("lost the connection to the other end ({error})"),
        other => other.to_string(),
    };
    printable(&without_numbers(&format!("{why}; continuing with {host}, port {port}")))
}

/// Removes the numbers of system errors, which mean nothing to a reader.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |told, part| told + part.split_once(')').map_or(part, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_transfer_failure_message_names_a_remedy() {
        let refused =
            |reason, text: &str| TransferFailure::of(&SessionError::Refused { reason, text: text.into() });
        for (failure, code, message) in [
            (
                TransferFailure::of(&SessionError::Flow(FlowError::Stopped)),
                "stopped",
                "stopped. Run the same command again to resume",
            ),
            (
                TransferFailure::of(&SessionError::Flow(FlowError::NoFeedback(
                    Duration::from_secs(20),
                    4000,
                ))),
                "silent",
                "no feedback for 20s: check that firewalls let UDP through to port 4000",
            ),
            (
                refused(RefuseReason::Exists, "\"a\" exists already: remove it"),
                "exists",
                "the other end reports: \"a\" exists already: remove it – \
                 `barograph recv --replace` replaces existing files",
            ),
            (
                refused(
                    RefuseReason::Full,
                    "no space left for \"a\"; free some space and start the transfer again",
                ),
                "full",
                "the other end reports: no space left for \"a\"; free some space and start the transfer again",
            ),
            (
                refused(RefuseReason::Failed, "\u{1b}[2J"),
                "failed",
                "the other end reports: \\u{1b}[2J – run the same command again to resume",
            ),
            (
                TransferFailure::of(&SessionError::Control(ControlError::Connect(
                    ([192, 0, 2, 7], 4000).into(),
                    std::io::Error::from_raw_os_error(111),
                ))),
                "unreachable",
                "cannot connect to 192.0.2.7:4000: Connection refused; is `barograph recv` running there, \
                 and does a firewall let TCP through to port 4000?",
            ),
            (
                TransferFailure::of(&SessionError::Control(ControlError::Connect(
                    "[fe80::1]:4000".parse().expect("an address"),
                    std::io::Error::from_raw_os_error(22),
                ))),
                "unreachable",
                "fe80::1 is a link-local address: add the interface, such as [fe80::1%eth0]",
            ),
            (
                TransferFailure::of(&SessionError::File(FileError::Link("a/b".into()))),
                "quota",
                "\"a/b\" is a symbolic link, and this receiver does not accept links; `barograph recv --links` accepts them",
            ),
        ] {
            assert_eq!((failure.code, failure.message.as_str()), (code, message));
        }
        assert_eq!(
            fallback_message(&SessionError::ReceiverOverloaded { lost: 0.1234 }, "north\u{1b}", 4000),
            "the receiver's host was too slow for nine of ten seconds and lost 12.34 % of the packets; \
             continuing with north\\u{1b}, port 4000"
        );
    }
}
