//! To a host that does not always read: the paper's generator, a quota, and both causes at once.

use barograph_sim::{Link, Network, Switch};
use barograph_transfer::controller::Kind;
use serde_json::json;

use super::flow::{Flow, Ours, now_ms};
use super::goal::{self, Bound};
use super::session::{Run, Session};
use crate::signatures::host::{Load, limit_to};
use crate::signatures::plan::Host;
use crate::transfer::{Table, percent};

/// What keeps the receiver from reading, and what the network loses beside.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    name: &'static str,
    is_quota: bool,
    loss: f64,
}

const TROUBLES: [Trouble; 3] = [
    Trouble { name: "generator", is_quota: false, loss: 0.0 },
    Trouble { name: "quota", is_quota: true, loss: 0.0 },
    Trouble { name: "generator and 0.1 % of the network's", is_quota: false, loss: 1e-3 },
];

/// In short runs those that the question is about.
const SOME: [Kind; 3] = [Kind::Model, Kind::HighSpeed, Kind::Paper];
const ALL: [Kind; 5] = [Kind::Model, Kind::HighSpeed, Kind::Tfrc, Kind::Scalable, Kind::Paper];

pub(crate) fn table(session: &Session) -> anyhow::Result<Table> {
    let kinds: &[Kind] = if session.is_full { &ALL } else { &SOME };
    let (mut cells, mut rows, mut goals) = (Vec::new(), Vec::new(), Vec::new());
    // In short runs the buffer in which a stall costs most.
    let buffers = if session.is_full { BUFFERS.as_slice() } else { &BUFFERS[..1] };
    for (trouble, buffer) in
        TROUBLES.iter().flat_map(|trouble| buffers.iter().map(move |buffer| (*trouble, *buffer)))
    {
        let name = format!("{}, {} kB", trouble.name, 2 * buffer / 1000);
        let of = |kind, has_ear| Ours { has_ear, receive_buffer: buffer, ..ours(session, kind) };
        session.note(format!("{name}: a flood"));
        // No controller makes its sender wait, whatever is lost.
        let flood = run(session, trouble, &of(Kind::Fixed, false))?.bps;
        let mut runs = Vec::new();
        for kind in kinds {
            for has_ear in [true, false] {
                session.note(format!("{name}: {kind}, classifier {}", if has_ear { "on" } else { "off" }));
                runs.push((*kind, has_ear, run(session, trouble, &of(*kind, has_ear))?));
            }
        }
        // A flood wastes time on what it throws away, so that a gentler flow may drain more.
        let drains = runs.iter().map(|(.., run)| run.bps).fold(flood, f64::max);
        for pair in runs.chunks(2) {
            let kind = pair.first().map_or("", |(kind, ..)| kind.name());
            let mut row =
                vec![name.clone(), format!("{:.0} / {:.0}", drains / 1e6, flood / 1e6), kind.to_owned()];
            for (kind, has_ear, run) in pair {
                let said = &run.course.sender;
                let lost = said.lost_packets as f64 / said.sent_packets.max(1) as f64;
                row.push(format!("{:.0} = {} / {}", run.bps / 1e6, percent(run.bps / drains), percent(lost)));
                if *has_ear && *kind == Kind::DEFAULT && trouble.loss == 0.0 {
                    let what = format!("{name}: {kind} with the classifier ÷ what could be drained");
                    goals.push(goal::line(&what, Bound::Least(0.9), Some(run.bps / drains)));
                }
                rows.push(json!({
                    "trouble": trouble.name, "loss": trouble.loss, "buffer_bytes": 2 * buffer, "controller": kind.name(),
                    "has_ear": has_ear, "bit_s": run.bps, "could_drain_bit_s": drains, "flood_bit_s": flood,
                    "of_drained": run.bps / drains, "lost": lost, "lost_host": said.lost_host,
                    "lost_network": said.lost_network, "lost_unknown": said.lost_unknown,
                }));
            }
            cells.push(row);
        }
    }
    let legend = format!(
        "1 Gbit/s at native delay, sealed; the receiver is kept on one processor, the sender on the other. generator: the paper's (§3.1.4), up to 7 \
         processes on the receiver's processor for 20 to 140 ms, then none for up to 400 ms (its times divided by 50). quota: 5 of 100 ms. Could \
         drain (Mbit/s): the greatest of the cells and of what the same host took of a flood at the line's rate under the same load / that flood alone. Cells: goodput (Mbit/s) = % of that / % of the \
         packets lost. {} s after {START_S} s of start.",
        session.seconds * LONGER
    );
    let header = ["trouble, buffer", "could drain", "controller", "classifier on", "classifier off"];
    Ok(Table::new("A busy host", &legend, &header, cells, rows).with(&goals))
}

fn ours(session: &Session, kind: Kind) -> Ours {
    Ours {
        rate_bytes_s: Some(RATE as f64 / 8.0 * 0.985),
        receiver_cpu: Some(session.cpus.receiver),
        sender_cpu: Some(session.cpus.sender),
        seed: session.seed,
        ..Ours::new(kind)
    }
}

fn run(session: &Session, trouble: Trouble, ours: &Ours) -> anyhow::Result<Run> {
    let link = if trouble.loss > 0.0 {
        Link::Switch(Switch { rate_bps: Some(RATE), queue_packets: 1000, loss: trouble.loss })
    } else {
        Link::Veth { rate_bps: Some(RATE) }
    };
    let network = Network::new(link)?;
    let waiting = Flow::prepare(&network, ours)?;
    let process_id = waiting.process_id();
    let (load, group) = if trouble.is_quota {
        (None, Some(limit_to(process_id, QUOTA_US, PERIOD_US)?))
    } else {
        (Some(Load::start(GENERATOR, session.cpus, process_id, session.seed)?), None)
    };
    let flow = waiting.go(&network, ours)?;
    std::thread::sleep(std::time::Duration::from_secs(START_S));
    let from_ms = now_ms();
    std::thread::sleep(std::time::Duration::from_secs(session.seconds * LONGER));
    let to_ms = now_ms();
    // Before the receiver is asked: it has to answer.
    drop((load, group));
    let course = flow.stop()?;
    Ok(Run { bps: course.bps(from_ms, to_ms), course, void: None })
}

/// What is asked for (bytes): half of Linux's default, as the kernel counts twice that, and what a program that may asks for.
const BUFFERS: [usize; 2] = [106_496, 2 << 20];

const RATE: u64 = 1_000_000_000;

/// The paper's, its times divided by 50 so that a short run has many.
const GENERATOR: Host = Host::Gen { busy: 7, run_ms: [20.0, 140.0], sleep_ms: [0.0, 400.0], scale: 50.0 };

/// A twentieth of a processor, which a gigabit is too much for.
const QUOTA_US: u32 = 5_000;
const PERIOD_US: u32 = 100_000;

/// The generator's cycle takes 0.3 s on average: so that a run has some dozens of them.
const LONGER: u64 = 3;
const START_S: u64 = 2;
