/// Returns the fenced blocks of a Markdown text: the mark after the opening fence, such as `sh`,
/// and the lines.
#[must_use]
pub fn code_blocks(text: &str) -> Vec<(&str, String)> {
    let (mut blocks, mut is_open) = (Vec::<(&str, String)>::new(), false);
    for line in text.lines() {
        if let Some(mark) = line.trim().strip_prefix("```") {
            is_open = !is_open;
            if is_open {
                blocks.push((mark, String::new()));
            }
        } else if is_open && let Some((_, lines)) = blocks.last_mut() {
            lines.push_str(line);
            lines.push('\n');
        }
    }
    blocks
}

/// Returns the lines of those fenced blocks of a Markdown text that have `mark`, such as `sh`,
/// after the opening fence.
#[must_use]
pub fn fenced(text: &str, mark: &str) -> String {
    code_blocks(text).into_iter().filter(|(given, _)| *given == mark).map(|(_, lines)| lines).collect()
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
