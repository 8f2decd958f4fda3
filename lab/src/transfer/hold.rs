//! When packets are held because the receiver's host is expected to stall (Dickens §8): by a predictor, and by one that knows.

use std::collections::VecDeque;
use std::time::Duration;

use barograph_forecast::{Battery, Config, Loss};

use super::host::Host;

/// What the sender knows of the receiver's stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It does not ask.
    Never,
    /// What its feedback showed of those that were.
    Predicted,
    /// All, also of those to come: what a predictor could bring at the most.
    Known,
}

impl Hold {
    pub(crate) const ALL: [Self; 3] = [Self::Never, Self::Predicted, Self::Known];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Predicted => "predicted",
            Self::Known => "known",
        }
    }
}

/// Predicts stalls from silences: a host that stalls sends no feedback either.
///
/// Two series are forecast by the project's own battery: for how long the host runs, and for how long it does not. Only if the intervals of both
/// are narrow is anything held: a quota is strictly periodic, the paper's generator is not.
#[derive(Debug)]
pub(crate) struct Predictor {
    round_trip: Duration,
    /// Feedback that is on its way.
    coming: VecDeque<Duration>,
    heard: Option<Duration>,
    /// When the last stall ended, in times of sending.
    woke: Option<Duration>,
    runs: Battery,
    stalls: Battery,
    count: u32,
    next: Option<(Duration, Duration)>,
}

impl Predictor {
    pub(crate) fn new(round_trip: Duration) -> Self {
        let battery = || Battery::new(&Config { levels: vec![LEVEL], ..Config::default() });
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

    /// Feedback that comes at `at`.
    pub(crate) fn hears(&mut self, at: Duration) {
        self.coming.push_back(at);
    }

    /// Until when nothing is to be sent, at `now`.
    pub(crate) fn holds(&mut self, now: Duration) -> Option<Duration> {
        while let Some(at) = self.coming.front().copied().filter(|at| *at <= now) {
            self.coming.pop_front();
            self.learn(at);
        }
        self.next.filter(|(from, to)| *from <= now && now < *to).map(|(_, to)| to)
    }

    fn learn(&mut self, at: Duration) {
        let silent = self.heard.filter(|before| SILENCE_MIN <= at.saturating_sub(*before));
        self.heard = Some(at);
        let Some(before) = silent else { return };
        // What is sent a round trip before feedback comes is what that tells of.
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

    /// When the next stall is, after one that ended at `woke`; the one after it in case the next is not seen.
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

/// What is expected, and how wide its interval is (s).
fn ahead(battery: &Battery) -> Option<(f64, f64)> {
    let value = battery.forecast(Loss::Absolute)?.value;
    let interval = battery.interval(LEVEL)?;
    (0.0 < value && value < STALL_MAX_S).then_some((value, interval.upper - interval.lower))
}

/// Level of the intervals.
const LEVEL: f64 = 0.9;
/// Feedback comes four times a round trip or more often, and a round trip is 20 ms here; a sender that is held, or a queue that fills, is silent
/// for 8 to 25 ms by itself (seed 11).
const SILENCE_MIN: Duration = Duration::from_millis(30);
/// What was seen less often has no interval worth the name.
const COUNT_MIN: u32 = 10;
/// Both intervals together, of a stall: what is held for nothing costs as much as is won.
const SPREAD_MAX: f64 = 0.25;
/// Longer is no stall but an outage.
const STALL_MAX_S: f64 = 10.0;
/// So late in a stall holding begins: the socket has room for a little, and where nothing comes, the beginning of a stall is not seen.
const INTO: Duration = Duration::from_millis(4);
/// So early it ends.
const EARLY: Duration = Duration::from_millis(1);

/// What one who knows holds: stalls shorter than the buffer lasts cost nothing.
pub(crate) fn known(host: &Host, arrives: Duration) -> Option<Duration> {
    let (from, to) = host.stall_at(arrives)?;
    let (from, to) = (from + INTO, to.saturating_sub(EARLY));
    (from <= arrives && arrives < to).then(|| to - arrives)
}
