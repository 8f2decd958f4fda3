//! Series in the files of a folder.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use barograph_study::input::{Sample, SeriesReader};

/// Files of a folder that end in `.extension` and have a wanted name, sorted; an error if there are
/// none.
pub(crate) fn files(
    folder: &Path,
    extension: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<PathBuf>> {
    let shown = folder.display();
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {shown}"))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>()?;
    files.retain(|file| file.extension().is_some_and(|end| end == extension) && is_wanted(&name(file)));
    ensure!(!files.is_empty(), "no *.{extension} in {shown} that could be used");
    files.sort();
    Ok(files)
}

pub(crate) fn name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<Sample>> {
    let shown = file.display();
    let opened = File::open(file).with_context(|| format!("cannot open {shown}"))?;
    let samples: Result<Vec<Sample>, _> = SeriesReader::new(BufReader::new(opened)).collect();
    samples.with_context(|| format!("cannot read {shown}"))
}

pub(crate) fn read_folder(folder: &Path) -> anyhow::Result<Vec<(String, Vec<Sample>)>> {
    files(folder, "csv", |_| true)?.iter().map(|file| Ok((name(file), read(file)?))).collect()
}
