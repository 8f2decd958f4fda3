//! Tables of labelled windows, as written by `lab signatures` (docs/spec/classify.md §4).

use thiserror::Error;

use crate::line::{DELAY, DELAY_US_MAX, PACKETS, cause, delay_s, excerpt, whole};
use crate::{Evidence, Label, LabelledWindow, LineError, Meter, Signature, read_line};

/// Positions of the columns of a table, by the names in its header.
///
/// ```
/// use barograph_loss::{Label, Meter, TableReader};
///
/// let table = TableReader::from_header("# label\tburst\trle").unwrap().unwrap();
/// let window = table.read("cpu\t16\t3,1,4,3", 20, &mut Meter::new()).unwrap().unwrap();
/// assert_eq!((window.cause, window.metrics.lost), (Label::Host, 4));
/// assert_eq!(window.evidence.burst, Some(16));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableReader {
    label: usize,
    runs: usize,
    run: Option<usize>,
    kind: Option<usize>,
    burst: Option<usize>,
    delay_us: Option<usize>,
    lost: Option<usize>,
    cpu_fraction: Option<usize>,
}

impl TableReader {
    /// Reads a header; `None` if the line does not begin with `# label`.
    ///
    /// # Errors
    /// If the header has no column of run lengths.
    pub fn from_header(line: &str) -> Result<Option<Self>, TableError> {
        let header = line.trim_end_matches(['\r', '\n']);
        let Some(header) = header.strip_prefix('#').map(str::trim_start) else { return Ok(None) };
        let names = || header.split('\t').map(str::trim);
        if names().next() != Some("label") {
            return Ok(None);
        }
        let at = |wanted: &[&str]| names().position(|name| wanted.contains(&name));
        Ok(Some(Self {
            label: 0,
            runs: names().position(|name| name.starts_with("rle")).ok_or(TableError::Missing("rle"))?,
            run: at(&["run"]),
            kind: at(&["kind"]),
            burst: at(&["burst", "batch"]),
            delay_us: at(&["delay_us", "owd_before_loss_us"]),
            lost: at(&["lost"]),
            cpu_fraction: at(&["cpu_fraction"]),
        }))
    }

    /// Reads a row; `None` if the line is empty or a comment.
    ///
    /// Label `net` is [`Label::Network`](crate::Label::Network), `cpu` is
    /// [`Label::Host`](crate::Label::Host), and `hyb` is [`Label::Both`](crate::Label::Both). The
    /// drop counter is `cpu_fraction` times the number of lost packets.
    ///
    /// # Errors
    /// If the row has too few columns, runs that do not fit the window or do not add up to `lost`,
    /// or a value that is not valid for its column.
    pub fn read(
        &self,
        line: &str,
        window: u32,
        meter: &mut Meter,
    ) -> Result<Option<LabelledWindow>, TableError> {
        let line = line.trim_end_matches(['\r', '\n']);
        if line.trim().is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let field =
            |name, at: usize| line.split('\t').nth(at).map(str::trim).ok_or(TableError::Missing(name));
        let optional = |name, at: Option<usize>| at.map(|at| field(name, at)).transpose();
        let wrong = |name, text: &str, expected| TableError::Value { name, found: excerpt(text), expected };

        let label = field("label", self.label)?;
        let cause = cause(label).ok_or_else(|| wrong("label", label, "net, cpu or hyb"))?;
        let mut signature = Signature::new();
        read_line(field("rle", self.runs)?, Some(window), &mut signature)?;
        if signature.packets() == 0 {
            return Err(wrong("rle", "", "run lengths"));
        }
        if let Some(text) = optional("lost", self.lost)?
            && whole(text) != Some(signature.lost())
        {
            let (found, runs) = (excerpt(text), signature.lost());
            return Err(TableError::Lost { found, runs });
        }
        let burst = match optional("burst", self.burst)? {
            Some(text) => {
                Some(whole(text).filter(|burst| *burst > 0).ok_or_else(|| wrong("burst", text, PACKETS))?)
            }
            None => None,
        };
        let delay_s = match optional("delay_us", self.delay_us)? {
            Some(text) => Some(delay_s(text).ok_or_else(|| wrong("delay_us", text, DELAY))?),
            None => None,
        };
        let host_drops = match optional("cpu_fraction", self.cpu_fraction)? {
            Some(text) => {
                let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                let share: f64 = share.ok_or_else(|| wrong("cpu_fraction", text, "a share from 0 to 1"))?;
                // Shares in tables have four decimals, so the number of drops is exact for up to 10
                // 000 lost packets.
                Some((f64::from(signature.lost()) * share).round() as u32)
            }
            None => None,
        };
        Ok(Some(LabelledWindow {
            metrics: meter.measure(&signature),
            evidence: Evidence { burst, delay_s, host_drops, marks: None },
            cause,
            kind: optional("kind", self.kind)?.unwrap_or_default().to_owned(),
            run: optional("run", self.run)?.unwrap_or_default().to_owned(),
            signature,
        }))
    }
}

/// Length of the windows that a comment `# window N` states.
///
/// ```
/// use barograph_loss::parse_window_comment;
///
/// assert_eq!(parse_window_comment("# window 20000"), Some(20_000));
/// assert_eq!(parse_window_comment("# a different comment"), None);
/// ```
pub fn parse_window_comment(line: &str) -> Option<u32> {
    let words = line.trim().strip_prefix('#')?.trim_start();
    let number = words.strip_prefix("window")?;
    number.starts_with([' ', '\t']).then(|| whole(number.trim())).flatten()
}

/// Reads a labelled line (docs/spec/classify.md §4); `None` if the line is empty or a comment.
///
/// ```
/// use barograph_loss::{Label, Meter, read_labelled};
///
/// let line = "4,2,3,1\tcause=cpu\trun=r1";
/// let window = read_labelled(line, Some(20), &mut Meter::new()).unwrap().unwrap();
/// assert_eq!((window.cause, window.metrics.lost), (Label::Host, 3));
/// assert_eq!(window.run, "r1");
/// ```
///
/// # Errors
/// As [`read_line`], and if the line has no `cause=`.
pub fn read_labelled(
    line: &str,
    window: Option<u32>,
    meter: &mut Meter,
) -> Result<Option<LabelledWindow>, TableError> {
    let mut signature = Signature::new();
    let Some(line) = read_line(line, window, &mut signature)? else { return Ok(None) };
    Ok(Some(LabelledWindow {
        metrics: meter.measure(&signature),
        evidence: line.evidence,
        cause: line.cause.ok_or(TableError::Missing("cause"))?,
        kind: line.kind.unwrap_or_default().to_owned(),
        run: line.run.unwrap_or_default().to_owned(),
        signature,
    }))
}

/// Writes a labelled window as a line of run lengths, without a line end.
///
/// [`read_labelled`] reads the line back if the length of the window is given. The delay is rounded
/// to 0.1 µs. In the names of kind and run, control characters become spaces.
///
/// ```
/// use barograph_loss::{Meter, read_labelled, write_labelled};
///
/// let line = "4,2,3,1\tburst=2\tdelay_us=350.0\thost_drops=3\tcause=cpu\tkind=gen\trun=r1";
/// let window = read_labelled(line, Some(20), &mut Meter::new()).unwrap().unwrap();
/// assert_eq!(write_labelled(&window), line);
/// ```
pub fn write_labelled(window: &LabelledWindow) -> String {
    let LabelledWindow { signature, evidence, cause, kind, run, .. } = window;
    let runs = signature.loss_runs().map(|gap| format!("{},{}", gap.received, gap.lost));
    let mut line = runs.collect::<Vec<_>>().join(",");
    if line.is_empty() {
        // A window without losses: no packet was received before no loss.
        line.push('0');
    }
    let mut field = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            line += &format!("\t{key}={value}");
        }
    };
    let count = |count: Option<u32>| count.map(|count| count.to_string());
    let delay_s = evidence.delay_s.filter(|delay| delay.is_finite());
    let name = |name: &str| {
        let name = name.replace(char::is_control, " ").trim().to_owned();
        Some(name).filter(|name| !name.is_empty())
    };
    field("burst", count(evidence.burst.map(|burst| burst.clamp(1, Signature::PACKETS_MAX))));
    field("delay_us", delay_s.map(|delay| format!("{:.1}", (delay * 1e6).clamp(0.0, DELAY_US_MAX))));
    field("host_drops", count(evidence.host_drops));
    field("marks", count(evidence.marks));
    field("cause", Some(label_word(*cause).to_owned()));
    field("kind", name(kind));
    field("run", name(run));
    line
}

/// Word of a label in lines.
fn label_word(label: Label) -> &'static str {
    match label {
        Label::Host => "cpu",
        Label::Network => "network",
        Label::Both => "both",
    }
}

/// Reason why a line is not a labelled window.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages state what happened")]
pub enum TableError {
    /// A column or key is missing.
    #[error("column or key {0} is missing")]
    Missing(&'static str),
    /// The losses of the runs do not add up to the column `lost`. The row may be truncated.
    #[error(
        "column lost is {found:?}, but the run lengths have {runs} lost packets; the row may be truncated"
    )]
    Lost {
        /// First characters of the value in column `lost`.
        found: String,
        runs: u32,
    },
    /// A value that is not valid for its column.
    #[error("{name} is {found:?}, expected {expected}")]
    Value {
        name: &'static str,
        /// First characters of the invalid value.
        found: String,
        expected: &'static str,
    },
    /// An error in the packets or the evidence.
    #[error(transparent)]
    Line(#[from] LineError),
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const HEADER: &str = "# label\trun\twindow\tkind\tbatch\tlost\towd_before_loss_us\tcpu_fraction\trle(ok,lost,ok,lost,...)\n";

    #[test]
    fn columns_of_a_row_are_found_by_name() {
        let mut meter = Meter::new();
        let table = TableReader::from_header(HEADER).unwrap().unwrap();
        let row = "hyb\tr0004\t1\thyb-poisson\t32\t4\t1181\t0.5\t3,1,4,3\r\n";
        let window = table.read(row, 20, &mut meter).unwrap().unwrap();
        assert_eq!(window.signature, Signature::from_runs(20, [3, 1, 4, 3]).unwrap());
        assert_eq!((window.cause, window.metrics.lost), (Label::Both, 4));
        assert_eq!((window.kind.as_str(), window.run.as_str()), ("hyb-poisson", "r0004"));
        let evidence =
            Evidence { burst: Some(32), delay_s: Some(0.001181), host_drops: Some(2), marks: None };
        assert_eq!(window.evidence, evidence);
        let small = TableReader::from_header("# label\trle\n").unwrap().unwrap();
        let window = small.read("net\t3,1", 20, &mut meter).unwrap().unwrap();
        assert_eq!((window.cause, window.evidence), (Label::Network, Evidence::default()));
    }

    #[test]
    fn truncated_or_invalid_rows_are_rejected() {
        let mut meter = Meter::new();
        let table = TableReader::from_header(HEADER).unwrap().unwrap();
        for (row, message) in [
            ("net\tr1\t0", "column or key rle is missing"),
            ("net\tr1\t0\ttcp\t1\t4\t0\t0\t3,1", "lost is \"4\", but the run lengths have 1 lost packets"),
            ("tcp\tr1\t0\ttcp\t1\t1\t0\t0\t3,1", "label is \"tcp\", expected net, cpu or hyb"),
            ("net\tr1\t0\ttcp\t0\t1\t0\t0\t3,1", "burst is \"0\""),
            ("net\tr1\t0\ttcp\t1\t1\t-3\t0\t3,1", "delay_us is \"-3\""),
            ("net\tr1\t0\ttcp\t1\t1\t0\tNaN\t3,1", "cpu_fraction is \"NaN\""),
            ("net\tr1\t0\ttcp\t1\t1\t0\t1.5\t3,1", "cpu_fraction is \"1.5\""),
            ("net\tr1\t0\ttcp\t1\t1\t0\t0\t3,99", "more than the window of 20"),
            ("net\tr1\t0\ttcp\t1\t0\t0\t0\t", "rle is \"\", expected run lengths"),
        ] {
            let error = table.read(row, 20, &mut meter).unwrap_err().to_string();
            assert!(error.contains(message), "{row:?}: {error:?} lacks {message:?}");
        }
        assert_eq!(TableReader::from_header("# label\trun\n"), Err(TableError::Missing("rle")));
        assert_eq!(TableReader::from_header("# labels of my own\n"), Ok(None));
        assert_eq!(table.read("# a comment", 20, &mut meter).unwrap().map(|window| window.run), None);
        let unlabelled = read_labelled("1,2\tburst=1", Some(9), &mut meter).unwrap_err();
        assert_eq!(unlabelled, TableError::Missing("cause"));
    }

    #[test]
    fn a_written_window_is_one_line_that_is_read_back() {
        let mut meter = Meter::new();
        let read = |line: &str, meter: &mut Meter| read_labelled(line, Some(40), meter).unwrap().unwrap();
        for line in ["0\tcause=network", "0,1,5,30\tmarks=2\tcause=both", "40\tcause=cpu\trun=a"] {
            let window = read(line, &mut meter);
            let again = read(&write_labelled(&window), &mut meter);
            assert_eq!((&again.signature, again.evidence), (&window.signature, window.evidence), "{line}");
            assert_eq!((again.cause, again.run), (window.cause, window.run), "{line}");
        }
        let mut window = read("3,1\tcause=cpu", &mut meter);
        (window.kind, window.run) = ("\t\n".to_owned(), "a\tcause=network\nb".to_owned());
        assert_eq!(write_labelled(&window), "3,1\tcause=cpu\trun=a cause=network b");
    }

    #[test]
    fn a_comment_can_state_the_window_of_a_file() {
        let states = ["# window 20000\n", "#window 20000", "# windows 20000", "# window -1", "window 20000"];
        assert_eq!(states.map(parse_window_comment), [Some(20_000), Some(20_000), None, None, None]);
    }
}
