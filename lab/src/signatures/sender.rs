//! The paced sender and the other sources: one spinning thread sends all bursts of a run one after
//! another, so that they do not compete for the CPU.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use barograph_probe::io::CancellationToken;
use barograph_sim::SeededRng;

use super::plan::{Design, Net, Others, PAYLOAD_BYTES, Path};

/// Sends the run's packets to the receiver, and those of the other sources to a sink, until the run
/// is over or stopped. Returns the total time in which the sender was not running or late.
pub(crate) fn send(
    own: &UdpSocket,
    others: &UdpSocket,
    design: &Design,
    stop: &CancellationToken,
) -> Duration {
    let mut payload = [0; PAYLOAD_BYTES];
    let filler = payload;
    warm_up(own, others, &mut payload);
    let mut timeline = Timeline::new(design);
    let fill = || (0..filling(design)).for_each(|_| drop(others.send(&filler)));
    fill();
    let (mut sequence, began) = (0_u64, Instant::now());
    let mut behind = Duration::ZERO;
    while let Some(Event { due, burst, is_own }) = timeline.next() {
        if Duration::from_secs_f64(design.seconds) <= due || stop.is_cancelled() {
            return behind;
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
        for _ in 0..burst {
            if is_own {
                payload[..8].copy_from_slice(&sequence.to_le_bytes());
                sequence += 1;
            }
            // A packet that the kernel refuses counts as lost.
            let _ = if is_own { own.send(&payload) } else { others.send(&payload) };
        }
    }
    behind
}

/// Number of packets that fill the queue if it must be full: with a slight excess alone that would
/// take most of the run. Used at the start and after each pause.
fn filling(design: &Design) -> u32 {
    match design.path {
        Path::Switch { rate_bps: Some(_), queue_packets, .. }
            if matches!(design.kind.net(), Some(Net::Cbr | Net::SelfInduced)) =>
        {
            queue_packets
        }
        _ => 0,
    }
}

/// Lets hosts resolve each other and fills caches; the receiver ignores packets numbered
/// [`WARM_UP`].
fn warm_up(own: &UdpSocket, others: &UdpSocket, payload: &mut [u8; PAYLOAD_BYTES]) {
    payload[..8].copy_from_slice(&WARM_UP.to_le_bytes());
    for _ in 0..10 {
        let _ = (own.send(payload), others.send(payload));
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
    fn every_source_sends_at_its_rate() {
        let setting = Setting { seed: 5, seconds: 4.0, scale: 1.0 };
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
