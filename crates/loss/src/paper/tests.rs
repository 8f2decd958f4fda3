#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;
use crate::EvidenceUsed;

/// Flat curves far apart: complexity 0.3 and success proportion 0.9 for the CPU, 0.6 and 0.1 for
/// the network.
fn classifier() -> PaperClassifier {
    PaperClassifier::read(MODEL).unwrap()
}

fn window(lost: u32, complexity: f64, success_proportion: f64) -> Metrics {
    Metrics { packets: 100_000, lost, na17: 100, complexity, success_proportion, ..Metrics::default() }
}

/// P(−z < Z < z) by Simpson's rule.
fn central_area(z: f64) -> f64 {
    let (steps, mut sum) = (2000, 0.0);
    for step in 0..=steps {
        let x = z * f64::from(step) / f64::from(steps);
        let weight = if step == 0 || step == steps { 1.0 } else { f64::from(2 + step % 2 * 2) };
        sum += weight * (-0.5 * x * x).exp();
    }
    2.0 * sum * z / (3.0 * f64::from(steps)) / (2.0 * std::f64::consts::PI).sqrt()
}

#[test]
fn tail_areas_equal_those_of_the_normal_distribution() {
    let normal = NormalDistribution { mean: 0.3, sd: 0.02 };
    for (z, area) in
        [(0.0, 1.0), (1.0, 0.317_310_507_863), (1.959_963_984_54, 0.05), (3.0, 0.002_699_796_063), (1e6, 0.0)]
    {
        for value in [0.3 + z * 0.02, 0.3 - z * 0.02] {
            assert!((normal.tail_area(value) - area).abs() < 1e-10, "{z}");
        }
    }
}

proptest! {
    #[test]
    fn the_posterior_equals_its_definition(lost in 50u32..=5000, complexity in 0.2..0.7) {
        let z = [0.3, 0.6].map(|mean| f64::abs(complexity - mean) / 0.05);
        let [host, network] = z.map(|z| 1.0 - central_area(z));
        let diagnosis = classifier().diagnose(&window(lost, complexity, 0.5));
        let p_host = host / (host + network);
        prop_assert!((diagnosis.p_host - p_host).abs() < 1e-6);
        // Exclude probabilities that differ from the limits by no more than rounding.
        prop_assume!((p_host - 0.95).abs() > 1e-6 && (p_host - 0.05).abs() > 1e-6);
        let lost = (diagnosis.lost_host, diagnosis.lost_network, diagnosis.lost_unknown);
        let all = window(lost.0 + lost.1 + lost.2, 0.0, 0.0).lost;
        prop_assert_eq!(match diagnosis.verdict {
            Verdict::Host => p_host >= 0.95 && lost == (all, 0, 0),
            Verdict::Network => p_host <= 0.05 && lost == (0, all, 0),
            Verdict::Inconclusive => p_host > 0.05 && p_host < 0.95 && lost == (0, 0, all),
            Verdict::Hybrid => false,
        }, true);
    }

    #[test]
    fn any_metrics_give_a_probability_from_0_to_1(
        packets: u32, lost: u32, na17: u32, complexity: f64, success_proportion: f64,
    ) {
        let metrics = Metrics { packets, lost, na17, complexity, success_proportion, ..Metrics::default() };
        let diagnosis = PaperClassifier::shipped().diagnose(&metrics);
        prop_assert!((0.0..=1.0).contains(&diagnosis.p_host));
    }
}

#[test]
fn loss_rate_selects_success_proportion_or_complexity() {
    let verdict =
        |lost, complexity, success| classifier().diagnose(&window(lost, complexity, success)).verdict;
    // Loss rates 0.00007 and 0.00008.
    assert_eq!((verdict(7, 0.3, 0.9), verdict(8, 0.3, 0.9)), (Verdict::Inconclusive, Verdict::Host));
    // At a loss rate of 0.00049, the success proportion is used; at 0.0005, the complexity is used.
    assert_eq!((verdict(49, 0.3, 0.1), verdict(50, 0.3, 0.1)), (Verdict::Network, Verdict::Host));
    assert_eq!((verdict(49, 0.6, 0.9), verdict(50, 0.6, 0.9)), (Verdict::Host, Verdict::Network));
    // Loss rates of 0.05 and above.
    let found = |lost| classifier().diagnose(&window(lost, 0.3, 0.9)).evidence_used;
    assert_eq!(found(5000), EvidenceUsed { pattern: true, ..EvidenceUsed::default() });
    assert_eq!(found(5001), EvidenceUsed { pattern: true, extrapolated: true, ..EvidenceUsed::default() });
    assert_eq!(verdict(5001, 0.3, 0.9), Verdict::Host);
}

#[test]
fn windows_that_neither_cause_explains_are_inconclusive() {
    // The complexity 0.45 is three standard deviations from both means. The complexity 0.9 is six
    // standard deviations from the mean of the network and twelve from the mean of the CPU.
    for complexity in [0.45, 0.9, 1.0, 0.0, f64::NAN] {
        let diagnosis = classifier().diagnose(&window(1000, complexity, 0.5));
        assert_eq!((diagnosis.verdict, diagnosis.lost_unknown), (Verdict::Inconclusive, 1000));
        assert!((diagnosis.p_host - 0.5).abs() < 1e-9, "{complexity}");
    }
    assert_eq!(classifier().diagnose(&window(1000, 0.8, 0.5)).verdict, Verdict::Network);
    let nothing = Diagnosis::inconclusive(0);
    assert_eq!(classifier().diagnose(&Metrics::default()), nothing);
    assert_eq!(classifier().diagnose(&window(0, 0.0, 0.0)), nothing);
    let short = Metrics { packets: 16, lost: 8, ..Metrics::default() };
    assert_eq!(classifier().diagnose(&short), Diagnosis::inconclusive(8));
}

#[test]
fn the_model_of_the_nearest_window_length_is_used() {
    let classifier = classifier();
    let nearest = |packets| classifier.model_for(packets).unwrap().packets;
    assert_eq!(
        [17, 10_000, 31_000, 33_000, 1 << 24].map(nearest),
        [10_000, 10_000, 10_000, 100_000, 100_000]
    );
    let found = |packets| {
        classifier.diagnose(&Metrics { packets, lost: packets / 100, ..window(0, 0.3, 0.9) }).evidence_used
    };
    let is_extrapolated =
        [9_900, 10_000, 31_000, 100_000, 100_100].map(|packets| found(packets).extrapolated);
    assert_eq!(is_extrapolated, [true, false, false, false, true]);
    // The model of this length has no success proportions.
    let low = Metrics { packets: 10_000, ..window(4, 0.3, 0.9) };
    assert_eq!(classifier.diagnose(&low), Diagnosis::inconclusive(4));
}

#[test]
fn the_shipped_model_is_unchanged_by_reading_and_writing() {
    let shipped = PaperClassifier::read(SHIPPED).unwrap();
    assert_eq!((PaperClassifier::shipped(), shipped.write().as_str()), (shipped.clone(), SHIPPED));
    assert!(shipped.models().iter().any(|model| model.packets == 20_000 && model.low.is_some()));
    assert_eq!(PaperClassifier::read(&classifier().write()).unwrap(), classifier());
}

#[test]
fn a_truncated_model_is_rejected() {
    for text in [SHIPPED, MODEL] {
        for end in (0..text.trim_end().len()).filter(|end| text.is_char_boundary(*end)) {
            assert!(PaperClassifier::read(&text[..end]).is_err(), "{end} bytes are a model");
        }
    }
}

#[test]
fn invalid_models_and_newer_versions_give_different_errors() {
    let read = |from: &str, to: &str| {
        assert!(MODEL.contains(from), "{from}");
        PaperClassifier::read(&MODEL.replacen(from, to, 1))
    };
    assert_eq!(read("version = 1", "version = 2\nother = 7"), Err(ModelError::Version(2)));
    for (from, to) in [
        ("version = 1", "version = -1"),
        ("version = 1", "version = \"1\""),
        ("version = 1\n", ""),
        ("barograph-loss-paper", "barograph-loss"),
        ("format = ", "#"),
        ("windows = 60", "windows = 61"),
        ("windows = 20", "windows = 18446744073709551615"),
        ("packets = 10000", "packets = 16"),
        ("packets = 10000", "packets = 100000"),
        ("packets = 10000", "packets = 16777217"),
        ("packets = 10000", "packets = 1e4"),
        ("sd = 0.05", "sd = 0.0"),
        ("sd = 0.05", "sd = -0.05"),
        ("sd = 0.05", "sd = nan"),
        ("sd = 0.05", "sd = inf"),
        ("a = 0.3", "a = nan"),
        ("b = 0.0", "b = 1000.0"),
        ("c = 0.0, d = 0.0", "c = 1.0, d = 1e308"),
        ("a = 0.3, ", ""),
        ("a = 0.3", "a = 0.3, e = 1.0"),
        ("mean = 0.9", "mean = inf"),
        ("low = ", "high = "),
    ] {
        assert!(matches!(read(from, to), Err(ModelError::Invalid(_))), "{to}");
    }
    let deep = format!("format = \"{FORMAT}\"\nversion = 1\nmodels = {}", "[".repeat(100_000));
    let long = MODEL.to_owned() + &"#".repeat(1 << 20);
    for text in ["", "\0", "models = []", &deep, &long, &SHIPPED.replace('[', "[[")] {
        assert!(matches!(PaperClassifier::read(text), Err(ModelError::Invalid(_))));
    }
}

const MODEL: &str = r#"
format = "barograph-loss-paper"
version = 1
fitted_on = { windows = 60, runs = 6 }

[[models]]
packets = 10000
windows = 20
cpu = { a = 0.3, b = 0.0, sd = 0.05 }
network = { a = 0.6, b = 0.0, c = 0.0, d = 0.0, sd = 0.05 }

[[models]]
packets = 100000
windows = 40
low = { cpu = { mean = 0.9, sd = 0.1 }, network = { mean = 0.1, sd = 0.1 } }
cpu = { a = 0.3, b = 0.0, sd = 0.05 }
network = { a = 0.6, b = 0.0, c = 0.0, d = 0.0, sd = 0.05 }
"#;
