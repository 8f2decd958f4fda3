//! Whether it pays to cut a large message into pieces, each sent, acknowledged and timed by itself.

use barograph_sim::Scenario;

use super::args::BeyondArgs;
use super::beyond::{ABOUT, KB, TIE, runs, size, wide_area};
use super::engine::Network;
use super::run::Run;
use super::strategy::Strategy;
use crate::stats::{Summary, mean};
use crate::table::Table;

/// Messages of 1, 4 and 16 MB, whole and in pieces.
pub(crate) fn markdown(args: &BeyondArgs) -> anyhow::Result<String> {
    let scenario = wide_area(args)?;
    let mut text = format!(
        "# Large messages in pieces\n\nMean time of a message in seconds, over {LINKS} links with {} messages each (fewer \
         where there are over {FEW} pieces), after a third of them that warm up the timeouts. A piece is an exchange of its own: the next one is sent when it is acknowledged, so \
         each costs a round trip. {ABOUT}\n",
        args.rounds
    );
    for whole in [1024 * KB, 4096 * KB, 16_384 * KB] {
        let pieces: Vec<u64> = (0..6).map(|i| (16 * KB) << (2 * i)).filter(|piece| *piece <= whole).collect();
        let runs = runs(&pieces, &STRATEGIES, |piece, strategy| program(&scenario, whole, *piece, strategy));
        text += &format!("\n## {}\n\n{}\n{}", size(whole), table(&pieces, &runs), findings(&pieces, &runs));
    }
    Ok(text)
}

const STRATEGIES: [Strategy; 4] =
    [Strategy::StaticBest, Strategy::Nws(2.0), Strategy::NwsEscalating, Strategy::Default];

/// Sends messages of `whole` bytes in pieces, on links of their own.
fn program(scenario: &Scenario, whole: u64, piece: u64, strategy: Strategy) -> Run {
    let pieces = (whole / piece) as usize;
    // Hundreds of pieces tell of the timeouts what hundreds of messages would.
    let messages = (scenario.reductions * FEW / pieces.max(FEW)).max(LEAST);
    // Only the way there is used; all start at one node.
    let mut network = Network::new(scenario, LINKS, strategy, &[0; 2 * LINKS]);
    for link in 0..LINKS {
        let mut at = 0.0;
        for message in 0..messages {
            let start = at;
            for number in 0..pieces {
                at = network.send(2 * link, message * pieces + number, at, piece, &mut |_| {});
            }
            if messages / 3 <= message {
                network.finished(at - start);
            }
        }
    }
    network.run
}

fn table(pieces: &[u64], runs: &[Vec<Run>]) -> Table {
    let names = STRATEGIES.map(Strategy::name);
    let mut table = Table::new(["piece"]).and(names).and(["default, p95", "default, ÷ whole"]);
    let whole = runs.last().map_or(f64::NAN, |runs| mean(&runs[DEFAULT].times));
    for (piece, runs) in pieces.iter().zip(runs) {
        let of_strategies = runs.iter().map(|run| format!("{:.2}{}", mean(&run.times), run.best()));
        let Summary { mean, p95, .. } = Summary::of(&runs[DEFAULT].times);
        let of_default = [format!("{p95:.2}"), format!("{:.3}", mean / whole)];
        table.push([size(*piece)].into_iter().chain(of_strategies).chain(of_default));
    }
    table
}

fn findings(pieces: &[u64], runs: &[Vec<Run>]) -> String {
    let summaries: Vec<Summary> = runs.iter().map(|runs| Summary::of(&runs[DEFAULT].times)).collect();
    let Some((whole, cut)) = summaries.split_last() else { return String::new() };
    let verdict = |what: &str, of: fn(&Summary) -> f64| {
        let best = (0..cut.len()).min_by(|a, b| of(&cut[*a]).total_cmp(&of(&cut[*b]))).unwrap_or(0);
        let gain = 1.0 - of(&cut[best]) / of(whole);
        let verdict = if TIE < gain { "pays" } else { "does not pay" };
        let than = if 0.0 < gain { "less" } else { "more" };
        let percent = 100.0 * gain.abs();
        format!(
            "in the {what} it {verdict}: at best {percent:.1} % {than}, with pieces of {}",
            size(pieces[best])
        )
    };
    let (mean, p95) =
        (verdict("mean", |summary| summary.mean), verdict("95th percentile", |summary| summary.p95));
    format!("Whether cutting pays under the default: {mean}; {p95}.\n")
}

const DEFAULT: usize = 3;

/// Enough links that none decides the mean.
const LINKS: usize = 10;

/// More pieces than this in a message, and fewer messages are sent, so that no row takes minutes.
const FEW: usize = 16;

/// Messages on a link at least: then the mean rests on 200.
const LEAST: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_as_long_as_its_pieces() {
        let mut scenario = Scenario { reductions: 30, ..Scenario::default() };
        scenario.link.size_share = 0.5;
        let time = |piece| program(&scenario, 256 * KB, piece, Strategy::Static(45.0)).times;
        // Half a second, and half a second for each 64 kB.
        assert_eq!(time(256 * KB), vec![2.5; 20 * LINKS], "a third warms up");
        assert_eq!(time(64 * KB), vec![4.0; 20 * LINKS]);
    }
}
