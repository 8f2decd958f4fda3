//! Converts the arrivals of a run to gaps, windows, labels and rows; pure.

use std::fmt::Write as _;

use barograph_loss::{Meter, Metrics, Signature};

/// A packet that the receiver read, in the order of reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Sequence number; the sender counts from 0.
    pub(crate) sequence: u64,
    /// From the sender's clock to the receiving kernel's (ns).
    pub(crate) delay_ns: i64,
    /// From the kernel's receipt to its reading (µs).
    pub(crate) sojourn_us: u32,
    /// Packets that the socket had dropped before this one was queued, modulo 2^32.
    pub(crate) drops: u32,
}

/// A run of lost packets, and what is known about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Packets received since the previous gap, or since the start of the run.
    pub(crate) received: u64,
    /// Packets lost, at least 1.
    pub(crate) lost: u64,
    /// Lost packets that the socket dropped, by the kernel's counter.
    pub(crate) drops: u64,
    /// One-way delay of the packet before the gap, above the run's minimum (µs).
    pub(crate) delay_us: u64,
    /// Time that this packet waited to be read (µs).
    pub(crate) sojourn_us: u32,
}

/// All packets of a run, from the first that was received to the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) packets: u64,
    pub(crate) lost: u64,
    pub(crate) gaps: Vec<Gap>,
    /// Gaps in which the socket dropped more packets than were lost, so that one of the counts is
    /// wrong.
    pub(crate) contradictions: u64,
}

impl Trace {
    /// A packet that arrives within `margin` packets after a later one counts as reordered, not
    /// lost.
    pub(crate) fn new(mut arrivals: Vec<Arrival>, margin: u64) -> Self {
        let mut latest = 0;
        arrivals.retain(|arrival| {
            latest = latest.max(arrival.sequence);
            latest - arrival.sequence <= margin
        });
        arrivals.sort_by_key(|arrival| arrival.sequence);
        arrivals.dedup_by_key(|arrival| arrival.sequence);
        let Some((first, last)) = arrivals.first().zip(arrivals.last()) else { return Self::default() };
        let least_ns = arrivals.iter().map(|arrival| arrival.delay_ns).min().unwrap_or_default();
        let mut trace = Self { packets: last.sequence - first.sequence + 1, ..Self::default() };
        let mut received = 1;
        for pair in arrivals.windows(2) {
            let (before, after) = (pair[0], pair[1]);
            let lost = after.sequence - before.sequence - 1;
            if lost > 0 {
                // Reordering can decrease the counter.
                let counted = u64::try_from(after.drops.wrapping_sub(before.drops) as i32).unwrap_or(0);
                trace.contradictions += u64::from(lost < counted);
                trace.lost += lost;
                trace.gaps.push(Gap {
                    received,
                    lost,
                    drops: counted.min(lost),
                    delay_us: u64::try_from(before.delay_ns.saturating_sub(least_ns)).unwrap_or(0) / 1000,
                    sojourn_us: before.sojourn_us,
                });
                received = 0;
            }
            received += 1;
        }
        trace
    }

    /// All gaps as `ok_since_previous:lost:kernel_drops`, for readers of the runs.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for Gap { received, lost, drops, .. } in &self.gaps {
            let space = if text.is_empty() { "" } else { " " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{space}{received}:{lost}:{drops}");
        }
        text
    }

    /// The whole windows of `length` packets with losses, with their numbers. A gap over the end of
    /// a window is cut, and the socket's drops are assigned to its first packets.
    pub(crate) fn windows(&self, length: u32) -> Vec<Window> {
        let length = u64::from(length.max(1));
        let whole = self.packets / length;
        let mut windows: Vec<Window> = Vec::new();
        // Start of the next gap, and end of the last piece.
        let (mut at, mut ended) = (0, 0);
        for gap in &self.gaps {
            at += gap.received;
            let (mut lost, mut drops) = (gap.lost, gap.drops);
            while lost > 0 {
                let number = at / length;
                if number >= whole {
                    return windows;
                }
                let piece = lost.min((number + 1) * length - at);
                let dropped = drops.min(piece);
                let received = at - ended.max(number * length);
                if windows.last().is_none_or(|window| window.number != number) {
                    windows.push(Window { number, gaps: Vec::new() });
                }
                if let Some(window) = windows.last_mut() {
                    window.gaps.push(Gap { received, lost: piece, drops: dropped, ..*gap });
                }
                (at, lost, drops) = (at + piece, lost - piece, drops - dropped);
                ended = at;
            }
        }
        windows
    }
}

/// Cause of the losses of a window, by the kernel's counter, or of a run, by its design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Label {
    Net,
    Cpu,
    Hyb,
}

impl Label {
    pub(crate) const ALL: [Self; 3] = [Self::Net, Self::Cpu, Self::Hyb];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Cpu => "cpu",
            Self::Hyb => "hyb",
        }
    }
}

/// A window with at least one loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) number: u64,
    pub(crate) gaps: Vec<Gap>,
}

impl Window {
    pub(crate) fn lost(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.lost).sum()
    }

    fn drops(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.drops).sum()
    }

    /// The network if the socket dropped none, the CPU if the socket dropped all, else both.
    pub(crate) fn label(&self) -> Label {
        match self.drops() {
            0 => Label::Net,
            drops if drops == self.lost() => Label::Cpu,
            _ => Label::Hyb,
        }
    }

    /// Mean over lost packets.
    pub(crate) fn mean(&self, of: impl Fn(&Gap) -> u64) -> f64 {
        let sum: f64 = self.gaps.iter().map(|gap| of(gap) as f64 * gap.lost as f64).sum();
        sum / (self.lost().max(1)) as f64
    }

    /// Metrics of the window, which is `length` packets long.
    pub(crate) fn metrics(&self, length: u32, meter: &mut Meter) -> anyhow::Result<Metrics> {
        Ok(meter.measure(&Signature::from_runs(length, self.runs())?))
    }

    fn runs(&self) -> impl Iterator<Item = u32> + '_ {
        // A window is not longer than a `u32` counts.
        self.gaps.iter().flat_map(|gap| [gap.received as u32, gap.lost as u32])
    }
}

pub(crate) struct About<'a> {
    pub(crate) run: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) burst: u32,
    pub(crate) pps: u32,
    pub(crate) receive_buffer: usize,
}

/// A line of a window file.
pub(crate) fn row(window: &Window, about: &About<'_>, metrics: &Metrics) -> String {
    let About { run, kind, burst, pps, receive_buffer } = about;
    let (label, number, lost) = (window.label().as_str(), window.number, metrics.lost);
    let delay_us = window.mean(|gap| gap.delay_us);
    let sojourn_us = window.mean(|gap| gap.sojourn_us.into());
    let share = window.drops() as f64 / f64::from(lost.max(1));
    let runs: Vec<String> = window.runs().map(|run| run.to_string()).collect();
    format!(
        "{label}\t{run}\t{number}\t{kind}\t{burst}\t{pps}\t{receive_buffer}\t{lost}\t{:.6}\t{}\t{:.4}\t{:.4}\t{delay_us:.0}\t\
         {sojourn_us:.0}\t{share:.4}\t{}",
        f64::from(lost) / f64::from(metrics.packets),
        metrics.na17,
        metrics.complexity,
        metrics.success_proportion,
        runs.join(","),
    )
}

pub(crate) const WINDOW_HEADER: &str = "# label\trun\twindow\tkind\tbatch\tpps\trcvbuf\tlost\tloss_rate\tNa17\tC1\tsp\towd_before_loss_us\t\
     sojourn_before_loss_us\tcpu_fraction\trle(ok,lost,ok,lost,...)";

pub(crate) const RUN_HEADER: &str = "# run\tclass\tkind\tpackets\tlost\tgaps\tconfig_json\tgaps: ok_since_previous:lost:kernel_drops(SO_RXQ_OVFL delta)";

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(sequence: u64, drops: u32) -> Arrival {
        Arrival { sequence, drops, delay_ns: 5_000_000 + 1000 * sequence as i64, sojourn_us: sequence as u32 }
    }

    fn gap(received: u64, lost: u64, drops: u64) -> Gap {
        Gap { received, lost, drops, ..Gap::default() }
    }

    fn triples(gaps: &[Gap]) -> Vec<(u64, u64, u64)> {
        gaps.iter().map(|gap| (gap.received, gap.lost, gap.drops)).collect()
    }

    #[test]
    fn gaps_have_the_kernel_drops_and_the_packets_before() {
        // 12 and 13 were dropped by the socket, 16 by the network, and one each of 20 and 21 by
        // both.
        let arrivals = [(10, 7), (11, 7), (14, 9), (15, 9), (17, 9), (18, 9), (19, 9), (22, 10)];
        let trace = Trace::new(arrivals.map(|(n, drops)| arrival(n, drops)).to_vec(), 100);
        assert_eq!((trace.packets, trace.lost, trace.contradictions), (13, 5, 0));
        assert_eq!(trace.text(), "2:2:2 2:1:0 3:2:1");
        // 11 was 1 µs later than the first, and was read 11 µs after its receipt.
        assert_eq!((trace.gaps[0].delay_us, trace.gaps[0].sojourn_us), (1, 11));
        assert_eq!(Trace::new(Vec::new(), 1), Trace::default());
    }

    #[test]
    fn packets_late_within_the_margin_are_not_lost() {
        let order = [0, 1, 3, 4, 2, 6, 7, 8, 5];
        let arrivals = |margin| Trace::new(order.map(|n| arrival(n, 0)).to_vec(), margin).text();
        assert_eq!(arrivals(3), "");
        assert_eq!(arrivals(2), "5:1:0");
        assert_eq!(arrivals(1), "2:1:0 2:1:0");
    }

    #[test]
    fn an_impossible_drop_count_is_counted_as_a_contradiction() {
        let trace = Trace::new(vec![arrival(0, u32::MAX), arrival(2, 1), arrival(4, 0)], 9);
        assert_eq!((trace.text().as_str(), trace.contradictions), ("1:1:1 1:1:0", 1));
    }

    #[test]
    fn windows_split_gaps_and_windows_without_loss_are_left_out() {
        let gaps = vec![gap(4, 2, 0), gap(2, 25, 24), gap(12, 1, 0)];
        let trace = Trace { packets: 48, lost: 28, gaps, contradictions: 0 };
        let windows = trace.windows(10);
        let numbers: Vec<u64> = windows.iter().map(|window| window.number).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        assert_eq!(triples(&windows[0].gaps), [(4, 2, 0), (2, 2, 2)]);
        assert_eq!(triples(&windows[1].gaps), [(0, 10, 10)]);
        assert_eq!(triples(&windows[3].gaps), [(0, 3, 2)]);
        let labels: Vec<Label> = windows.iter().map(Window::label).collect();
        assert_eq!(labels, [Label::Hyb, Label::Cpu, Label::Cpu, Label::Hyb]);
        // The last loss, at 45, is in an incomplete window. In larger windows nothing else changes.
        assert_eq!(triples(&trace.windows(40)[0].gaps), [(4, 2, 0), (2, 25, 24)]);
        assert_eq!(trace.windows(40)[0].label(), Label::Hyb);
        assert_eq!(trace.windows(100), []);
    }

    #[test]
    fn a_row_has_the_columns_of_its_header() {
        let about = About { run: "r0003", kind: "quota", burst: 1, pps: 80_000, receive_buffer: 425_984 };
        let gaps =
            vec![Gap { delay_us: 10, sojourn_us: 4, ..gap(50, 3, 3) }, Gap { delay_us: 30, ..gap(20, 1, 1) }];
        let window = Window { number: 7, gaps };
        let metrics = window.metrics(100, &mut Meter::new()).unwrap();
        let line = row(&window, &about, &metrics);
        assert_eq!(line.split('\t').count(), WINDOW_HEADER.split('\t').count());
        // Two losses follow a loss; 15 is (3·10 + 1·30) ÷ 4.
        let expected = format!(
            "cpu\tr0003\t7\tquota\t1\t80000\t425984\t4\t0.040000\t{}\t{:.4}\t0.5000\t15\t3\t1.0000\t50,3,20,1",
            metrics.na17, metrics.complexity
        );
        assert_eq!(line, expected);
        assert_eq!(RUN_HEADER.split('\t').count(), 8);
    }
}
