//! Sources, targets, quantities and series, and the outcome of one measurement.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use core::fmt;

/// One series of measurements: a quantity, from one source to one target.
///
/// `source` is the host that measured; `target` is what it measured. For a quantity of the host
/// itself (`cpu_available`, `memory_free`) both are the host's own name.
///
/// ```
/// use barograph_forecast::{Name, Quantity, SeriesId};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let (source, target) = (Name::new("lab.example.org")?, Name::new("host:443")?);
/// let series = SeriesId { source, target, quantity: Quantity::RTT };
/// assert_eq!(series.to_string(), "rtt lab.example.org → host:443");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesId {
    /// The host that measured.
    pub source: Name,
    /// The host, URL or address that was measured.
    pub target: Name,
    /// The quantity that was measured, with its unit.
    pub quantity: Quantity,
}

impl fmt::Display for SeriesId {
    /// Writes `quantity source → target`, for people and logs; no parser reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} → {}", self.quantity, self.source, self.target)
    }
}

/// The name of a source or target, 1 to 255 bytes long. A name has no white space, no control
/// characters, and no format characters that are invisible or change the direction of text.
///
/// The limit of 255 bytes keeps keys, labels and log lines small, whatever a peer sends. 255 bytes
/// is the length of the longest host name (RFC 1035 §2.3.4), and is enough for the URLs that people
/// probe.
///
/// ```
/// use barograph_forecast::{Name, NameError};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// assert_eq!(Name::new("[::1]:80")?.as_str(), "[::1]:80");
/// assert_eq!(Name::new("two words"), Err(NameError::Character { character: ' ' }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// Maximum length of a name, in bytes.
    pub const BYTES_MAX: usize = 255;

    /// Creates a name, if `text` is a valid name.
    ///
    /// # Errors
    /// [`NameError`] when the text is empty, too long, or has a character that is not allowed.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > Self::BYTES_MAX {
            return Err(NameError::TooLong { bytes: text.len() });
        }
        match text.chars().find(|c| c.is_whitespace() || c.is_control() || is_format(*c)) {
            Some(character) => Err(NameError::Character { character }),
            None => Ok(Self(text.to_string())),
        }
    }

    /// Checks that most displays show each character of the name. A name with a hidden character
    /// would look like a different name.
    ///
    /// This check is stricter than [`Name::new`], which also accepts names that earlier versions
    /// stored. Use this check for new names.
    ///
    /// ```
    /// use barograph_forecast::Name;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// assert!(Name::new("host:80")?.check_visible().is_ok());
    /// assert!(Name::new("ho\u{fe0f}st:80")?.check_visible().is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NameError::Character`] with the first character that is not shown.
    pub fn check_visible(&self) -> Result<(), NameError> {
        match self.0.chars().find(|c| is_invisible(*c)) {
            Some(character) => Err(NameError::Character { character }),
            None => Ok(()),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether `c` is a format character that is invisible or reorders text (UAX #9, UTR #36 §2). No
/// version of Barograph has accepted such a character in a name.
fn is_format(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Whether `c` is hidden by most displays, or reorders the text around it. A name with such a
/// character could look like another name. The characters are Unicode's
/// `Default_Ignorable_Code_Point` (UAX #44, DerivedCoreProperties.txt), the embeddings of UAX #9,
/// the annotations, the object replacement character, and the blank Braille pattern.
fn is_invisible(c: char) -> bool {
    is_format(c)
        || matches!(c, '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffc}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// What is measured, as a lower-case identifier. The constants are Barograph's own quantities; an
/// application may record other quantities.
///
/// ```
/// use barograph_forecast::Quantity;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// assert_eq!(Quantity::GOODPUT.unit(), "bit/s");
/// assert_eq!(Quantity::new("query_time")?.unit(), "", "the unit is unknown");
/// assert!(Quantity::new("Query-Time").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Quantity(Cow<'static, str>);

impl Quantity {
    /// Round-trip time of a two-byte exchange over TCP without Nagle's algorithm, in seconds.
    pub const RTT: Self = Self(Cow::Borrowed("rtt"));
    /// Round-trip time through TLS, otherwise as `rtt`, in seconds.
    pub const RTT_TLS: Self = Self(Cow::Borrowed("rtt_tls"));
    /// Round-trip time of write–write–read with Nagle's algorithm on, in seconds.
    pub const RTT_NAGLE: Self = Self(Cow::Borrowed("rtt_nagle"));
    /// Round-trip time while this host ran a bulk test, in seconds.
    pub const RTT_LOADED: Self = Self(Cow::Borrowed("rtt_loaded"));
    /// Round-trip time of UDP datagrams, in seconds.
    pub const RTT_UDP: Self = Self(Cow::Borrowed("rtt_udp"));
    /// Share of UDP datagrams that did not come back, 0 to 1.
    pub const LOSS: Self = Self(Cow::Borrowed("loss"));
    /// Time from a SYN to the response, in seconds: the TCP handshake, or the refusal of a closed
    /// port.
    pub const CONNECT: Self = Self(Cow::Borrowed("connect"));
    /// Time from sending an HTTP request to the first byte of its response, in seconds.
    pub const FIRST_BYTE: Self = Self(Cow::Borrowed("first_byte"));
    /// Time from sending an HTTP request to the last byte of its response, in seconds.
    pub const RESPONSE_TIME: Self = Self(Cow::Borrowed("response_time"));
    /// Goodput from source to target, in bit/s.
    pub const GOODPUT: Self = Self(Cow::Borrowed("goodput"));
    /// Goodput from target to source, in bit/s.
    pub const GOODPUT_DOWN: Self = Self(Cow::Borrowed("goodput_down"));
    /// Goodput of a file transfer over UDP, from source to target, in bit/s.
    pub const TRANSFER: Self = Self(Cow::Borrowed("transfer"));
    /// Share of one processor that a new process would get, 0 to 1.
    pub const CPU_AVAILABLE: Self = Self(Cow::Borrowed("cpu_available"));
    /// Memory that a new process could use without swapping, in bytes.
    pub const MEMORY_FREE: Self = Self(Cow::Borrowed("memory_free"));

    /// Maximum length of a quantity's name, in bytes. The names of quantities are also column names
    /// and metric labels.
    pub const BYTES_MAX: usize = 64;

    /// Creates a quantity, if `text` is a valid name of a quantity: `[a-z][a-z0-9_]*`, at most 64
    /// bytes.
    ///
    /// # Errors
    /// [`NameError`] when the text is empty, too long, or has a character that is not allowed.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > Self::BYTES_MAX {
            return Err(NameError::TooLong { bytes: text.len() });
        }
        let bad = text.chars().enumerate().find(|(i, c)| {
            let inner = *i != 0 && (c.is_ascii_digit() || *c == '_');
            !(c.is_ascii_lowercase() || inner)
        });
        match bad {
            Some((_, character)) => Err(NameError::Character { character }),
            None => Ok(Self(Cow::Owned(text.to_string()))),
        }
    }

    /// The quantity as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Unit of the values: `s`, `bit/s`, `ratio`, `bytes`, or empty for any other quantity.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self.as_str() {
            "rtt" | "rtt_tls" | "rtt_nagle" | "rtt_loaded" | "rtt_udp" | "connect" | "first_byte"
            | "response_time" => "s",
            "goodput" | "goodput_down" | "transfer" => "bit/s",
            "loss" | "cpu_available" => "ratio",
            "memory_free" => "bytes",
            _ => "",
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The outcome of one experiment: a value, or a failure with its reason. A failure is never a
/// number.
///
/// ```
/// use barograph_forecast::{Battery, BatteryConfig, Failure, Objective, Outcome};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let failed = Outcome::Failed { failure: Failure::TimedOut, after_s: 5.0 };
/// let mut battery = Battery::new(&BatteryConfig::default());
/// for outcome in [Outcome::Value(0.020), failed, Outcome::Value(0.021)] {
///     if let Outcome::Value(rtt_s) = outcome {
///         battery.update(rtt_s)?;
///     }
/// }
/// assert_eq!(battery.forecast(Objective::Squared).map(|forecast| forecast.count), Some(2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// A finite value in the quantity's unit.
    Value(f64),
    /// The experiment failed, `after_s` seconds after it began.
    ///
    /// For [`Failure::TimedOut`] the time is right-censored: the true time is longer.
    Failed {
        /// Why the experiment failed.
        failure: Failure,
        /// Seconds from the beginning of the experiment to its failure.
        after_s: f64,
    },
}

/// Why an experiment gave no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The name of the target could not be resolved.
    Unresolved,
    /// The target, or a firewall in front of the target, refused a connection that the experiment
    /// needs. The `connect` experiment never fails with `Refused`: the time until the refusal is
    /// the value of `connect`.
    Refused,
    /// There is no route to the target, or no host on the target's local network responds at the
    /// target's address.
    Unreachable,
    /// The connection was reset or closed before the experiment ended.
    Reset,
    /// The deadline passed before the experiment ended.
    TimedOut,
    /// The response of the target does not follow the protocol.
    InvalidResponse,
    /// The target responded that it declines the experiment.
    Declined,
    /// The certificate or the TLS handshake failed.
    TlsFailed,
    /// This host could not run the experiment (no descriptor, no memory, no permission).
    Local,
}

impl Failure {
    /// Every failure, in the order of their codes.
    pub const ALL: [Self; 9] = [
        Self::Unresolved,
        Self::Refused,
        Self::Unreachable,
        Self::Reset,
        Self::TimedOut,
        Self::InvalidResponse,
        Self::Declined,
        Self::TlsFailed,
        Self::Local,
    ];

    /// The failure as a lower-case word, as stored and shown. `InvalidResponse` is "garbage" and
    /// `TlsFailed` is "untrusted": earlier versions stored these words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unresolved => "unresolved",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Reset => "reset",
            Self::TimedOut => "timed_out",
            Self::InvalidResponse => "garbage",
            Self::Declined => "declined",
            Self::TlsFailed => "untrusted",
            Self::Local => "local",
        }
    }

    /// The failure for which [`Failure::as_str`] returns `word`; `None` if there is no such
    /// failure.
    ///
    /// ```
    /// use barograph_forecast::Failure;
    ///
    /// assert_eq!(Failure::from_word("timed_out"), Some(Failure::TimedOut));
    /// assert_eq!(Failure::from_word("late"), None);
    /// ```
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| failure.as_str() == word)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a text is not a [`Name`] or a [`Quantity`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The text is empty.
    Empty,
    /// The text is longer than allowed.
    TooLong {
        /// Length of the text, in bytes.
        bytes: usize,
    },
    /// The text has a character that is not allowed.
    Character {
        /// First forbidden character in the text.
        character: char,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the name is empty"),
            Self::TooLong { bytes } => {
                write!(f, "the name is too long ({bytes} bytes): at most 255 bytes, a quantity 64")
            }
            Self::Character { character } => {
                write!(f, "the name has a character that is not allowed: {character:?}")
            }
        }
    }
}

impl core::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_255_bytes_and_no_invisible_characters() {
        for good in ["a", "host:80", "[::1]:80", "https://例え.jp/ä?x=1", &"n".repeat(255)] {
            assert_eq!(Name::new(good).expect("it is a name").as_str(), good);
        }
        assert_eq!(Name::new(""), Err(NameError::Empty));
        assert_eq!(Name::new(&"n".repeat(256)), Err(NameError::TooLong { bytes: 256 }));
        for bad in [' ', '\n', '\0', '\u{7f}', '\u{202e}', '\u{200b}', '\u{feff}'] {
            let text = alloc::format!("a{bad}b");
            assert_eq!(Name::new(&text), Err(NameError::Character { character: bad }), "{bad:?}");
        }
        // Earlier versions stored names with these characters. So such names can be read, but new
        // names must not have these characters.
        for hidden in ['\u{34f}', '\u{3164}', '\u{fe0f}', '\u{fffc}', '\u{e0061}'] {
            let name = Name::new(&alloc::format!("a{hidden}b")).expect("it was a name");
            assert_eq!(name.check_visible(), Err(NameError::Character { character: hidden }), "{hidden:?}");
        }
        assert_eq!(Name::new("https://例え.jp/ä?x=1").expect("it is a name").check_visible(), Ok(()));
    }

    #[test]
    fn quantities_are_identifiers_and_standard_quantities_have_units() {
        assert_eq!(Quantity::new("query_time2").expect("it is one").unit(), "");
        for (quantity, unit) in [
            (Quantity::RTT, "s"),
            (Quantity::RTT_TLS, "s"),
            (Quantity::RTT_NAGLE, "s"),
            (Quantity::RTT_LOADED, "s"),
            (Quantity::RTT_UDP, "s"),
            (Quantity::LOSS, "ratio"),
            (Quantity::CONNECT, "s"),
            (Quantity::FIRST_BYTE, "s"),
            (Quantity::RESPONSE_TIME, "s"),
            (Quantity::GOODPUT, "bit/s"),
            (Quantity::GOODPUT_DOWN, "bit/s"),
            (Quantity::TRANSFER, "bit/s"),
            (Quantity::CPU_AVAILABLE, "ratio"),
            (Quantity::MEMORY_FREE, "bytes"),
        ] {
            assert_eq!(quantity.unit(), unit, "{quantity}");
        }
        assert_eq!(Quantity::new("rtt").expect("it is one"), Quantity::RTT);
        for bad in ["2fast", "_x", "Rtt", "rtt-nagle", "ü"] {
            assert!(matches!(Quantity::new(bad), Err(NameError::Character { .. })), "{bad}");
        }
        assert_eq!(Quantity::new(&"q".repeat(65)), Err(NameError::TooLong { bytes: 65 }));
    }

    #[test]
    fn every_failure_parses_from_its_word() {
        for failure in Failure::ALL {
            assert_eq!(Failure::from_word(failure.as_str()), Some(failure));
        }
        assert_eq!(Failure::from_word("tired"), None);
    }
}
