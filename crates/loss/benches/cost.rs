//! Cost of measuring and classifying a window of 100 000 packets.
//!
//! `cargo bench -p barograph-loss --bench cost` prints the microseconds for each window. Each time
//! is the least of many runs, because other work on the machine can only make a run longer. The
//! columns are the times for: counting the admissible words of 17 packets; counting these words in
//! a binary tree (Dickens §3.1.2); reading the window's line; and classifying the window, with all
//! metrics and the diagnosis of each classifier.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use barograph_loss::{
    Classifier, Evidence, Meter, PaperClassifier, Signature, WORD_MAX, WordCounter, read_line,
};

const WINDOW: u32 = 100_000;
const RUNS: usize = 300;

fn main() {
    println!(
        "{:<24} {:>8} {:>10} {:>10} {:>11} {:>11} {:>11} {:>11}",
        "100 000 packets, µs", "Na(17)", "words", "tree", "line: runs", "line: bits", "default", "paper"
    );
    let windows: [(&str, Vec<u32>); 7] = [
        ("loss-free", vec![]),
        ("one burst of 500", vec![50_000, 500]),
        ("bursts of 100, 1 %", [9_900, 100].repeat(10)),
        ("random, 1 %", random(0.01)),
        ("random, 5 %", random(0.05)),
        ("random, 50 %", random(0.5)),
        ("alternating", [1, 1].repeat(WINDOW as usize / 2)),
    ];
    for (name, runs) in windows {
        row(name, &runs);
    }
}

fn row(name: &str, runs: &[u32]) {
    let signature = match Signature::from_runs(WINDOW, runs.iter().copied()) {
        Ok(signature) => signature,
        Err(error) => panic!("{error}"),
    };
    let bits = bits(runs);
    let (mut words, mut tree, mut meter) = (WordCounter::new(), Tree::default(), Meter::new());
    let count = words.admissible(&signature, WORD_MAX);
    assert_eq!(count, tree.admissible(bits.as_bytes(), WORD_MAX), "both count the same");

    let lines: Vec<String> = runs.iter().map(u32::to_string).collect();
    let (lines, evidence) =
        (lines.join(","), Evidence { burst: Some(4), delay_s: Some(0.001), ..Evidence::default() });
    let lines = if lines.is_empty() { WINDOW.to_string() } else { lines };
    let (best, paper) = (Classifier::shipped(), PaperClassifier::shipped());
    let mut read = Signature::new();
    let times = [
        least_us(|| words.admissible(black_box(&signature), WORD_MAX)),
        least_us(|| tree.admissible(black_box(bits.as_bytes()), WORD_MAX)),
        least_us(|| read_line(black_box(&lines), Some(WINDOW), &mut read).is_ok()),
        least_us(|| read_line(black_box(&bits), None, &mut read).is_ok()),
        least_us(|| {
            let metrics = meter.measure(black_box(&signature));
            best.diagnose(&signature, &metrics, &evidence)
        }),
        least_us(|| paper.diagnose(&meter.measure(black_box(&signature)))),
    ];
    let [fast, slow, runs, bits, default, paper] = times;
    println!(
        "{name:<24} {count:>8} {fast:>10.1} {slow:>10.1} {runs:>11.1} {bits:>11.1} {default:>11.1} {paper:>11.1}"
    );
}

fn least_us<T>(mut work: impl FnMut() -> T) -> f64 {
    let run = |_| {
        let start = Instant::now();
        black_box(work());
        start.elapsed().as_nanos() as f64 / 1e3
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
}

/// Binary tree of words. Each word of the window is a leaf.
#[derive(Default)]
struct Tree {
    /// For each node, the indices of its children for a lost and for a received packet; 0 = no
    /// child.
    nodes: Vec<[u32; 2]>,
}

impl Tree {
    fn admissible(&mut self, bits: &[u8], length: u32) -> u32 {
        self.nodes.clear();
        self.nodes.push([0; 2]);
        let mut count = 0;
        for word in bits.windows(length as usize) {
            let (mut node, mut is_new) = (0, false);
            for bit in word {
                let side = usize::from(bit & 1);
                if self.nodes[node][side] == 0 {
                    self.nodes[node][side] = self.nodes.len() as u32;
                    self.nodes.push([0; 2]);
                    is_new = true;
                }
                node = self.nodes[node][side] as usize;
            }
            count += u32::from(is_new);
        }
        count
    }
}

fn bits(runs: &[u32]) -> String {
    let mut bits: String =
        runs.iter().enumerate().map(|(i, run)| ["1", "0"][i % 2].repeat(*run as usize)).collect();
    let told = bits.len();
    bits += &"1".repeat(WINDOW as usize - told);
    bits
}

/// Random losses. The seed is fixed, so every run has the same losses.
fn random(rate: f64) -> Vec<u32> {
    let mut rng = barograph_sim::SeededRng::new(42, 0);
    let (mut runs, mut last) = (vec![0], false);
    for _ in 0..WINDOW {
        let lost = rng.bernoulli(rate);
        if lost != last {
            runs.push(0);
        }
        last = lost;
        if let Some(run) = runs.last_mut() {
            *run += 1;
        }
    }
    runs
}
