//! Reading of one line of text: the packets of a window and the evidence (docs/spec/classify.md
//! §1).

use thiserror::Error;

use crate::{Evidence, Label, Signature, SignatureError};

/// Fields of a line beside the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowLine<'a> {
    /// Evidence on the window.
    pub evidence: Evidence,
    /// Cause of the losses; only a labelled line has it.
    pub cause: Option<Label>,
    /// Kind of experiment that caused the losses; only a labelled line has it.
    pub kind: Option<&'a str>,
    /// Name of the run that the window was cut from; only a labelled line has it.
    pub run: Option<&'a str>,
}

/// Reads one line, and replaces the contents of `signature` with the packets of the line. Does not
/// allocate. With `window`, the line has run lengths of a window of that many packets; without
/// `window`, the line has one bit for each packet. Returns `None` for a line that is empty or a
/// comment. A caller that reads a file removes the byte-order mark at its beginning.
///
/// ```
/// use barograph_loss::{Signature, read_line};
///
/// let mut signature = Signature::new();
/// let line =
///     read_line("4,2,3,1\tburst=2\tdelay_us=350", Some(20), &mut signature).unwrap().unwrap();
/// assert_eq!((signature.packets(), signature.lost(), line.evidence.burst), (20, 3, Some(2)));
/// assert!(read_line("# a comment", None, &mut signature).unwrap().is_none());
/// ```
///
/// # Errors
/// If a packet is neither 0 nor 1, runs do not fit the window, the window is empty or too long, or
/// a key or value is not valid.
pub fn read_line<'a>(
    text: &'a str,
    window: Option<u32>,
    signature: &mut Signature,
) -> Result<Option<WindowLine<'a>>, LineError> {
    let trimmed = text.trim();
    if trimmed.is_empty() || trimmed.starts_with('#') {
        return Ok(None);
    }
    let mut fields = trimmed.split('\t').map(str::trim);
    let fates = fields.next().unwrap_or_default();
    match window {
        Some(window) => read_runs(text, fates, window, signature)?,
        None => read_bits(text, fates, signature)?,
    }
    let mut line = WindowLine::default();
    for field in fields.filter(|field| !field.is_empty()) {
        line.read(field)?;
    }
    Ok(Some(line))
}

/// Reason why a line is not a window.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages state what happened")]
pub enum LineError {
    #[error("a window has 1 to {max} packets, found {0}", max = Signature::PACKETS_MAX)]
    Window(u32),
    /// A character that is neither 0 nor 1.
    #[error("column {column}: expected 1 (received) or 0 (lost), found {found:?}{hint}")]
    InvalidPacket {
        /// Column in characters, from 1.
        column: usize,
        found: char,
        hint: &'static str,
    },
    /// A run length that is not a number.
    #[error(
        "column {column}: expected a run length from 0 to {max}, found {found:?}",
        max = Signature::PACKETS_MAX
    )]
    InvalidRun {
        /// Column in characters, from 1.
        column: usize,
        /// First characters of the invalid run length.
        found: String,
    },
    /// Runs that do not fit the window, or a window that is too long.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    #[error(
        "found {0:?} after a tab, expected burst=B, delay_us=D, host_drops=H, marks=M, or a label cause=C, kind=K, run=R"
    )]
    UnknownKey(String),
    #[error("{0} is given twice")]
    Repeated(&'static str),
    /// A value that is not valid for its key.
    #[error("{key} is {found:?}, expected {expected}")]
    Value {
        key: &'static str,
        /// First characters of the invalid value.
        found: String,
        expected: &'static str,
    },
}

fn read_bits(text: &str, fates: &str, signature: &mut Signature) -> Result<(), LineError> {
    signature.fill_bits(fates).map_err(|error| match error {
        SignatureError::InvalidPacket(found) => {
            let at = fates.find(found).unwrap_or_default();
            let hint = if found == ',' || found.is_ascii_digit() {
                "; for run lengths, give the length of the windows"
            } else {
                ""
            };
            LineError::InvalidPacket { column: column(text, &fates[at..]), found, hint }
        }
        error => error.into(),
    })
}

fn read_runs(text: &str, fates: &str, window: u32, signature: &mut Signature) -> Result<(), LineError> {
    if window == 0 || window > Signature::PACKETS_MAX {
        return Err(LineError::Window(window));
    }
    let mut wrong = None;
    let runs = fates.split(',').map(str::trim).map_while(|field| {
        let run = whole(field).filter(|run| *run <= Signature::PACKETS_MAX);
        wrong = if run.is_none() { Some(field) } else { None };
        run
    });
    signature.fill_runs(window, runs)?;
    match wrong {
        Some(field) => Err(LineError::InvalidRun { column: column(text, field), found: excerpt(field) }),
        None => Ok(()),
    }
}

impl<'a> WindowLine<'a> {
    fn read(&mut self, field: &'a str) -> Result<(), LineError> {
        let unknown = || LineError::UnknownKey(excerpt(field));
        let (key, value) = field.split_once('=').ok_or_else(unknown)?;
        let (key, value) = (key.trim_end(), value.trim_start());
        match key {
            "burst" => set(&mut self.evidence.burst, "burst", value, PACKETS, |value| {
                whole(value).filter(|burst| (1..=Signature::PACKETS_MAX).contains(burst))
            }),
            "delay_us" => set(&mut self.evidence.delay_s, "delay_us", value, DELAY, delay_s),
            "host_drops" => set(&mut self.evidence.host_drops, "host_drops", value, COUNT, whole),
            "marks" => set(&mut self.evidence.marks, "marks", value, COUNT, whole),
            "cause" => set(&mut self.cause, "cause", value, "cpu, network or both", cause),
            "kind" => set(&mut self.kind, "kind", value, "a word", name),
            "run" => set(&mut self.run, "run", value, "a word", name),
            _ => Err(unknown()),
        }
    }
}

/// Sets a value that was not set before.
fn set<'a, T>(
    slot: &mut Option<T>,
    key: &'static str,
    text: &'a str,
    expected: &'static str,
    parse: impl Fn(&'a str) -> Option<T>,
) -> Result<(), LineError> {
    if slot.is_some() {
        return Err(LineError::Repeated(key));
    }
    let value = parse(text).ok_or_else(|| LineError::Value { key, found: excerpt(text), expected })?;
    *slot = Some(value);
    Ok(())
}

/// Parses a whole number, digits only.
pub(crate) fn whole(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Converts microseconds to seconds. A negative value is rejected, because the program that wrote
/// it did not subtract the path's minimum. In live measurements ([`Evidence::delay_s`]), a negative
/// value counts as 0.
pub(crate) fn delay_s(text: &str) -> Option<f64> {
    let delay_us: f64 = text.parse().ok()?;
    (0.0..=DELAY_US_MAX).contains(&delay_us).then_some(delay_us / 1e6)
}

/// Parses a label of lines and tables.
pub(crate) fn cause(text: &str) -> Option<Label> {
    match text {
        "cpu" => Some(Label::Host),
        "network" | "net" => Some(Label::Network),
        "both" | "hyb" => Some(Label::Both),
        _ => None,
    }
}

fn name(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// Column at which `part` of `text` begins, in characters from 1.
fn column(text: &str, part: &str) -> usize {
    let at = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    text.char_indices().take_while(|(index, _)| *index < at).count() + 1
}

/// Returns the first characters of `text`, for a message.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Maximum number of characters of an excerpt: enough to find the excerpt in the line.
const EXCERPT_CHARACTERS: usize = 40;
/// Largest valid delay, a thousand seconds in µs: longer than the delay of any queue.
pub(crate) const DELAY_US_MAX: f64 = 1e9;
pub(crate) const DELAY: &str = "microseconds above the path's minimum, from 0 to 1e9";
pub(crate) const PACKETS: &str = "a whole number of packets from 1 to 16777216";
const COUNT: &str = "a whole number of packets from 0 to 4294967295";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str, window: Option<u32>) -> Result<(Signature, WindowLine<'_>), String> {
        let mut signature = Signature::new();
        let line = read_line(text, window, &mut signature).map_err(|error| error.to_string())?;
        Ok((signature, line.unwrap_or_default()))
    }

    #[test]
    fn evidence_and_labels_of_a_line_are_parsed() {
        let (signature, line) =
            read(" 3, 1 ,2,1\tburst=16\tdelay_us=1500.5\thost_drops=2\tmarks=0\t\r\n", Some(9)).unwrap();
        assert_eq!(signature, Signature::from_bits("111011011").unwrap_or_default());
        let evidence =
            Evidence { burst: Some(16), delay_s: Some(0.0015005), host_drops: Some(2), marks: Some(0) };
        assert_eq!(line, WindowLine { evidence, ..WindowLine::default() });
        let (signature, line) = read("111011011\tcause=both\tkind=hyb-tcp\trun=r7", None).unwrap();
        assert_eq!(signature.lost(), 2);
        assert_eq!((line.cause, line.kind, line.run), (Some(Label::Both), Some("hyb-tcp"), Some("r7")));
        assert_eq!(read("0", Some(5)).unwrap().0.lost(), 0);
        // More drops than losses are valid as text; the classifier does not believe them.
        assert_eq!(read("10\thost_drops=4294967295", None).unwrap().1.evidence.host_drops, Some(u32::MAX));
    }

    #[test]
    fn parse_errors_name_the_column_and_the_cause() {
        for (text, window, message) in [
            ("11x1", None, "column 3: expected 1 (received) or 0 (lost), found 'x'"),
            ("  1,2", None, "column 4: expected 1 (received) or 0 (lost), found ','; for run lengths, give"),
            ("1 1", None, "column 2"),
            ("3,-1", Some(9), "column 3: expected a run length from 0 to 16777216, found \"-1\""),
            ("3,,1", Some(9), "column 3: "),
            ("3,1,", Some(9), "found \"\""),
            ("+3", Some(9), "found \"+3\""),
            ("3,NaN", Some(9), "found \"NaN\""),
            ("99999999999", Some(9), "found \"99999999999\""),
            ("3,7", Some(9), "the runs have at least 10 packets, more than the window of 9"),
            ("3", Some(0), "a window has 1 to 16777216 packets, found 0"),
            ("3", Some(u32::MAX), "found 4294967295"),
            ("1\tburst=0", None, "burst is \"0\", expected a whole number of packets from 1"),
            (
                "1\tdelay_us=-1",
                None,
                "delay_us is \"-1\", expected microseconds above the path's minimum, from 0 to 1e9",
            ),
            ("1\tdelay_us=NaN", None, "delay_us is \"NaN\""),
            ("1\tdelay_us=inf", None, "delay_us is \"inf\""),
            ("1\thost_drops=-2", None, "host_drops is \"-2\""),
            ("1\thost_drops=1.5", None, "host_drops is \"1.5\""),
            ("1\thost_drops=", None, "host_drops is \"\""),
            ("1\tburst=2\tburst=2", None, "burst is given twice"),
            ("1\tspeed=2", None, "found \"speed=2\" after a tab, expected burst=B"),
            ("1\tjunk", None, "found \"junk\""),
            ("1\tcause=me", None, "cause is \"me\", expected cpu, network or both"),
            ("1 burst=2", None, "column 2"),
            ("\u{feff}1", None, "column 1"),
            ("\u{feff}3,1", Some(9), "column 1"),
        ] {
            let error = read(text, window).unwrap_err();
            assert!(error.contains(message), "{text:?}: {error:?} lacks {message:?}");
        }
        assert!(read(&"\u{1}".repeat(99), Some(9)).unwrap_err().len() < 400);
    }
}
