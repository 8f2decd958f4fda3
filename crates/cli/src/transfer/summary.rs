//! Summary of a transfer that ended well.

use barograph_study::units::{format_byte_rate, format_bytes, format_count, format_elapsed, format_share};
use barograph_transfer::io::TransferSummary;

use super::causes::evidence_text;
use super::progress::{TransferProgress, unmapped, wrapped};

/// Figures of a transfer that ended well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    /// Bytes that were transferred, each counted once.
    pub(crate) moved_bytes: u64,
    /// Transferred bytes per second, from the first datagram to the last acknowledgement; `None` if
    /// no bytes were transferred.
    pub(crate) goodput_bytes_s: Option<f64>,
    /// Bytes that were sent again.
    pub(crate) resent_bytes: u64,
}

impl Figures {
    pub(crate) fn of(summary: &TransferSummary) -> Self {
        let moved_bytes = summary.bytes.saturating_sub(summary.held_bytes);
        let seconds = summary.lasted.as_secs_f64();
        Self {
            moved_bytes,
            goodput_bytes_s: (moved_bytes > 0 && seconds > 0.0).then(|| moved_bytes as f64 / seconds),
            resent_bytes: summary.progress.stats.sent_bytes.saturating_sub(moved_bytes),
        }
    }
}

/// The summary as text; `progress` is the state of the same transfer.
pub(crate) fn summary_lines(summary: &TransferSummary, progress: &TransferProgress) -> Vec<String> {
    let figures = Figures::of(summary);
    let losses = progress.losses();
    let (verb, towards, by) =
        if losses.is_some() { ("sent", "to", ", by the receiver") } else { ("received", "from", "") };
    let what = format!("{}, {}", format_count(summary.files, "file", "files"), format_bytes(summary.bytes));
    let mut lines = vec![match figures.goodput_bytes_s {
        Some(goodput) => format!(
            "{verb} {what}, {towards} {} in {}: {} on average",
            unmapped(summary.peer),
            format_elapsed(summary.lasted.as_secs_f64()),
            format_byte_rate(goodput)
        ),
        None if summary.bytes > 0 && figures.moved_bytes == 0 => {
            format!(
                "already there: {}, identical ({}, {towards} {})",
                format_count(summary.files, "file", "files"),
                format_bytes(summary.bytes),
                unmapped(summary.peer)
            )
        }
        None => format!("{verb} {what}, {towards} {}: no data had to be transferred", unmapped(summary.peer)),
    }];
    let beside_s = summary.lasted_all.saturating_sub(summary.lasted).as_secs_f64();
    if beside_s >= BESIDE_S_MIN {
        lines.push(row("overhead", &format!("{} to connect, agree and verify", format_elapsed(beside_s))));
    }
    if summary.held_bytes > 0 {
        let part = summary.held_bytes as f64 / summary.bytes.max(1) as f64;
        lines.push(row("resumed", &format!("{} ({})", format_bytes(summary.held_bytes), format_share(part))));
    }
    if let (Some(losses), 0..) = (losses, figures.moved_bytes) {
        let part = figures.resent_bytes as f64 / figures.moved_bytes.max(1) as f64;
        if figures.moved_bytes > 0 {
            lines.push(row(
                "sent again",
                &format!("{} ({})", format_bytes(figures.resent_bytes), format_share(part)),
            ));
            lines.push(row("losses", &losses.text(progress.classifies_losses())));
            let evidence = evidence_text(&progress.seen.stats).filter(|_| progress.classifies_losses());
            lines.extend(evidence.map(|text| row("evidence", &text)));
        }
    }
    if let Some((limit, part)) = progress.main_limit() {
        lines.push(row("limit", &format!("{}, for {} of the time", limit.text(), format_share(part))));
    }
    lines.push(row("verified", &format!("BLAKE3 of each file{by}")));
    lines
}

fn row(name: &str, value: &str) -> String {
    format!("  {name:<12} {value}")
}

/// Wraps the lines of a summary for a terminal of `width` columns. A long value continues on the
/// next line, in the column of values.
pub(crate) fn fitted(lines: &[String], width: usize) -> Vec<String> {
    let fit = |line: &String| {
        let names: String = line.chars().take(NAMES).collect();
        if !line.starts_with("  ") || width < 2 * NAMES {
            return wrapped(line, width);
        }
        let values: String = line.chars().skip(NAMES).collect();
        let mut heads = std::iter::once(names).chain(std::iter::repeat(" ".repeat(NAMES)));
        let values = wrapped(&values, width - NAMES);
        values.iter().map(|value| heads.next().unwrap_or_default() + value).collect()
    };
    lines.iter().flat_map(fit).collect()
}

/// Width of the column of names.
const NAMES: usize = 15;

/// Shortest overhead that is shown, in seconds. The overhead is the time to connect, to exchange
/// the list of files and to verify the files.
const BESIDE_S_MIN: f64 = 1.0;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use barograph_transfer::io::FlowProgress;
    use barograph_transfer::io::TransferEvent;
    use barograph_transfer::{LossesByEvidence, SenderStats};

    use super::super::progress::TransferRole;
    use super::*;

    fn summary(held_bytes: u64, lasted: Duration) -> TransferSummary {
        let stats = SenderStats {
            sent_packets: 100_000,
            sent_bytes: 1_013_000_000,
            lost_network: 520,
            lost_unknown: 100,
            settled: LossesByEvidence { delay: 400, pattern: 120, expired: 100, ..Default::default() },
            ..SenderStats::default()
        };
        TransferSummary {
            peer: ([192, 0, 2, 7], 4000).into(),
            files: 3,
            bytes: 1_400_000_000,
            held_bytes,
            lasted,
            lasted_all: lasted + Duration::from_secs(2),
            progress: FlowProgress {
                stats,
                held_bytes: 1_400_000_000,
                rate_bytes_s: 1e8,
                ..FlowProgress::default()
            },
        }
    }

    /// State of a sender or a receiver with the counts of `summary`, after one second.
    fn seen_by(is_sender: bool, summary: &TransferSummary) -> TransferProgress {
        let mut progress = TransferProgress::new(TransferRole {
            is_sender,
            classifier: Some("default"),
            is_fixed_rate: false,
        });
        let TransferSummary { files, bytes, held_bytes, .. } = *summary;
        progress.on_event(0.0, &TransferEvent::Begun { files, bytes, held_bytes });
        progress.on_event(1.0, &TransferEvent::Progress(summary.progress));
        progress
    }

    #[test]
    fn a_sender_summary_reports_lost_and_resent_bytes() {
        let summary = summary(400_000_000, Duration::from_secs(10));
        let shown = [
            "sent 3 files, 1.40 GB, to 192.0.2.7:4000 in 10.0 s: 800 Mbit/s on average",
            "  overhead     2.00 s to connect, agree and verify",
            "  resumed      400 MB (29 %)",
            "  sent again   13.0 MB (1.3 %)",
            "  losses       0.00 % lost by the receiver's CPU, 0.52 % in the network, 0.10 % by an unknown cause",
            "  evidence     400 by delay and pattern, 120 by pattern, 100 without a verdict in time",
            "  limit        network, for 100 % of the time",
            "  verified     BLAKE3 of each file, by the receiver",
        ];
        assert_eq!(summary_lines(&summary, &seen_by(true, &summary)), shown);
    }

    #[test]
    fn a_narrow_terminal_breaks_rows_after_their_names() {
        let summary = summary(400_000_000, Duration::from_secs(10));
        let lines = fitted(&summary_lines(&summary, &seen_by(true, &summary)), 39);
        let shown = [
            "sent 3 files, 1.40 GB, to",
            "192.0.2.7:4000 in 10.0 s: 800 Mbit/s on",
            "average",
            "  overhead     2.00 s to connect, agree",
            "               and verify",
        ];
        assert_eq!(lines[..5], shown);
        assert!(lines.iter().all(|line| line.chars().count() <= 39), "{lines:?}");
    }

    #[test]
    fn a_receiver_summary_reports_bytes_and_verification() {
        let summary =
            TransferSummary { lasted_all: Duration::from_secs(10), ..summary(0, Duration::from_secs(10)) };
        let shown = [
            "received 3 files, 1.40 GB, from 192.0.2.7:4000 in 10.0 s: 1.12 Gbit/s on average",
            "  verified     BLAKE3 of each file",
        ];
        assert_eq!(summary_lines(&summary, &seen_by(false, &summary)), shown);
    }

    #[test]
    fn a_transfer_with_all_files_already_present_has_no_rate() {
        let summary = summary(1_400_000_000, Duration::ZERO);
        let lines = summary_lines(
            &summary,
            &TransferProgress::new(TransferRole { is_sender: true, ..TransferRole::default() }),
        );
        assert_eq!(lines[0], "already there: 3 files, identical (1.40 GB, to 192.0.2.7:4000)");
        assert!(!lines.iter().any(|line| line.contains("sent again")), "{lines:?}");
    }
}
