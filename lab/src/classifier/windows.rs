//! Reads labelled windows and whole runs, as `lab signatures` writes them, and writes the tables:
//! all of them to one page, and the short ones between the marks of another.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use barograph_loss::{Evidence, Label, LabelledWindow, Meter, Signature, TableReader};
use flate2::read::MultiGzDecoder;

use crate::output::replace_section;

pub(crate) fn folder(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let folder = named.unwrap_or(Path::new("../shared/signatures"));
    ensure!(
        folder.is_dir(),
        "there is no folder {}; make one with `lab signatures --out DIR`",
        folder.display()
    );
    Ok(folder.to_owned())
}

/// Reads all windows of a folder's files `w<packets>_*.txt.gz`, ordered by packets, then by path.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Vec<LabelledWindow>> {
    let mut files: Vec<(u32, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let packets = name.strip_suffix(".txt.gz").and_then(|name| name.strip_prefix('w')?.split_once('_'));
        if let Some(packets) = packets.and_then(|(packets, _)| packets.parse().ok()) {
            files.push((packets, path));
        }
    }
    ensure!(
        !files.is_empty(),
        "{} has no windows (w*_*.txt.gz); make some with `lab signatures --out DIR`",
        folder.display()
    );
    files.sort();
    let (mut windows, mut meter) = (Vec::new(), Meter::new());
    for (packets, path) in &files {
        let mut table: Option<TableReader> = None;
        each_line(path, |line| {
            match &table {
                None => table = TableReader::from_header(line)?,
                Some(table) => windows.extend(table.read(line, *packets, &mut meter)?),
            }
            Ok(())
        })?;
        ensure!(table.is_some(), "{} has no header (`# label …`)", path.display());
    }
    Ok(windows)
}

pub(crate) struct Run {
    pub(crate) name: String,
    kind: String,
    /// Whether the design of the run lets only the host lose packets.
    pub(crate) is_host: bool,
    packets: u64,
    burst: Option<u32>,
    /// For each gap: packets received before it, packets lost, and the rise of the kernel's
    /// counter.
    gaps: Vec<[u32; 3]>,
}

/// Reads the runs of a folder (`runs.txt.gz`); none if the file does not exist.
pub(crate) fn runs(folder: &Path) -> anyhow::Result<Vec<Run>> {
    let path = folder.join("runs.txt.gz");
    let mut runs = Vec::new();
    if path.exists() {
        each_line(&path, |line| {
            if !line.is_empty() && !line.starts_with('#') {
                runs.push(run(line)?);
            }
            Ok(())
        })?;
    }
    Ok(runs)
}

fn run(line: &str) -> anyhow::Result<Run> {
    let fields: Vec<&str> = line.split('\t').collect();
    let &[name, class, kind, packets, _, _, settings, gaps] = fields.as_slice() else {
        bail!("{} columns instead of 8", fields.len());
    };
    let settings: serde_json::Value = serde_json::from_str(settings)?;
    let gap = |text: &str| -> anyhow::Result<[u32; 3]> {
        let numbers = text.split(':').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
        numbers.try_into().map_err(|_| anyhow::anyhow!("`{text}` is not a gap `received:lost:drops`"))
    };
    Ok(Run {
        name: name.to_owned(),
        kind: kind.to_owned(),
        is_host: class == "cpu",
        packets: packets.parse()?,
        burst: settings["batch"].as_u64().and_then(|batch| batch.try_into().ok()),
        gaps: gaps.split_whitespace().map(gap).collect::<anyhow::Result<_>>()?,
    })
}

impl Run {
    /// Cuts the run into windows of `packets` packets and calls `emit` for each that has losses. An
    /// incomplete window at the end is left out.
    pub(crate) fn cut(
        &self,
        packets: u32,
        meter: &mut Meter,
        mut emit: impl FnMut(LabelledWindow),
    ) -> anyhow::Result<()> {
        self.cut_all(packets, meter, |window| window.into_iter().for_each(&mut emit))
    }

    /// As [`Run::cut`], but also calls `emit` for each window without losses, with `None`.
    pub(crate) fn cut_all(
        &self,
        packets: u32,
        meter: &mut Meter,
        mut emit: impl FnMut(Option<LabelledWindow>),
    ) -> anyhow::Result<()> {
        let (mut signature, mut host) = (Signature::new(), 0);
        let mut end = |signature: &mut Signature, host: &mut u32| {
            if signature.lost() > 0 {
                let cause = match *host {
                    0 => Label::Network,
                    host if host == signature.lost() => Label::Host,
                    _ => Label::Both,
                };
                let evidence = Evidence { burst: self.burst, host_drops: Some(*host), ..Evidence::default() };
                let (kind, run) = (self.kind.clone(), self.name.clone());
                let metrics = meter.measure(signature);
                emit(Some(LabelledWindow {
                    signature: std::mem::take(signature),
                    metrics,
                    evidence,
                    cause,
                    kind,
                    run,
                }));
            } else {
                emit(None);
            }
            signature.clear();
            *host = 0;
        };
        let received: u64 =
            self.gaps.iter().map(|[received, lost, _]| u64::from(*received) + u64::from(*lost)).sum();
        let rest = self.packets.saturating_sub(received).try_into().unwrap_or(u32::MAX);
        for [received, lost, drops] in self.gaps.iter().copied().chain([[rest, 0, 0]]) {
            for (is_received, mut count) in [(true, received), (false, lost)] {
                while count > 0 {
                    let part = count.min(packets - signature.packets());
                    if is_received {
                        signature.push_received(part)?;
                    } else {
                        signature.push_lost(part)?;
                        // A gap that spans two windows divides the socket's drops between them in
                        // proportion.
                        host += (u64::from(part) * u64::from(drops.min(lost)) / u64::from(lost)) as u32;
                    }
                    count -= part;
                    if signature.packets() == packets {
                        end(&mut signature, &mut host);
                    }
                }
            }
        }
        Ok(())
    }
}

fn each_line(path: &Path, mut take: impl FnMut(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let name = path.display();
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {name}"))?;
    for (number, line) in BufReader::new(MultiGzDecoder::new(file)).lines().enumerate() {
        let line = line.with_context(|| format!("cannot read {name}"))?;
        take(&line).with_context(|| format!("{name}, line {}", number + 1))?;
    }
    Ok(())
}

/// All tables, and those that are short enough for the page that people read.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) all: String,
    /// Name of the mark and the tables.
    short: Vec<(&'static str, String)>,
}

impl Report {
    pub(crate) fn add(&mut self, text: &str) {
        self.all += text;
    }

    /// Stores tables to write between the marks of this name. Their titles are left out, because
    /// that page has its own.
    pub(crate) fn add_short(&mut self, name: &'static str, text: &str) {
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        self.short.push((name, lines.join("\n").trim().to_owned()));
    }

    /// Writes all tables to [`ALL_TABLES_PAGE`] in the folder, and the short ones between the marks
    /// of its [`SUMMARY_PAGE`]. The other text of that page stays, as do tables that were not made
    /// in this run.
    pub(crate) fn write(&self, folder: &Path, command: &str) -> anyhow::Result<()> {
        let summary = folder.join(SUMMARY_PAGE);
        let mut text =
            fs::read_to_string(&summary).with_context(|| format!("cannot read {}", summary.display()))?;
        for (name, tables) in &self.short {
            text = replace_section(&text, "<!-- classifier: ", name, tables)
                .with_context(|| summary.display().to_string())?;
        }
        let page = folder.join(ALL_TABLES_PAGE);
        let about = format!("<!-- Made by `{command}`; {SUMMARY_PAGE} explains the tables. -->\n\n");
        fs::write(&page, about + &self.all).with_context(|| format!("cannot write {}", page.display()))?;
        fs::write(&summary, text).with_context(|| format!("cannot write {}", summary.display()))
    }
}

const SUMMARY_PAGE: &str = "classifier.md";
const ALL_TABLES_PAGE: &str = "classifier-bins.md";

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const HEADER: &str = "# label\trun\tkind\tbatch\tlost\towd_before_loss_us\tcpu_fraction\trle";

    pub(crate) fn compress(path: &Path, text: &str) {
        let mut file = GzEncoder::new(std::fs::File::create(path).unwrap(), Compression::fast());
        file.write_all(text.as_bytes()).unwrap();
        file.finish().unwrap();
    }

    #[test]
    fn windows_are_read_and_cut_from_runs() {
        let folder = tempfile::tempdir().unwrap();
        compress(
            &folder.path().join("w100_hyb.txt.gz"),
            &format!("{HEADER}\n\nhyb\tr1\thyb-random\t4\t8\t120\t0.7500\t10,6,30,2\n"),
        );
        let settings = r#"{"batch":4}"#;
        let gaps = "10:6:6 30:2:0 147:10:10";
        compress(
            &folder.path().join("runs.txt.gz"),
            &format!(
                "r1\thyb\thyb-random\t430\t18\t3\t{settings}\t{gaps}\nr2\tcpu\tgen\t99\t0\t0\t{settings}\t\n"
            ),
        );
        let windows = read(folder.path()).unwrap();
        let evidence = Evidence { burst: Some(4), delay_s: Some(120e-6), host_drops: Some(6), marks: None };
        assert_eq!((windows[0].cause, windows[0].evidence, windows.len()), (Label::Both, evidence, 1));
        assert_eq!(windows[0].signature, Signature::from_runs(100, [10, 6, 30, 2]).unwrap());

        let runs = runs(folder.path()).unwrap();
        let (mut cut, mut meter) = (Vec::new(), Meter::new());
        runs.iter().try_for_each(|run| run.cut(100, &mut meter, |window| cut.push(window))).unwrap();
        // The third gap spans the windows from 100 and from 200: packets 195 to 205.
        let halves =
            [Signature::from_runs(100, [95, 5]).unwrap(), Signature::from_runs(100, [0, 5]).unwrap()];
        assert_eq!(cut.len(), 3);
        assert_eq!(cut[0].signature, windows[0].signature);
        assert_eq!([&cut[1].signature, &cut[2].signature], [&halves[0], &halves[1]]);
        assert_eq!(
            cut.iter().map(|window| window.evidence.host_drops).collect::<Vec<_>>(),
            [Some(6), Some(5), Some(5)]
        );
        assert_eq!([cut[0].cause, cut[1].cause], [Label::Both, Label::Host]);
    }

    #[test]
    fn invalid_windows_are_rejected_with_their_line() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("lab signatures"));
        compress(&folder.path().join("w100_cpu.txt.gz"), "no header\n");
        assert!(read(folder.path()).unwrap_err().to_string().contains("no header"));
        let long = format!("{HEADER}\ncpu\tr1\tgen\t4\t600\t120\t1.0\t10,600\n");
        compress(&folder.path().join("w100_cpu.txt.gz"), &long);
        let error = format!("{:#}", read(folder.path()).unwrap_err());
        assert!(error.contains("line 2") && error.contains("more than the window"), "{error}");
    }

    /// The windows published with the runs equal those that are cut from the runs.
    #[test]
    fn windows_cut_from_runs_equal_those_of_the_open_set() {
        let open = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/signatures");
        if !open.is_dir() {
            return barograph_sim::report_skipped(
                "windows_cut_from_runs_equal_those_of_the_open_set: no ../shared/signatures",
            );
        }
        let key = |window: &LabelledWindow| {
            (
                window.run.clone(),
                window.signature.loss_runs().map(|gap| (gap.received, gap.lost)).collect::<Vec<_>>(),
            )
        };
        let mut read: Vec<_> = read(&open).unwrap();
        read.retain(|window| window.signature.packets() == 20_000);
        let (mut cut, mut meter) = (Vec::new(), Meter::new());
        runs(&open)
            .unwrap()
            .iter()
            .try_for_each(|run| run.cut(20_000, &mut meter, |window| cut.push(window)))
            .unwrap();
        let known: std::collections::HashMap<_, _> = cut.iter().map(|window| (key(window), window)).collect();
        let same = read
            .iter()
            .filter(|window| known.get(&key(window)).is_some_and(|cut| cut.cause == window.cause))
            .count();
        assert!(0.99 * read.len() as f64 <= same as f64, "{same} of {}", read.len());
    }

    #[test]
    fn only_the_text_between_marks_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let summary = folder.path().join(SUMMARY_PAGE);
        let page = |verdicts: &str| {
            format!(
                "# Lab\n<!-- classifier: worth -->\nkept\n<!-- end -->\n<!-- classifier: verdicts -->\n{verdicts}\n<!-- end -->\nMore.\n"
            )
        };
        fs::write(&summary, page("old")).unwrap();
        let mut report = Report::default();
        report.add("## Title\n\n| all |\n");
        report.add_short("verdicts", "\n## Title\n\n| new |\n");
        report.write(folder.path(), "lab classifier").unwrap();
        assert_eq!(fs::read_to_string(&summary).unwrap(), page("| new |"));
        assert!(
            fs::read_to_string(folder.path().join(ALL_TABLES_PAGE))
                .unwrap()
                .ends_with("-->\n\n## Title\n\n| all |\n")
        );
    }

    #[test]
    fn a_page_without_marks_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let summary = folder.path().join(SUMMARY_PAGE);
        let mut report = Report::default();
        report.add_short("verdicts", "| new |");
        for text in
            ["# Lab\n", "<!-- classifier: verdicts -->\n| old |\n<!-- classifier: worth -->\n<!-- end -->\n"]
        {
            fs::write(&summary, text).unwrap();
            let error = format!("{:#}", report.write(folder.path(), "").unwrap_err());
            assert!(error.contains("classifier: verdicts"), "{error}");
            assert_eq!(fs::read_to_string(&summary).unwrap(), text);
            assert!(!folder.path().join(ALL_TABLES_PAGE).exists());
        }
    }
}
