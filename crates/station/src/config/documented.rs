//! Test: `docs/barograph.toml` equals the text made from the settings. If the variable `UPDATE` is
//! set, the test writes the file.
#![allow(clippy::unwrap_used)]

use super::setting::{Documentation, Setting};
use super::target::TargetTable;
use super::*;

#[test]
fn the_documented_file_matches_the_settings() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/barograph.toml");
    let text = document();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap();
    let lines = found.lines().zip(text.lines()).find(|(found, written)| found != written);
    assert!(found == text, "docs/barograph.toml is not as UPDATE=1 writes it: {lines:?}");
}

#[test]
fn the_documented_file_equals_the_defaults() {
    let text = document();
    let read = |text: &str| {
        let mut config = Config::default();
        config.apply_file(Path::new("b.toml"), text, &mut SettingOrigins::default()).map(|()| config)
    };
    assert_eq!(read(&text).unwrap(), Config::default());
    // Activate all examples: each key must accept its example.
    let all: String =
        text.lines().map(|line| line.strip_prefix(EXAMPLE).unwrap_or(line).to_string() + "\n").collect();
    let config = read(&all).unwrap();
    assert_eq!(config.targets.len(), 1);
    for setting in settings() {
        let given = (setting.shown)(&config);
        assert!(given.is_some() && !setting.documentation.lines.is_empty(), "{}", setting.key);
    }
}

/// The file with all settings: their defaults, or examples for settings without a default.
fn document() -> String {
    let mut text = comment(Config::ABOUT);
    let config = Config::default();
    let mut section = "";
    for setting in settings() {
        if setting.section() != section || section.is_empty() {
            text += "\n";
        }
        if setting.section() != section {
            section = setting.section();
            text += &format!("[{section}]\n");
            let about = match section {
                "echo" => EchoConfig::ABOUT,
                "mesh" => MeshConfig::ABOUT,
                "transfer" => TransferConfig::ABOUT,
                _ => &[],
            };
            if !about.is_empty() {
                text += &format!("{}\n", comment(about));
            }
        }
        text += &entry(setting, &config);
    }
    text += &format!("\n{}{EXAMPLE}[[target]]\n", comment(TargetTable::ABOUT));
    TargetTable::SETTINGS.iter().for_each(|setting| text += &entry(setting, &TargetTable::default()));
    text
}

fn entry<C>(setting: &Setting<C>, of: &C) -> String {
    let Documentation { lines, example, range } = &setting.documentation;
    let (mark, value) = match (example.first(), (setting.shown)(of)) {
        (Some(example), _) => (EXAMPLE, (*example).to_string()),
        (None, Some(default)) => ("", default),
        (None, None) => panic!("{} has neither a default nor an example", setting.key),
    };
    let restart = (setting.applies == Applies::AtStart).then(|| "restart".to_string());
    let notes: Vec<String> = range().into_iter().chain(restart).collect();
    let notes = if notes.is_empty() { String::new() } else { format!("  # {}", notes.join("; ")) };
    format!("{}{mark}{} = {value}{notes}\n", comment(lines), setting.name())
}

fn comment(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("#{line}\n")).collect()
}

/// Prefix of the line of an example, for a key without a default.
const EXAMPLE: &str = "#:";
