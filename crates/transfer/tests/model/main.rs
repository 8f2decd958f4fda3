//! The `model` controller over a simulated bottleneck, in virtual time.
#![expect(clippy::unwrap_used)]

mod figures;
mod ours;
mod path;
mod run;

use figures::{Figure, SEEDS};

fn check(figures: Vec<Figure>) {
    for Figure { what, value, least, most } in figures {
        println!("{what}: {value:.4}");
        assert!((least..=most).contains(&value), "{what}: {value:.4}, not in {least}..={most}");
    }
}

#[test]
fn random_loss_reduces_the_rate_only_slightly() {
    check(figures::random_loss(SEEDS[0]));
}

#[test]
fn deep_queues_stay_short_and_short_queues_do_not_limit_the_rate() {
    check(figures::queues(SEEDS[0]));
}

#[test]
fn the_rate_of_a_policer_is_used_with_few_losses() {
    check(figures::policer(SEEDS[0]));
}

#[test]
fn a_cubic_flow_keeps_its_share() {
    check(figures::beside_cubic(SEEDS[0]));
}

#[test]
fn four_flows_converge_to_equal_shares() {
    check(figures::among_ours(SEEDS[0]));
}

#[test]
fn a_changed_rate_of_the_path_is_found() {
    check(figures::changes(SEEDS[0]));
}

#[test]
fn the_rate_stays_high_despite_outages_marks_jitter_and_bursts() {
    check(figures::nuisances(SEEDS[0]));
}

/// Prints every figure on all seeds.
///
/// `cargo test -p barograph-transfer --features testkit --test model -- --ignored --nocapture`
#[test]
#[ignore = "a table to read"]
fn table() {
    let groups = [
        figures::random_loss,
        figures::queues,
        figures::policer,
        figures::beside_cubic,
        figures::among_ours,
        figures::changes,
        figures::nuisances,
    ];
    for group in groups {
        let runs = SEEDS.map(group);
        for (at, figure) in runs[0].iter().enumerate() {
            let values = runs.each_ref().map(|run| run[at].value);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let (least, most) = (figure.least, figure.most);
            println!("{:8.3} {values:8.3?} [{least}, {most}] {}", mean, figure.what);
        }
    }
}
