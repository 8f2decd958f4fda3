//! Which details of records are taken from others.

use serde_json::Value;

/// How deep a detail may be nested. Those that stations write are two deep; parsers give up at some
/// hundred levels, Python's by an exception in whatever reads a whole answer.
pub const DETAIL_DEPTH_MAX: usize = 16;

/// Whether a record's detail is empty, or a JSON object (RFC 8259 §4) nested at most
/// [`DETAIL_DEPTH_MAX`] deep, of numbers that a double holds and of strings that are Unicode.
#[must_use]
pub fn is_sound_detail(detail: &str) -> bool {
    if detail.is_empty() {
        return true;
    }
    let is_object = detail.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{');
    // The depth goes first: it bounds what the parser has to do. A parser that skips values takes
    // `1e999` and `"\ud800"`, at which strict ones give up.
    is_object && depth(detail) <= DETAIL_DEPTH_MAX && serde_json::from_str::<Value>(detail).is_ok()
}

/// The most brackets and braces of a JSON text that are open at once; of any other text, some number.
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
