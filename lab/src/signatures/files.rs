//! The files of a set.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Context as _;
use barograph_loss::Meter;
use flate2::{Compression, write::GzEncoder};

use super::args::LENGTHS;
use super::cut::{About, Label, RUN_HEADER, Trace, WINDOW_HEADER, row};
use super::plan::Design;
use super::tally::Tally;

/// Files that runs are added to. Each run is written through, so that a set that is cut short has all before it.
pub(crate) struct Files {
    runs: GzEncoder<File>,
    /// By length, then by label.
    windows: Vec<Vec<GzEncoder<File>>>,
    meter: Meter,
    count: u32,
}

impl Files {
    pub(crate) fn create(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let create = |name: &str, header: &str| -> anyhow::Result<GzEncoder<File>> {
            let path = folder.join(name);
            let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
            let mut file = GzEncoder::new(file, Compression::default());
            writeln!(file, "{header}")?;
            Ok(file)
        };
        let of = |length: u32| {
            Label::ALL
                .iter()
                .map(move |label| (format!("w{length}_{}.txt.gz", label.as_str()), WINDOW_HEADER))
        };
        let windows = LENGTHS
            .iter()
            .map(|length| of(*length).map(|(name, header)| create(&name, header)).collect())
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { runs: create("runs.txt.gz", RUN_HEADER)?, windows, meter: Meter::new(), count: 0 })
    }

    /// Adds a run, and counts what it has.
    pub(crate) fn add(&mut self, design: &Design, trace: &Trace, tally: &mut Tally) -> anyhow::Result<()> {
        let run = format!("r{:04}", self.count);
        self.count += 1;
        let (class, kind, config) = (design.kind.class().as_str(), design.kind.to_string(), design.config());
        let Trace { packets, lost, gaps, contradictions } = trace;
        let gap_count = gaps.len();
        writeln!(
            self.runs,
            "{run}\t{class}\t{kind}\t{packets}\t{lost}\t{gap_count}\t{config}\t{}",
            trace.text()
        )?;
        self.runs.flush()?;
        tally.note_run(design.kind, *contradictions);
        let Design { burst, pps, receive_buffer, .. } = *design;
        let about = About { run: &run, kind: &kind, burst, pps, receive_buffer };
        for (length, files) in LENGTHS.into_iter().zip(&mut self.windows) {
            for window in trace.windows(length) {
                let (line, metrics) = row(&window, length, &about, &mut self.meter)?;
                writeln!(files[window.label() as usize], "{line}")?;
                tally.note_window(design.kind, length, &window, &metrics);
            }
            for file in files {
                file.flush()?;
            }
        }
        Ok(())
    }

    /// Writes what is left, and the ends of the files.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        for file in self.windows.into_iter().flatten().chain([self.runs]) {
            file.finish()?.sync_all()?;
        }
        Ok(())
    }
}
