//! Results of a campaign: figures 1 to 9, the paper's statements about them, and the goodput of
//! tests cut off around the end of slow start.

use barograph_probe::stream::Sample;
use barograph_study::tradeoff::{Grid, OffsetStatistics, Predictor, ScoreRow, TradeoffScores, format_period};

use super::campaign::{CONGESTION, Campaign, LENGTHS_S};
use super::figures::{BASE_S, by_length, by_period, ends_of};
use super::long::{Statement, rise, risen, said_of, statements_table};
use crate::figure::{Axis, Chart, Layer, Shape, charts, highest, largest};
use crate::stats::{Rank, median, quantile, sorted};
use crate::table::{Table, cells, list, number, shown};

pub(crate) struct CampaignResult {
    pub(crate) campaign: Campaign,
    pub(crate) study: TradeoffScores,
}

impl CampaignResult {
    pub(crate) fn of(campaign: Campaign) -> Self {
        let study = campaign.study();
        Self { campaign, study }
    }

    fn mae(&self, length: usize, every: usize, predictor: Predictor) -> Option<f64> {
        let mean = self.study.series[length].grid.mean();
        Some(100.0 * self.study.row(length, every, predictor)?.mae().mean / mean)
            .filter(|mae| mae.is_finite())
    }

    fn mean(&self, length: usize) -> f64 {
        self.study.series[length].grid.mean()
    }

    /// Centre (bit/s) of the fullest of [`BINS`] bins over the range of the whole campaign.
    fn mode(&self, length: usize) -> Option<f64> {
        let counts = self.histogram(length);
        let fullest = (0..BINS).max_by_key(|bin| counts[*bin])?;
        Some((fullest as f64 + 0.5) * self.bin_bps())
    }

    fn bin_bps(&self) -> f64 {
        largest(self.study.series.iter().flat_map(|measured| measured.grid.values())) * 1.001 / BINS as f64
    }

    fn histogram(&self, length: usize) -> Vec<usize> {
        let (mut counts, width) = (vec![0; BINS], self.bin_bps());
        for value in self.study.series[length].grid.values() {
            counts[((value / width) as usize).min(BINS - 1)] += 1;
        }
        counts
    }

    /// Number of strata: bins that hold at least a twentieth of the values and more than both
    /// neighbours.
    fn strata(&self, length: usize) -> usize {
        let counts = self.histogram(length);
        let all: usize = counts.iter().sum();
        let at = |bin: Option<usize>| bin.and_then(|bin| counts.get(bin)).copied().unwrap_or(0);
        let is_top = |bin: &usize| {
            all <= 20 * counts[*bin]
                && at(bin.checked_sub(1)) < counts[*bin]
                && at(Some(bin + 1)) <= counts[*bin]
        };
        (0..BINS).filter(is_top).count()
    }

    /// Width of the middle half of the values, in % of their median.
    fn width(&self, length: usize) -> Option<f64> {
        middle_half(self.study.series[length].grid.values())
    }

    /// Median end of slow start in tests of this length, in seconds of the paper's time.
    fn startup_s(&self, length: usize) -> Option<f64> {
        let ends: Vec<f64> = self.campaign.of_length(length).filter_map(|(_, s)| s.startup_s).collect();
        median(&ends).map(|end| end * self.campaign.plan.scale)
    }

    fn retransmitted(&self, length: usize) -> Option<f64> {
        let last = |(_, s): (_, &barograph_probe::StreamResult)| {
            Some(f64::from(s.samples.as_slice().last()?.retrans))
        };
        median(&self.campaign.of_length(length).filter_map(last).collect::<Vec<f64>>())
    }
}

pub(crate) fn report(all: &[CampaignResult]) -> String {
    let mut text = String::new();
    for found in all {
        let Campaign { name, plan, invalid, failed, peak, late_s, .. } = &found.campaign;
        text += &format!(
            "\n### The {name} link\n\n{} cycles of tests of 1, 2, 5, 7 and 10 s with {CONGESTION}; time is compressed: tests, \
             delays and the others' traffic {} ×, and five minutes from test to test of a length are {:.1} s. Rates and \
             times below are the paper's. No value: {invalid} tests that the emulator delayed, {} that failed{}. Emulator: at \
             most {:.0} % of a core. It ended {late_s:.0} s late.\n\n",
            plan.cycles,
            plan.scale,
            plan.cycle().as_secs_f64(),
            failed.0,
            if failed.0 == 0 { String::new() } else { format!(" ({})", failed.1) },
            100.0 * peak,
        );
        text += &format!(
            "{}\n{}\nThe first part of every test of 10 s, as if it had ended there:\n\n{}",
            errors(found),
            lengths(found),
            slow_start_table(&found.campaign)
        );
    }
    format!("{text}\n{}", statements_table(&statements(all)))
}

/// MAE and √MSE by length, period and predictor (figures 3, 4, 7, 8 and 9).
fn errors(found: &CampaignResult) -> Table {
    let mut table = Table::new(["test", "period"])
        .and(Predictor::ALL.map(|predictor| format!("MAE % {} (worst)", predictor.name())))
        .and(Predictor::ALL.map(|predictor| format!("√MSE % {}", predictor.name())))
        .and(["bytes/h"]);
    for (length, length_s) in LENGTHS_S.iter().enumerate() {
        for every in found.study.periods(length) {
            let rows = || Predictor::ALL.map(|predictor| found.study.row(length, every, predictor));
            let percent = |number: f64| 100.0 * number / found.mean(length);
            let mut cells = vec![format!("{length_s} s"), format_period(every as f64 * BASE_S)];
            cells.extend(rows().map(|row| {
                let mae =
                    |mae: OffsetStatistics| format!("{:.1} ({:.1})", percent(mae.mean), percent(mae.worst));
                shown(row.map(ScoreRow::mae), mae)
            }));
            cells.extend(rows().map(|row| number(row.map(|row| percent(row.root_mse().mean)), 1)));
            let bytes = found.study.series[length].bytes_per_hour(every as f64 * BASE_S);
            cells.push(shown(bytes, |bytes| format!("{bytes:.2e}")));
            table.push(cells);
        }
    }
    table
}

/// Numbers from the histograms of each length (figures 2 and 6), and the end of slow start.
fn lengths(found: &CampaignResult) -> Table {
    let mut table = Table::titled(
        "test | mean Mbit/s | mode | strata | middle half, % of the median | MAE % last | \
         slow start ends | retransmitted",
    );
    for (length, length_s) in LENGTHS_S.iter().enumerate() {
        table.push(cells![
            format!("{length_s} s"),
            format!("{:.2}", found.mean(length) / 1e6),
            number(found.mode(length).map(|mode| mode / 1e6), 2),
            found.strata(length),
            number(found.width(length), 1),
            number(found.mae(length, 1, Predictor::Last), 1),
            shown(found.startup_s(length), |s| format!("{s:.2} s")),
            number(found.retransmitted(length), 0),
        ]);
    }
    table
}

fn statements(all: &[CampaignResult]) -> Vec<Statement> {
    let mut statements = Vec::new();
    if let Some(found) = all.iter().find(|found| found.campaign.slug == "stationary") {
        of_stationary(found, &mut said_of(found.campaign.name, &mut statements));
    }
    if let Some(found) = all.iter().find(|found| found.campaign.slug == "shifting") {
        of_shifting(found, &mut said_of(found.campaign.name, &mut statements));
    }
    if let [first, second, ..] = all {
        let [first, second] = [first, second].map(|of| of.mae(4, 1, Predictor::Last));
        said_of("both", &mut statements)(
            "the MAE of the volatile link is more than proportionally higher (10 s, last)",
            first.zip(second).map(|(a, b)| (format!("{b:.1} % against {a:.1} %"), a < b)),
        );
    }
    statements
}

fn of_stationary(found: &CampaignResult, say: &mut impl FnMut(&str, Option<(String, bool)>)) {
    let [longest, shortest] = [LENGTHS_S.len() - 1, 0];
    let last = |length, every| found.mae(length, every, Predictor::Last);
    let means: Vec<f64> = (0..LENGTHS_S.len()).map(|length| found.mean(length) / 1e6).collect();
    let modes: Vec<f64> = (2..5).filter_map(|length| found.mode(length)).map(|mode| mode / 1e6).collect();
    let same = modes.iter().all(|mode| (mode - modes[0]).abs() < 1e-9);
    let listed = |rates: &[f64]| list(rates.iter().map(|rate| format!("{rate:.2}")));
    say(
        "longer tests measure more on average (Mbit/s of 1, 2, 5, 7, 10 s)",
        Some((listed(&means), means.is_sorted())),
    );
    let is_one = same && modes.len() == 3;
    say("5, 7 and 10 s share one mode (Mbit/s)", Some((listed(&modes), is_one)));
    say(
        "longer tests have a lower MAE (1 s, 10 s; last)",
        last(shortest, 1).zip(last(longest, 1)).map(|(a, b)| (format!("{a:.1} %, {b:.1} %"), b < a)),
    );
    say(
        "the MAE of 2 s tests is above that of 1 s tests (last)",
        last(0, 1).zip(last(1, 1)).map(|(one, two)| (format!("{one:.1} %, {two:.1} %"), one < two)),
    );
    if let [base, hour] = ends_of(&found.study)[..] {
        let more = last(longest, base).zip(last(longest, hour)).map(|(a, b)| b / a - 1.0);
        say(
            "the period has virtually no effect on the MAE to 1 h (10 s, last; holds: ± 10 %)",
            more.map(|more| (format!("{:+.1} %", 100.0 * more), more.abs() < 0.1)),
        );
    }
}

fn of_shifting(found: &CampaignResult, say: &mut impl FnMut(&str, Option<(String, bool)>)) {
    let longest = LENGTHS_S.len() - 1;
    let mae = |every, predictor| found.mae(longest, every, predictor);
    let ends = ends_of(&found.study);
    for every in &ends {
        let period = format_period(*every as f64 * BASE_S);
        let pair = mae(*every, Predictor::Last).zip(mae(*every, Predictor::Exponential));
        say(
            &format!("the exponential average is better than the last value ({period}, 10 s)"),
            pair.map(|(last, mean)| (format!("{last:.1} %, {mean:.1} %"), mean < last)),
        );
    }
    if let [base, hour] = ends[..] {
        let pair = mae(hour, Predictor::Last).zip(mae(hour, Predictor::Random));
        say(
            "at 1 h much better than random guessing (last, random; holds: half)",
            pair.map(|(last, random)| (format!("{last:.1} %, {random:.1} %"), 2.0 * last < random)),
        );
        for (length, length_s) in LENGTHS_S.iter().enumerate().skip(2) {
            let of = |every| found.mae(length, every, Predictor::Exponential);
            say(&rise(&format!("exponential, {length_s} s")), risen(of(base), of(hour)));
        }
    }
}

pub(crate) fn figures(found: &CampaignResult) -> anyhow::Result<String> {
    let is_stationary = found.campaign.slug == "stationary";
    let shown: Vec<usize> =
        if is_stationary { (0..LENGTHS_S.len()).collect() } else { vec![0, LENGTHS_S.len() - 1] };
    let numbers = if is_stationary { [1, 2, 3, 4] } else { [5, 6, 7, 9] };
    let figure =
        |i: usize, what: &str| format!("Figure {}: {what}, {} link", numbers[i], found.campaign.name);
    let study = &found.study;
    let mut all =
        vec![series(found, &shown, figure(0, "tests")), histograms(found, &shown, figure(1, "histograms"))];
    if is_stationary {
        all.push(by_length(study, &figure(2, "MAE by test length"), &[Predictor::Last]));
        all.push(by_period(study, &figure(3, "MAE by test period, last"), Predictor::Last));
    } else {
        all.push(by_length(study, &figure(2, "MAE by test length"), &[Predictor::Last, Predictor::Random]));
        let title = format!("Figure 8: MAE by test length, {} link", found.campaign.name);
        all.push(by_length(study, &title, &[Predictor::Last, Predictor::Exponential]));
        all.push(by_period(study, &figure(3, "MAE by test period, exponential"), Predictor::Exponential));
    }
    let within: Vec<(f64, f64)> =
        within(&found.campaign).into_iter().map(|(s, bps)| (s, bps / 1e6)).collect();
    let layers = vec![Layer::new("", Shape::Line, within, 0)];
    all.push(Chart::new(
        format!("Rate within tests of 10 s (medians), {} link", found.campaign.name),
        Axis::linear("time within the test (s)", 0.0, 10.0),
        Axis::linear("Mbit/s", 0.0, highest(&layers) * 1.1),
        layers,
    ));
    charts(&all, 2)
}

fn series(found: &CampaignResult, shown: &[usize], title: String) -> Chart {
    let layer = |(colour, length): (usize, &usize)| {
        let slots = found.study.series[*length].grid.slots.iter().enumerate();
        let point = |(index, slot): (usize, &Option<f64>)| {
            slot.map(|value| (index as f64 * BASE_S / 3600.0, value / 1e6))
        };
        let points = slots.filter_map(point).collect();
        Layer::new(format!("{} s", LENGTHS_S[*length]), Shape::Dots, points, colour)
    };
    let layers: Vec<Layer> = shown.iter().enumerate().map(layer).collect();
    let hours = found.campaign.plan.cycles as f64 * BASE_S / 3600.0;
    let y = Axis::linear("Mbit/s", 0.0, highest(&layers) * 1.05);
    Chart::new(title, Axis::linear("hours of the paper's time", 0.0, hours), y, layers)
}

fn histograms(found: &CampaignResult, shown: &[usize], title: String) -> Chart {
    let width = found.bin_bps() / 1e6;
    let layer = |(colour, length): (usize, &usize)| {
        let counts = found.histogram(*length).into_iter().enumerate();
        let points = counts.map(|(bin, count)| ((bin as f64 + 0.5) * width, count as f64)).collect();
        Layer::new(format!("{} s", LENGTHS_S[*length]), Shape::Line, points, colour)
    };
    let layers: Vec<Layer> = shown.iter().enumerate().map(layer).collect();
    let y = Axis::linear("tests in a bin", 0.0, highest(&layers) * 1.05);
    Chart::new(title, Axis::linear("Mbit/s", 0.0, width * BINS as f64), y, layers)
}

/// Bins of a histogram: each is about a twentieth of the highest value wide, and a few of a hundred
/// tests fall into it.
const BINS: usize = 24;

/// Median rate in each twentieth of the longest tests: time (s) and rate (bit/s), in the paper's
/// time.
pub(crate) fn within(campaign: &Campaign) -> Vec<(f64, f64)> {
    let part_s = LENGTHS_S[LONGEST] / PARTS as f64;
    let part = |part: usize| {
        let edges = [part, part + 1].map(|edge| edge as f64 * part_s);
        let rates = campaign.of_length(LONGEST).filter_map(|(_, streamed)| {
            let [from, to] =
                edges.map(|edge_s| acked_bytes(streamed.samples.as_slice(), edge_s / campaign.plan.scale));
            // The bytes of a compressed part divided by its uncompressed time: a rate of the
            // paper's time.
            Some((to? - from?) * 8.0 / part_s)
        });
        Some(((part as f64 + 0.5) * part_s, median(&rates.collect::<Vec<f64>>())?))
    };
    (0..PARTS).filter_map(part).collect()
}

/// Scatter of the goodput over the first seconds of the longest tests, and the last value's error.
pub(crate) fn slow_start_table(campaign: &Campaign) -> Table {
    let mut table = Table::titled(
        "first | mean Mbit/s | slow start ended before | middle half, % of the median | MAE % last",
    );
    for first_s in FIRST_S {
        let compressed_s = first_s / campaign.plan.scale;
        let mut slots = vec![None; campaign.plan.cycles];
        let (mut ended, mut all) = (0_usize, 0_usize);
        for (test, streamed) in campaign.of_length(LONGEST) {
            slots[test.cycle] =
                acked_bytes(streamed.samples.as_slice(), compressed_s).map(|bytes| 8.0 * bytes / first_s);
            all += 1;
            ended += usize::from(streamed.startup_s.is_some_and(|end_s| end_s <= compressed_s));
        }
        let grid = Grid { base_s: BASE_S, slots, duplicates: 0 };
        let mae = Predictor::Last.errors(&grid, 1, 0, 0).map_or(f64::NAN, |errors| errors.mae);
        table.push(cells![
            format!("{first_s} s"),
            format!("{:.2}", grid.mean() / 1e6),
            format!("{:.0} %", 100.0 * ended as f64 / all.max(1) as f64),
            format!("{:.1}", middle_half(grid.values()).unwrap_or(f64::NAN)),
            format!("{:.1}", 100.0 * mae / grid.mean()),
        ]);
    }
    table
}

/// Width of the middle half of some values, in % of their median.
pub(crate) fn middle_half(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values = sorted(values);
    let at = |share: f64| quantile(&values, share, Rank::Above);
    Some(100.0 * (at(0.75)? - at(0.25)?) / at(0.5)?)
}

/// Bytes that the far end had acknowledged at `at_s`, interpolated between samples; `None` after
/// the last sample.
pub(crate) fn acked_bytes(samples: &[Sample], at_s: f64) -> Option<f64> {
    let after = samples.iter().position(|sample| at_s <= sample.time_s)?;
    let Some(before) = after.checked_sub(1) else { return Some(0.0) };
    let (a, b) = (samples[before], samples[after]);
    let share = (at_s - a.time_s) / (b.time_s - a.time_s).max(f64::MIN_POSITIVE);
    Some(a.acked_bytes as f64 + share * b.acked_bytes.saturating_sub(a.acked_bytes) as f64)
}

/// Index of the tests of 10 s.
const LONGEST: usize = LENGTHS_S.len() - 1;

/// Parts of half a second of the paper's time each.
const PARTS: usize = 20;

/// Seconds around the end of slow start, and the paper's lengths. 9.8 stands for 10, because the
/// last samples lie a little before the end.
const FIRST_S: [f64; 12] = [0.3, 0.5, 0.7, 0.9, 1.1, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 9.8];

#[cfg(test)]
mod tests {
    use barograph_study::tradeoff::MeasuredSeries;

    use super::super::campaign::Plan;

    use super::*;

    /// A campaign without tests; its study has the same values for every length.
    fn found(values: &[f64]) -> CampaignResult {
        let slots: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
        let measured = |length_s: &f64| MeasuredSeries {
            name: String::new(),
            length_s: Some(*length_s),
            bit_per_s: Some(1.0),
            grid: Grid { base_s: BASE_S, slots: slots.clone(), duplicates: 0 },
        };
        let study = TradeoffScores::of(LENGTHS_S.iter().map(measured).collect(), &[600.0], 1, &|| {});
        let campaign = Campaign {
            name: "stationary",
            slug: "stationary",
            plan: Plan { scale: 1.0, cycles: values.len(), seed: 1 },
            tests: Vec::new(),
            invalid: 0,
            failed: (0, String::new()),
            peak: 0.0,
            late_s: 0.0,
        };
        CampaignResult { campaign, study }
    }

    #[test]
    fn strata_of_rates_are_counted() {
        let two: Vec<f64> = (0..40).map(|i| if i % 2 == 0 { 2e6 } else { 4e6 }).collect();
        assert_eq!(found(&two).strata(0), 2);
        assert_eq!(found(&[3e6; 20]).strata(4), 1);
        assert_eq!(found(&two).width(0), Some(50.0), "4 − 2 of the upper median 4");
        let odd = [[1e6; 4].as_slice(), &[2e6; 9]].concat();
        assert!((found(&odd).mode(0).unwrap_or(0.0) / 2e6 - 1.0).abs() < 0.05);
    }

    #[test]
    fn a_campaign_without_measurements_has_a_report() {
        let mut empty = found(&[1e6, 2e6]);
        empty.study = empty.campaign.study();
        let text = report(&[empty]);
        assert!(text.contains("not computed") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn bytes_between_samples_are_interpolated_linearly() {
        let sample = |time_s, acked_bytes| Sample {
            time_s,
            acked_bytes,
            rtt_s: None,
            min_rtt_s: None,
            retrans: 0,
            app_limited: false,
        };
        let samples = [sample(0.1, 0), sample(0.3, 1000), sample(0.5, 3000)];
        for (at_s, expected) in
            [(0.0, Some(0.0)), (0.1, Some(0.0)), (0.2, Some(500.0)), (0.45, Some(2500.0)), (0.6, None)]
        {
            let near = |bytes: f64| (bytes * 1e6).round() / 1e6;
            assert_eq!(acked_bytes(&samples, at_s).map(near), expected, "{at_s}");
        }
        assert_eq!(acked_bytes(&[], 0.0), None);
    }
}
