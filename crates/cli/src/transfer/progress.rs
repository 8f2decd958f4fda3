//! State of one transfer, and the lines that show its progress. Pure: the caller has the clock and
//! the terminal.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use barograph_study::units::{format_byte_rate, format_bytes, format_duration};
use barograph_transfer::io::FlowProgress;
use barograph_transfer::io::TransferEvent;

use super::causes::{self, Bottleneck, LimitSample, Losses};
use super::remaining::{Rates, RemainingTime};

/// State of a transfer in progress.
#[derive(Debug, Default)]
pub(crate) struct TransferProgress {
    /// Address of the other end, once it is known.
    pub(crate) peer: Option<String>,
    pub(crate) phase: Phase,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Bytes that the receiver had at the start.
    pub(crate) initial_held_bytes: u64,
    /// Whether the transfer of data has begun, to this receiver or, before a failover, to another
    /// receiver.
    has_begun: bool,
    /// Counts of the latest event.
    pub(crate) seen: FlowProgress,
    rates: Rates,
    /// Time and counts when the limit was last determined.
    limit_since: Option<(f64, FlowProgress)>,
    /// Number of seconds in which each limit applied.
    limits: BTreeMap<Bottleneck, u64>,
    limit: Option<Bottleneck>,
    role: TransferRole,
}

/// Properties of a transfer that its counts do not show.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TransferRole {
    /// This end sends, so it has the counts of losses.
    pub(crate) is_sender: bool,
    /// Name of the classifier of losses; `None` at a receiver.
    pub(crate) classifier: Option<&'static str>,
    /// The rate is fixed.
    pub(crate) is_fixed_rate: bool,
}

/// Phase of a transfer, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Connecting,
    Negotiating,
    Transferring,
    Verifying,
}

impl TransferProgress {
    pub(crate) fn new(role: TransferRole) -> Self {
        Self { role, ..Self::default() }
    }

    /// Updates the state with an event at `now_s` (seconds since any fixed moment).
    pub(crate) fn on_event(&mut self, now_s: f64, event: &TransferEvent) {
        match event {
            TransferEvent::Connected { peer, .. } => {
                self.peer = Some(unmapped(*peer).to_string());
                self.phase = Phase::Negotiating;
            }
            TransferEvent::Begun { files, bytes, held_bytes } => {
                if !self.has_begun {
                    self.initial_held_bytes = *held_bytes;
                }
                (self.has_begun, self.files, self.bytes) = (true, *files, *bytes);
                self.phase = Phase::Transferring;
                self.rates.update(now_s, *held_bytes, *bytes);
                // After a change of receiver the counts continue, so start the next second from the
                // current counts.
                self.limit_since = Some((now_s, self.seen));
            }
            TransferEvent::Progress(seen) => {
                self.seen = *seen;
                self.rates.update(now_s, seen.held_bytes, self.bytes);
                self.update_limit(now_s);
            }
            TransferEvent::Failover { .. } => self.phase = Phase::Connecting,
            TransferEvent::Verifying => self.phase = Phase::Verifying,
            _ => {}
        }
    }

    /// Determines, once a second, what limited the transfer in that second.
    fn update_limit(&mut self, now_s: f64) {
        let Some((marked_s, before)) = self.limit_since else { return };
        let (seconds, seen) = (now_s - marked_s, self.seen);
        if seconds < 1.0 || !self.role.is_sender {
            return;
        }
        let since = |count: fn(&FlowProgress) -> u64| count(&seen).saturating_sub(count(&before));
        let share = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64() / seconds;
        let sent = since(|seen| seen.stats.sent_packets).max(1) as f64;
        let limit = LimitSample {
            losses: Losses {
                host: since(|seen| seen.stats.lost_host) as f64 / sent,
                network: since(|seen| seen.stats.lost_network) as f64 / sent,
                unknown: since(|seen| seen.stats.lost_unknown) as f64 / sent,
            },
            sender_limit: seen.limit,
            busy: share(seen.busy_time, before.busy_time),
            reader_busy: share(seen.busy_reader, before.busy_reader),
            reader_wait: share(seen.read_wait, before.read_wait),
            rate_use: since(|seen| seen.stats.sent_bytes) as f64 / seconds / seen.rate_bytes_s,
            is_fixed_rate: self.role.is_fixed_rate,
        }
        .limit();
        self.limit_since = Some((now_s, seen));
        self.limit = Some(limit);
        *self.limits.entry(limit).or_default() += 1;
    }

    /// The limit that applied in the largest number of seconds, and this number as a share of all
    /// seconds.
    pub(crate) fn main_limit(&self) -> Option<(Bottleneck, f64)> {
        let all: u64 = self.limits.values().sum();
        let (limit, held) = self.limits.iter().max_by_key(|(_, held)| **held)?;
        Some((*limit, *held as f64 / all as f64))
    }

    pub(crate) fn left(&self) -> Option<RemainingTime> {
        self.rates.left()
    }

    pub(crate) fn rate_bytes_s(&self) -> Option<f64> {
        self.rates.latest_bytes_s()
    }

    pub(crate) fn limit(&self) -> Option<Bottleneck> {
        self.limit
    }

    pub(crate) fn losses(&self) -> Option<Losses> {
        self.role.is_sender.then(|| Losses::of(&self.seen.stats))
    }

    /// Whether losses are classified by cause.
    pub(crate) fn classifies_losses(&self) -> bool {
        self.role.classifier.is_some_and(|name| name != "none")
    }

    /// Name of the classifier of losses; `None` at a receiver.
    pub(crate) fn classifier(&self) -> Option<&'static str> {
        self.role.classifier
    }

    /// Number of bytes that the receiver has; at least the number that the receiver had at the
    /// start.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.seen.held_bytes.max(self.initial_held_bytes).min(self.bytes)
    }

    /// Share of the bytes that the receiver has; 1 for an empty object.
    fn share(&self) -> f64 {
        if self.bytes == 0 { 1.0 } else { self.held_bytes() as f64 / self.bytes as f64 }
    }

    /// Progress for a terminal, in lines of at most `width` columns.
    pub(crate) fn lines(&self, width: usize) -> Vec<String> {
        match self.phase {
            Phase::Connecting => wrapped("connecting …", width),
            Phase::Negotiating => wrapped("connected; exchanging the list of files …", width),
            Phase::Verifying => {
                let text = format!("all {} received; verifying BLAKE3 …", format_bytes(self.bytes));
                wrapped(&text, width)
            }
            Phase::Transferring => {
                let mut lines = self.head(width);
                lines.extend(wrapped(&format!("{} left", self.left_text()), width));
                if let Some(text) = self.causes() {
                    lines.extend(wrapped(&text, width));
                }
                lines
            }
        }
    }

    /// The first line, with a bar if there is room for one.
    fn head(&self, width: usize) -> Vec<String> {
        let text = self.amount();
        // Subtract three columns for the brackets and a space.
        let room = width.saturating_sub(text.chars().count() + 3);
        if room < BAR_MIN {
            return wrapped(&text, width);
        }
        let cells = room.min(BAR_MAX);
        let full = (self.share() * cells as f64) as usize;
        let bar: String = (0..cells)
            .map(|cell| match cell {
                _ if cell + 1 < full || full == cells => '=',
                _ if cell + 1 == full => '>',
                _ => ' ',
            })
            .collect();
        vec![format!("[{bar}] {text}")]
    }

    /// Text such as `42 %, 1.23 of 2.90 GB, 934 Mbit/s`.
    fn amount(&self) -> String {
        let (there, all) = (format_bytes(self.held_bytes()), format_bytes(self.bytes));
        let both = match (there.rsplit_once(' '), all.rsplit_once(' ')) {
            (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} of {all}"),
            _ => format!("{there} of {all}"),
        };
        // Rounded down: 100 % means all bytes.
        let percent = (100.0 * self.share()).floor();
        let rate = self.rates.latest_bytes_s().map_or("…".into(), format_byte_rate);
        format!("{percent:.0} %, {both}, {rate}")
    }

    /// Text such as `1 min 52 s (1 min 40 s – 2 min 10 s)`, or an ellipsis while there is no
    /// forecast.
    fn left_text(&self) -> String {
        match self.left() {
            None => "…".into(),
            Some(left) => time_text(left),
        }
    }

    fn causes(&self) -> Option<String> {
        Some(causes::line(self.limit?, self.losses()?, self.classifies_losses()))
    }

    /// Progress for a log, on one line.
    pub(crate) fn line(&self) -> String {
        match self.phase {
            Phase::Transferring => {
                let causes = self.causes().map_or(String::new(), |causes| format!("; {causes}"));
                format!("{}, {} left{causes}", self.amount(), self.left_text())
            }
            _ => self.lines(usize::MAX).join(" "),
        }
    }
}

/// Converts an IPv4-mapped address, as sockets of both families have it, to IPv4.
pub(crate) fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A time with its interval; the ends of the interval are left out if both are printed with the
/// same digits as the time.
fn time_text(left: RemainingTime) -> String {
    let middle = format_duration(left.s);
    let Some((lower_s, upper_s)) = left.interval_s else { return format!("{middle} (calibrating)") };
    let lower = format_duration(lower_s);
    if upper_s.is_infinite() {
        return format!("{middle} ({lower} or more)");
    }
    let upper = format_duration(upper_s);
    if lower == middle && upper == middle { middle } else { format!("{middle} ({lower} – {upper})") }
}

/// Wraps `text` between words into lines of at most `width` columns; a longer word is cut.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        if let Some(line) = lines.last_mut()
            && line.chars().count() + 1 + word.len() <= width
        {
            line.push(' ');
            line.extend(word);
            continue;
        }
        while width < word.len() {
            let rest = word.split_off(width);
            lines.push(word.into_iter().collect());
            word = rest;
        }
        lines.push(word.into_iter().collect());
    }
    lines
}

/// Shortest bar (columns): a shorter bar would be less precise than the percentage.
const BAR_MIN: usize = 10;
/// Longest bar (columns): a longer bar would not be more useful.
const BAR_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use barograph_transfer::SenderStats;

    use super::*;

    /// A transfer of 2.9 GB, resumed at 400 MB, after `seconds` at 100 MB/s; the receiver lost 3.1
    /// % of the packets.
    fn progress(seconds: u32) -> TransferProgress {
        let mut progress = TransferProgress::new(TransferRole {
            is_sender: true,
            classifier: Some("default"),
            is_fixed_rate: false,
        });
        let begun = TransferEvent::Begun { files: 3, bytes: 2_900_000_000, held_bytes: 400_000_000 };
        progress.on_event(0.0, &begun);
        for second in 1..=seconds {
            let moved = u64::from(second) * 100_000_000;
            let sent_packets = moved / 1400;
            let stats = SenderStats {
                sent_packets,
                sent_bytes: moved,
                lost_host: sent_packets * 31 / 1000,
                ..SenderStats::default()
            };
            let seen = FlowProgress {
                stats,
                held_bytes: 400_000_000 + moved,
                rate_bytes_s: 1.1e8,
                limit: Some(barograph_transfer::SendLimit::Drain),
                busy_time: Duration::from_millis(300) * second,
                ..FlowProgress::default()
            };
            progress.on_event(f64::from(second), &TransferEvent::Progress(seen));
        }
        progress
    }

    #[test]
    fn a_terminal_of_80_columns_shows_three_lines() {
        let shown = [
            "[================>                       ] 44 %, 1.30 of 2.90 GB, 800 Mbit/s",
            "16 s (calibrating) left",
            "receiver's CPU is the limit: 3.1 % lost there, 0.00 % in the network",
        ];
        assert_eq!(progress(9).lines(79), shown);
        assert_eq!(progress(9).main_limit(), Some((Bottleneck::Receiver, 1.0)));
    }

    #[test]
    fn a_terminal_of_40_columns_shows_the_same_in_more_lines() {
        let shown = [
            "44 %, 1.30 of 2.90 GB, 800 Mbit/s",
            "16 s (calibrating) left",
            "receiver's CPU is the limit: 3.1 % lost",
            "there, 0.00 % in the network",
        ];
        assert_eq!(progress(9).lines(39), shown);
        for width in 1..100 {
            assert!(progress(9).lines(width).iter().all(|line| line.chars().count() <= width), "{width}");
        }
    }

    #[test]
    fn too_little_history_shows_no_forecast() {
        let lines = progress(1).lines(79);
        assert_eq!(lines[1], "… left");
        let mut progress = TransferProgress::default();
        assert_eq!(progress.lines(79), ["connecting …"]);
        progress.on_event(0.0, &TransferEvent::Begun { files: 1, bytes: 0, held_bytes: 0 });
        assert_eq!(progress.line(), "100 %, 0 of 0 B, …, … left");
        progress.on_event(0.0, &TransferEvent::Verifying);
        assert_eq!(progress.line(), "all 0 B received; verifying BLAKE3 …");
    }

    #[test]
    fn progress_in_a_log_is_one_line_without_causes_at_a_receiver() {
        let line = progress(9).line();
        assert_eq!(
            line,
            "44 %, 1.30 of 2.90 GB, 800 Mbit/s, 16 s (calibrating) left; \
             receiver's CPU is the limit: 3.1 % lost there, 0.00 % in the network"
        );
        let receiver = TransferProgress { role: TransferRole::default(), ..progress(9) };
        assert_eq!(receiver.line(), "44 %, 1.30 of 2.90 GB, 800 Mbit/s, 16 s (calibrating) left");
    }

    #[test]
    fn intervals_are_shown_with_their_finite_bounds() {
        let left = |s, lower_s, upper_s| time_text(RemainingTime { s, interval_s: Some((lower_s, upper_s)) });
        assert_eq!(left(112.0, 100.0, 130.0), "1 min 52 s (1 min 40 s – 2 min 10 s)");
        assert_eq!(left(112.0, 100.0, f64::INFINITY), "1 min 52 s (1 min 40 s or more)");
        assert_eq!(left(112.0, 111.9, 112.2), "1 min 52 s");
    }

    #[test]
    fn lines_wrap_between_words_where_possible() {
        assert_eq!(wrapped("a bc def ghijklm", 4), ["a bc", "def", "ghij", "klm"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
