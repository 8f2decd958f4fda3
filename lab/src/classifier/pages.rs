//! Where the tables go: to standard output, or to a page of all and into another between marks.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

/// Tables, and which of them are short enough for a page that is read.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) all: String,
    /// By the name of their mark.
    short: Vec<(&'static str, String)>,
}

impl Report {
    pub(crate) fn add(&mut self, text: &str) {
        self.all += text;
    }

    /// Tables that also stand between the marks of this name; without their titles, for that page has its own.
    pub(crate) fn add_short(&mut self, name: &'static str, text: &str) {
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        self.short.push((name, lines.join("\n").trim().to_owned()));
    }

    /// Writes all to [`PAGE`] in a folder, and puts what is short into its `README.md`. Tables that were not made now stay in it.
    pub(crate) fn write(&self, folder: &Path, command: &str) -> anyhow::Result<()> {
        let readme = folder.join(README);
        let mut text =
            fs::read_to_string(&readme).with_context(|| format!("cannot read {}", readme.display()))?;
        for (name, tables) in &self.short {
            text = replaced(&text, name, tables).with_context(|| readme.display().to_string())?;
        }
        let page = folder.join(PAGE);
        let about = format!("<!-- Made by `{command}`; what the tables mean is in {README}. -->\n\n");
        fs::write(&page, about + &self.all).with_context(|| format!("cannot write {}", page.display()))?;
        fs::write(&readme, text).with_context(|| format!("cannot write {}", readme.display()))
    }
}

/// The text with other tables between the marks.
fn replaced(text: &str, name: &str, tables: &str) -> anyhow::Result<String> {
    let mark = format!("<!-- classifier: {name} -->\n");
    let (before, rest) = text.split_once(&mark).with_context(|| format!("there is no {}", mark.trim()))?;
    let (old, after) =
        rest.split_once(END).with_context(|| format!("there is no {END} after {}", mark.trim()))?;
    ensure!(!old.contains("<!-- classifier"), "there is no {END} after {}", mark.trim());
    Ok(format!("{before}{mark}{tables}\n{END}{after}"))
}

const END: &str = "<!-- end -->";

const README: &str = "README.md";

/// All tables.
const PAGE: &str = "classifier.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let folder = tempfile::tempdir().unwrap();
        let readme = folder.path().join(README);
        let page = |verdicts: &str| {
            format!(
                "# Lab\n<!-- classifier: worth -->\nkept\n<!-- end -->\n<!-- classifier: verdicts -->\n{verdicts}\n<!-- end -->\nMore.\n"
            )
        };
        fs::write(&readme, page("old")).unwrap();
        let mut report = Report::default();
        report.add("## Title\n\n| all |\n");
        report.add_short("verdicts", "\n## Title\n\n| new |\n");
        report.write(folder.path(), "lab classifier").unwrap();
        assert_eq!(fs::read_to_string(&readme).unwrap(), page("| new |"));
        assert!(
            fs::read_to_string(folder.path().join(PAGE)).unwrap().ends_with("-->\n\n## Title\n\n| all |\n")
        );
    }

    #[test]
    fn a_page_without_marks_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let readme = folder.path().join(README);
        let mut report = Report::default();
        report.add_short("verdicts", "| new |");
        for text in
            ["# Lab\n", "<!-- classifier: verdicts -->\n| old |\n<!-- classifier: worth -->\n<!-- end -->\n"]
        {
            fs::write(&readme, text).unwrap();
            let error = format!("{:#}", report.write(folder.path(), "").unwrap_err());
            assert!(error.contains("classifier: verdicts"), "{error}");
            assert_eq!(fs::read_to_string(&readme).unwrap(), text);
            assert!(!folder.path().join(PAGE).exists());
        }
    }
}
