//! Measures natively and in the browser in turns, one pair of samples at a time. Each goes first in
//! half of the pairs.

use std::path::Path as FilePath;
use std::time::Duration;

use anyhow::ensure;
use barograph_forecast::{Battery, BatteryConfig, Preset, Rule};
use barograph_probe::io::{CancellationToken, ResponderLimits};
use barograph_probe::{Direction, Experiment};
use barograph_study::compare::{SeriesComparison, TcpCounters, TimedSeries};
use barograph_study::input::Sample;
use indicatif::ProgressBar;
use serde::Serialize;

use super::link::{LinkSetup, LinkTestbed};
use super::programs::{Quantity, Ready, SampleRequest, Shown};
use super::{Args, ClockName, programs};
use crate::jobs::bar;
use crate::output::save;
use crate::stats::{mean, median};

pub(crate) struct LinkStudy {
    pub(crate) name: &'static str,
    pub(crate) slug: &'static str,
    pub(crate) quantities: Vec<(Quantity, SeriesComparison)>,
    /// Failed samples of the native program and of the browser.
    pub(crate) failures: (u32, u32),
    /// Why the study ended before all pairs were made, if it did.
    pub(crate) stopped: Option<String>,
    pub(crate) invalid_reason: Option<String>,
}

impl LinkStudy {
    pub(crate) fn failed(path: &LinkSetup, error: &anyhow::Error) -> Self {
        let stopped = Some(format!("{error:#}"));
        let (name, slug) = (path.name, path.slug);
        Self { name, slug, quantities: Vec::new(), failures: (0, 0), stopped, invalid_reason: None }
    }

    pub(crate) fn of(&self, wanted: Quantity) -> Option<&SeriesComparison> {
        self.quantities.iter().find(|(quantity, _)| *quantity == wanted).map(|(_, study)| study)
    }

    pub(crate) fn has_pairs(&self) -> bool {
        self.quantities.iter().any(|(_, study)| !study.pairing.pairs.is_empty())
    }
}

#[derive(Default)]
pub(crate) struct PairedSamples {
    native: TimedSeries,
    browser: TimedSeries,
    failures: (u32, u32),
    /// Number of pairs tried; `failed` of them lack one or both samples.
    tried: u32,
    failed: u32,
    last_error: String,
}

/// Measures all quantities on one link. It ends early, with the pairs so far, when it is cancelled
/// or fails too often.
pub(crate) fn pairs(
    testbed: &mut LinkTestbed,
    args: &Args,
    cancel: &CancellationToken,
) -> anyhow::Result<LinkStudy> {
    let bar = progress(u64::from(args.pairs), testbed.name);
    let mut samples = Quantity::ALL.map(|quantity| (quantity, PairedSamples::default()));
    let mut stopped = None;
    for pair in 0..args.pairs {
        for (quantity, samples) in &mut samples {
            let request = SampleRequest {
                quantity: *quantity,
                bytes: args.bytes,
                write_bytes: None,
                message_bytes: None,
            };
            samples.take(testbed, args, &request, pair % 2 == 0, cancel);
        }
        stopped = samples.iter().find_map(|(quantity, samples)| samples.too_many_failures(*quantity));
        if stopped.is_some() || cancel.is_cancelled() {
            break;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let failures = samples.iter().fold((0, 0), |(native, browser), (_, samples)| {
        (native + samples.failures.0, browser + samples.failures.1)
    });
    let studies: anyhow::Result<Vec<_>> =
        samples.into_iter().map(|(quantity, samples)| Ok((quantity, samples.study(quantity)?))).collect();
    let (name, slug, invalid_reason) = (testbed.name, testbed.slug, testbed.invalid_reason());
    Ok(LinkStudy { name, slug, quantities: studies?, failures, stopped, invalid_reason })
}

impl PairedSamples {
    /// Takes one sample by each program. If cancelled meanwhile, the pair stays incomplete.
    pub(crate) fn take(
        &mut self,
        testbed: &mut LinkTestbed,
        args: &Args,
        request: &SampleRequest,
        is_native_first: bool,
        cancel: &CancellationToken,
    ) {
        let mut is_whole = true;
        for is_native in [is_native_first, !is_native_first] {
            let time_s = testbed.now_s();
            let taken = if is_native {
                testbed
                    .target()
                    .and_then(|target| programs::native_measure(&testbed.network, &target, request, cancel))
            } else {
                testbed.measure_in_browser(request, args).map(|value| (value, TcpCounters::default()))
            };
            if cancel.is_cancelled() {
                return;
            }
            match taken.and_then(usable) {
                Ok((value, kernel)) => {
                    let series = if is_native { &mut self.native } else { &mut self.browser };
                    series.push(Sample { time_s, value }, kernel);
                }
                Err(error) => {
                    is_whole = false;
                    *(if is_native { &mut self.failures.0 } else { &mut self.failures.1 }) += 1;
                    self.last_error = format!("{}: {error:#}", who(is_native));
                    eprintln!("{} of {}", request.quantity.as_str(), self.last_error);
                }
            }
        }
        self.tried += 1;
        self.failed += u32::from(!is_whole);
    }

    /// Reason to stop because too many pairs failed, if so.
    pub(crate) fn too_many_failures(&self, quantity: Quantity) -> Option<String> {
        let Self { tried, failed, last_error, .. } = self;
        let is_much = *failed > FAILURES_MAX && f64::from(*failed) > FAILURES_SHARE_MAX * f64::from(*tried);
        is_much.then(|| {
            format!("{failed} of {tried} pairs of {} failed; the last by {last_error}", quantity.as_str())
        })
    }

    pub(crate) fn study(mut self, quantity: Quantity) -> anyhow::Result<SeriesComparison> {
        let config = BatteryConfig { preset: Preset::Full, rule: Rule::Blend, levels: Vec::new() };
        for series in [&mut self.native, &mut self.browser] {
            series.quantity = Some(quantity.as_str().to_owned());
        }
        Ok(SeriesComparison::of(self.native, self.browser, quantity.better(), &config)?)
    }
}

pub(crate) fn progress(steps: u64, what: &str) -> ProgressBar {
    bar(steps, "{msg}, {eta} left").with_message(what.to_owned())
}

/// Writes each series of a link in the format that `barograph compare` reads.
pub(crate) fn write_csv(study: &LinkStudy, directory: &FilePath) -> anyhow::Result<()> {
    for (quantity, compared) in &study.quantities {
        let quantity = quantity.as_str();
        for (who, side) in [("native", &compared.a), ("browser", &compared.b)] {
            let mut text = "time_s,value,quantity,retrans,min_rtt_s\n".to_owned();
            for (Sample { time_s, value }, kernel) in side.series.samples.iter().zip(&side.series.kernel) {
                let retrans = kernel.retrans.map_or_else(String::new, |count| count.to_string());
                let min_rtt_s = kernel.min_rtt_s.map_or_else(String::new, |s| s.to_string());
                text += &format!("{time_s},{value},{quantity},{retrans},{min_rtt_s}\n");
            }
            save(directory, &format!("{}-{quantity}-{who}.csv", study.slug), &text)?;
        }
    }
    Ok(())
}

/// Returns the value if a forecaster accepts it; any other value is not a time or a rate.
fn usable((value, kernel): (f64, TcpCounters)) -> anyhow::Result<(f64, TcpCounters)> {
    ensure!(value.is_finite() && value.abs() <= Battery::VALUE_MAX, "measured {value}");
    Ok((value, kernel))
}

fn who(is_native: bool) -> &'static str {
    if is_native { "the native program" } else { "the browser" }
}

/// Up to this many failures may be an accident, however few pairs there were.
const FAILURES_MAX: u32 = 20;

/// With a larger share of failures the rest does not represent the link, and the study would never
/// end.
const FAILURES_SHARE_MAX: f64 = 0.05;

pub(crate) struct Buffers {
    /// Bytes of a native write and of a message of the page; `None` is the default of each.
    pub(crate) write_bytes: Option<usize>,
    /// Bytes that the native program's responder reads at once; `None` is its default. The station
    /// that answers the page has no such setting.
    pub(crate) receive_bytes: Option<usize>,
    pub(crate) study: SeriesComparison,
    pub(crate) invalid_reason: Option<String>,
}

impl Buffers {
    /// Whether both have their defaults.
    pub(crate) fn is_default(&self) -> bool {
        (self.write_bytes, self.receive_bytes) == (None, None)
    }
}

pub(crate) fn rows(path: &LinkSetup, args: &Args, cancel: &CancellationToken) -> Vec<Buffers> {
    let mut rows = Vec::new();
    for (write_bytes, receive_bytes) in SETTINGS {
        if cancel.is_cancelled() {
            break;
        }
        match row(path, args, write_bytes, receive_bytes, cancel) {
            Ok(row) => rows.push(row),
            Err(error) => eprintln!("buffers: {error:#}"),
        }
    }
    rows
}

fn row(
    path: &LinkSetup,
    args: &Args,
    write_bytes: Option<usize>,
    receive_bytes: Option<usize>,
    cancel: &CancellationToken,
) -> anyhow::Result<Buffers> {
    let mut limits = ResponderLimits::default();
    if let Some(bytes) = receive_bytes {
        limits.receive_block_bytes = bytes;
    }
    let mut testbed = path.testbed_with(args, limits)?;
    let quantity = Quantity::Goodput;
    let request = SampleRequest { quantity, bytes: args.bytes, write_bytes, message_bytes: write_bytes };
    let mut samples = PairedSamples::default();
    let bar = progress(args.buffer_pairs.into(), "buffers");
    let mut stopped = None;
    for pair in 0..args.buffer_pairs {
        samples.take(&mut testbed, args, &request, pair % 2 == 0, cancel);
        stopped = samples.too_many_failures(quantity);
        if stopped.is_some() || cancel.is_cancelled() {
            break;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let invalid_reason = testbed.invalid_reason().or(stopped);
    Ok(Buffers { write_bytes, receive_bytes, study: samples.study(quantity)?, invalid_reason })
}

/// The paper's write sizes (§4.2: 32 KiB in C, 64 KiB in Java), and the receive blocks with which
/// they made a difference there (512 B) and with which they did not (1 KiB). Each row varies one of
/// them.
const SETTINGS: [(Option<usize>, Option<usize>); 5] =
    [(None, None), (Some(32 * 1024), None), (Some(64 * 1024), None), (None, Some(512)), (None, Some(1024))];

#[derive(Serialize)]
pub(crate) struct Rates {
    pub(crate) link: &'static str,
    pub(crate) up: DirectionRates,
    pub(crate) down: DirectionRates,
    /// Why the rounds ended before all were made, if they did.
    pub(crate) stopped: Option<String>,
    #[serde(rename = "void")]
    pub(crate) invalid_reason: Option<String>,
}

/// Values measured in one direction, one for each round.
#[derive(Default, Serialize)]
pub(crate) struct DirectionRates {
    pub(crate) page: Vec<Shown>,
    /// With transfers of 64 KiB, corrected like the page's other values.
    pub(crate) page_small_bit_s: Vec<f64>,
    pub(crate) native_bit_s: Vec<f64>,
}

impl DirectionRates {
    /// Medians (bit/s): of the page's default, of the page with 64 KiB, and of the native program.
    pub(crate) fn medians(&self) -> [Option<f64>; 3] {
        let page: Vec<f64> = self.page.iter().map(|shown| shown.bit_s).collect();
        [&page, &self.page_small_bit_s, &self.native_bit_s].map(|values| median(values))
    }
}

pub(crate) fn of_link(path: &LinkSetup, args: &Args, cancel: &CancellationToken) -> anyhow::Result<Rates> {
    let mut testbed = path.testbed(args)?;
    let (mut up, mut down) = (DirectionRates::default(), DirectionRates::default());
    let bar = progress(args.rate_rounds.into(), "rates");
    let mut stopped = None;
    for _ in 0..args.rate_rounds {
        if let Err(error) = round(&mut testbed, args, cancel, &mut up, &mut down) {
            stopped = Some(format!("{error:#}"));
            break;
        }
        if cancel.is_cancelled() {
            break;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Rates { link: path.name, up, down, stopped, invalid_reason: testbed.invalid_reason() })
}

fn round(
    testbed: &mut LinkTestbed,
    args: &Args,
    cancel: &CancellationToken,
    up: &mut DirectionRates,
    down: &mut DirectionRates,
) -> anyhow::Result<()> {
    for (direction, beside) in [(Direction::Up, &mut *up), (Direction::Down, &mut *down)] {
        beside.native_bit_s.push(native_bit_s(testbed, direction, cancel)?);
    }
    let shown = testbed.browser(args)?.cycle("auto")?;
    up.page.push(shown.goodput);
    down.page.push(shown.goodput_down);
    let small = testbed.browser(args)?.cycle(SMALL_BYTES)?;
    up.page_small_bit_s.push(small.goodput.bit_s);
    down.page_small_bit_s.push(small.goodput_down.bit_s);
    Ok(())
}

fn native_bit_s(
    testbed: &LinkTestbed,
    direction: Direction,
    cancel: &CancellationToken,
) -> anyhow::Result<f64> {
    let experiment = Experiment::Goodput { direction, bytes: NATIVE_BYTES };
    Ok(programs::one(&testbed.network, &testbed.target()?, experiment, DEADLINE, None, cancel)?.value)
}

/// Large enough that slow start is a small part: 1.4 s at 100 Mbit/s.
pub(crate) const NATIVE_BYTES: u64 = 16 << 20;

/// JavaNws's size, and the page's smallest.
const SMALL_BYTES: u64 = 64 << 10;

/// 16 MiB take 70 s at 2 Mbit/s.
const DEADLINE: Duration = Duration::from_secs(120);

#[derive(Default)]
pub(crate) struct Overhead {
    pub(crate) blocks: Vec<Block>,
    /// Why blocks are missing, if they are.
    pub(crate) stopped: Option<String>,
}

/// The three programs one after another, each on one warm connection.
#[derive(Serialize)]
pub(crate) struct Block {
    pub(crate) clock: ClockName,
    #[serde(skip)]
    pub(crate) ready: Ready,
    /// Exchanges of `barograph probe` with the native responder.
    pub(crate) native: Centre,
    /// Exchanges of a native WebSocket client with the station.
    pub(crate) websocket: Centre,
    /// Exchanges of the page with the station.
    pub(crate) browser: Centre,
}

/// Centre of the times of a block, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub(crate) struct Centre {
    pub(crate) median_s: f64,
    /// Mean. A coarse clock gives only whole steps, and so does the median; the mean resolves less
    /// than a step.
    pub(crate) mean_s: f64,
}

impl Centre {
    fn of(times_s: &[f64]) -> Option<Self> {
        let measured = times_s.get(WARMING as usize..)?;
        let median_s = median(measured)?;
        Some(Self { median_s, mean_s: mean(measured) })
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self { median_s: self.median_s - other.median_s, mean_s: self.mean_s - other.mean_s }
    }
}

impl Overhead {
    /// Centres of one program in all blocks, or in those of one clock.
    pub(crate) fn centres(&self, clock: Option<ClockName>, of: impl Fn(&Block) -> Centre) -> Vec<Centre> {
        let wanted = self.blocks.iter().filter(|block| clock.is_none_or(|clock| clock == block.clock));
        wanted.map(of).collect()
    }

    /// How much later the coarse clock reads than the fine one, for each two neighbouring blocks.
    pub(crate) fn clock_share(&self) -> Vec<Centre> {
        let of = |clock| self.centres(Some(clock), |block| block.browser.minus(block.websocket));
        of(ClockName::Coarse)
            .into_iter()
            .zip(of(ClockName::Fine))
            .map(|(coarse, fine)| coarse.minus(fine))
            .collect()
    }

    /// What the browser with this clock reported when it opened the page.
    pub(crate) fn ready(&self, clock: ClockName) -> Option<&Ready> {
        self.blocks.iter().find(|block| block.clock == clock).map(|block| &block.ready)
    }
}

/// Measures blocks with the fine and the coarse clock in turns, each in a new browser.
pub(crate) fn by_clock(testbed: &mut LinkTestbed, args: &Args, cancel: &CancellationToken) -> Overhead {
    let mut overhead = Overhead::default();
    let bar = progress(2 * BLOCKS, "what the browser adds");
    for turn in 0..BLOCKS {
        let mut clocks = [ClockName::Fine, ClockName::Coarse];
        // Each clock goes first in turn.
        clocks.rotate_left((turn % 2) as usize);
        for clock in clocks {
            let made = block(testbed, args, clock, overhead.blocks.len(), cancel);
            if cancel.is_cancelled() {
                return overhead;
            }
            match made {
                Ok(block) => overhead.blocks.push(block),
                Err(error) => {
                    overhead.stopped = Some(format!("{error:#}"));
                    return overhead;
                }
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    overhead
}

fn block(
    testbed: &mut LinkTestbed,
    args: &Args,
    clock: ClockName,
    number: usize,
    cancel: &CancellationToken,
) -> anyhow::Result<Block> {
    let (target, station) = (testbed.target()?, testbed.station());
    let (_, ready) = testbed.reopened(args, clock)?;
    let mut centres = [Centre::default(); 3];
    for turn in 0..3 {
        // Each program goes first in a third of the blocks.
        let which = (turn + number) % 3;
        let times_s = match which {
            0 => programs::native_exchanges(&testbed.network, &target, WARMING + EXCHANGES, cancel)?,
            1 => programs::websocket_exchanges(&testbed.network, station, WARMING + EXCHANGES)?,
            _ => testbed.browser(args)?.exchanges(WARMING + EXCHANGES)?,
        };
        centres[which] = Centre::of(&times_s).ok_or_else(|| anyhow::anyhow!("too few exchanges"))?;
    }
    let [native, websocket, browser] = centres;
    Ok(Block { clock, ready, native, websocket, browser })
}

/// Blocks with each clock: enough to see how much they differ.
const BLOCKS: u64 = 5;

/// Exchanges of each program in a block. With the warm-up they are the most that a session allows.
pub(crate) const EXCHANGES: u32 = 900;

/// Warm-up exchanges: code is compiled, and caches and the processor's clock warm up.
const WARMING: u32 = 99;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::link::Replayed;
    use super::super::{LinkName, Results, tables};

    use super::*;

    fn tables_of(results: &Results) -> String {
        tables::all(results)
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
            .collect()
    }

    fn worse_by_half() -> LinkStudy {
        let quantities = Quantity::ALL.map(|quantity| {
            let mut samples = PairedSamples::default();
            for i in 0..50 {
                let value = 1.0 + f64::from(i % 7);
                let kernel = TcpCounters { retrans: Some(1), min_rtt_s: Some(0.5) };
                samples.native.push(Sample { time_s: f64::from(i), value }, kernel);
                let value = if quantity.is_transfer() { value / 2.0 } else { value * 2.0 };
                samples.browser.push(Sample { time_s: f64::from(i) + 0.25, value }, TcpCounters::default());
            }
            (quantity, samples.study(quantity).unwrap())
        });
        LinkStudy {
            name: "a link",
            slug: "link",
            quantities: quantities.into(),
            failures: (0, 0),
            stopped: None,
            invalid_reason: None,
        }
    }

    #[test]
    fn a_ratio_below_1_means_in_every_column_that_the_browser_is_worse() {
        let results = Results { links: vec![worse_by_half()], ..Results::default() };
        let text = tables_of(&results);
        let row = text.lines().find(|line| line.matches("0.5000 (0.5000: 0)").count() == 3);
        assert!(row.is_some_and(|row| row.starts_with("| a link |")), "{text}");
        for table in ["Table 1", "Table 2", "Table 3", "Table 4", "| a link | 50, 50, 50 | 0, 0 | kept up |"]
        {
            assert!(text.contains(table), "{text}");
        }
    }

    #[test]
    fn a_failed_link_is_marked_in_the_tables() {
        let replayed = Replayed::seeded();
        let path = LinkSetup::of(LinkName::Loopback, &replayed);
        let failed = LinkStudy::failed(&path, &anyhow::anyhow!("the browser cannot open the page"));
        assert!(!failed.has_pairs() && worse_by_half().has_pairs());
        let folder = tempfile::tempdir().unwrap();
        write_csv(&failed, folder.path()).unwrap();
        let results = Results { links: vec![worse_by_half(), failed], ..Results::default() };
        let text = tables_of(&results);
        assert!(
            text.contains("| loopback | – | 0, 0 | **stopped**: the browser cannot open the page |"),
            "{text}"
        );
        assert!(text.contains("| loopback | – | – | – | – | – | – | – |"), "{text}");
        crate::equivalence::tables::write_figures(&results.links, folder.path()).unwrap();
        let json = tables::json(&results);
        assert_eq!(json["links"][1]["stopped"], "the browser cannot open the page");
        assert_eq!(json["links"][0]["quantities"][2]["coefficient"], 0.5);
    }

    #[test]
    fn few_failures_are_accepted_and_many_failures_end_a_link() {
        let told = |tried, failed| {
            PairedSamples { tried, failed, ..PairedSamples::default() }
                .too_many_failures(Quantity::Rtt)
                .is_some()
        };
        assert_eq!([told(20, 20), told(21, 21), told(1000, 50), told(1000, 51)], [false, true, false, true]);
    }

    #[test]
    fn values_that_a_forecaster_rejects_are_failures() {
        assert!(usable((0.0, TcpCounters::default())).is_ok(), "a coarse clock sees no time pass");
        for value in [f64::INFINITY, f64::NAN, 1e300] {
            assert!(usable((value, TcpCounters::default())).is_err());
        }
    }

    #[test]
    fn written_files_read_back_as_the_compared_series() {
        let folder = tempfile::tempdir().unwrap();
        let study = worse_by_half();
        write_csv(&study, folder.path()).unwrap();
        for (quantity, compared) in &study.quantities {
            for (who, side) in [("native", &compared.a), ("browser", &compared.b)] {
                let path = folder.path().join(format!("link-{}-{who}.csv", quantity.as_str()));
                let read = TimedSeries::read(&*fs::read(path).unwrap()).unwrap();
                assert_eq!(read, side.series);
            }
        }
    }

    #[test]
    fn every_figure_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let told = crate::equivalence::tables::write_figures(&[worse_by_half()], folder.path()).unwrap();
        for number in 4..=9 {
            let name = format!("figure-{number}.svg");
            assert!(told.contains(&name), "{told}");
            assert!(fs::read_to_string(folder.path().join(name)).unwrap().contains("a link, "));
        }
    }
}
