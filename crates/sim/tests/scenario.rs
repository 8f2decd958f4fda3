//! Tests of scenarios that are read from text: the stored corpus, and scenarios with random
//! numbers.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;

use barograph_sim::Scenario;
use barograph_sim::fuzzing::fuzz_scenario;
use proptest::prelude::*;

#[test]
fn the_scenario_corpus_replays_and_some_scenarios_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/scenario");
    let mut sound = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let data = fs::read(entry.unwrap().path()).unwrap();
        if let Some(scenario) = std::str::from_utf8(&data).ok().and_then(|text| toml::from_str(text).ok()) {
            sound += u32::from(Scenario::validate(Scenario::clone(&scenario), |_| Ok(vec![1.0])).is_ok());
            fuzz_scenario(scenario);
        }
    }
    assert!(sound >= 3, "{sound} of the kept scenarios are still sound");
}

/// The corpus's scenario with the most effects; the test replaces its numbers.
const ROUGH: &str = include_str!("../corpus/scenario/rough.toml");

proptest! {
    #[test]
    fn numbers_of_any_size_give_finite_times(
        numbers in prop::collection::vec((any::<prop::sample::Index>(), number()), 1..4)
    ) {
        let mut lines: Vec<String> = ROUGH.lines().map(str::to_owned).collect();
        for (index, number) in numbers {
            let line = &mut lines[index.index(ROUGH.lines().count())];
            if let Some((key, _)) = line.split_once(" = ") {
                *line = format!("{key} = {number}");
            }
        }
        if let Ok(scenario) = toml::from_str(&lines.join("\n")) {
            fuzz_scenario(scenario);
        }
    }
}

/// Numbers in TOML syntax, of every magnitude.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<f64>().prop_map(|number| format!("{number:?}").replace("NaN", "nan")),
        (-12_i32..13).prop_map(|power| format!("1e{power}")),
        (0_u32..200).prop_map(|number| number.to_string()),
        (0.0..1.0).prop_map(|number: f64| format!("{number:?}")),
    ]
}
