//! Writes results to standard output, and to a page that names its command and machine.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
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
        let words: Vec<String> = std::env::args().skip(1).collect();
        fs::write(page, with_head(&all, &words.join(" ")))
            .with_context(|| format!("cannot write {}", page.display()))
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

fn with_head(text: &str, command: &str) -> String {
    let text = text.trim_start();
    let (title, rest) = match text.strip_prefix("# ").and_then(|text| text.split_once('\n')) {
        Some((title, rest)) => (title.to_owned(), rest),
        None => (format!("Results of `lab {}`", command.split(' ').next().unwrap_or_default()), text),
    };
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!(
        "# {title}\n\nWritten by `scripts/lab {command}`: version {}, a {build} build; {}, {}, {}.\n\n{}",
        env!("CARGO_PKG_VERSION"),
        machine::kernel(),
        machine::processors(),
        machine::memory(),
        rest.trim_start()
    )
}

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
        let page = with_head("\n# Title\n\nText.\n", "reduction apps --page lab/results/apps.md");
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!((lines[0], lines[4]), ("# Title", "Text."));
        assert!(lines[2].starts_with("Written by `scripts/lab reduction apps --page lab/results/apps.md`"));
        assert!(lines[2].contains(&machine::processors()), "{page}");
        assert!(with_head("| a |\n", "plan DIR").starts_with("# Results of `lab plan`\n"));
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
