//! The folder of a set: a file for each run, and the tables of windows that are cut from them.
//!
//! A file gets its name only when it is complete, so that a killed program leaves whole runs. A set
//! is continued from its files alone.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use barograph_loss::Meter;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::LENGTHS;
use super::cut::{About, Gap, Label, RUN_HEADER, Trace, WINDOW_HEADER, row};
use super::plan::Kind;

/// A run that was made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    /// Whether the run aimed at the lowest band of losses.
    pub(crate) is_low: bool,
    /// Time that the run took (h); runs at the same time share it.
    pub(crate) hours: f64,
    /// Settings of the run ([`super::plan::Design::config`]).
    pub(crate) config: Value,
    pub(crate) trace: Trace,
}

/// First line of a run's file.
#[derive(Serialize, Deserialize)]
struct Head {
    kind: String,
    is_low: bool,
    hours: f64,
    packets: u64,
    contradictions: u64,
    config: Value,
}

pub(crate) struct Store {
    folder: PathBuf,
    /// The folder, locked against other programs that would write to it.
    _lock: File,
}

impl Store {
    /// Opens the folder of a set with these settings, or begins one.
    ///
    /// # Errors
    /// The folder has runs of other settings, another program writes to it, or it is not writable.
    pub(crate) fn open(folder: &Path, settings: &Value) -> anyhow::Result<Self> {
        let shown = folder.display();
        fs::create_dir_all(folder.join(RUNS)).with_context(|| format!("cannot make {shown}"))?;
        let lock = File::open(folder).with_context(|| format!("cannot open {shown}"))?;
        lock.try_lock().with_context(|| format!("another program writes to {shown}"))?;
        let store = Self { folder: folder.to_owned(), _lock: lock };
        let path = folder.join(SETTINGS);
        let old = path.exists().then(|| read_json(&path)).transpose()?;
        if old.as_ref() == Some(settings) {
            return Ok(store);
        }
        let has_runs = !store.numbers()?.is_empty() || old.is_none() && folder.join(ALL_RUNS).exists();
        ensure!(
            !has_runs,
            "{shown} has runs of other settings, {}; name another folder with --out",
            old.map_or("which are unknown".to_owned(), |old| old.to_string())
        );
        replace(&path, &format!("{settings}\n"))?;
        Ok(store)
    }

    /// Numbers of the runs in the folder.
    pub(crate) fn numbers(&self) -> anyhow::Result<BTreeSet<u64>> {
        let folder = self.folder.join(RUNS);
        let mut numbers = BTreeSet::new();
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let name = entry?.file_name();
            let number = |name: &str| name.strip_prefix('r')?.strip_suffix(".gz")?.parse::<u64>().ok();
            numbers.extend(name.to_str().and_then(number));
        }
        Ok(numbers)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(RUNS).join(format!("{}.gz", name(number)))
    }

    pub(crate) fn add(&self, record: &Record) -> anyhow::Result<()> {
        let Record { number, kind, is_low, hours, config, trace } = record;
        let head = Head {
            kind: kind.to_string(),
            is_low: *is_low,
            hours: *hours,
            packets: trace.packets,
            contradictions: trace.contradictions,
            config: config.clone(),
        };
        let mut file = Staged::create(self.path(*number), &serde_json::to_string(&head)?)?;
        for Gap { received, lost, drops, delay_us, sojourn_us } in &trace.gaps {
            file.write_line(&format!("{received}:{lost}:{drops}:{delay_us}:{sojourn_us}"))?;
        }
        file.finish()
    }

    pub(crate) fn read(&self, number: u64) -> anyhow::Result<Record> {
        let path = self.path(number);
        parse(number, &path)
            .with_context(|| format!("cannot read {}; remove it to go on without this run", path.display()))
    }

    /// Writes the closing text.
    pub(crate) fn write_index(&self, text: &str) -> anyhow::Result<()> {
        replace(&self.folder.join(INDEX), text)
    }

    /// Writes the tables of all runs: their gaps, and their windows by length and label.
    pub(crate) fn write_tables(&self) -> anyhow::Result<()> {
        let mut runs = Staged::create(self.folder.join(ALL_RUNS), RUN_HEADER)?;
        let create = |length: u32, label: Label| {
            Staged::create(self.folder.join(format!("w{length}_{}.txt.gz", label.as_str())), WINDOW_HEADER)
        };
        let mut windows = Vec::new();
        for length in LENGTHS {
            windows.push(
                Label::ALL.iter().map(|label| create(length, *label)).collect::<anyhow::Result<Vec<_>>>()?,
            );
        }
        let mut meter = Meter::new();
        for number in self.numbers()? {
            let record = self.read(number)?;
            runs.write_line(&run_row(&record))?;
            for (length, files) in LENGTHS.into_iter().zip(&mut windows) {
                add_windows(&record, length, files, &mut meter)?;
            }
        }
        windows.into_iter().flatten().chain([runs]).try_for_each(Staged::finish)
    }
}

fn parse(number: u64, path: &Path) -> anyhow::Result<Record> {
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    let (head, gaps) = text.split_once('\n').context("the first line does not end")?;
    let Head { kind, is_low, hours, packets, contradictions, config } = serde_json::from_str(head)?;
    let kind = kind.parse::<Kind>().map_err(anyhow::Error::msg)?;
    let gaps = gaps.lines().map(gap).collect::<anyhow::Result<Vec<Gap>>>()?;
    let lost = gaps.iter().map(|gap| gap.lost).sum();
    Ok(Record { number, kind, is_low, hours, config, trace: Trace { packets, lost, gaps, contradictions } })
}

fn read_json(path: &Path) -> anyhow::Result<Value> {
    let read = || -> anyhow::Result<Value> { Ok(serde_json::from_str(&fs::read_to_string(path)?)?) };
    read().with_context(|| format!("cannot read {}", path.display()))
}

fn gap(text: &str) -> anyhow::Result<Gap> {
    let numbers = text.split(':').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    let &[received, lost, drops, delay_us, sojourn_us] = numbers.as_slice() else {
        bail!("`{text}` is not a gap of five numbers");
    };
    Ok(Gap { received, lost, drops, delay_us, sojourn_us: sojourn_us.try_into()? })
}

fn run_row(record: &Record) -> String {
    let Record { number, kind, config, trace, .. } = record;
    let (run, class, gaps) = (name(*number), kind.class().as_str(), trace.gaps.len());
    let Trace { packets, lost, .. } = trace;
    format!("{run}\t{class}\t{kind}\t{packets}\t{lost}\t{gaps}\t{config}\t{}", trace.text())
}

fn add_windows(record: &Record, length: u32, files: &mut [Staged], meter: &mut Meter) -> anyhow::Result<()> {
    let (run, kind) = (name(record.number), record.kind.to_string());
    let setting = |name: &str| record.config[name].as_u64().unwrap_or_default();
    let about = About {
        run: &run,
        kind: &kind,
        burst: setting("batch") as u32,
        pps: setting("pps") as u32,
        receive_buffer: setting("rcvbuf") as usize,
    };
    for window in record.trace.windows(length) {
        let metrics = window.metrics(length, meter)?;
        files[window.label() as usize].write_line(&row(&window, &about, &metrics))?;
    }
    Ok(())
}

/// Name of a run, in file names and tables.
fn name(number: u64) -> String {
    format!("r{number:04}")
}

/// A compressed file that gets its name when it is complete.
struct Staged {
    path: PathBuf,
    file: GzEncoder<File>,
}

impl Staged {
    fn create(path: PathBuf, first_line: &str) -> anyhow::Result<Self> {
        let partial = partial(&path);
        let file = File::create(&partial).with_context(|| format!("cannot write {}", partial.display()))?;
        let mut staged = Self { path, file: GzEncoder::new(file, Compression::default()) };
        staged.write_line(first_line)?;
        Ok(staged)
    }

    fn write_line(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.file, "{line}").with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn finish(self) -> anyhow::Result<()> {
        let Self { path, file } = self;
        let finish = || file.finish()?.sync_all().and_then(|()| fs::rename(partial(&path), &path));
        finish().with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Name of a file until it is complete.
fn partial(path: &Path) -> PathBuf {
    path.with_extension("partial")
}

/// Replaces a file with this text, in one step.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(partial(path), text)
        .and_then(|()| fs::rename(partial(path), path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Folder with a file for each run.
const RUNS: &str = "runs";
const SETTINGS: &str = "settings.json";
const INDEX: &str = "INDEX.md";

/// Table of all runs with their gaps.
const ALL_RUNS: &str = "runs.txt.gz";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(number: u64, kind: &str) -> Record {
        let gap = |received, lost, drops, delay_us| Gap { received, lost, drops, delay_us, sojourn_us: 3 };
        let gaps = vec![gap(9_990, 20, 0, 40), gap(15_000, 5, 5, 0)];
        let trace = Trace { packets: 104_000, lost: 25, gaps, contradictions: 1 };
        let config = json!({ "pps": 20_000, "batch": 4, "rcvbuf": 212_992, "p": 0.01 });
        Record { number, kind: kind.parse().unwrap(), is_low: true, hours: 0.003, config, trace }
    }

    fn lines(path: &Path) -> Vec<String> {
        let mut text = String::new();
        GzDecoder::new(File::open(path).unwrap()).read_to_string(&mut text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_set_is_continued_from_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let settings = json!({ "seed": 1, "scale": 100.0 });
        let store = Store::open(folder.path(), &settings).unwrap();
        assert_eq!(store.numbers().unwrap(), BTreeSet::new());
        let records = [record(3, "random"), record(21, "hyb-tcp")];
        records.iter().for_each(|record| store.add(record).unwrap());
        drop(store);

        let store = Store::open(folder.path(), &settings).unwrap();
        assert_eq!(store.numbers().unwrap(), BTreeSet::from([3, 21]));
        assert_eq!([3, 21].map(|number| store.read(number).unwrap()), records);
    }

    #[test]
    fn a_run_that_was_killed_while_it_was_written_is_not_in_the_set() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &json!({})).unwrap();
        store.add(&record(1, "random")).unwrap();
        drop(Staged::create(store.path(2), "{").unwrap());
        assert_eq!(store.numbers().unwrap(), BTreeSet::from([1]));
        store.write_tables().unwrap();
        store.add(&record(2, "gen")).unwrap();
        assert_eq!(store.read(2).unwrap(), record(2, "gen"));
        assert!(!partial(&store.path(2)).exists());
    }

    #[test]
    fn windows_are_written_once_however_often_the_set_is_continued() {
        let folder = tempfile::tempdir().unwrap();
        for number in [7, 8] {
            let store = Store::open(folder.path(), &json!({})).unwrap();
            store.add(&record(number, "random")).unwrap();
            store.write_tables().unwrap();
        }
        let rows = |name: &str| lines(&folder.path().join(name));
        let runs = rows("runs.txt.gz");
        assert_eq!((runs.len(), runs[0].as_str()), (3, RUN_HEADER));
        let config = record(7, "random").config;
        let expected = format!("r0007\tnet\trandom\t104000\t25\t2\t{config}\t9990:20:0 15000:5:5");
        assert_eq!(runs[1], expected);
        // The first gap spans the windows 0 and 1 of 10 000 packets; the second is in window 2 of
        // them, and in window 1 of 20 000.
        let columns = |name: &str| -> Vec<String> {
            rows(name)[1..].iter().map(|row| row.split('\t').take(8).collect::<Vec<_>>().join(" ")).collect()
        };
        assert_eq!(
            columns("w10000_net.txt.gz"),
            [
                "net r0007 0 random 4 20000 212992 10",
                "net r0007 1 random 4 20000 212992 10",
                "net r0008 0 random 4 20000 212992 10",
                "net r0008 1 random 4 20000 212992 10",
            ]
        );
        assert_eq!(columns("w10000_cpu.txt.gz").len(), 2);
        assert_eq!(columns("w20000_cpu.txt.gz")[0], "cpu r0007 1 random 4 20000 212992 5");
        assert_eq!(columns("w100000_hyb.txt.gz")[1], "hyb r0008 0 random 4 20000 212992 25");
        assert_eq!(rows("w100000_net.txt.gz"), [WINDOW_HEADER]);
    }

    #[test]
    fn runs_of_other_settings_are_never_mixed_or_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let open = |seed: u64| Store::open(folder.path(), &json!({ "seed": seed })).map(drop);
        open(1).unwrap();
        open(2).unwrap();
        Store::open(folder.path(), &json!({ "seed": 2 })).unwrap().add(&record(1, "cbr")).unwrap();
        let refused = open(1).unwrap_err().to_string();
        assert!(refused.contains("other settings, {\"seed\":2}; name another folder"), "{refused}");
        open(2).unwrap();

        let older = tempfile::tempdir().unwrap();
        fs::write(older.path().join(ALL_RUNS), "").unwrap();
        assert!(Store::open(older.path(), &json!({})).is_err());
    }

    #[test]
    fn only_one_program_writes_to_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &json!({})).unwrap();
        let refused = Store::open(folder.path(), &json!({})).map(drop).unwrap_err().to_string();
        assert!(refused.contains("another program"), "{refused}");
        drop(store);
        assert!(Store::open(folder.path(), &json!({})).is_ok());
    }
}
