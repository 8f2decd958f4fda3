//! Why a transfer ended too early, and what to do about it, in a sentence.

use std::net::SocketAddr;

use barograph_transfer::files::{FileError, ManifestError};
use barograph_transfer::io::FlowError;
use barograph_transfer::io::SessionError;
use barograph_transfer::io::{ControlError, Reason};

use crate::client::printable;

/// What is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// For programs.
    pub(crate) word: &'static str,
    /// For people; fit for a terminal.
    pub(crate) sentence: String,
    /// Whether the same command goes on where this ended.
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

    /// No connection came about.
    fn of_control(error: &ControlError) -> Self {
        let told = error.to_string();
        match error {
            ControlError::Connect(SocketAddr::V6(peer), _)
                if peer.ip().is_unicast_link_local() && peer.scope_id() == 0 =>
            {
                Self::new(
                    "unreachable",
                    true,
                    format!("{} is good on one link only: add which, such as [{0}%eth0]", peer.ip()),
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
                Self::new("unreachable", true, format!("{told}; an address does as well"))
            }
            ControlError::Alpn | ControlError::Frame(_) | ControlError::Order(_) => Self::new(
                "protocol",
                false,
                format!("{told}; is it `barograph recv`, and of the same version?"),
            ),
            ControlError::Tls(_) | ControlError::Identity(_) => Self::new(
                "identity",
                true,
                format!(
                    "{told}; `barograph recv` has another certificate each time it starts, unless it has --identity: \
                     use what it shows now"
                ),
            ),
            _ => Self::new("failed", true, told),
        }
    }

    fn stopped(how: &str) -> Self {
        Self::new("stopped", true, format!("{how}; the same command goes on where it was"))
    }

    fn of_file(error: &FileError) -> Self {
        let told = error.to_string();
        match error {
            FileError::Full { .. } => Self::new("full", true, told),
            FileError::NoRoom { .. } => {
                Self::new("full", true, format!("{told}; make some, and start the transfer again"))
            }
            FileError::Exists(_) => Self::new(
                "exists",
                true,
                format!("{told}; `barograph recv --replace` replaces what is there"),
            ),
            FileError::Link(_) => {
                Self::new("quota", true, format!("{told}; `barograph recv --links` takes them"))
            }
            FileError::Quota { .. } => Self::new(
                "quota",
                true,
                format!("{told}; `barograph recv` sets how much with --quota and --max-files"),
            ),
            FileError::Changed(_) | FileError::Shrank { .. } => {
                Self::new("changed", false, format!("{told}; send it again once nobody writes to it"))
            }
            FileError::Manifest(ManifestError::Order(path)) => Self::new(
                "file",
                false,
                format!(
                    "two paths are to be called {path:?} at the receiver: send them one after the other, to two directories"
                ),
            ),
            FileError::Digest(_) => Self::new("digest", true, told),
            FileError::Busy(_) => Self::new("busy", true, told),
            _ => Self::new("file", true, told),
        }
    }

    /// The other end ended it, and says why in `text`.
    fn refused(reason: Reason, text: &str) -> Self {
        let said = format!("the other end says: {text}");
        let (word, is_resumable, advice) = match reason {
            Reason::NotAllowed => (
                "not_allowed",
                true,
                "`barograph recv` prints another line each time it starts: use the one it shows now",
            ),
            Reason::Protocol => ("protocol", false, "both ends need the same version of Barograph"),
            Reason::Quota => {
                ("quota", true, "`barograph recv` sets what it takes with --quota, --max-files and --links")
            }
            Reason::Exists => ("exists", true, "`barograph recv --replace` replaces what is there"),
            Reason::Full => {
                ("full", true, "make room there and use the same command again, it goes on where it was")
            }
            Reason::Changed => ("changed", false, "send it again once nobody writes to it"),
            Reason::Digest => ("digest", true, "use the same command again: what is wrong comes anew"),
            Reason::Busy => ("busy", true, "wait until it is over, and use the same command again"),
            Reason::Stopped => return Self::stopped("the other end was stopped"),
            _ => ("failed", true, "use the same command again, it goes on where it was"),
        };
        // Files say themselves what helps.
        let is_advised = text.contains("start the transfer again");
        let sentence = if is_advised { said } else { format!("{said} – {advice}") };
        Self::new(word, is_resumable, sentence)
    }
}

/// What ended it with one receiver of several, and who has the rest.
pub(crate) fn elsewhere(why: &SessionError, host: &str, port: u16) -> String {
    let why = match why {
        SessionError::Lost(error) => format!("the connection to the other end is lost ({error})"),
        other => other.to_string(),
    };
    printable(&without_numbers(&format!("{why}; going on with {host}, port {port}")))
}

/// What systems say without its number, which tells a reader nothing.
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
                "stopped; the same command goes on where it was",
            ),
            (
                Trouble::of(&SessionError::Flow(FlowError::Silent(Duration::from_secs(20), 4000))),
                "silent",
                "no answer for 20s: does a firewall let UDP through to port 4000?",
            ),
            (
                refused(Reason::Exists, "\"a\" exists already and is not replaced"),
                "exists",
                "the other end says: \"a\" exists already and is not replaced – \
                 `barograph recv --replace` replaces what is there",
            ),
            (
                refused(Reason::Full, "there is no room for \"a\"; make some and start the transfer again"),
                "full",
                "the other end says: there is no room for \"a\"; make some and start the transfer again",
            ),
            (
                refused(Reason::Failed, "\u{1b}[2J"),
                "failed",
                "the other end says: \\u{1b}[2J – use the same command again, it goes on where it was",
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
                "fe80::1 is good on one link only: add which, such as [fe80::1%eth0]",
            ),
            (
                Trouble::of(&SessionError::File(FileError::Link("a/b".into()))),
                "quota",
                "\"a/b\" is a symbolic link, and links are not taken here; `barograph recv --links` takes them",
            ),
        ] {
            assert_eq!((trouble.word, trouble.sentence.as_str()), (word, sentence));
        }
        assert_eq!(
            elsewhere(&SessionError::Contended { lost: 0.1234 }, "north\u{1b}", 4000),
            "the CPU of the receiver's host was the limit in nine of ten seconds; 12.34 % of the packets were lost there; \
             going on with north\\u{1b}, port 4000"
        );
    }
}
