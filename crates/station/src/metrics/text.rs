//! The text formats of `/metrics`: OpenMetrics 1.0.0 (openmetrics.io) and the Prometheus text
//! exposition format 0.0.4, which older scrapers, browsers and `promtool` read.

use std::fmt::Write;

/// A text format for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus text exposition format, version 0.0.4.
    Prometheus,
    /// The OpenMetrics text format, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Value of the header `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that a request's `Accept` headers prefer (RFC 9110 §12.5.1). OpenMetrics must be
    /// named: a wildcard, a tie, and a header that accepts neither format all select
    /// [`Format::Prometheus`], which every scraper reads.
    pub(crate) fn preferred<'a>(accept: impl Iterator<Item = &'a str>) -> Self {
        let mut text = None;
        let mut openmetrics = None;
        for range in accept.flat_map(|header| header.split(',')).filter_map(Range::parse) {
            text = text.max(range.match_text());
            openmetrics = openmetrics.max(range.match_openmetrics());
        }
        // If qualities are equal, a named type precedes a wildcard.
        let rank = |found: Option<Match>| found.map(|found| (found.quality, found.specificity));
        let is_accepted = openmetrics.is_some_and(|found| found.quality > 0);
        if is_accepted && rank(text) < rank(openmetrics) { Self::OpenMetrics } else { Self::Prometheus }
    }
}

/// One media range of an `Accept` header.
struct Range<'a> {
    media: &'a str,
    version: Option<&'a str>,
    /// Quality in thousandths, from 0 to 1000.
    quality: u16,
}

/// How well a media range matches a format. If several ranges match, the most specific range
/// determines the quality.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Match {
    specificity: u8,
    quality: u16,
}

impl<'a> Range<'a> {
    /// Parses one item of the header. `None` if the range is empty, or the quality is not a number
    /// from 0 to 1.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().filter(|media| !media.is_empty())?;
        let mut range = Self { media, version: None, quality: 1000 };
        for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
            let value = value.trim().trim_matches('"');
            if name.trim().eq_ignore_ascii_case("q") {
                let quality: f64 = value.parse().ok().filter(|quality| (0.0..=1.0).contains(quality))?;
                range.quality = (quality * 1000.0).round() as u16;
            } else if name.trim().eq_ignore_ascii_case("version") {
                range.version = Some(value);
            }
        }
        Some(range)
    }

    fn match_text(&self) -> Option<Match> {
        let specificity = match self.media {
            "*/*" => 0,
            media if media.eq_ignore_ascii_case("text/*") => 1,
            media if media.eq_ignore_ascii_case("text/plain") && self.is_version("0.0.4") => 2,
            _ => return None,
        };
        Some(Match { specificity, quality: self.quality })
    }

    fn match_openmetrics(&self) -> Option<Match> {
        let is_named = self.media.eq_ignore_ascii_case("application/openmetrics-text");
        (is_named && self.is_version("1.0.0")).then_some(Match { specificity: 2, quality: self.quality })
    }

    fn is_version(&self, offered: &str) -> bool {
        self.version.is_none_or(|version| version == offered)
    }
}

/// The type of a metric family.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
    /// Exists only in OpenMetrics. In the Prometheus format the type is `gauge`.
    Info,
}

/// Metrics as text, family by family.
pub(super) struct Text {
    format: Format,
    text: String,
}

impl Text {
    /// An empty text with room for `capacity` bytes.
    pub(super) fn new(format: Format, capacity: usize) -> Self {
        Self { format, text: String::with_capacity(capacity) }
    }

    /// Begins a family. `family` is the name without the suffix of its samples (`_total`, `_info`,
    /// `_bucket`); the unit may be empty.
    pub(super) fn head(&mut self, family: &str, kind: Kind, unit: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = match self.format {
            Format::Prometheus => {
                // In the Prometheus format, the family name of a counter or an info includes the
                // suffix of its samples.
                let (suffix, kind) = match kind {
                    Kind::Counter => ("_total", "counter"),
                    Kind::Info => ("_info", "gauge"),
                    Kind::Gauge => ("", "gauge"),
                    Kind::Histogram => ("", "histogram"),
                };
                writeln!(self.text, "# HELP {family}{suffix} {help}\n# TYPE {family}{suffix} {kind}")
            }
            Format::OpenMetrics => {
                let kind = match kind {
                    Kind::Counter => "counter",
                    Kind::Info => "info",
                    Kind::Gauge => "gauge",
                    Kind::Histogram => "histogram",
                };
                let unit = if unit.is_empty() { String::new() } else { format!("# UNIT {family} {unit}\n") };
                writeln!(self.text, "# TYPE {family} {kind}\n{unit}# HELP {family} {help}")
            }
        };
    }

    /// Writes one sample. `labels` is empty, or a list in braces.
    pub(super) fn sample(&mut self, name: &str, labels: &str, value: f64) {
        // Rust prints the shortest decimal that reads back as the same number.
        let _ = writeln!(self.text, "{name}{labels} {value:?}");
    }

    /// Writes a counter family with one sample for each item of `labelled`.
    pub(super) fn counter(&mut self, family: &str, unit: &str, help: &str, labelled: &[(String, f64)]) {
        self.head(family, Kind::Counter, unit, help);
        for (labels, value) in labelled {
            self.sample(&format!("{family}_total"), labels, *value);
        }
    }

    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_sent_only_if_the_scraper_prefers_openmetrics() {
        let prometheus = [
            "",
            "*/*",
            "text/plain",
            "text/plain; version=0.0.4",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "application/json",
            "application/*",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=0,*/*",
            "application/openmetrics-text;q=0.4,text/plain;q=0.5",
            "application/openmetrics-text;q=0.4,*/*",
            "application/openmetrics-text;q=0.4,TEXT/*;q=0.5",
            "application/openmetrics-text,text/plain",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;q=high",
            "application/openmetrics-text;q=2",
            "application/openmetrics-text;q=NaN",
            ";,;q=1,",
        ];
        for accept in prometheus {
            assert_eq!(Format::preferred([accept].into_iter()), Format::Prometheus, "{accept}");
        }
        let openmetrics = [
            "application/openmetrics-text",
            "Application/OpenMetrics-Text ; Version=\"1.0.0\" ; Q=0.3",
            "application/openmetrics-text,*/*",
            "text/plain;q=0.5,application/openmetrics-text;q=0.501",
            "text/*;q=0.9,application/openmetrics-text",
            "application/openmetrics-text;q=0.5,text/plain;q=0.1,*/*",
            // An `Accept` header as Prometheus 2 and 3 send it.
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
             text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
        ];
        for accept in openmetrics {
            assert_eq!(Format::preferred([accept].into_iter()), Format::OpenMetrics, "{accept}");
        }
        assert_eq!(Format::preferred(std::iter::empty()), Format::Prometheus);
        let lines = ["text/plain;q=0.5", "application/openmetrics-text;q=0.6"];
        assert_eq!(
            Format::preferred(lines.into_iter()),
            Format::OpenMetrics,
            "a header may come in several lines"
        );
    }
}
