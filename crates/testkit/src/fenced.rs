/// Returns the lines of those fenced blocks of a Markdown text that have `mark`, such as `sh`,
/// after the opening fence.
#[must_use]
pub fn fenced(text: &str, mark: &str) -> String {
    let (mut is_open, mut is_marked) = (false, false);
    let lines = text.lines().filter(|line| {
        let Some(given) = line.trim().strip_prefix("```") else { return is_marked };
        is_open = !is_open;
        is_marked = is_open && given == mark;
        false
    });
    lines.map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_with_the_given_info_string_are_returned() {
        let text = "a\n```sh\none\n```\n```\ntwo\n```\n```sh no-test\nthree\n```\n```sh\nfour\n```\nb\n";
        assert_eq!(fenced(text, "sh"), "one\nfour\n");
        assert_eq!(fenced(text, "sh no-test"), "three\n");
        assert_eq!(fenced(text, "toml"), "");
    }
}
