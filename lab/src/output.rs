//! Writes results to standard output, and to a page that names its command and machine.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::machine;

/// Standard output with tables or JSON lines, and a page with the tables.
///
/// Each print rewrites the page, so that a study that ends early leaves what it measured.
pub(crate) struct Output {
    is_json: bool,
    bar: ProgressBar,
    page: Option<PathBuf>,
    /// Text of the page so far.
    text: Mutex<String>,
}

impl Output {
    pub(crate) fn new(page: Option<&Path>, is_json: bool) -> Self {
        let (bar, page) = (ProgressBar::hidden(), page.map(Path::to_owned));
        Self { is_json, bar, page, text: Mutex::default() }
    }

    /// Prints without disturbing this progress bar.
    pub(crate) fn beside(self, bar: ProgressBar) -> Self {
        Self { bar, ..self }
    }

    pub(crate) fn print(&self, text: &str) -> anyhow::Result<()> {
        self.begin(text)?;
        if self.is_json { Ok(()) } else { self.write(text) }
    }

    /// Begins the page with text that standard output does not get.
    pub(crate) fn begin(&self, text: &str) -> anyhow::Result<()> {
        let Some(page) = &self.page else { return Ok(()) };
        let mut all = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        *all += text;
        let command = command(std::env::args().skip(1));
        let text = match fs::read_to_string(page) {
            Ok(old) if old.contains(SECTION) => {
                with_section(&old, &all, &command).with_context(|| page.display().to_string())?
            }
            _ => with_head(&all, &command),
        };
        fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
    }

    /// Prints a line of JSON if `--json` was given.
    pub(crate) fn json(&self, row: &impl Serialize) -> anyhow::Result<()> {
        if self.is_json { self.write(&(serde_json::to_string(row)? + "\n")) } else { Ok(()) }
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        let mut out = std::io::stdout();
        self.bar
            .suspend(|| out.write_all(text.as_bytes()).and_then(|()| out.flush()))
            .context("cannot write to standard output")
    }
}

/// The command line without the option `--page`, so that a page does not depend on its own name.
fn command(mut words: impl Iterator<Item = String>) -> String {
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if word == "--page" {
            words.next();
        } else if !word.starts_with("--page=") {
            kept.push(word);
        }
    }
    kept.join(" ")
}

fn with_head(text: &str, command: &str) -> String {
    let (title, rest) = split_title(text);
    let title = title.map_or_else(
        || format!("Results of `lab {}`", command.split(' ').next().unwrap_or_default()),
        str::to_owned,
    );
    format!("# {title}\n\n{}\n\n{}", provenance(command), rest.trim_start())
}

/// Replaces the section of this command in a page that also has text written by hand. The section
/// is between the lines `<!-- scripts/lab COMMAND -->` and `<!-- end -->`.
fn with_section(page: &str, text: &str, command: &str) -> anyhow::Result<String> {
    let (_, rest) = split_title(text);
    replace_section(page, SECTION, command, &format!("{}\n\n{}", provenance(command), rest.trim()))
}

/// Replaces the text between the line that has `start`, `name` and ` -->`, and the next line
/// `<!-- end -->`. No further section with this `start` may begin in between.
pub(crate) fn replace_section(page: &str, start: &str, name: &str, text: &str) -> anyhow::Result<String> {
    let begin = format!("{start}{name} -->\n");
    let (before, rest) = page.split_once(&begin).with_context(|| format!("no line {}", begin.trim()))?;
    let (old, after) = rest.split_once(END).with_context(|| format!("no {END} after {}", begin.trim()))?;
    ensure!(!old.contains(start), "no {END} after {}", begin.trim());
    Ok(format!("{before}{begin}{text}\n{END}{after}"))
}

/// Title of a text, and the rest of the text.
fn split_title(text: &str) -> (Option<&str>, &str) {
    let text = text.trim_start();
    match text.strip_prefix("# ").and_then(|text| text.split_once('\n')) {
        Some((title, rest)) => (Some(title), rest),
        None => (None, text),
    }
}

/// Sentence with the command, the version and the machine that made results.
fn provenance(command: &str) -> String {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!(
        "Written by `scripts/lab {command}`:\nversion {}, a {build} build; {}, {}, {}.",
        env!("CARGO_PKG_VERSION"),
        machine::kernel(),
        machine::processors(),
        machine::memory(),
    )
}

/// Start of the line that begins the section of a command in a page.
const SECTION: &str = "<!-- scripts/lab ";

/// Line that ends a section of a page.
const END: &str = "<!-- end -->";

/// Name of a value on the command line and in rows.
pub(crate) fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Writes a file into a folder, which is created if needed.
pub(crate) fn save(folder: &Path, name: &str, content: &str) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(name);
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_its_command_and_machine_below_its_title() {
        let words = "--page lab/results/apps.md reduction apps --page=x".split(' ').map(str::to_owned);
        let page = with_head("\n# Title\n\nText.\n", &command(words));
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!((lines[0], lines[5]), ("# Title", "Text."));
        assert_eq!(lines[2], "Written by `scripts/lab reduction apps`:");
        assert!(lines[3].contains(&machine::processors()), "{page}");
        assert!(with_head("| a |\n", "plan DIR").starts_with("# Results of `lab plan`\n"));
    }

    #[test]
    fn a_section_of_a_page_is_replaced_and_the_text_around_it_stays() -> anyhow::Result<()> {
        let page = "# Why\n\n<!-- scripts/lab plan DIR -->\nold\n<!-- end -->\n\nRead so.\n";
        let new = with_section(page, "# Rows\n\n| a |\n", "plan DIR")?;
        assert!(new.starts_with("# Why\n\n<!-- scripts/lab plan DIR -->\nWritten by `scripts/lab plan DIR`"));
        assert!(new.ends_with("\n\n| a |\n<!-- end -->\n\nRead so.\n"), "{new}");
        assert_eq!(with_section(&new, "# Rows\n\n| a |\n", "plan DIR")?, new);
        assert!(with_section(page, "| a |\n", "plan OTHER").is_err());
        // The end of the first section is missing: nothing is replaced.
        let damaged = "<!-- scripts/lab plan DIR -->\nText.\n<!-- scripts/lab plan B -->\n<!-- end -->\n";
        assert!(with_section(damaged, "| a |\n", "plan DIR").is_err());
        Ok(())
    }

    #[test]
    fn a_page_has_the_tables_also_with_json_output() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let page = folder.path().join("page.md");
        let output = Output::new(Some(&page), true);
        output.print("# Rows\n\n| a |\n")?;
        output.print("| b |\n")?;
        assert!(fs::read_to_string(&page)?.ends_with("\n\n| a |\n| b |\n"));
        Ok(())
    }
}
