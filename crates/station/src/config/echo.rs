//! The `[echo]` table: what pages in browsers may cost a station.

use super::value::Value;

/// Settings of the probes over WebSocket (docs/spec/echo.md).
#[derive(Clone, Debug, PartialEq)]
pub struct EchoConfig {
    /// Whether pages may measure this station.
    pub enabled: bool,
    /// Origins of other sites whose pages may measure and read this station; `*` = any.
    pub origins: Vec<String>,
    /// Most sessions at once.
    pub sessions_max: usize,
    /// Most transfers at once.
    pub transfers_max: usize,
    /// Bytes an hour, of all callers from elsewhere together.
    pub bytes_per_hour: u64,
    /// Bytes an hour of one address.
    pub peer_bytes_per_hour: u64,
    /// Whether what pages report is kept.
    pub keep: bool,
    /// Most names of pages in use at once whose reports are kept.
    pub keep_sources_max: usize,
    /// Most reports kept an hour.
    pub keep_reports_per_hour: u64,
}

impl Default for EchoConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            origins: Vec::new(),
            sessions_max: 256,
            transfers_max: 16,
            bytes_per_hour: 10 << 30,
            peer_bytes_per_hour: 1 << 30,
            keep: false,
            keep_sources_max: 64,
            keep_reports_per_hour: 36_000,
        }
    }
}

impl EchoConfig {
    /// Sets a key of the table; `None` = there is no such key.
    pub(super) fn assign(&mut self, key: &str, value: &Value) -> Option<Result<(), String>> {
        Some(match key {
            "enabled" => value.flag().map(|v| self.enabled = v),
            "origins" => value.words().and_then(origins).map(|v| self.origins = v),
            "sessions_max" => value.integer(1, 65_536).map(|v| self.sessions_max = v as usize),
            "transfers_max" => value.integer(1, 1024).map(|v| self.transfers_max = v as usize),
            "bytes_per_hour" => value.integer(1 << 20, 1 << 50).map(|v| self.bytes_per_hour = v),
            "peer_bytes_per_hour" => value.integer(1 << 20, 1 << 50).map(|v| self.peer_bytes_per_hour = v),
            "keep" => value.flag().map(|v| self.keep = v),
            "keep_sources_max" => value.integer(1, 65_536).map(|v| self.keep_sources_max = v as usize),
            // An eighth of a quarter is one: what an address may report at once.
            "keep_reports_per_hour" => value.integer(32, 1 << 30).map(|v| self.keep_reports_per_hour = v),
            _ => return None,
        })
    }

    /// Whether `new` differs in what is read only at the start.
    pub(super) fn needs_restart(&self, new: &Self) -> bool {
        // These are read at every request.
        let fixed = |of: &Self| Self { enabled: true, origins: Vec::new(), keep: false, ..of.clone() };
        fixed(self) != fixed(new)
    }
}

/// Origins as browsers write them: a scheme, a host in small letters, a port unless it is the scheme's own
/// (RFC 6454 §6.2). Any other spelling would never match.
fn origins(words: Vec<String>) -> Result<Vec<String>, String> {
    let is_origin = |word: &str| {
        let host = word.strip_prefix("https://").or_else(|| word.strip_prefix("http://"));
        host.is_some_and(|host| {
            !host.is_empty()
                && host.bytes().all(|byte| {
                    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:[]_".contains(&byte)
                })
        })
    };
    match words.iter().find(|word| *word != "*" && !is_origin(word)) {
        None => Ok(words),
        Some(word) => Err(format!(
            "expected origins such as https://a.example, or *, found `{}`",
            super::value::short(word)
        )),
    }
}
