//! Transfers to a host that does not always read: the paper's generator, a quota, and both causes
//! of loss at once.

use std::time::Duration;

use barograph_sim::{Link, Network, Switch};
use barograph_transfer::controller::ControllerKind;
use serde_json::json;

use super::flow::{Flow, Ours, SenderResult};
use super::raw::Flood;
use super::session::{AROUND, Bound, Plan, Session, for_people};
use super::{flow, session};
use crate::evidence::LossEvidence;
use crate::signatures::host;
use crate::signatures::host::{Load, limit_to};
use crate::signatures::plan::Host;
use crate::table::{Table, cells, dash, number, percent};

/// Load that keeps the receiver from reading, and random loss of the network.
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

/// Controllers of short runs, which matter most for the question.
const SOME: [ControllerKind; 3] = [ControllerKind::Model, ControllerKind::HighSpeed, ControllerKind::Paper];
const ALL: [ControllerKind; 5] = [
    ControllerKind::Model,
    ControllerKind::HighSpeed,
    ControllerKind::Tfrc,
    ControllerKind::Scalable,
    ControllerKind::Paper,
];

struct Group {
    trouble: Trouble,
    buffer: usize,
    kinds: Vec<ControllerKind>,
}

impl Group {
    fn name(&self) -> String {
        format!("{}, {} kB", self.trouble.name, 2 * self.buffer / 1000)
    }

    fn plan(&self, session: &Session) -> Plan {
        Plan::of(2 + 2 * self.kinds.len() as u64, cell_time(session), 1)
    }
}

fn groups(session: &Session) -> Vec<Group> {
    let mut groups = Vec::new();
    for trouble in TROUBLES {
        for (buffer, full, quick) in
            [(BUFFERS[0], ALL.as_slice(), SOME.as_slice()), (BUFFERS[1], SOME.as_slice(), &[])]
        {
            let kinds = session.kinds_of(full, quick);
            if !kinds.is_empty() {
                groups.push(Group { trouble, buffer, kinds });
            }
        }
    }
    groups
}

/// Dozens of the generator's cycles, which take 0.3 s on average.
fn measured(session: &Session) -> Duration {
    Duration::from_secs((2 * session.seconds).max(SECONDS_MIN))
}

fn cell_time(session: &Session) -> Duration {
    START + measured(session) + AROUND
}

pub(crate) fn plan(session: &Session) -> Plan {
    groups(session).iter().map(|group| group.plan(session)).sum()
}

pub(crate) fn run(session: &Session) -> anyhow::Result<()> {
    let legend = format!(
        "1 Gbit/s at native delay, sealed; the receiver is pinned to one processor, the sender to the other. generator: the paper's (§3.1.4), up to 7 \
         processes on the receiver's processor for 20 to 140 ms, then none for up to 400 ms (its times divided by 50). quota: {} of {} ms. Could drain \
         (Mbit/s): rate at which a program of the lab that only receives, decrypts and copies drained a flood of sealed datagrams at the line's rate, under the \
         same load and with the same buffer, from its first datagram on. Ours at fixed rate: rate at which our own receiver, which also keeps account and responds, \
         drained `fixed` at the line's rate, which no loss slows down. Cells: goodput (Mbit/s), {} after {} of start = % of could drain / % of the packets \
         lost over the whole run. Attributed packets / counted drops, also over the whole run: packets that the sender with its classifier attributed to the host / \
         drops of the receiver's socket; packets that it attributed to the network / drops of the link. The kernel counts a train that arrives \
         whole once (all rows without loss of the network): only in rows with such loss drops are packets.",
        QUOTA_US / 1000,
        PERIOD_US / 1000,
        for_people(measured(session)),
        for_people(START)
    );
    let table = Table::titled(
        "load, buffer | could drain | ours at fixed rate | controller | classifier on | \
         classifier off | host: attributed packets / counted drops | network: attributed packets / counted drops | \
         unknown",
    );
    session.report.begin("A busy host", &legend, table, groups(session).iter().map(Group::name))?;
    let mut lines = Vec::new();
    for group in groups(session) {
        let name = group.name();
        let plan = Plan::of(1, cell_time(session), 1);
        let drains = session.cell(format!("{name}: a flood"), plan, || flood(session, &group))?;
        let fixed = Ours {
            evidence: LossEvidence::None,
            receive_buffer: group.buffer,
            ..ours(session, ControllerKind::Fixed)
        };
        let run = || one(session, group.trouble, &fixed).map(|result| result.bps);
        let fixed_bps = session
            .cell(format!("{name}: {}", ControllerKind::Fixed), plan, run)
            .inspect_err(|error| lines.push(format!("- {name}: fixed did not run: {error:#}\n")))
            .ok();
        for kind in group.kinds.iter().copied() {
            let fixed = number(fixed_bps.map(|bps| bps / 1e6), 0);
            let mut cells = cells![name, format!("{:.0}", drains / 1e6), fixed, kind.name()];
            let (mut causes, mut rows) = (Vec::new(), Vec::new());
            for evidence in [LossEvidence::Counter, LossEvidence::None] {
                let classify_losses = evidence.is_classified();
                let what =
                    format!("{name}: {kind}, classifier {}", if classify_losses { "on" } else { "off" });
                let ours = Ours { evidence, receive_buffer: group.buffer, ..ours(session, kind) };
                let found = session.cell(what, plan, || one(session, group.trouble, &ours));
                let BusyRun { bps, sender, socket_drops, link_drops } = match found {
                    Ok(result) => result,
                    Err(error) => {
                        cells.push(dash());
                        causes
                            .extend(classify_losses.then(|| [dash(), dash(), dash()]).into_iter().flatten());
                        let failure = format!("{error:#}");
                        lines.push(format!("- {name}: {kind} did not run: {failure}\n"));
                        rows.push(json!({
                            "trouble": group.trouble.name, "loss": group.trouble.loss, "buffer_bytes": 2 * group.buffer,
                            "controller": kind.name(), "has_ear": classify_losses, "failure": failure,
                        }));
                        continue;
                    }
                };
                let lost = sender.lost_packets as f64 / sender.sent_packets.max(1) as f64;
                cells.push(format!("{:.0} = {} / {}", bps / 1e6, percent(bps / drains), percent(lost)));
                if classify_losses {
                    causes.push(format!("{} / {socket_drops}", sender.lost_host));
                    causes.push(format!("{} / {link_drops}", sender.lost_network));
                    causes.push(sender.lost_unknown.to_string());
                }
                if classify_losses && kind == ControllerKind::DEFAULT && group.trouble.loss == 0.0 {
                    let what = format!("{name}: {kind} with the classifier ÷ what could be drained");
                    lines.push(session::goal_line(&what, Bound::Least(0.9), Some(bps / drains)));
                    lines.extend(fixed_bps.map(|fixed| {
                        format!(
                            "- {name}: {kind} with the classifier ÷ ours at fixed rate: {:.2}\n",
                            bps / fixed
                        )
                    }));
                }
                lines.extend(noise(&name, kind, bps / drains));
                rows.push(json!({
                    "trouble": group.trouble.name, "loss": group.trouble.loss, "buffer_bytes": 2 * group.buffer,
                    "controller": kind.name(), "has_ear": classify_losses, "bit_s": bps, "could_drain_bit_s": drains,
                    "fixed_bit_s": fixed_bps,
                    "of_drained": bps / drains, "lost": lost, "sent_packets": sender.sent_packets,
                    "lost_packets": sender.lost_packets, "lost_host": sender.lost_host, "lost_network": sender.lost_network,
                    "lost_unknown": sender.lost_unknown, "socket_drops": socket_drops, "link_drops": link_drops,
                }));
            }
            cells.extend(causes);
            session.report.row(&cells, rows)?;
        }
    }
    session.report.end(&lines)
}

/// A line about a cell that drained more than the flood did.
fn noise(name: &str, kind: ControllerKind, share: f64) -> Option<String> {
    (1.0 + NOISE < share).then(|| {
        format!(
            "- noise: {name}: {kind} drained {share:.2} of what could be drained, so its row is unreliable\n"
        )
    })
}

/// Rate at which the host drains datagrams that nothing slows down (bit/s).
fn flood(session: &Session, group: &Group) -> anyhow::Result<f64> {
    let network = Network::new(link(group.trouble))?;
    let flood = Flood::prepare(&network, group.buffer, session.cpus.receiver)?;
    let load = group.trouble.start(session, flood.process_id())?;
    let sent = flood.send(&network, OFFERED_BYTES_S, START + measured(session), session.cpus.sender);
    // The load ends before the receiver is stopped, which still has to respond.
    drop(load);
    sent?;
    flood.finish()
}

/// A run of ours, with the kernel's counts of its losses.
struct BusyRun {
    bps: f64,
    sender: SenderResult,
    socket_drops: u64,
    link_drops: u64,
}

fn one(session: &Session, trouble: Trouble, ours: &Ours) -> anyhow::Result<BusyRun> {
    let network = Network::new(link(trouble))?;
    let waiting = Flow::prepare(&network, ours)?;
    let load = trouble.start(session, waiting.process_id())?;
    let flow = waiting.go(&network)?;
    let [from_ms, to_ms] = flow::measured(START, measured(session));
    // The load ends before the receiver is stopped, which still has to respond.
    drop(load);
    let (socket_drops, link_drops) = (flow.socket_drops(&network)?, network.dropped()?);
    let result = flow.stop()?;
    Ok(BusyRun { bps: result.bps(from_ms, to_ms), sender: result.sender, socket_drops, link_drops })
}

fn link(trouble: Trouble) -> Link {
    if trouble.loss > 0.0 {
        Link::Switch(Switch { rate_bps: Some(RATE), queue_packets: 1000, loss: trouble.loss })
    } else {
        Link::Veth { rate_bps: Some(RATE) }
    }
}

impl Trouble {
    fn start(
        self,
        session: &Session,
        process_id: u32,
    ) -> anyhow::Result<(Option<Load>, Option<host::Group>)> {
        Ok(if self.is_quota {
            (None, Some(limit_to(process_id, QUOTA_US, PERIOD_US)?))
        } else {
            (Some(Load::start(GENERATOR, session.cpus, process_id, session.seed)?), None)
        })
    }
}

fn ours(session: &Session, kind: ControllerKind) -> Ours {
    Ours {
        rate_bytes_s: Some(OFFERED_BYTES_S),
        receiver_cpu: Some(session.cpus.receiver),
        sender_cpu: Some(session.cpus.sender),
        seed: session.seed,
        ..Ours::new(kind)
    }
}

/// Requested buffers (bytes): half of Linux's default, because the kernel doubles the request, and
/// what a privileged program requests.
const BUFFERS: [usize; 2] = [106_496, 2 << 20];
pub(crate) const RATE: u64 = 1_000_000_000;

/// A little less than the line, because its rate also counts Ethernet's headers.
const OFFERED_BYTES_S: f64 = RATE as f64 / 8.0 * 0.985;

/// The paper's generator, its times divided by 50 so that a short run has many cycles.
pub(crate) const GENERATOR: Host =
    Host::Gen { busy: 7, run_ms: [20.0, 140.0], sleep_ms: [0.0, 400.0], scale: 50.0 };

/// A twentieth of a processor, which a gigabit a second overloads.
const QUOTA_US: u32 = 5_000;
const PERIOD_US: u32 = 100_000;
const SECONDS_MIN: u64 = 6;
const START: Duration = Duration::from_secs(2);

/// Variation from run to run of what a randomly busy host drains.
const NOISE: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rates_clearly_above_the_flood_are_reported_as_noise() {
        assert_eq!(noise("quota", ControllerKind::Model, 1.04), None);
        assert!(
            noise("quota", ControllerKind::Model, 1.08)
                .is_some_and(|line| line.contains("quota: model drained 1.08"))
        );
    }
}
