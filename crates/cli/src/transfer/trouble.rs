//! Why a transfer failed, and what to do about it, as a sentence.

use std::net::SocketAddr;

use barograph_transfer::files::{FileError, ManifestError};
use barograph_transfer::io::FlowError;
use barograph_transfer::io::SessionError;
use barograph_transfer::io::{ControlError, Reason};

use crate::client::printable;

/// An error of a transfer as it is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Code of the error in JSON output.
    pub(crate) word: &'static str,
    /// Text for people; safe to print on a terminal.
    pub(crate) sentence: String,
    /// Whether the same command resumes the transfer.
    pub(crate) is_resumable: bool,
}

impl Trouble {
    fn new(word: &'static str, is_resumable: bool, sentence: impl AsRef<str>) -> Self {
        Self { word, sentence: printable(&without_numbers(sentence.as_ref())), is_resumable }
    }

    pub(crate) fn of(error: &SessionError) -> Self {
        match error {
            SessionError::Flow(FlowError::Stopped) => Self::stopped("stopped"),
            SessionError::Flow(FlowError::File(error)) | SessionError::File(error) => Self::of_file(error),
            SessionError::Flow(FlowError::Silent(..)) => Self::new("silent", true, error.to_string()),
            SessionError::Flow(FlowError::Violation(_)) => Self::new("protocol", true, error.to_string()),
            SessionError::Refused { reason, text } => Self::refused(*reason, text),
            SessionError::Control(error) => Self::of_control(error),
            SessionError::Contended { .. } => Self::new("contended", true, error.to_string()),
            SessionError::Lost(_) => Self::new("lost", true, error.to_string()),
            SessionError::Identity(_) => Self::new("identity", true, error.to_string()),
            SessionError::Protocol(_) => Self::new("protocol", false, error.to_string()),
            SessionError::Unsuited(_) => Self::new("unsuited", true, error.to_string()),
            SessionError::Crowded(_) => Self::new("busy", true, error.to_string()),
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
            FileError::Full { .. } => Self::new("full", true, told),
            FileError::NoRoom { .. } => {
                Self::new("full", true, format!("{told}; free some space, and start the transfer again"))
            }
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
            FileError::Changed(_) | FileError::Shrank { .. } => {
                Self::new("changed", false, format!("{told}; send it again when no program writes to it"))
            }
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
    fn refused(reason: Reason, text: &str) -> Self {
        let said = format!("the other end reports: {text}");
        let (word, is_resumable, advice) = match reason {
            Reason::NotAllowed => (
                "not_allowed",
                true,
                "`barograph recv` prints a new receiver address each time it starts: use the one it shows now",
            ),
            Reason::Protocol => ("protocol", false, "both ends need the same version of Barograph"),
            Reason::Quota => {
                ("quota", true, "the limits are --quota, --max-files and --links of `barograph recv`")
            }
            Reason::Exists => ("exists", true, "`barograph recv --replace` replaces existing files"),
            Reason::Full => ("full", true, "free some space there, and run the same command again to resume"),
            Reason::Changed => ("changed", false, "send it again when no program writes to it"),
            Reason::Digest => ("digest", true, "run the same command again: the damaged data is sent again"),
            Reason::Busy => {
                ("busy", true, "wait until the other transfer has ended, and run the same command again")
            }
            Reason::Stopped => return Self::stopped("the other end was stopped"),
            _ => ("failed", true, "run the same command again to resume"),
        };
        // The text of a file error contains advice already.
        let is_advised = text.contains("start the transfer again");
        let sentence = if is_advised { said } else { format!("{said} – {advice}") };
        Self::new(word, is_resumable, sentence)
    }
}

/// Why the transfer to one of several receivers ended, and the receiver that gets the rest.
pub(crate) fn elsewhere(why: &SessionError, host: &str, port: u16) -> String {
    let why = match why {
        SessionError::Lost(error) => format!("lost the connection to the other end ({error})"),
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
    fn what_ends_a_transfer_says_what_to_do() {
        let refused = |reason, text: &str| Trouble::of(&SessionError::Refused { reason, text: text.into() });
        for (trouble, word, sentence) in [
            (
                Trouble::of(&SessionError::Flow(FlowError::Stopped)),
                "stopped",
                "stopped. Run the same command again to resume",
            ),
            (
                Trouble::of(&SessionError::Flow(FlowError::Silent(Duration::from_secs(20), 4000))),
                "silent",
                "no answer for 20s: does a firewall let UDP through to port 4000?",
            ),
            (
                refused(Reason::Exists, "\"a\" exists already and is not replaced"),
                "exists",
                "the other end reports: \"a\" exists already and is not replaced – \
                 `barograph recv --replace` replaces existing files",
            ),
            (
                refused(Reason::Full, "there is no room for \"a\"; make some and start the transfer again"),
                "full",
                "the other end reports: there is no room for \"a\"; make some and start the transfer again",
            ),
            (
                refused(Reason::Failed, "\u{1b}[2J"),
                "failed",
                "the other end reports: \\u{1b}[2J – run the same command again to resume",
            ),
            (
                Trouble::of(&SessionError::Control(ControlError::Connect(
                    ([192, 0, 2, 7], 4000).into(),
                    std::io::Error::from_raw_os_error(111),
                ))),
                "unreachable",
                "cannot connect to 192.0.2.7:4000: Connection refused; is `barograph recv` running there, \
                 and does a firewall let TCP through to port 4000?",
            ),
            (
                Trouble::of(&SessionError::Control(ControlError::Connect(
                    "[fe80::1]:4000".parse().expect("an address"),
                    std::io::Error::from_raw_os_error(22),
                ))),
                "unreachable",
                "fe80::1 is a link-local address: add the interface, such as [fe80::1%eth0]",
            ),
            (
                Trouble::of(&SessionError::File(FileError::Link("a/b".into()))),
                "quota",
                "\"a/b\" is a symbolic link, and links are not taken here; `barograph recv --links` accepts them",
            ),
        ] {
            assert_eq!((trouble.word, trouble.sentence.as_str()), (word, sentence));
        }
        assert_eq!(
            elsewhere(&SessionError::Contended { lost: 0.1234 }, "north\u{1b}", 4000),
            "the CPU of the receiver's host was the limit in nine of ten seconds; 12.34 % of the packets were lost there; \
             continuing with north\\u{1b}, port 4000"
        );
    }
}
