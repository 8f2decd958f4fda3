//! State of one transfer, and the lines that show its progress. Pure: the caller has the clock and
//! the terminal.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use barograph_study::units::{rate, size, time};
use barograph_transfer::io::Event;
use barograph_transfer::io::FlowProgress;

use super::causes::{self, Limit, Losses, Second};
use super::left::{Left, Rates};

/// State of a transfer in progress.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// Address of the other end, once it is known.
    pub(crate) peer: Option<String>,
    pub(crate) phase: Phase,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Bytes that the receiver had at the start.
    pub(crate) before_bytes: u64,
    /// Whether data was sent, perhaps to another receiver.
    has_begun: bool,
    /// Counts of the latest event.
    pub(crate) seen: FlowProgress,
    rates: Rates,
    /// Time and counts when the limit was last determined.
    mark: Option<(f64, FlowProgress)>,
    /// Number of seconds for which each limit held.
    limits: BTreeMap<Limit, u64>,
    limit: Option<Limit>,
    mode: Mode,
}

/// Properties of a transfer that its counts do not show.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mode {
    /// This end sends, so it has the counts of losses.
    pub(crate) is_sender: bool,
    /// Losses are classified by cause.
    pub(crate) classify_losses: bool,
    /// The rate is fixed.
    pub(crate) is_fixed: bool,
}

/// Phase of a transfer, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Connecting,
    Agreeing,
    Moving,
    Verifying,
}

impl Course {
    pub(crate) fn new(mode: Mode) -> Self {
        Self { mode, ..Self::default() }
    }

    /// Updates the state with an event at `now_s` (seconds from any origin).
    pub(crate) fn learn(&mut self, now_s: f64, event: &Event) {
        match event {
            Event::Connected { peer, .. } => {
                self.peer = Some(plain(*peer).to_string());
                self.phase = Phase::Agreeing;
            }
            Event::Begun { files, bytes, held_bytes } => {
                if !self.has_begun {
                    self.before_bytes = *held_bytes;
                }
                (self.has_begun, self.files, self.bytes) = (true, *files, *bytes);
                self.phase = Phase::Moving;
                self.rates.update(now_s, *held_bytes);
                // After a change of receiver the counts continue, so start the next second from the
                // current counts.
                self.mark = Some((now_s, self.seen));
            }
            Event::Progress(seen) => {
                self.seen = *seen;
                self.rates.update(now_s, seen.held_bytes);
                self.look(now_s);
            }
            Event::Elsewhere { .. } => self.phase = Phase::Connecting,
            Event::Verifying => self.phase = Phase::Verifying,
            _ => {}
        }
    }

    /// Determines, once a second, what limited the transfer in that second.
    fn look(&mut self, now_s: f64) {
        let Some((marked_s, before)) = self.mark else { return };
        let (seconds, seen) = (now_s - marked_s, self.seen);
        if seconds < 1.0 || !self.mode.is_sender {
            return;
        }
        let since = |count: fn(&FlowProgress) -> u64| count(&seen).saturating_sub(count(&before));
        let share = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64() / seconds;
        let sent = since(|seen| seen.stats.sent_packets).max(1) as f64;
        let limit = Second {
            losses: Losses {
                host: since(|seen| seen.stats.lost_host) as f64 / sent,
                network: since(|seen| seen.stats.lost_network) as f64 / sent,
                unknown: since(|seen| seen.stats.lost_unknown) as f64 / sent,
            },
            by: seen.limit,
            busy: share(seen.busy, before.busy),
            busy_reader: share(seen.busy_reader, before.busy_reader),
            lacked: share(seen.lacked, before.lacked),
            used: since(|seen| seen.stats.sent_bytes) as f64 / seconds / seen.rate_bytes_s,
            is_fixed: self.mode.is_fixed,
        }
        .limit();
        self.mark = Some((now_s, seen));
        self.limit = Some(limit);
        *self.limits.entry(limit).or_default() += 1;
    }

    /// The limit that applied in the largest number of seconds, and the share of those seconds.
    pub(crate) fn main_limit(&self) -> Option<(Limit, f64)> {
        let all: u64 = self.limits.values().sum();
        let (limit, held) = self.limits.iter().max_by_key(|(_, held)| **held)?;
        Some((*limit, *held as f64 / all as f64))
    }

    pub(crate) fn left(&self) -> Option<Left> {
        self.rates.left(self.bytes.saturating_sub(self.seen.held_bytes))
    }

    pub(crate) fn rate_bytes_s(&self) -> Option<f64> {
        self.rates.latest_bytes_s()
    }

    pub(crate) fn limit(&self) -> Option<Limit> {
        self.limit
    }

    pub(crate) fn losses(&self) -> Option<Losses> {
        self.mode.is_sender.then(|| Losses::of(&self.seen.stats))
    }

    pub(crate) fn is_told_apart(&self) -> bool {
        self.mode.classify_losses
    }

    /// Bytes that the receiver has: at least those of the start.
    pub(crate) fn there(&self) -> u64 {
        self.seen.held_bytes.max(self.before_bytes).min(self.bytes)
    }

    /// Share of the bytes that the receiver has; 1 for an empty object.
    fn share(&self) -> f64 {
        if self.bytes == 0 { 1.0 } else { self.there() as f64 / self.bytes as f64 }
    }

    /// Progress for a terminal, in lines of at most `width` columns.
    pub(crate) fn lines(&self, width: usize) -> Vec<String> {
        match self.phase {
            Phase::Connecting => wrapped("connecting …", width),
            Phase::Agreeing => wrapped("connected; exchanging the list of files …", width),
            Phase::Verifying => {
                let text = format!("all {} received; verifying BLAKE3 …", size(self.bytes));
                wrapped(&text, width)
            }
            Phase::Moving => {
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
        // Room for the brackets and a space.
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

    /// `42 %, 1.23 of 2.90 GB, 934 Mbit/s`.
    fn amount(&self) -> String {
        let (there, all) = (size(self.there()), size(self.bytes));
        let both = match (there.rsplit_once(' '), all.rsplit_once(' ')) {
            (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} of {all}"),
            _ => format!("{there} of {all}"),
        };
        // Rounded down: 100 % means all bytes.
        let percent = (100.0 * self.share()).floor();
        let rate = self.rates.latest_bytes_s().map_or("…".into(), rate);
        format!("{percent:.0} %, {both}, {rate}")
    }

    /// `1 min 52 s (1 min 40 s – 2 min 10 s)`, or an ellipsis while there is no forecast.
    fn left_text(&self) -> String {
        match self.left() {
            None => "…".into(),
            Some(left) => told(left),
        }
    }

    fn causes(&self) -> Option<String> {
        Some(causes::line(self.limit?, self.losses()?, self.mode.classify_losses))
    }

    /// Progress for a log, on one line.
    pub(crate) fn line(&self) -> String {
        match self.phase {
            Phase::Moving => {
                let causes = self.causes().map_or(String::new(), |causes| format!("; {causes}"));
                format!("{}, {} left{causes}", self.amount(), self.left_text())
            }
            _ => self.lines(usize::MAX).join(" "),
        }
    }
}

/// Converts an IPv4-mapped address, as sockets of both families have it, to IPv4.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A time with its interval; the ends are left out if they print as the same time.
fn told(left: Left) -> String {
    let middle = time(left.s);
    let Some((lower_s, upper_s)) = left.ends_s else { return format!("{middle} (calibrating)") };
    let lower = time(lower_s);
    if upper_s.is_infinite() {
        return format!("{middle} ({lower} or more)");
    }
    let upper = time(upper_s);
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
    use barograph_transfer::Stats;

    use super::*;

    /// A transfer of 2.9 GB, resumed at 400 MB, after `seconds` at 100 MB/s; the receiver lost 3.1
    /// % of the packets.
    fn course(seconds: u32) -> Course {
        let mut course = Course::new(Mode { is_sender: true, classify_losses: true, is_fixed: false });
        let begun = Event::Begun { files: 3, bytes: 2_900_000_000, held_bytes: 400_000_000 };
        course.learn(0.0, &begun);
        for second in 1..=seconds {
            let moved = u64::from(second) * 100_000_000;
            let sent_packets = moved / 1400;
            let stats = Stats {
                sent_packets,
                sent_bytes: moved,
                lost_host: sent_packets * 31 / 1000,
                ..Stats::default()
            };
            let seen = FlowProgress {
                stats,
                held_bytes: 400_000_000 + moved,
                rate_bytes_s: 1.1e8,
                limit: Some(barograph_transfer::Limit::Drain),
                busy: Duration::from_millis(300) * second,
                ..FlowProgress::default()
            };
            course.learn(f64::from(second), &Event::Progress(seen));
        }
        course
    }

    #[test]
    fn a_terminal_of_80_columns_shows_three_lines() {
        let shown = [
            "[================>                       ] 44 %, 1.30 of 2.90 GB, 800 Mbit/s",
            "16 s (calibrating) left",
            "receiver's CPU is the limit: 3.1 % lost there, 0.00 % in the network",
        ];
        assert_eq!(course(9).lines(79), shown);
        assert_eq!(course(9).main_limit(), Some((Limit::Receiver, 1.0)));
    }

    #[test]
    fn a_terminal_of_40_columns_shows_the_same_in_more_lines() {
        let shown = [
            "44 %, 1.30 of 2.90 GB, 800 Mbit/s",
            "16 s (calibrating) left",
            "receiver's CPU is the limit: 3.1 % lost",
            "there, 0.00 % in the network",
        ];
        assert_eq!(course(9).lines(39), shown);
        for width in 1..100 {
            assert!(course(9).lines(width).iter().all(|line| line.chars().count() <= width), "{width}");
        }
    }

    #[test]
    fn too_little_history_is_no_forecast() {
        let lines = course(1).lines(79);
        assert_eq!(lines[1], "… left");
        let mut course = Course::default();
        assert_eq!(course.lines(79), ["connecting …"]);
        course.learn(0.0, &Event::Begun { files: 1, bytes: 0, held_bytes: 0 });
        assert_eq!(course.line(), "100 %, 0 of 0 B, …, … left");
        course.learn(0.0, &Event::Verifying);
        assert_eq!(course.line(), "all 0 B received; verifying BLAKE3 …");
    }

    #[test]
    fn a_log_has_one_line_and_a_receiver_knows_no_causes() {
        let line = course(9).line();
        assert_eq!(
            line,
            "44 %, 1.30 of 2.90 GB, 800 Mbit/s, 16 s (calibrating) left; \
             receiver's CPU is the limit: 3.1 % lost there, 0.00 % in the network"
        );
        let receiver = Course { mode: Mode::default(), ..course(9) };
        assert_eq!(receiver.line(), "44 %, 1.30 of 2.90 GB, 800 Mbit/s, 16 s (calibrating) left");
    }

    #[test]
    fn intervals_are_told_with_the_ends_that_they_have() {
        let left = |s, lower_s, upper_s| told(Left { s, ends_s: Some((lower_s, upper_s)) });
        assert_eq!(left(112.0, 100.0, 130.0), "1 min 52 s (1 min 40 s – 2 min 10 s)");
        assert_eq!(left(112.0, 100.0, f64::INFINITY), "1 min 52 s (1 min 40 s or more)");
        assert_eq!(left(112.0, 111.9, 112.2), "1 min 52 s");
    }

    #[test]
    fn words_are_kept_whole_where_they_fit() {
        assert_eq!(wrapped("a bc def ghijklm", 4), ["a bc", "def", "ghij", "klm"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
