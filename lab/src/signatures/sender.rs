//! The paced sender and the other sources: one spinning thread sends all bursts one after another,
//! also those of several runs, so that they do not compete for the CPU.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use barograph_probe::io::CancellationToken;
use barograph_sim::SeededRng;

use super::plan::{Design, Net, Others, PAYLOAD_BYTES, Path};

/// A run to send: its design, the socket to its receiver, and the one to a sink.
pub(crate) struct Lane<'a> {
    pub(crate) design: &'a Design,
    pub(crate) own: &'a UdpSocket,
    pub(crate) others: &'a UdpSocket,
}

/// Sends the packets of runs to their receivers, and those of the other sources to the sinks, until
/// all runs are over or stopped. Returns the total time in which the sender was not running or
/// late, which delays all runs.
pub(crate) fn send(lanes: &[Lane<'_>], stop: &CancellationToken) -> Duration {
    warm_up(lanes);
    let mut sequences = vec![0_u64; lanes.len()];
    let mut payload = [0_u8; PAYLOAD_BYTES];
    let fill = || lanes.iter().for_each(Lane::fill_queue);
    fill();
    let (began, mut behind) = (Instant::now(), Duration::ZERO);
    for (index, Event { due, burst, is_own }) in Merged::new(lanes.iter().map(|lane| lane.design)) {
        if stop.is_cancelled() {
            break;
        }
        let mut now = began.elapsed().saturating_sub(behind);
        if due + LATE_MAX < now {
            // What a busy machine missed is not sent in one burst.
            fill();
            behind = began.elapsed().saturating_sub(due);
            now = due;
        }
        while now < due {
            std::hint::spin_loop();
            now = began.elapsed().saturating_sub(behind);
        }
        payload[8..16].copy_from_slice(&now_ns().to_le_bytes());
        let Lane { own, others, .. } = &lanes[index];
        for _ in 0..burst {
            if is_own {
                payload[..8].copy_from_slice(&sequences[index].to_le_bytes());
                sequences[index] += 1;
            }
            // A packet that the kernel refuses counts as lost.
            let _ = if is_own { own.send(&payload) } else { others.send(&payload) };
        }
    }
    behind
}

impl Lane<'_> {
    /// Fills the queue if it must be full: with a slight excess alone that would take most of the
    /// run. Called at the start and after each pause.
    fn fill_queue(&self) {
        if let Path::Switch { rate_bps: Some(_), queue_packets, .. } = self.design.path
            && matches!(self.design.kind.net(), Some(Net::Cbr | Net::SelfInduced))
        {
            let filler = [0_u8; PAYLOAD_BYTES];
            (0..queue_packets).for_each(|_| drop(self.others.send(&filler)));
        }
    }
}

/// Lets hosts resolve each other and fills caches; receivers ignore packets numbered [`WARM_UP`].
fn warm_up(lanes: &[Lane<'_>]) {
    let mut payload = [0_u8; PAYLOAD_BYTES];
    payload[..8].copy_from_slice(&WARM_UP.to_le_bytes());
    for _ in 0..10 {
        for Lane { own, others, .. } in lanes {
            let _ = (own.send(&payload), others.send(&payload));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Wall-clock time (ns), as in the kernel's timestamps.
pub(crate) fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) due: Duration,
    pub(crate) burst: u32,
    is_own: bool,
}

/// The bursts of several runs in order of time, with the index of the run; each run ends after its
/// own duration.
struct Merged(Vec<Upcoming>);

/// A run and its next burst; `None` if the run is over.
struct Upcoming {
    timeline: Timeline,
    ends: Duration,
    event: Option<Event>,
}

impl Merged {
    fn new<'a>(designs: impl Iterator<Item = &'a Design>) -> Self {
        let upcoming = |design: &Design| {
            let ends = Duration::from_secs_f64(design.seconds);
            let mut upcoming = Upcoming { timeline: Timeline::new(design), ends, event: None };
            upcoming.advance();
            upcoming
        };
        Self(designs.map(upcoming).collect())
    }
}

impl Iterator for Merged {
    type Item = (usize, Event);

    fn next(&mut self) -> Option<Self::Item> {
        let due = |run: &Upcoming| run.event.map(|event| event.due);
        let runs = self.0.iter().enumerate().filter_map(|(index, run)| Some((due(run)?, index)));
        let (_, index) = runs.min()?;
        let event = self.0[index].event.take()?;
        self.0[index].advance();
        Some((index, event))
    }
}

impl Upcoming {
    fn advance(&mut self) {
        self.event = self.timeline.next().filter(|event| event.due < self.ends);
    }
}

/// All bursts of a run in order of time; endless.
pub(crate) struct Timeline {
    rng: SeededRng,
    sources: Vec<Source>,
    /// Time (ns) at which each source sends next.
    due_ns: BinaryHeap<Reverse<(u64, usize)>>,
}

struct Source {
    others: Others,
    is_own: bool,
    on_until_ns: f64,
}

impl Timeline {
    fn new(design: &Design) -> Self {
        let steady = Others {
            sources: 1,
            pps: f64::from(design.pps),
            burst: design.burst,
            is_poisson: false,
            on_ms: 0.0,
            off_ms: 0.0,
        };
        let own = Source { others: steady, is_own: true, on_until_ns: 0.0 };
        Self::of(Some(own), design.others, design.seed)
    }

    /// The timeline of other sources only.
    pub(crate) fn of_others(others: Others, seed: u64) -> Self {
        Self::of(None, Some(others), seed)
    }

    fn of(own: Option<Source>, others: Option<Others>, seed: u64) -> Self {
        let mut rng = SeededRng::new(seed, 1);
        let other = |others| Source { others, is_own: false, on_until_ns: 0.0 };
        let others = others.into_iter().flat_map(|others| (0..others.sources).map(move |_| other(others)));
        let sources: Vec<Source> = own.into_iter().chain(others).collect();
        // Each source begins at a random point of its period: sources in step at the start would
        // stay in step.
        let first = |(index, source): (usize, &Source)| {
            let period_ns = f64::from(source.others.burst) / source.others.pps * 1e9;
            Reverse(((period_ns * rng.uniform()) as u64, index))
        };
        let due_ns = sources.iter().enumerate().map(first).collect();
        Self { rng, sources, due_ns }
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        let Reverse((at_ns, index)) = self.due_ns.pop()?;
        let Source { others, is_own, on_until_ns } = &mut self.sources[index];
        let Others { pps, burst, is_poisson, on_ms, off_ms, .. } = *others;
        let mean_ns = f64::from(burst) / pps * 1e9;
        let mut next_ns = at_ns as f64 + if is_poisson { self.rng.exponential(mean_ns) } else { mean_ns };
        if off_ms > 0.0 && *on_until_ns < next_ns {
            next_ns = next_ns.max(*on_until_ns) + self.rng.exponential(off_ms * 1e6);
            *on_until_ns = next_ns + self.rng.exponential(on_ms * 1e6);
        }
        self.due_ns.push(Reverse((next_ns as u64, index)));
        Some(Event { due: Duration::from_nanos(at_ns), burst, is_own: *is_own })
    }
}

/// Sequence number of packets that are not part of the run.
pub(crate) const WARM_UP: u64 = u64::MAX;

/// A spinning sender later than this was not running: far more than a burst takes to send.
const LATE_MAX: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::super::plan::{Kind, Setting};

    use super::*;

    #[test]
    fn runs_at_the_same_time_send_what_each_sends_alone() {
        let setting = Setting { seed: 5, seconds: 1.0, has_whole_windows: false, scale: 1.0 };
        let mut designs =
            [Net::Poisson, Net::Random].map(|net| Design::draw(Kind::Net(net), false, 1, &setting));
        designs[1].seconds = 2.0;
        let both: Vec<(usize, Event)> = Merged::new(designs.iter()).collect();
        assert!(both.windows(2).all(|pair| pair[0].1.due <= pair[1].1.due));
        for (index, design) in designs.iter().enumerate() {
            let alone: Vec<Event> = Merged::new(std::iter::once(design)).map(|(_, event)| event).collect();
            let beside: Vec<Event> =
                both.iter().filter(|(run, _)| *run == index).map(|(_, event)| *event).collect();
            assert_eq!(alone, beside);
            let last_s = alone.last().unwrap().due.as_secs_f64();
            assert!((design.seconds - 0.1..design.seconds).contains(&last_s), "{last_s}");
        }
    }

    #[test]
    fn every_source_sends_at_its_rate() {
        let setting = Setting { seed: 5, seconds: 4.0, has_whole_windows: false, scale: 1.0 };
        for net in [Net::Poisson, Net::Cbr, Net::Onoff] {
            let design = Design::draw(Kind::Net(net), false, 1, &setting);
            let mut timeline = Timeline::new(&design);
            let events: Vec<Event> = std::iter::from_fn(|| timeline.next())
                .take_while(|event| event.due < Duration::from_secs(4))
                .collect();
            assert!(events.windows(2).all(|pair| pair[0].due <= pair[1].due));
            let rate = |is_own| {
                let of = events.iter().filter(|event| event.is_own == is_own);
                of.map(|event| f64::from(event.burst)).sum::<f64>() / 4.0
            };
            assert!((rate(true) / f64::from(design.pps) - 1.0).abs() < 0.01, "{net:?}: {}", rate(true));
            let others = design.others.map_or(0.0, |o| {
                let share = if o.off_ms > 0.0 { o.on_ms / (o.on_ms + o.off_ms) } else { 1.0 };
                o.pps * share * f64::from(o.sources)
            });
            assert!((rate(false) / others - 1.0).abs() < 0.15, "{net:?}: {} for {others}", rate(false));
        }
    }
}
