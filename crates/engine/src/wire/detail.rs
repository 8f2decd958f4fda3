//! Check of the details of records from other stations.

use serde_json::Value;

/// Deepest nesting of a detail. Stations write two levels. Parsers accept at most some hundred
/// levels; beyond that, Python's parser raises an exception for the whole response.
pub const DETAIL_DEPTH_MAX: usize = 16;

/// Returns whether a record's detail is sound: empty, or a JSON object (RFC 8259 §4). The object is
/// nested at most [`DETAIL_DEPTH_MAX`] levels deep. Each number fits a double, and each string is
/// Unicode.
#[must_use]
pub fn is_sound_detail(detail: &str) -> bool {
    if detail.is_empty() {
        return true;
    }
    let is_object = detail.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{');
    // The depth is checked first, because it limits the work of the parser. A parser that skips
    // values accepts `1e999` and `"\ud800"`, which strict parsers refuse.
    is_object && depth(detail) <= DETAIL_DEPTH_MAX && serde_json::from_str::<Value>(detail).is_ok()
}

/// Greatest depth of nesting of a JSON text. The result has no meaning for a text that is not JSON.
fn depth(text: &str) -> usize {
    let (mut open, mut most, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                open += 1;
                most = most.max(open);
            }
            b'}' | b']' if !in_string => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}
