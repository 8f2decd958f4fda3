//! Section 8 of the paper: the generator keeps a receiver from reading. The receiver is pinned to
//! its processor, left to the scheduler, or moved to the processor with the most idle time.

use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fs, thread};

use barograph_sim::{Link, Network};
use barograph_transfer::controller::ControllerKind;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::json;

use super::busy::{GENERATOR, RATE};
use super::flow::{Flow, Ours, measured};
use super::session::{Plan, Run, Session};
use crate::jobs::Task;
use crate::signatures::host::Load;
use crate::stats::median;
use crate::table::{Section, Table, cells, number, percent};

/// Where the receiver's thread may run. It begins on the generator's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pinning {
    /// Pinned to the generator's processor.
    Kept,
    /// Wherever the scheduler puts it.
    Free,
    /// On the processor with the most idle time, by the kernel's counts.
    Moved,
}

impl Pinning {
    const ALL: [Self; 3] = [Self::Kept, Self::Free, Self::Moved];

    fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Free => "left to the scheduler",
            Self::Moved => "moved",
        }
    }
}

pub(crate) fn plan(session: &Session) -> Plan {
    Plan::of(ROUNDS * Pinning::ALL.len() as u64, cell_time(session), 1)
}

fn cell_time(session: &Session) -> Duration {
    Duration::from_secs(START_S + LONGER * session.seconds + 1)
}

pub(crate) fn run(session: &Session) -> anyhow::Result<()> {
    let (mut table, mut rows) =
        (Table::new(["round", "kept", "left to the scheduler", "moved to the idlest"]), Vec::new());
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); Pinning::ALL.len()];
    // One after another in each round, so that other work of the machine affects all alike.
    for round in 0..ROUNDS {
        let mut row = cells![format!("seed {}", session.seed + round)];
        for (pinning, all) in Pinning::ALL.iter().zip(&mut all) {
            let what = format!("round {round}: {}", pinning.name());
            let (run, moves) = session.cell(what, Plan::of(1, cell_time(session), 1), || {
                one(session, *pinning, session.seed + round)
            })?;
            let sender = &run.result.sender;
            let lost = sender.lost_packets as f64 / sender.sent_packets.max(1) as f64;
            let moves = if *pinning == Pinning::Moved { format!(", {moves} moves") } else { String::new() };
            row.push(format!("{:.0} / {}{moves}", run.bps / 1e6, percent(lost)));
            all.push(run.bps);
            rows.push(json!({
                "place": pinning.name(), "seed": session.seed + round, "bit_s": run.bps, "lost": lost,
                "lost_host": sender.lost_host, "lost_network": sender.lost_network,
            }));
        }
        table.push(row);
    }
    let middle = all.iter().map(|all| number(median(all).map(|bps| bps / 1e6), 0));
    table.push(cells!["median"].into_iter().chain(middle));
    let legend = format!(
        "`{}` over 1 Gbit/s at native delay, sealed, the sender pinned to the other processor; the generator of `busy` on that on which the receiver \
         begins. Goodput (Mbit/s) / % of the packets lost; {} s after {START_S} s of start.",
        ControllerKind::DEFAULT,
        session.seconds * LONGER
    );
    session.report.section(Section::new("A receiver that moves", &legend, &table, rows))
}

fn one(session: &Session, pinning: Pinning, seed: u64) -> anyhow::Result<(Run, u32)> {
    let ours = Ours {
        receiver_cpu: Some(session.cpus.receiver),
        sender_cpu: Some(session.cpus.sender),
        seed,
        receive_buffer: BUFFER,
        ..Ours::new(ControllerKind::DEFAULT)
    };
    let network = Network::new(Link::Veth { rate_bps: Some(RATE) })?;
    let waiting = Flow::prepare(&network, &ours)?;
    let process_id = waiting.process_id();
    let load = Load::start(GENERATOR, session.cpus, process_id, seed)?;
    // The flow runs on the process's first thread.
    let thread = Pid::from_raw(i32::try_from(process_id)?);
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let mover = match pinning {
        Pinning::Kept => None,
        Pinning::Free => {
            sched_setaffinity(thread, &allowed)?;
            None
        }
        Pinning::Moved => Some(mover(thread, session.cpus.receiver)),
    };
    let flow = waiting.go(&network)?;
    let [from_ms, to_ms] =
        measured(Duration::from_secs(START_S), Duration::from_secs(session.seconds * LONGER));
    drop(load);
    let moves = mover.and_then(Task::finish).unwrap_or(0);
    let result = flow.stop()?;
    Ok((Run { bps: result.bps(from_ms, to_ms), result, invalid_reason: None }, moves))
}

/// Moves a thread to the processor with the most idle time; returns the number of moves.
fn mover(thread: Pid, cpu: usize) -> Task<u32> {
    Task::start(move |stop| {
        let (mut chooser, mut before, mut moves) = (Chooser { cpu, better: None }, idle(), 0);
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(POLL_INTERVAL);
            let now = idle();
            let (Ok(earlier), Ok(later)) = (&before, &now) else { break };
            let spare: Vec<u64> =
                later.iter().zip(earlier).map(|(now, before)| now.saturating_sub(*before)).collect();
            if let Some(cpu) = chooser.choose(&spare) {
                let mut cpus = CpuSet::new();
                moves += u32::from(cpus.set(cpu).and_then(|()| sched_setaffinity(thread, &cpus)).is_ok());
            }
            before = now;
        }
        moves
    })
}

/// Idle time of each processor so far (ticks; proc(5), /proc/stat): idle, waiting for disks, and of
/// nice processes.
fn idle() -> anyhow::Result<Vec<u64>> {
    let text = fs::read_to_string("/proc/stat")?;
    let lines = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    lines
        .map(|line| {
            let fields: Vec<u64> = line.split_whitespace().skip(1).flat_map(str::parse).collect();
            let [_, nice, _, idle, waits, ..] = fields[..] else { anyhow::bail!("{line}") };
            Ok(nice + idle + waits)
        })
        .collect()
}

/// Chooses the processor with the most idle time, with hysteresis.
#[derive(Debug)]
struct Chooser {
    cpu: usize,
    better: Option<usize>,
}

impl Chooser {
    /// Returns a processor to move to. `spare` has each one's idle time (ticks) since the last
    /// call.
    fn choose(&mut self, spare: &[u64]) -> Option<usize> {
        let (best, most) = spare.iter().enumerate().max_by_key(|(_, ticks)| **ticks)?;
        let own = spare.get(self.cpu)?;
        let is_better = best != self.cpu && own + MARGIN_TICKS <= *most;
        let again = self.better == Some(best);
        self.better = is_better.then_some(best);
        (is_better && again).then(|| {
            (self.cpu, self.better) = (best, None);
            best
        })
    }
}

/// Ten of a processor's ticks of 10 ms.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A quarter of the time between two checks, far above the error of a tick.
const MARGIN_TICKS: u64 = 3;
const ROUNDS: u64 = 3;
/// The generator's cycle takes 0.3 s on average, so a run has some dozens of cycles.
const LONGER: u64 = 3;
const START_S: u64 = 2;
/// Linux's default, as in `busy`: the kernel doubles this.
const BUFFER: usize = 106_496;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chooser_moves_to_a_cpu_that_is_idler_twice_in_a_row() {
        let mut chooser = Chooser { cpu: 0, better: None };
        let chosen = [[0, 9], [0, 9], [0, 9], [9, 0], [0, 9], [9, 0], [4, 2], [9, 0], [9, 0]]
            .map(|spare| chooser.choose(&spare));
        assert_eq!(chosen, [None, Some(1), None, None, None, None, None, None, Some(0)]);
    }
}
