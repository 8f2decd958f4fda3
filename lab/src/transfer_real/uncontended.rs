//! Alone between two hosts, from memory to memory: the machine's limit, other programs, Barograph.

use std::time::Duration;

use barograph_sim::{Link, Network};
use barograph_transfer::controller::ControllerKind;
use serde_json::{Value, json};

use super::flow::Ours;
use super::peer::Peer;
use super::raw::{Limit, digest_bytes_s, rest};
use super::session::{AROUND, Bound, Plan, Rounds, Session, gbit_s, ratio};
use super::{raw, session};
use crate::evidence::LossEvidence;
use crate::signatures::host::Cpus;
use crate::stats::median;
use crate::table::{Section, Table, cells, dash};

const LINK: Link = Link::Veth { rate_bps: None };

#[derive(Clone, Copy)]
enum Subject {
    Peer(Peer),
    Ours(Ours),
}

#[derive(Default)]
struct SubjectResult {
    rounds: Rounds,
    lost: u64,
    sent: u64,
}

fn subjects(session: &Session) -> Vec<Subject> {
    let all = Peer::ALL.into_iter().map(Subject::Peer).chain(ours(session.cpus).map(Subject::Ours));
    all.filter(|subject| session.wants(&name(subject))).collect()
}

fn rounds(session: &Session) -> u32 {
    if session.is_full { 3 } else { 1 }
}

impl Subject {
    fn time(&self, session: &Session) -> Duration {
        let time = match self {
            Self::Ours(_) => START + session.time(),
            Self::Peer(Peer::Tcp(_) | Peer::Udp | Peer::Quinn(_)) => session.time(),
            // Four given rates, each with three seconds before it.
            Self::Peer(Peer::Uftp { has_control: false }) => (session.time() + Duration::from_secs(4)) * 4,
            Self::Peer(Peer::Uftp { has_control: true }) => session.time() * 2 + Duration::from_secs(4),
            Self::Peer(Peer::UdtMemory) => session.time() + Duration::from_secs(2),
            // Copies that grow until they take long enough.
            Self::Peer(_) => session.time() * 2 + Duration::from_secs(1),
        };
        time + AROUND
    }
}

fn limits_plan(session: &Session) -> Plan {
    Plan { cells: 2, time: 2 * raw::time(raw::step_ms(session.seconds)) }
}

pub(crate) fn plan(session: &Session) -> Plan {
    let subjects = subjects(session);
    let subjects = subjects.iter().map(|subject| Plan::of(1, subject.time(session), 1));
    let round = limits_plan(session) + subjects.sum();
    Plan { cells: round.cells * u64::from(rounds(session)), time: round.time * rounds(session) }
}

pub(crate) fn run(session: &Session) -> anyhow::Result<()> {
    let subjects = subjects(session);
    let mut found: Vec<SubjectResult> = subjects.iter().map(|_| SubjectResult::default()).collect();
    let rounds = rounds(session);
    let mut limits: [Vec<Limit>; 2] = Default::default();
    // Each round measures every row, so that other work of the machine affects all rows alike.
    for _ in 0..rounds {
        session.cell("the limit", limits_plan(session), || {
            [true, false].into_iter().zip(&mut limits).try_for_each(|(is_sealed, limits)| {
                let network = Network::new(LINK)?;
                let step_ms = raw::step_ms(session.seconds);
                limits.push(raw::limit(&network, is_sealed, session.cpus, step_ms)?);
                anyhow::Ok(())
            })
        })?;
        for (subject, found) in subjects.iter().zip(&mut found) {
            let plan = Plan::of(1, subject.time(session), 1);
            session.cell(name(subject), plan, || found.add(session, subject));
            rest();
        }
    }
    let of = |limits: &[Limit]| {
        let lossless: Vec<f64> = limits.iter().filter_map(|limit| limit.lossless_bps).collect();
        median(&lossless)
    };
    let [sealed, clear] = limits.each_ref().map(|limits| of(limits));
    let is_cubic = |subject: &Subject| matches!(subject, Subject::Peer(Peer::Tcp("cubic")));
    let cubic = subjects.iter().zip(&found).find(|(subject, _)| is_cubic(subject));
    let cubic = cubic.and_then(|(_, found)| found.rounds.median());
    let (mut table, mut rows) = (
        Table::new(["", "version", "rate", "÷ limit, sealed", "÷ limit, clear", "÷ iperf3 cubic"]),
        Vec::new(),
    );
    for (what, limits) in [("limit, sealed", &limits[0]), ("limit, clear", &limits[1])] {
        let unpaced: Vec<f64> = limits.iter().map(|limit| limit.unpaced_bps).collect();
        let loss: Vec<f64> = limits.iter().map(|limit| limit.unpaced_loss).collect();
        let (unpaced, loss) = (median(&unpaced).unwrap_or(0.0), median(&loss).unwrap_or(0.0));
        let lossless = of(limits);
        let text = lossless.map_or_else(|| "none without loss".to_owned(), gbit_s);
        let version = format!("unpaced {}, {:.1} % lost", gbit_s(unpaced), 100.0 * loss);
        let bps = lossless.unwrap_or(0.0);
        let ratios = [sealed, clear, cubic].map(|to| ratio(bps, to));
        table.push(cells![what, version, text].into_iter().chain(ratios));
        rows.push(json!({ "what": what, "bit_s": lossless, "unpaced_bit_s": unpaced, "unpaced_loss": loss }));
    }
    for (subject, found) in subjects.iter().zip(&found) {
        let (what, version) = (name(subject), version(session, subject, found));
        let text = found.rounds.told(rounds as usize);
        let ratios = match found.rounds.median() {
            Some(bps) => [sealed, clear, cubic].map(|to| ratio(bps, to)),
            None => [dash(), dash(), dash()],
        };
        table.push(cells![what, version, text].into_iter().chain(ratios));
        rows.push(of_subject(&what, &version, found));
    }
    let digest = 8.0 * digest_bytes_s();
    rows.push(json!({ "what": "blake3", "bit_s": digest }));
    let legend = format!(
        "veth, 1500 bytes a packet, two processors. Rates are of the user's bytes. The limit is the rate of one thread that encrypts trains and sends \
         them with GSO to one that receives them with GRO and decrypts them, with less than 0.01 % lost. \
         Rows from memory to memory read the same few pages repeatedly, as the limit and iperf3 (128 KiB) do, except where the row says \
         otherwise. The threads of the limit and of flows without digest are pinned to a processor each, except where the row says otherwise; the goals compare \
         pinned rows with the limit, and rows that are not pinned with peers, which are not pinned either. Files lie in memory, and the time for a \
         copy of one byte is subtracted. Digest: {} on one thread, not in these rows unless they say so.{}",
        gbit_s(digest),
        if rounds == 1 { String::new() } else { format!(" Medians of {rounds} rounds.") }
    );
    let best = |is_wanted: &dyn Fn(&Subject) -> bool| {
        let found = subjects.iter().zip(&found).filter(|(subject, _)| is_wanted(subject));
        found.filter_map(|(_, found)| found.rounds.median()).max_by(f64::total_cmp)
    };
    // The goals use one row of ours each, whatever other rows reach.
    let of_ours = |wanted: &str| best(&|subject| name(subject) == wanted);
    let of_peer = |wanted: &str| {
        best(&|subject| matches!(subject, Subject::Peer(_)) && name(subject).starts_with(wanted))
    };
    let over = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
    let (ours, in_clear) =
        (of_ours("Barograph, sealed, classifier on"), of_ours("Barograph, clear, classifier on"));
    // Rows without pinning, as other programs run.
    let [free, free_clear] =
        ["sealed", "clear"].map(|seal| of_ours(&format!("Barograph, {seal}, classifier on{FREE}")));
    let is_invalid = |ours: Option<f64>, limit| over(ours, limit).is_some_and(|share| share > BEYOND);
    let invalid_reason = (is_invalid(ours, sealed) || is_invalid(in_clear, clear)).then(|| {
        "VOID: a flow of ours was faster than the limit, so other work of the machine disturbed the measurement; ignore the ratios.\n\n".to_owned()
    });
    // Figures leave out void rows.
    for row in rows.iter_mut().filter(|_| invalid_reason.is_some()) {
        row["void"] = json!(true);
    }
    let mut goals: Vec<String> = invalid_reason.into_iter().collect();
    goals.extend([
        session::goal_line("sealed ÷ the sealed limit", Bound::Least(0.8), over(ours, sealed)),
        session::goal_line("clear ÷ the clear limit", Bound::Least(0.75), over(in_clear, clear)),
        session::goal_line(
            "clear ÷ iperf3's cubic (a goal, not a floor)",
            Bound::Least(1.0),
            over(free_clear, cubic),
        ),
        session::goal_line("sealed ÷ quinn's best", Bound::Least(2.0), over(free, of_peer("quinn"))),
    ]);
    for other in ["UDT", "UFTP", "GridFTP", "scp", "rsync"] {
        goals.push(session::goal_line(
            &format!("sealed ÷ {other}'s best"),
            Bound::Least(0.97),
            over(free, of_peer(other)),
        ));
    }
    session.report.section(Section::new("An uncontended path", &legend, &table, rows).with(&goals))
}

impl SubjectResult {
    fn add(&mut self, session: &Session, subject: &Subject) {
        let measured = match subject {
            Subject::Peer(peer) => peer
                .version(&session.tools)
                .map_err(anyhow::Error::msg)
                .and_then(|_| session.peer(&LINK, None, *peer, session.seconds))
                .map(|(bps, _)| bps),
            Subject::Ours(ours) => session.ours(&LINK, ours, START, session.time()).map(|run| {
                self.lost += run.result.sender.lost_packets;
                self.sent += run.result.sender.sent_packets;
                run.bps
            }),
        };
        self.rounds.add(measured);
    }
}

/// Our rows: with and without encryption and classifier, with a digest, and from memory that no
/// cache holds.
///
/// An end without a digest has one thread. It is pinned like the raw limit's, except in two rows
/// that run as other programs do. With a digest it has two threads, which the scheduler places.
fn ours(cpus: Cpus) -> impl Iterator<Item = Ours> {
    let sealed = Ours::new(ControllerKind::DEFAULT);
    let clear = Ours { is_sealed: false, ..sealed };
    let pinned =
        |flow: Ours| Ours { sender_cpu: Some(cpus.sender), receiver_cpu: Some(cpus.receiver), ..flow };
    let (pinned_sealed, pinned_clear) = (pinned(sealed), pinned(clear));
    let rows = [
        pinned_sealed,
        Ours { evidence: LossEvidence::None, ..pinned_sealed },
        pinned_clear,
        Ours { evidence: LossEvidence::None, ..pinned_clear },
        sealed,
        clear,
        Ours { is_hashed: true, ..sealed },
        Ours { is_cold: true, ..pinned_sealed },
        Ours { is_cold: true, ..pinned_clear },
    ];
    rows.into_iter()
}

fn name(subject: &Subject) -> String {
    match subject {
        Subject::Peer(peer) if peer.is_sealed() => format!("{} (sealed)", peer.name()),
        Subject::Peer(peer) => peer.name(),
        Subject::Ours(ours) => {
            let seal = if ours.is_sealed { "sealed" } else { "clear" };
            let classifier = if ours.evidence.is_classified() { "on" } else { "off" };
            let digest = if ours.is_hashed { ", digest" } else { "" };
            let cold = if ours.is_cold { ", from 64 MiB" } else { "" };
            let free = if ours.is_hashed || ours.sender_cpu.is_some() { "" } else { FREE };
            format!("Barograph, {seal}, classifier {classifier}{digest}{cold}{free}")
        }
    }
}

fn version(session: &Session, subject: &Subject, found: &SubjectResult) -> String {
    match subject {
        Subject::Peer(peer) => peer.version(&session.tools).unwrap_or_else(|_| dash()),
        Subject::Ours(_) => {
            let share = 100.0 * found.lost as f64 / found.sent.max(1) as f64;
            format!("{}, {share:.2} % retransmitted", env!("CARGO_PKG_VERSION"))
        }
    }
}

fn of_subject(what: &str, version: &str, found: &SubjectResult) -> Value {
    json!({
        "what": what, "version": version, "bit_s": found.rounds.median(), "failure": found.rounds.failure,
        "sent_packets": found.sent, "lost_packets": found.lost,
    })
}

/// Suffix of a row with threads that are not pinned to processors.
const FREE: &str = ", where the scheduler likes";

/// More than repeated runs differ on a quiet machine.
const BEYOND: f64 = 1.1;

/// A controller finds its rate in some round trips, which take a fraction of a millisecond.
const START: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_a_unique_name() {
        let rows = ours(Cpus { sender: 0, receiver: 1 }).map(Subject::Ours);
        let names: Vec<String> = rows.map(|subject| name(&subject)).collect();
        let alone: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(alone.len(), names.len(), "{names:?}");
        for seal in ["sealed", "clear"] {
            assert!(names.contains(&format!("Barograph, {seal}, classifier on")), "{names:?}");
            assert!(names.contains(&format!("Barograph, {seal}, classifier on{FREE}")), "{names:?}");
        }
    }
}
