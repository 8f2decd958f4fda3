//! What is to be reached, and whether it was: a line below a table for each.

/// A bound on what a run found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    Least(f64),
    Most(f64),
    Within(f64, f64),
}

/// A line that says what was to be reached, what was found, and whether that does.
pub(crate) fn line(what: &str, bound: Bound, found: Option<f64>) -> String {
    let text = told(bound);
    let found = match found.filter(|found| found.is_finite()) {
        Some(found) => format!("{found:.3}, {}", if is_within(found, bound) { "met" } else { "MISSED" }),
        None => "not measured".to_owned(),
    };
    format!("- {what}, {text}: {found}\n")
}

/// The same where it was measured that what was to come never did.
pub(crate) fn never(what: &str, bound: Bound) -> String {
    format!("- {what}, {}: never, MISSED\n", told(bound))
}

fn told(bound: Bound) -> String {
    match bound {
        Bound::Least(least) => format!("at least {least}"),
        Bound::Most(most) => format!("at most {most}"),
        Bound::Within(least, most) => format!("{least} to {most}"),
    }
}

fn is_within(found: f64, bound: Bound) -> bool {
    match bound {
        Bound::Least(least) => least <= found,
        Bound::Most(most) => found <= most,
        Bound::Within(least, most) => (least..=most).contains(&found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_whether_it_is_met() {
        assert_eq!(line("a", Bound::Least(0.8), Some(0.9)), "- a, at least 0.8: 0.900, met\n");
        assert_eq!(line("a", Bound::Most(0.8), Some(0.9)), "- a, at most 0.8: 0.900, MISSED\n");
        assert_eq!(line("a", Bound::Within(0.5, 2.0), Some(2.1)), "- a, 0.5 to 2: 2.100, MISSED\n");
        assert_eq!(never("a", Bound::Most(30.0)), "- a, at most 30: never, MISSED\n");
        assert_eq!(line("a", Bound::Least(0.8), None), "- a, at least 0.8: not measured\n");
        assert_eq!(line("a", Bound::Least(0.8), Some(f64::NAN)), "- a, at least 0.8: not measured\n");
    }
}
