//! Beside traffic that does not ask: throughput of every controller, and what the others keep.

use std::time::Duration;

use barograph_transfer::controller::Kind;
use serde_json::json;

use super::beside::{Beside, Other, Window, beside};
use super::path::Path;
use super::session::{AROUND, Lanes, Plan, Session};
use crate::table::{Table, dash, percent};

const OTHERS: [Other; 3] = [
    Other::OnOff,
    Other::Tcp { congestion: "cubic", flows: 1 },
    Other::Tcp { congestion: "cubic", flows: 4 },
];

fn paths(session: &Session) -> Vec<Path> {
    let all = [20, 100].map(|rtt_ms| Path { mbit_s: MBIT_S, rtt_ms, loss: 0.0, seed: session.seed });
    all.into_iter().filter(|path| session.wants_path(&path.name())).collect()
}

fn window(session: &Session) -> Window {
    let seconds = LONGER * session.seconds;
    Window { seconds, from: (seconds / 3).min(START_S) }
}

fn plan_of(session: &Session, path: &Path, cells: usize) -> Plan {
    let each = Duration::from_secs(window(session).seconds) + AROUND;
    Plan::of(cells as u64, each, path.at_once(session))
}

pub(crate) fn plan(session: &Session) -> Plan {
    let cells = session.kinds().len() * OTHERS.len();
    paths(session).iter().map(|path| plan_of(session, path, cells)).sum()
}

pub(crate) fn run(session: &Session) -> anyhow::Result<()> {
    let (kinds, window) = (session.kinds(), window(session));
    let legend = format!(
        "{MBIT_S} Mbit/s, no random loss, a queue of one product; both begin together, {} s, counted after {} s. Cells: ours / the others (Mbit/s; ours \
         without headers, iperf3's without, the datagrams' with). On-off datagrams: four sources, each 1/8 of the bottleneck for 1 s, then silent for \
         1 s (means); in parentheses what % of theirs arrived. cubic: iperf3. * The emulator was late or lost packets itself; – it did not run.",
        window.seconds, window.from
    );
    let table = Table::new(["round trip, others"]).and(kinds.iter().map(|kind| kind.name()));
    let names = OTHERS.iter().map(|other| format!("100 ms, {}", other.name()));
    session.report.begin("Beside traffic that does not ask", &legend, table, names)?;
    for path in paths(session) {
        let mut lanes = Lanes::new(path.at_once(session));
        for other in OTHERS {
            let name = format!("{} ms, {}", path.rtt_ms, other.name());
            let measure = |kind: &Kind| {
                session.note(format!("{name}: {kind}"));
                let found = beside(&path, *kind, other, window, session.seed);
                session.done(plan_of(session, &path, 1));
                found
            };
            let is_spoilt =
                |found: &anyhow::Result<Beside>| found.as_ref().map_or(true, |of| of.void.is_some());
            let found = lanes.run(&kinds, measure, is_spoilt);
            let cells: Vec<String> = std::iter::once(name).chain(found.iter().map(cell)).collect();
            let rows = kinds.iter().zip(&found).map(|(kind, found)| {
                let of = found.as_ref().ok();
                json!({
                    "mbit_s": MBIT_S, "rtt_ms": path.rtt_ms, "beside": other.name(), "controller": kind.name(),
                    "bit_s": of.map(|of| of.ours_bps), "others_bit_s": of.map(|of| of.other_bps),
                    "others_offered_bit_s": of.and_then(|of| of.offered_bps), "queue_ms": of.and_then(|of| of.queue_ms),
                    "void": of.and_then(|of| of.void.clone()),
                    "failure": found.as_ref().err().map(|error| format!("{error:#}")),
                })
            });
            session.report.row(&cells, rows.collect())?;
        }
    }
    session.report.end(&[])
}

fn cell(found: &anyhow::Result<Beside>) -> String {
    let Ok(of) = found else { return dash() };
    let arrived = of.offered_bps.filter(|offered| 0.0 < *offered);
    let arrived =
        arrived.map_or_else(String::new, |offered| format!(" ({})", percent(of.other_bps / offered)));
    let mark = if of.void.is_some() { "*" } else { "" };
    format!("{:.1} / {:.1}{arrived}{mark}", of.ours_bps / 1e6, of.other_bps / 1e6)
}

const MBIT_S: u64 = 100;

/// Others come and go, and cubic takes seconds to find its share.
const LONGER: u64 = 3;
const START_S: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_says_what_both_get() {
        let of = Beside {
            ours_bps: 70.25e6,
            other_bps: 24e6,
            offered_bps: Some(25e6),
            queue_ms: None,
            void: Some("late".to_owned()),
        };
        assert_eq!(cell(&Ok(of.clone())), "70.2 / 24.0 (96.0)*");
        assert_eq!(cell(&Ok(Beside { offered_bps: None, void: None, ..of })), "70.2 / 24.0");
        assert_eq!(cell(&Err(anyhow::anyhow!("no iperf3"))), "–");
    }
}
