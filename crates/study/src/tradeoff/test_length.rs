//! The length of a test, from a file's name.

use crate::units::positive;

/// The length of a test in seconds, from a file's name: its first part that is a number followed by
/// `s`, such as `10s` in `goodput_10s.csv`. The parts are separated by `_`, `-`, blanks and points.
/// A point between digits is part of a number, as in `goodput_1.5s.csv`.
#[must_use]
pub fn test_length_from_name_s(name: &str) -> Option<f64> {
    let is_digit = |at: usize| name.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let is_cut = |&(at, character): &(usize, char)| match character {
        '_' | '-' | ' ' => true,
        '.' => !(at.checked_sub(1).is_some_and(is_digit) && is_digit(at + 1)),
        _ => false,
    };
    let cuts = name.char_indices().filter(is_cut).map(|(at, _)| at).chain([name.len()]);
    // Each separator is one byte long.
    let parts = cuts.scan(0, |from, to| Some(&name[std::mem::replace(from, to + 1)..to]));
    parts.into_iter().find_map(|part| positive(part.strip_suffix('s')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_length_is_parsed_from_a_file_name() {
        for (name, expected) in [
            ("goodput_10s.csv", Some(10.0)),
            ("goodput_1.5s.csv", Some(1.5)),
            ("a.5s.csv", Some(5.0)),
            (".5s", Some(5.0)),
            ("é.2s.ü", Some(2.0)),
            ("a-2s-b_5s.csv", Some(2.0)),
            ("5s", Some(5.0)),
            ("rtt_s_seattle.csv", None),
            ("infs.csv", None),
            ("bw_mbps_5g_static.csv", None),
        ] {
            assert_eq!(test_length_from_name_s(name), expected, "{name}");
        }
    }
}
