//! Reads files and pipes of windows line by line, gzipped or not.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use barograph_study::input::io_message;
use flate2::bufread::MultiGzDecoder;

use super::BUFFER_BYTES;
use crate::problem::{Problem, shown};

/// An open file or pipe of windows.
pub(super) struct Source {
    /// Name of the source in messages.
    pub(super) name: String,
    /// Whether the source is a pipe or device, not a file, so that a reader may wait for each row.
    pub(super) is_live: bool,
    input: Box<dyn BufRead>,
}

impl Source {
    /// Opens a file, or standard input for `-`.
    pub(super) fn open(path: &Path) -> Result<Self, Problem> {
        if path == Path::new("-") {
            return Ok(Self {
                name: "standard input".to_owned(),
                is_live: true,
                input: Box::new(io::stdin().lock()),
            });
        }
        let name = shown(path);
        let unopened = |error| Problem::unopened(&name, &error);
        let kind = fs::metadata(path).map_err(unopened)?.file_type();
        if kind.is_dir() {
            return Err(unopened(io::ErrorKind::IsADirectory.into()));
        }
        let file = File::open(path).map_err(unopened)?;
        let input = Box::new(BufReader::with_capacity(BUFFER_BYTES, file));
        Ok(Self { name, is_live: !kind.is_file(), input })
    }
}

/// The lines of a source, read into one buffer.
pub(super) struct Lines {
    name: String,
    input: Box<dyn BufRead>,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    /// Waits for the first byte of the source. The source is gzipped if this byte is [`GZIP`] (RFC
    /// 1952 §2.3.1), because no text begins with [`GZIP`].
    pub(super) fn new(source: Source) -> Result<Self, Problem> {
        let Source { name, mut input, .. } = source;
        let first = loop {
            match input.fill_buf() {
                Ok(bytes) => break bytes.first().copied(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unread(&name, &error)),
            }
        };
        if first == Some(GZIP) {
            input = Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(input)));
        }
        Ok(Self { name, input, line: Vec::new(), number: 0 })
    }

    /// Returns the next line with its number, from 1.
    pub(super) fn next_line(&mut self) -> Result<Option<(u64, &str)>, Problem> {
        self.line.clear();
        self.number += 1;
        let read = self.input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut self.line);
        if let Err(error) = read {
            return Err(match error.kind() {
                // The decoder returns these errors if the bytes are not gzip, or if they end early.
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                    Problem::Input(format!(
                        "{}: is not a gzip file, or is cut off: {}",
                        self.name,
                        io_message(&error)
                    ))
                }
                _ => unread(&self.name, &error),
            });
        }
        if self.line.is_empty() {
            return Ok(None);
        }
        if self.line.len() as u64 > LINE_BYTES_MAX {
            return Err(self.wrong(format_args!("at most {LINE_BYTES_MAX} bytes a line")));
        }
        match str::from_utf8(&self.line) {
            Ok(text) if self.number == 1 => Ok(Some((1, text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)))),
            Ok(text) => Ok(Some((self.number, text))),
            Err(_) => Err(self.wrong("UTF-8 text")),
        }
    }

    fn wrong(&self, expected: impl Display) -> Problem {
        Problem::Input(format!("{}: line {}: expected {expected}", self.name, self.number))
    }
}

fn unread(name: &str, error: &io::Error) -> Problem {
    Problem::Failed(format!("{name}: cannot be read: {}", io_message(error)))
}

/// Byte order mark, which some editors write at the beginning of a text (RFC 3629 §6). The mark is
/// skipped only at the beginning.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// First byte of a gzip file (RFC 1952 §2.3.1).
const GZIP: u8 = 0x1f;
/// Maximum number of bytes in a line. The largest window, 2^24 packets, takes 2^25 bytes as the run
/// lengths `1,1,1,…`. Twice that size leaves room for spaces and evidence.
const LINE_BYTES_MAX: u64 = 1 << 26;
