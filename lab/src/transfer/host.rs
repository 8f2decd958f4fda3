//! A receiver's host that does not always read.

use std::collections::VecDeque;
use std::time::Duration;

use barograph_forecast::{Battery, BatteryConfig, Objective};
use barograph_sim::SeededRng;
use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Busy {
    /// A CPU quota: it runs 25 of 100 ms. The seed decides where in a period the run begins.
    Quota,
    /// The paper's generator (Dickens §3.1.4), its times divided by 50: up to 7 processes for 20 to
    /// 140 ms, then none for up to 400 ms. While they run, the receiver gets its time slices among
    /// them.
    Generator,
}

impl Busy {
    /// Times at which the receiver does not run, up to `until`.
    fn stalls(self, seed: u64, until: Duration) -> Vec<(Duration, Duration)> {
        let mut stalls = Vec::new();
        let mut rng = SeededRng::new(seed, STALLS_STREAM);
        match self {
            Self::Quota => {
                let mut at = QUOTA_PERIOD.mul_f64(rng.uniform());
                // The period that is under way at the start.
                stalls.push((at.saturating_sub(QUOTA_PERIOD - QUOTA_RUNS), at));
                while at < until {
                    stalls.push((at + QUOTA_RUNS, at + QUOTA_PERIOD));
                    at += QUOTA_PERIOD;
                }
            }
            Self::Generator => {
                let mut at = Duration::ZERO;
                while at < until {
                    let others = rng.index_below(8) as u32;
                    let end = at + MS.mul_f64(20.0 + 120.0 * rng.uniform());
                    while others > 0 && at < end {
                        stalls.push((at, at + others * SLICE));
                        at += (others + 1) * SLICE;
                    }
                    at = at.max(end) + MS.mul_f64(400.0 * rng.uniform());
                }
            }
        }
        stalls
    }
}

const MS: Duration = Duration::from_millis(1);

/// Random stream of the seed for the stalls; losses and probes have their own.
const STALLS_STREAM: u64 = 31;

/// Period of the quota: that of Linux's `cpu.max` if no other is given.
const QUOTA_PERIOD: Duration = Duration::from_millis(100);
/// Time of each period in which the host runs.
const QUOTA_RUNS: Duration = Duration::from_millis(25);

/// Time slice of a process if others are ready, too (Linux: 2.8 ms and more).
const SLICE: Duration = Duration::from_millis(3);

#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// Rate at which the host reads while it runs (bytes a second).
    reads_bytes_s: f64,
    buffer_bytes: u64,
    stalls: Vec<(Duration, Duration)>,
    /// Index of the next stall; earlier ones are over.
    next: usize,
    last_read: Duration,
    /// Packets in the socket: when each will be read, and its bytes.
    held: VecDeque<(Duration, u32)>,
    held_bytes: u64,
}

impl Host {
    pub(crate) fn new(busy: Busy, reads_mbit_s: u64, buffer_bytes: u64, seed: u64, until: Duration) -> Self {
        Self {
            reads_bytes_s: reads_mbit_s as f64 * 125_000.0,
            buffer_bytes,
            stalls: busy.stalls(seed, until),
            next: 0,
            last_read: Duration::ZERO,
            held: VecDeque::new(),
            held_bytes: 0,
        }
    }

    /// A packet arrives, in order. Returns when it is read; `None` if the buffer has no room.
    pub(crate) fn take(&mut self, at: Duration, bytes: u32) -> Option<Duration> {
        while let Some((_, gone)) = self.held.front().filter(|(read, _)| *read <= at) {
            self.held_bytes -= u64::from(*gone);
            self.held.pop_front();
        }
        if self.buffer_bytes < self.held_bytes + u64::from(bytes) {
            return None;
        }
        let read = self.read(at.max(self.last_read), bytes);
        self.held.push_back((read, bytes));
        self.held_bytes += u64::from(bytes);
        self.last_read = read;
        Some(read)
    }

    pub(crate) fn last_read(&self) -> Duration {
        self.last_read
    }

    pub(crate) fn runs_from(&self, at: Duration) -> Duration {
        self.stall_at(at).map_or(at, |(_, end)| end)
    }

    pub(crate) fn stall_at(&self, at: Duration) -> Option<(Duration, Duration)> {
        let over = self.stalls.partition_point(|(_, end)| *end <= at);
        self.stalls.get(over).copied().filter(|(start, _)| *start <= at)
    }

    fn read(&mut self, mut from: Duration, bytes: u32) -> Duration {
        let mut left = Duration::from_secs_f64(f64::from(bytes) / self.reads_bytes_s);
        while let Some((start, end)) = self.stalls.get(self.next).copied() {
            if from + left <= start {
                break;
            }
            if from < end {
                left -= start.saturating_sub(from).min(left);
                from = end;
            }
            self.next += 1;
        }
        from + left
    }

    /// Highest rate (bytes a second) at which it reads between two times, if packets always arrive
    /// at the path's rate.
    pub(crate) fn drains_bytes_s(&self, path_bytes_s: f64, packet: u32, from: Duration, to: Duration) -> f64 {
        let mut host = self.clone();
        let gap_s = f64::from(packet) / path_bytes_s;
        let mut bytes = 0.0;
        for n in 0.. {
            let at = Duration::from_secs_f64(gap_s * f64::from(n));
            if to <= at {
                break;
            }
            if host.take(at, packet).is_some_and(|read| from <= read && read < to) {
                bytes += f64::from(packet);
            }
        }
        bytes / (to - from).as_secs_f64()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Hold {
    /// Packets are never held.
    Never,
    /// Held during stalls that are predicted from feedback.
    Predicted,
    /// Held during all stalls, including future ones: the most that a predictor could gain.
    Known,
}

impl Hold {
    pub(crate) const ALL: [Self; 3] = [Self::Never, Self::Predicted, Self::Known];
}

/// Predicts stalls from silences, because a host that stalls sends no feedback.
///
/// The project's own battery forecasts two series: how long the host runs, and how long it stalls.
/// Packets are held only if the intervals of both are narrow. A quota is strictly periodic; the
/// paper's generator is not.
#[derive(Debug)]
pub(crate) struct Predictor {
    round_trip: Duration,
    coming: VecDeque<Duration>,
    heard: Option<Duration>,
    /// Sending time at which the last stall ended.
    woke: Option<Duration>,
    runs: Battery,
    stalls: Battery,
    count: u32,
    next: Option<(Duration, Duration)>,
}

impl Predictor {
    pub(crate) fn new(round_trip: Duration) -> Self {
        let battery = || Battery::new(&BatteryConfig { levels: vec![LEVEL], ..BatteryConfig::default() });
        Self {
            round_trip,
            coming: VecDeque::new(),
            heard: None,
            woke: None,
            runs: battery(),
            stalls: battery(),
            count: 0,
            next: None,
        }
    }

    /// Records that feedback arrives at `at`.
    pub(crate) fn hears(&mut self, at: Duration) {
        self.coming.push_back(at);
    }

    /// Time until which nothing is to be sent, at `now`.
    pub(crate) fn holds(&mut self, now: Duration) -> Option<Duration> {
        while let Some(at) = self.coming.front().copied().filter(|at| *at <= now) {
            self.coming.pop_front();
            self.learn(at);
        }
        self.next.filter(|(from, to)| *from <= now && now < *to).map(|(_, to)| to)
    }

    fn learn(&mut self, at: Duration) {
        let silent = self.heard.filter(|before| at.saturating_sub(*before) >= SILENCE_MIN);
        self.heard = Some(at);
        let Some(before) = silent else { return };
        // Feedback describes packets that were sent one round trip before it arrives.
        let [from, to] = [before, at].map(|time| time.saturating_sub(self.round_trip));
        self.next = None;
        if let Some(woke) = self.woke.filter(|woke| *woke < from) {
            let taken = [(&mut self.runs, from - woke), (&mut self.stalls, to - from)]
                .into_iter()
                .all(|(battery, time)| battery.update(time.as_secs_f64()).is_ok());
            self.count += u32::from(taken);
            self.next = self.forecast(to);
        }
        self.woke = Some(to);
    }

    /// The next stall after one that ended at `woke`.
    fn forecast(&self, woke: Duration) -> Option<(Duration, Duration)> {
        if self.count < COUNT_MIN {
            return None;
        }
        let (runs, run_s) = ahead(&self.runs)?;
        let (stalls, stall_s) = ahead(&self.stalls)?;
        if SPREAD_MAX * stalls < run_s + stall_s {
            return None;
        }
        let from = woke + Duration::from_secs_f64(runs) + INTO;
        let to = (woke + Duration::from_secs_f64(runs + stalls)).saturating_sub(EARLY);
        (from < to).then_some((from, to))
    }
}

/// Forecast of the next value and the width of its interval (s).
fn ahead(battery: &Battery) -> Option<(f64, f64)> {
    let value = battery.forecast(Objective::Absolute)?.value;
    let interval = battery.interval(LEVEL)?;
    (0.0 < value && value < STALL_MAX_S).then_some((value, interval.upper - interval.lower))
}

const LEVEL: f64 = 0.9;
/// Feedback arrives at least four times in a round trip, here 20 ms. Without a stall there are
/// silences of 8 to 25 ms when the sender is held or a queue fills (seed 11).
const SILENCE_MIN: Duration = Duration::from_millis(30);
/// Fewer stalls give no useful interval.
const COUNT_MIN: u32 = 10;
/// Sum of the widths of both intervals, as a share of a stall: holding at a wrong time costs as
/// much as holding at a right time gains.
const SPREAD_MAX: f64 = 0.25;
/// A longer silence is an outage, not a stall.
const STALL_MAX_S: f64 = 10.0;
/// Holding begins this long after the start of a stall: the socket has some room, and if nothing
/// arrives the start of a stall cannot be detected.
const INTO: Duration = Duration::from_millis(4);
/// Holding ends this long before the end of a stall.
const EARLY: Duration = Duration::from_millis(1);

/// Time to hold a packet that would arrive at `arrives`, with knowledge of all stalls; `None` if it
/// is not to be held.
pub(crate) fn known(host: &Host, arrives: Duration) -> Option<Duration> {
    let (from, to) = host.stall_at(arrives)?;
    let (from, to) = (from + INTO, to.saturating_sub(EARLY));
    (from <= arrives && arrives < to).then(|| to - arrives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_a_quota_reads_a_quarter_of_the_time() {
        let until = Duration::from_secs(20);
        let host = |buffer| Host::new(Busy::Quota, 800, buffer, 1, until);
        let drains = |buffer| host(buffer).drains_bytes_s(37.5e6, 1500, Duration::from_secs(5), until) / 25e6;
        // 2.8 MB arrive in a stall, which a large buffer holds.
        assert!((0.95..1.01).contains(&drains(4_000_000)), "{}", drains(4_000_000));
        // A small buffer holds 0.212 MB, and then 0.94 MB arrive while the host runs.
        let small = (0.025 * 37.5 + 0.212) / 2.5;
        assert!((0.95..1.05).contains(&(drains(212_000) / small)), "{}", drains(212_000));
        // From the end of a stall on it runs for 25 ms.
        let woke = host(1500).stalls[1].1;
        assert_eq!(host(1500).runs_from(woke + 24 * MS), woke + 24 * MS);
        assert_eq!(host(1500).runs_from(woke + 26 * MS), woke + QUOTA_PERIOD);
    }

    #[test]
    fn the_phase_of_a_quota_depends_on_its_seed() {
        let until = Duration::from_secs(1);
        let stalls = |seed| Busy::Quota.stalls(seed, until);
        assert_eq!(stalls(1), stalls(1));
        assert_ne!(stalls(1), stalls(2));
        for seed in 1..20 {
            let all = stalls(seed);
            assert!(all.windows(2).all(|pair| pair[0].1 + QUOTA_RUNS == pair[1].0), "{seed}: {all:?}");
            assert!(all[0].0 == Duration::ZERO || all[0].1 - all[0].0 == QUOTA_PERIOD - QUOTA_RUNS);
            assert!(all.last().is_some_and(|(_, end)| until <= *end), "{seed}: {all:?}");
        }
    }

    #[test]
    fn the_generator_depends_on_its_seed_and_leaves_time_slices() {
        let stalls = |seed| Busy::Generator.stalls(seed, Duration::from_secs(100));
        assert_eq!(stalls(1), stalls(1));
        assert_ne!(stalls(1), stalls(2));
        let all = stalls(1);
        assert!(all.windows(2).all(|pair| pair[0].1 + SLICE <= pair[1].0));
        let share = all.iter().map(|(start, end)| (*end - *start).as_secs_f64()).sum::<f64>() / 100.0;
        assert!((0.1..0.35).contains(&share), "{share} of the time");
    }
}
