//! Alone between two hosts, from memory to memory: the machine's limit, the peers, ours.

use barograph_sim::{Link, Network};
use barograph_transfer::controller::Kind;
use serde_json::{Value, json};

use super::flow::Ours;
use super::goal::{self, Bound};
use super::peer::Peer;
use super::raw::{self, Limit, digest_bytes_s, rest};
use super::session::{Session, gbit_s, median, ratio};
use crate::transfer::Table;

const LINK: Link = Link::Veth { rate_bps: None };

/// A row: what is measured in each round.
#[derive(Clone, Copy)]
enum Subject {
    Peer(Peer),
    Ours(Ours),
}

/// What came of a row.
#[derive(Default)]
struct Found {
    bps: Vec<f64>,
    failure: Option<String>,
    lost: u64,
    sent: u64,
}

pub(crate) fn table(session: &Session) -> anyhow::Result<Table> {
    let all = Peer::ALL.into_iter().map(Subject::Peer).chain(ours().map(Subject::Ours));
    let subjects: Vec<Subject> = all.filter(|subject| session.wants(&name(subject))).collect();
    let mut found: Vec<Found> = subjects.iter().map(|_| Found::default()).collect();
    let rounds = if session.is_full { 3 } else { 1 };
    let mut limits: [Vec<Limit>; 2] = Default::default();
    // Each round measures everything, so that what the machine does beside is in all rows alike.
    for _ in 0..rounds {
        for (is_sealed, limits) in [true, false].into_iter().zip(&mut limits) {
            session.note("the limit");
            let network = Network::new(LINK)?;
            limits.push(raw::limit(&network, is_sealed, session.cpus, raw::step_ms(session.seconds))?);
        }
        for (subject, found) in subjects.iter().zip(&mut found) {
            session.note(name(subject));
            found.add(session, subject);
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
    let cubic = cubic.and_then(|(_, found)| median(&found.bps));
    let (mut cells, mut rows) = (Vec::new(), Vec::new());
    for (what, limits) in [("limit, sealed", &limits[0]), ("limit, clear", &limits[1])] {
        let unpaced: Vec<f64> = limits.iter().map(|limit| limit.unpaced_bps).collect();
        let loss: Vec<f64> = limits.iter().map(|limit| limit.unpaced_loss).collect();
        let (unpaced, loss) = (median(&unpaced).unwrap_or(0.0), median(&loss).unwrap_or(0.0));
        let lossless = of(limits);
        let text = lossless.map_or_else(|| "none without loss".to_owned(), gbit_s);
        let version = format!("unpaced {}, {:.1} % lost", gbit_s(unpaced), 100.0 * loss);
        let bps = lossless.unwrap_or(0.0);
        cells.push(row(what, &version, text, [ratio(bps, sealed), ratio(bps, clear), ratio(bps, cubic)]));
        rows.push(json!({ "what": what, "bit_s": lossless, "unpaced_bit_s": unpaced, "unpaced_loss": loss }));
    }
    for (subject, found) in subjects.iter().zip(&found) {
        let (what, version) = (name(subject), version(session, subject, found));
        let (text, ratios) = match (median(&found.bps), &found.failure) {
            (Some(bps), _) => (gbit_s(bps), [sealed, clear, cubic].map(|to| ratio(bps, to))),
            (None, why) => {
                let why = why.clone().unwrap_or_default();
                (format!("did not run: {why}"), ["–", "–", "–"].map(str::to_owned))
            }
        };
        cells.push(row(&what, &version, text, ratios));
        rows.push(of_subject(&what, &version, found));
    }
    let digest = 8.0 * digest_bytes_s();
    rows.push(json!({ "what": "blake3", "bit_s": digest }));
    let legend = format!(
        "veth, 1500 bytes a packet, two processors. Rates are of the user's bytes. The limit is what one thread that seals trains and sends \
         them with GSO and one that receives them with GRO and opens them move with less than 0.01 % lost. Files lie in memory, and what a \
         copy of one byte takes is subtracted. Digest: {} on one thread, not in these rows unless they say so.{}",
        gbit_s(digest),
        if rounds == 1 { String::new() } else { format!(" Medians of {rounds} rounds.") }
    );
    let header = ["", "version", "rate", "÷ limit, sealed", "÷ limit, clear", "÷ iperf3 cubic"];
    let bps = |wanted: &str| {
        let found = subjects.iter().zip(&found).filter(|(subject, _)| name(subject).starts_with(wanted));
        found.filter_map(|(_, found)| median(&found.bps)).max_by(f64::total_cmp)
    };
    let over = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
    let (ours, in_clear) = (bps("Barograph, sealed, classifier on"), bps("Barograph, clear, classifier on"));
    let is_void = |ours: Option<f64>, limit| over(ours, limit).is_some_and(|share| BEYOND < share);
    let void = (is_void(ours, sealed) || is_void(in_clear, clear)).then(|| {
        "VOID: a flow of ours was faster than the limit, so other work of the machine was in the way; the ratios are no evidence.\n\n".to_owned()
    });
    let mut goals: Vec<String> = void.into_iter().collect();
    goals.extend([
        goal::line("sealed ÷ the sealed limit", Bound::Least(0.8), over(ours, sealed)),
        goal::line("clear ÷ the clear limit", Bound::Least(0.75), over(in_clear, clear)),
        goal::line("clear ÷ iperf3's cubic (a goal, not a floor)", Bound::Least(1.0), over(in_clear, cubic)),
        goal::line("sealed ÷ quinn's best", Bound::Least(2.0), over(ours, bps("quinn"))),
    ]);
    for other in ["UDT", "UFTP", "GridFTP", "scp", "rsync"] {
        goals.push(goal::line(
            &format!("sealed ÷ {other}'s best"),
            Bound::Least(0.97),
            over(ours, bps(other)),
        ));
    }
    Ok(Table::new("An uncontended path", &legend, &header, cells, rows).with(&goals))
}

impl Found {
    fn add(&mut self, session: &Session, subject: &Subject) {
        let measured = match subject {
            Subject::Peer(peer) => peer
                .version(&session.tools)
                .map_err(anyhow::Error::msg)
                .and_then(|_| session.peer(&LINK, None, *peer, session.seconds))
                .map(|(bps, _)| bps),
            Subject::Ours(ours) => session.ours(&LINK, ours, START_S).map(|run| {
                self.lost += run.course.sender.lost_packets;
                self.sent += run.course.sender.sent_packets;
                run.bps
            }),
        };
        match measured {
            Ok(bps) => self.bps.push(bps),
            Err(error) => self.failure = Some(format!("{error:#}")),
        }
    }
}

/// Ours: with and without seal, ear and digest.
fn ours() -> impl Iterator<Item = Ours> {
    let rows = [
        (true, true, false),
        (true, false, false),
        (false, true, false),
        (false, false, false),
        (true, true, true),
    ];
    let of =
        |(is_sealed, has_ear, is_hashed)| Ours { is_sealed, has_ear, is_hashed, ..Ours::new(Kind::DEFAULT) };
    rows.into_iter().map(of)
}

fn name(subject: &Subject) -> String {
    match subject {
        Subject::Peer(peer) if peer.is_sealed() => format!("{} (sealed)", peer.name()),
        Subject::Peer(peer) => peer.name(),
        Subject::Ours(ours) => {
            let seal = if ours.is_sealed { "sealed" } else { "clear" };
            let ear = if ours.has_ear { "on" } else { "off" };
            let digest = if ours.is_hashed { ", digest" } else { "" };
            format!("Barograph, {seal}, classifier {ear}{digest}")
        }
    }
}

fn version(session: &Session, subject: &Subject, found: &Found) -> String {
    match subject {
        Subject::Peer(peer) => peer.version(&session.tools).unwrap_or_else(|_| "–".to_owned()),
        Subject::Ours(_) => {
            let share = 100.0 * found.lost as f64 / found.sent.max(1) as f64;
            format!("{}, {share:.2} % sent again", env!("CARGO_PKG_VERSION"))
        }
    }
}

fn row(what: &str, version: &str, rate: String, ratios: [String; 3]) -> Vec<String> {
    [what.to_owned(), version.to_owned(), rate].into_iter().chain(ratios).collect()
}

fn of_subject(what: &str, version: &str, found: &Found) -> Value {
    json!({
        "what": what, "version": version, "bit_s": median(&found.bps), "failure": found.failure,
        "sent_packets": found.sent, "lost_packets": found.lost,
    })
}

/// What repeated runs differ by on a quiet machine, and more.
const BEYOND: f64 = 1.1;

/// A controller finds its rate in some round trips; these take a fraction of a millisecond.
const START_S: u64 = 1;
