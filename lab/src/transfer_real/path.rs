//! Through bottlenecks with delay and loss: every controller, and other programs.

use std::time::Duration;

use barograph_sim::{Link, LinkSpec, PacketLoss, Queue, RelayOptions, Switch};
use barograph_transfer::testkit::controller::{ControllerKind, ResponseFunction};
use serde_json::{Value, json};

use super::flow::Ours;
use super::peer::Peer;
use super::session;
use super::session::{AROUND, Bound, Lanes, Plan, Session};
use crate::table::{Table, dash, percent};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BottleneckPath {
    pub(crate) mbit_s: u64,
    /// 0 means native: the kernel's own queue, without a delay.
    pub(crate) rtt_ms: u64,
    pub(crate) loss: f64,
    pub(crate) seed: u64,
}

impl BottleneckPath {
    pub(crate) fn bps(&self) -> u64 {
        self.mbit_s * 1_000_000
    }

    pub(crate) fn name(&self) -> String {
        let delay = if self.rtt_ms == 0 { "native".to_owned() } else { format!("{} ms", self.rtt_ms) };
        format!("{} Mbit/s, {delay}, {} %", self.mbit_s, 100.0 * self.loss)
    }

    /// Time for a controller to find its rate: a second, and 20 round trips.
    pub(crate) fn start(&self) -> Duration {
        Duration::from_millis(1000 + 20 * self.rtt_ms)
    }

    /// Number of concurrent runs on this machine; one if the kernel is the link, because the kernel
    /// cannot report how late it was.
    pub(crate) fn at_once(&self, session: &Session) -> usize {
        if self.rtt_ms > 0 && self.mbit_s <= AT_ONCE_MBIT_S { session.at_once } else { 1 }
    }

    /// The link; its queue has one product of rate and round trip, but room for a burst.
    pub(crate) fn link(&self) -> Link {
        if self.rtt_ms == 0 {
            return Link::Switch(Switch {
                rate_bps: Some(self.bps()),
                queue_packets: QUEUE_NATIVE,
                loss: self.loss,
            });
        }
        let spec = LinkSpec {
            rate_bps: Some(self.bps()),
            delay: Duration::from_millis(self.rtt_ms) / 2,
            queue: Queue::Bytes((self.mbit_s * self.rtt_ms * 125).max(QUEUE_BYTES_MIN)),
            seed: self.seed,
            ..LinkSpec::default()
        };
        let loss = if self.loss > 0.0 { PacketLoss::Independent(self.loss) } else { PacketLoss::None };
        let forward = LinkSpec { loss, ..spec.clone() };
        Link::Relay {
            forward,
            back: LinkSpec { seed: spec.seed + 1, ..spec },
            options: RelayOptions::default(),
        }
    }
}

/// Programs that a goal names, and the most informative others.
const PEERS: [Peer; 7] = [
    Peer::Tcp("cubic"),
    Peer::Tcp("bbr"),
    Peer::Quinn("cubic"),
    Peer::UdtFile,
    Peer::Uftp { has_control: false },
    Peer::Scp,
    Peer::RsyncDaemon,
];

#[derive(Clone, Copy)]
enum Column {
    Ours(ControllerKind),
    Peer(Peer),
}

impl Column {
    fn name(self) -> String {
        match self {
            Self::Ours(kind) => kind.name().to_owned(),
            Self::Peer(peer) => peer.name(),
        }
    }

    /// Rate (bit/s), and why it is void if it is.
    fn measure(self, session: &Session, path: &BottleneckPath) -> CellResult {
        match self {
            Self::Ours(kind) => {
                // The rate of a dedicated link, which its owner knows.
                let is_told =
                    matches!(kind, ControllerKind::Fixed | ControllerKind::Paper | ControllerKind::PaperRate);
                let rate_bytes_s = is_told.then_some(0.98 * path.bps() as f64 / 8.0);
                let ours = Ours { rate_bytes_s, seed: session.seed, ..Ours::new(kind) };
                let run = session.ours(&path.link(), &ours, path.start(), session.time())?;
                Ok((run.bps, run.invalid_reason))
            }
            Self::Peer(peer) => {
                peer.version(&session.tools).map_err(anyhow::Error::msg)?;
                session.peer(&path.link(), Some(path.bps()), peer, peer_seconds(session, path))
            }
        }
    }

    fn time(self, session: &Session, path: &BottleneckPath) -> Duration {
        let extra = match self {
            Self::Ours(_) => return path.start() + session.time() + AROUND,
            Self::Peer(Peer::Tcp(_) | Peer::Quinn(_)) => Duration::from_millis(500),
            // A copy of one byte comes first, with keys and logins; UFTP also waits for receivers.
            Self::Peer(Peer::Uftp { .. }) => Duration::from_secs(4),
            Self::Peer(_) => Duration::from_secs(2),
        };
        Duration::from_secs(peer_seconds(session, path)) + AROUND + extra
    }
}

type CellResult = anyhow::Result<(f64, Option<String>)>;

/// As long as our runs take in total, because the start of other programs counts.
fn peer_seconds(session: &Session, path: &BottleneckPath) -> u64 {
    (path.start() + session.time()).as_secs_f64().round() as u64
}

fn columns(session: &Session) -> Vec<Column> {
    let all = ControllerKind::ALL.into_iter().map(Column::Ours).chain(PEERS.into_iter().map(Column::Peer));
    all.filter(|column| session.wants(&column.name())).collect()
}

fn plan_of(session: &Session, path: &BottleneckPath, columns: &[Column]) -> Plan {
    let time: Duration = columns.iter().map(|column| column.time(session, path)).sum();
    Plan { cells: columns.len() as u64, time: time / path.at_once(session) as u32 }
}

pub(crate) fn plan(session: &Session) -> Plan {
    let columns = columns(session);
    paths(session).iter().map(|path| plan_of(session, path, &columns)).sum()
}

pub(crate) fn run(session: &Session) -> anyhow::Result<()> {
    let columns = columns(session);
    let legend = format!(
        "Goodput in Mbit/s (% of the bottleneck): ours, sealed, for {} s after a start of 1 s and 20 round trips; the peers for as long in all, their \
         start included. A queue of one product of rate and round trip. `fixed` sends 98 % of the bottleneck, \
         and the paper's begin with that. Up to {} cells at once; a cell that is void for that was repeated alone. * The emulator \
         was late or lost packets itself, so the cell is void; – it did not run.",
        session.seconds, session.at_once
    );
    let names: Vec<String> = columns.iter().map(|column| column.name()).collect();
    let table = Table::new(["path"]).and(&names);
    let paths_of = paths(session);
    session.report.begin(
        "Bottlenecks with delay and loss",
        &legend,
        table,
        paths_of.iter().map(BottleneckPath::name),
    )?;
    let mut goals = Vec::new();
    let (mut lanes, mut lanes_of) = (Lanes::new(1), None);
    for path in paths_of {
        // What voids cells depends on the rate, so each rate begins with all lanes.
        let key = (path.mbit_s, path.at_once(session));
        if lanes_of.replace(key) != Some(key) {
            lanes = Lanes::new(key.1);
        }
        let measure = |column: &Column| {
            let what = format!("{}: {}", path.name(), column.name());
            session.cell(what, plan_of(session, &path, &[*column]), || column.measure(session, &path))
        };
        let is_invalid = |measured: &CellResult| {
            measured.as_ref().map_or(true, |(_, invalid_reason)| invalid_reason.is_some())
        };
        let measured = lanes.run(&columns, measure, is_invalid);
        let line = path.bps() as f64;
        let cells: Vec<String> = std::iter::once(path.name())
            .chain(measured.iter().map(|measured| cell(measured, line)))
            .collect();
        let rows: Vec<Value> =
            names.iter().zip(&measured).map(|(name, measured)| row_of(&path, name, measured)).collect();
        goals.extend(goals_of(&path, &rows));
        session.report.row(&cells, rows)?;
    }
    session.report.end(&goals)
}

/// Goals on a path, from its rows; void cells do not count.
fn goals_of(path: &BottleneckPath, rows: &[Value]) -> Vec<String> {
    let of = |what: &str| {
        let row = rows.iter().find(|row| row["what"] == what && row["void"].is_null());
        row.and_then(|row| row["bit_s"].as_f64())
    };
    let over = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
    let ours = of(ControllerKind::DEFAULT.name());
    let mut goals = Vec::new();
    let mut add = |what: String, bound, found| {
        goals.push(session::goal_line(&format!("{}: {what}", path.name()), bound, found))
    };
    if path.rtt_ms == 100 && path.loss == 1e-3 {
        let (default, line) = (ControllerKind::DEFAULT, path.bps() as f64);
        add(format!("{default} ÷ the bottleneck"), Bound::Least(0.9), over(ours, Some(line)));
        add(format!("{default} ÷ cubic"), Bound::Least(5.0), over(ours, of(&Peer::Tcp("cubic").name())));
        let equation = over(of(ControllerKind::HighSpeed.name()), Some(highspeed_bps(path)));
        add("highspeed ÷ its own equation".to_owned(), Bound::Within(0.8, 1.2), equation);
    }
    // Faster where there is delay and loss, and not much slower elsewhere.
    let least = if path.rtt_ms >= 20 && path.loss >= 1e-4 { 1.0 } else { 0.97 };
    for peer in PEERS.into_iter().filter(|peer| !matches!(peer, Peer::Tcp(_) | Peer::Quinn(_))) {
        let other = of(&peer.name());
        if other.is_some() && ours.is_some() {
            add(
                format!("{} ÷ {}", ControllerKind::DEFAULT, peer.name()),
                Bound::Least(least),
                over(ours, other),
            );
        }
    }
    goals
}

/// Rate (bit/s) that RFC 3649's response function gives at the path's loss, if each loss were its
/// own event and no packet had to wait.
fn highspeed_bps(path: &BottleneckPath) -> f64 {
    let window = ResponseFunction::HighSpeed.window(path.loss);
    (8.0 * window * f64::from(PACKET) / (path.rtt_ms as f64 / 1e3)).min(path.bps() as f64)
}

fn paths(session: &Session) -> Vec<BottleneckPath> {
    let all = all_paths(session);
    all.into_iter().filter(|path| session.wants_path(&path.name())).collect()
}

fn all_paths(session: &Session) -> Vec<BottleneckPath> {
    let of = |mbit_s, rtt_ms, loss| BottleneckPath { mbit_s, rtt_ms, loss, seed: session.seed };
    if !session.is_full {
        return vec![
            of(100, 20, 0.0),
            of(100, 20, 1e-4),
            of(100, 100, 1e-3),
            of(300, 20, 1e-3),
            of(1000, 0, 0.0),
        ];
    }
    let mut paths = Vec::new();
    for mbit_s in [100, 300] {
        for rtt_ms in [1, 10, 20, 50, 100] {
            paths.extend([0.0, 1e-4, 1e-3, 1e-2].map(|loss| of(mbit_s, rtt_ms, loss)));
        }
    }
    paths.extend([0.0, 1e-4, 1e-3, 1e-2].map(|loss| of(1000, 0, loss)));
    paths
}

fn cell(measured: &CellResult, line: f64) -> String {
    match measured {
        Ok((bps, invalid_reason)) => {
            let mark = if invalid_reason.is_some() { "*" } else { "" };
            format!("{:.1} ({}){mark}", bps / 1e6, percent(bps / line))
        }
        Err(_) => dash(),
    }
}

fn row_of(path: &BottleneckPath, what: &str, measured: &CellResult) -> Value {
    let (bps, invalid_reason) =
        measured.as_ref().map_or((None, None), |(bps, invalid_reason)| (Some(*bps), invalid_reason.clone()));
    json!({
        "mbit_s": path.mbit_s, "rtt_ms": path.rtt_ms, "loss": path.loss, "what": what, "bit_s": bps, "void": invalid_reason,
        "failure": measured.as_ref().err().map(|error| format!("{error:#}")),
    })
}

/// Bytes of a full packet, headers included.
const PACKET: u32 = 1500;

/// The least room of a queue, as in virtual time: 32 packets.
const QUEUE_BYTES_MIN: u64 = 48_000;

/// Linux's default for a device.
const QUEUE_NATIVE: u32 = 1000;

/// Beyond this rate the relay cannot carry a second run.
const AT_ONCE_MBIT_S: u64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_loses_packets_in_the_forward_direction_only() {
        let path = BottleneckPath { mbit_s: 100, rtt_ms: 20, loss: 0.01, seed: 3 };
        let Link::Relay { forward, back, .. } = path.link() else { panic!("emulated") };
        assert_eq!(forward.loss, PacketLoss::Independent(0.01));
        assert_eq!(back.loss, PacketLoss::None);
        assert_eq!(forward.queue, Queue::Bytes(250_000));
        assert_eq!(forward.delay + back.delay, Duration::from_millis(20));
        assert!(matches!(BottleneckPath { rtt_ms: 0, ..path }.link(), Link::Switch(_)));
    }

    #[test]
    fn the_highspeed_rate_equals_the_equation_of_rfc_3649() {
        let path = BottleneckPath { mbit_s: 100, rtt_ms: 100, loss: 1e-3, seed: 3 };
        let mbit_s = highspeed_bps(&path) / 1e6;
        assert!((4.0..5.0).contains(&mbit_s), "{mbit_s}");
    }

    #[test]
    fn void_cells_are_not_scored() {
        let path = BottleneckPath { mbit_s: 100, rtt_ms: 100, loss: 1e-3, seed: 3 };
        let rows = [
            json!({ "what": "model", "bit_s": 95e6, "void": null }),
            json!({ "what": "scp", "bit_s": 1e6, "void": "late" }),
        ];
        let goals = goals_of(&path, &rows);
        assert!(goals[0].contains("0.950, met"), "{goals:?}");
        assert!(goals.iter().all(|goal| !goal.contains("scp")), "{goals:?}");
    }
}
