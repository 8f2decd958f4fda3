//! Reads scenarios from files.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use barograph_sim::Scenario;
use barograph_study::input::SeriesReader;

use crate::series::files;

/// Reads and checks the scenario of a file. The path of a trace is relative to the file's folder
/// or, if it does not exist there, to the working directory.
///
/// # Errors
/// One line that names the file, and the line and key or the range that is wrong.
pub(crate) fn load(file: &Path) -> anyhow::Result<Scenario> {
    let name = file.display();
    let opened = File::open(file).with_context(|| format!("cannot read {name}"))?;
    let mut text = String::new();
    opened.take(TEXT_MAX).read_to_string(&mut text).with_context(|| format!("cannot read {name}"))?;
    ensure!((text.len() as u64) < TEXT_MAX, "{name} is too long for a scenario: over {TEXT_MAX} bytes");
    let folder = file.parent().unwrap_or(Path::new("")).to_owned();
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    parse(&text, &stem, &folder).map_err(|error| anyhow!("{name}: {error}"))
}

/// Parses the scenario in `text`; it is called `stem` unless it has a name.
pub(crate) fn parse(text: &str, stem: &str, folder: &Path) -> Result<Scenario, String> {
    let scenario: Scenario = toml::from_str(text).map_err(|error| one_line(text, &error))?;
    let mut scenario = scenario.validate(|path| trace(path, folder))?;
    if scenario.name.is_empty() {
        stem.clone_into(&mut scenario.name);
    }
    Ok(scenario)
}

pub(crate) fn load_folder(folder: &Path) -> anyhow::Result<Vec<Scenario>> {
    files(folder, "toml", |_| true)?.iter().map(|file| load(file)).collect()
}

fn trace(path: &Path, folder: &Path) -> Result<Vec<f64>, String> {
    let beside = folder.join(path);
    let found = if beside.exists() { beside } else { path.to_owned() };
    let name = found.display();
    let file = File::open(&found).map_err(|error| format!("link.law.file: cannot open {name}: {error}"))?;
    let mut values = Vec::new();
    for sample in SeriesReader::new(BufReader::new(file)) {
        values.push(sample.map_err(|error| format!("link.law.file: {name}: {error}"))?.value);
        if values.len() > TRACE_MAX {
            return Err(format!("link.law.file: {name}: more than {TRACE_MAX} values"));
        }
    }
    Ok(values)
}

/// The parser's message with the line number but without the excerpt.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let message =
        error.message().replace("unknown field", "unknown key").replace("missing field", "missing key");
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some(span) = error.span() else { return message };
    let line = 1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count();
    format!("line {line}: {message}")
}

/// A thousand times what a scenario needs.
const TEXT_MAX: u64 = 1 << 20;

/// Enough for years of measurements, and less memory than a small machine has.
const TRACE_MAX: usize = 10_000_000;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn load_errors_are_one_line_with_line_number_and_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        for (text, expected) in [
            ("nodes = 3\npaus_s = 1\n", "line 2: unknown key `paus_s`"),
            ("\n[link]\nbase_s = { mim = 1.0 }\n", "line 3: unknown key `mim`"),
            ("[link\n", "line 1: "),
            ("nodes = 1\n", "nodes = 1: must be 2 to"),
            ("message_bytes = []", "message_bytes is empty"),
            ("pause_s = nan", "pause_s = NaN"),
            ("[link]\nlaw = { kind = \"trace\", file = \"none.csv\" }", "cannot open none.csv"),
        ] {
            fs::write(&file, text).unwrap();
            let error = format!("{:#}", load(&file).unwrap_err());
            assert!(error.contains("a.toml") && error.contains(expected), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error:?}");
        }
        fs::write(&file, b"name = \"\xff\"").unwrap();
        assert!(format!("{:#}", load(&file).unwrap_err()).contains("a.toml"));
        let missing = format!("{:#}", load(&folder.path().join("b.toml")).unwrap_err());
        assert!(missing.contains("b.toml") && missing.contains("cannot read"), "{missing}");
        assert!(load_folder(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_trace_is_read_from_the_folder_of_the_scenario() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rtt.csv"), "time_s,value\n0,1.5\n1,3\n2,6\n").unwrap();
        let file = folder.path().join("traced.toml");
        fs::write(&file, "[link]\nlaw = { kind = \"trace\", file = \"rtt.csv\" }\n").unwrap();
        let scenario = load(&file).unwrap();
        assert_eq!(scenario.name, "traced", "the file's name stands in");
        let barograph_sim::scenario::ResponseTimeLaw::Trace { values, .. } = scenario.link.law else {
            panic!()
        };
        assert_eq!(values, [0.5, 1.0, 2.0]);
        fs::write(folder.path().join("rtt.csv"), "0,1\n1,-1\n").unwrap();
        let error = load(&file).unwrap_err().to_string();
        assert!(error.contains("must be positive"), "{error}");
    }

    #[test]
    fn all_scenarios_of_the_repository_load() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let scenarios = load_folder(&folder).unwrap();
        assert!(scenarios.len() >= 17, "{}", scenarios.len());
        for scenario in &scenarios {
            assert_eq!(
                (scenario.nodes, scenario.reductions, scenario.tries),
                (31, 1000, 5),
                "{}",
                scenario.name
            );
        }
    }
}
