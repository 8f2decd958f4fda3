//! Native and browser in turns: a pair of samples at a time, each going first as often as the other.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use barograph::compare::{Better, Kernel, Series, Study};
use barograph::input::Sample;
use barograph_forecast::{Config, Preset, Rule};
use barograph_probe::io::Cancel;
use indicatif::{ProgressBar, ProgressStyle};

use super::link::Bench;
use super::{Args, native};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    Rtt,
    RttNagle,
    /// Up, without any correction, as in the paper's study (§2.1.1).
    Goodput,
}

impl Quantity {
    pub(crate) const ALL: [Self; 3] = [Self::Rtt, Self::RttNagle, Self::Goodput];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Rtt => "rtt",
            Self::RttNagle => "rtt_nagle",
            Self::Goodput => "goodput",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        if self.is_transfer() { "bit/s" } else { "s" }
    }

    /// A transfer is on a connection of its own, for both: on one that is in use the congestion window is
    /// what earlier transfers made it.
    pub(crate) fn is_transfer(self) -> bool {
        self == Self::Goodput
    }

    fn better(self) -> Better {
        if self.is_transfer() { Better::Larger } else { Better::Smaller }
    }
}

/// One sample, as both are asked for it.
pub(crate) struct Asked {
    pub(crate) quantity: Quantity,
    pub(crate) bytes: u64,
    /// Bytes of a write of the native program; `None` is its default.
    pub(crate) write_bytes: Option<usize>,
    /// Bytes of a message of the page; `None` is its default.
    pub(crate) message_bytes: Option<usize>,
}

/// What was measured on one link.
pub(crate) struct LinkStudy {
    pub(crate) name: &'static str,
    pub(crate) slug: &'static str,
    pub(crate) quantities: Vec<(Quantity, Study)>,
    /// Samples that failed, natively and in the browser.
    pub(crate) failures: (u32, u32),
    /// Why it is no evidence, if it is none.
    pub(crate) void: Option<String>,
}

/// Two series, and what failed.
#[derive(Default)]
pub(crate) struct Turns {
    native: Series,
    browser: Series,
    failures: (u32, u32),
}

/// All quantities on one link; ends early, with what there is, when it is cancelled.
pub(crate) fn pairs(bench: &mut Bench, args: &Args, cancel: &Cancel) -> anyhow::Result<LinkStudy> {
    let bar = progress(u64::from(args.pairs), bench.name);
    let mut turns = Quantity::ALL.map(|quantity| (quantity, Turns::default()));
    for pair in 0..args.pairs {
        for (quantity, turns) in &mut turns {
            let asked =
                Asked { quantity: *quantity, bytes: args.bytes, write_bytes: None, message_bytes: None };
            if !turns.take(bench, &asked, pair % 2 == 0, cancel)? {
                break;
            }
        }
        if cancel.is_cancelled() {
            break;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let failures = turns.iter().fold((0, 0), |(native, browser), (_, turns)| {
        (native + turns.failures.0, browser + turns.failures.1)
    });
    let studies: anyhow::Result<Vec<_>> =
        turns.into_iter().map(|(quantity, turns)| Ok((quantity, turns.study(quantity)?))).collect();
    Ok(LinkStudy { name: bench.name, slug: bench.slug, quantities: studies?, failures, void: bench.void() })
}

impl Turns {
    /// A sample by each; false when it was cancelled meanwhile, and the pair is incomplete.
    pub(crate) fn take(
        &mut self,
        bench: &mut Bench,
        asked: &Asked,
        is_native_first: bool,
        cancel: &Cancel,
    ) -> anyhow::Result<bool> {
        for is_native in [is_native_first, !is_native_first] {
            let time_s = bench.now_s();
            let taken = if is_native {
                native::measure(&bench.network, &bench.target()?, asked, cancel)
            } else {
                bench.browser()?.measure(asked).map(|value| (value, Kernel::default()))
            };
            if cancel.is_cancelled() {
                return Ok(false);
            }
            let (series, failures) = match is_native {
                true => (&mut self.native, &mut self.failures.0),
                false => (&mut self.browser, &mut self.failures.1),
            };
            match taken {
                Ok((value, kernel)) => series.push(Sample { time_s, value }, kernel),
                Err(error) => {
                    *failures += 1;
                    eprintln!("{} of {}: {error:#}", asked.quantity.as_str(), who(is_native));
                    if FAILURES_MAX < *failures {
                        bail!("{} failed {failures} times; the last: {error:#}", who(is_native));
                    }
                }
            }
        }
        Ok(true)
    }

    /// The two compared.
    pub(crate) fn study(mut self, quantity: Quantity) -> anyhow::Result<Study> {
        let config = Config { preset: Preset::Full, rule: Rule::Blend, levels: Vec::new() };
        for series in [&mut self.native, &mut self.browser] {
            series.quantity = Some(quantity.as_str().to_owned());
        }
        Ok(Study::of(self.native, self.browser, quantity.better(), &config)?)
    }
}

/// A bar with a rate and an end.
pub(crate) fn progress(steps: u64, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps).with_style(style).with_message(what.to_owned())
}

/// Writes each series in the form that `barograph compare` reads.
pub(crate) fn write_csv(studies: &[LinkStudy], directory: &Path) -> anyhow::Result<()> {
    for study in studies {
        for (quantity, compared) in &study.quantities {
            for (who, side) in [("native", &compared.a), ("browser", &compared.b)] {
                let mut text = "time_s,value,quantity,retrans,min_rtt_s\n".to_owned();
                for (Sample { time_s, value }, kernel) in side.series.samples.iter().zip(&side.series.kernel)
                {
                    let retrans = kernel.retrans.map_or_else(String::new, |count| count.to_string());
                    let min_rtt_s = kernel.min_rtt_s.map_or_else(String::new, |s| s.to_string());
                    let quantity = quantity.as_str();
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "{time_s},{value},{quantity},{retrans},{min_rtt_s}");
                }
                let path = directory.join(format!("{}-{}-{who}.csv", study.slug, quantity.as_str()));
                fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
    }
    Ok(())
}

fn who(is_native: bool) -> &'static str {
    if is_native { "the native program" } else { "the browser" }
}

/// Of a thousand samples more failures than this are no accident, and the study would take for ever.
const FAILURES_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use crate::equivalence::tables;

    /// A browser that takes twice as long, and moves half as much.
    fn worse_by_half() -> LinkStudy {
        let quantities = Quantity::ALL.map(|quantity| {
            let mut turns = Turns::default();
            for i in 0..50 {
                let value = 1.0 + f64::from(i % 7);
                let kernel = Kernel { retrans: Some(1), min_rtt_s: Some(0.5) };
                turns.native.push(Sample { time_s: f64::from(i), value }, kernel);
                let value = if quantity.is_transfer() { value / 2.0 } else { value * 2.0 };
                turns.browser.push(Sample { time_s: f64::from(i) + 0.25, value }, Kernel::default());
            }
            (quantity, turns.study(quantity).unwrap())
        });
        LinkStudy {
            name: "a link",
            slug: "link",
            quantities: quantities.into(),
            failures: (0, 0),
            void: None,
        }
    }

    #[test]
    fn below_one_means_in_every_column_that_the_browser_is_worse() {
        let text = tables::all(&[worse_by_half()], &[], &[], &[]);
        let row = text.lines().find(|line| line.matches("0.5000 (0.5000: 0)").count() == 3);
        assert!(row.is_some_and(|row| row.starts_with("| a link |")), "{text}");
        for table in ["Table 1", "Table 2", "Table 3", "Table 4", "| a link | 50, 50, 50 | 0, 0 | kept up |"]
        {
            assert!(text.contains(table), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_what_compare_reads() {
        let folder = tempfile::tempdir().unwrap();
        let study = worse_by_half();
        write_csv(std::slice::from_ref(&study), folder.path()).unwrap();
        for (quantity, compared) in &study.quantities {
            for (who, side) in [("native", &compared.a), ("browser", &compared.b)] {
                let path = folder.path().join(format!("link-{}-{who}.csv", quantity.as_str()));
                let read = Series::read(&*fs::read(path).unwrap()).unwrap();
                assert_eq!(read, side.series);
            }
        }
    }

    #[test]
    fn every_figure_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let told = crate::equivalence::figures::write(&[worse_by_half()], folder.path()).unwrap();
        for number in 4..=9 {
            let name = format!("figure-{number}.svg");
            assert!(told.contains(&name), "{told}");
            assert!(fs::read_to_string(folder.path().join(name)).unwrap().contains("a link, "));
        }
    }
}
