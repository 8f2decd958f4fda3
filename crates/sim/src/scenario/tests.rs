use super::*;
use std::path::Path;

fn parse(text: &str) -> Result<Scenario, String> {
    let scenario: Scenario = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    scenario.validate(|_: &Path| Ok(vec![2.0, 1.0, 8.0]))
}

#[test]
fn an_empty_scenario_is_the_papers_program_on_links_without_effects() {
    let scenario = parse("").expect("nothing is needed");
    assert_eq!(scenario, Scenario::default());
    assert_eq!((scenario.nodes, scenario.tries), (31, 5));
    assert_eq!(scenario.link.law, ResponseTimeLaw::Constant {});
    assert!(scenario.stall.is_none() && scenario.congestion.is_none() && scenario.regime.is_none());
}

#[test]
fn every_kind_of_base_time_and_law_is_parsed() {
    for (text, base) in [
        ("0.5", LinkBase::Constant(0.5)),
        ("1", LinkBase::Constant(1.0)),
        ("{ min = 0.3, max = 1.5 }", LinkBase::LogUniform(FloatRange { min: 0.3, max: 1.5 })),
        ("{ median = 0.62, sigma = 0.3 }", LinkBase::Lognormal { median: 0.62, sigma: 0.3 }),
        ("{ uniform = { min = 1, max = 2 } }", LinkBase::Uniform(FloatRange { min: 1.0, max: 2.0 })),
    ] {
        let read = parse(&format!("[link]\nbase_s = {text}\n"));
        assert_eq!(read.map(|scenario| scenario.link.base_s), Ok(base), "{text}");
    }
    for law in [
        "{ kind = \"constant\" }",
        "{ kind = \"lognormal\", sigma = 0.3 }",
        "{ kind = \"pareto\", alpha = 2 }",
        "{ kind = \"trace\", file = \"a.csv\" }",
    ] {
        parse(&format!("[link]\nlaw = {law}\n")).expect(law);
    }
    for duration in [
        "{ kind = \"constant\", value = 1.0 }",
        "{ kind = \"constant\", seconds = 1.0 }",
        "{ kind = \"uniform\", min = 1, max = 2 }",
        "{ kind = \"exponential\", mean = 1.0 }",
        "{ kind = \"pareto\", alpha = 1.1, min = 5.0, max = 45.0 }",
    ] {
        parse(&format!("[stall]\nprobability = 0.1\nduration_s = {duration}\n")).expect(duration);
    }
}

#[test]
fn losses_and_resets_are_parsed() {
    let scenario = parse("[loss]\nprobability = 0.01\n[reset]\nprobability = 0.02\nafter_s = 0.5\n");
    let scenario = scenario.expect("it is sound");
    assert_eq!(scenario.loss, Some(AttemptLoss { probability: 0.01, gives_up_s: 924.6 }));
    assert_eq!(scenario.reset, Some(Reset { probability: 0.02, after_s: 0.5 }));
    for wrong in
        ["loss]\nprobability = 1.0", "reset]\nprobability = 0.1", "reset]\nprobability=-1\nafter_s=0"]
    {
        assert!(parse(&format!("[{wrong}")).is_err(), "{wrong}");
    }
}

#[test]
fn the_values_of_a_trace_are_divided_by_their_median() {
    let scenario =
        parse("[link]\nlaw = { kind = \"trace\", file = \"a.csv\" }").expect("the values are sound");
    let ResponseTimeLaw::Trace { values, .. } = &scenario.link.law else { panic!("{:?}", scenario.link.law) };
    assert_eq!(*values, [1.0, 0.5, 4.0]);
    for values in [vec![], vec![1.0, 0.0], vec![1.0, f64::NAN], vec![-1.0]] {
        let scenario: Scenario =
            toml::from_str("[link]\nlaw = { kind = \"trace\", file = \"a.csv\" }").expect("it is TOML");
        let error = scenario.validate(|_| Ok(values.clone())).expect_err("no trace");
        assert!(error.contains("a.csv") && error.contains("positive"), "{error}");
    }
    let scenario: Scenario =
        toml::from_str("[link]\nlaw = { kind = \"trace\", file = \"a.csv\" }").expect("it is TOML");
    assert_eq!(scenario.validate(|path| Err(format!("no {}", path.display()))), Err("no a.csv".to_owned()));
}

#[test]
fn errors_name_unknown_and_missing_keys() {
    let stall = "[stall]\nprobability = 0.1\nduration_s = ";
    for (text, named) in [
        ("nods = 3".to_owned(), "nods"),
        ("[weather]\nrain = 1".to_owned(), "weather"),
        ("[link]\nbase = 1.0".to_owned(), "base"),
        ("[link]\nbase_s = { mim = 1.0, max = 2.0 }".to_owned(), "mim"),
        ("[link]\nbase_s = { uniform = { min = 1.0, mox = 2.0 } }".to_owned(), "mox"),
        ("[link]\nbase_s = { min = 1.0 }".to_owned(), "max"),
        ("[link]\nbase_s = { median = 1.0 }".to_owned(), "sigma"),
        ("[link]\nbase_s = { min = 1.0, max = 2.0, sigma = 1.0 }".to_owned(), "base_s"),
        ("[link]\nbase_s = \"quick\"".to_owned(), "base_s"),
        ("[link]\nlaw = { kind = \"lognormal\", sigma = 0.1, mean = 1.0 }".to_owned(), "mean"),
        ("[link]\nlaw = { kind = \"lognormal\" }".to_owned(), "sigma"),
        ("[link]\nlaw = { kind = \"constant\", sigma = 0.1 }".to_owned(), "sigma"),
        ("[link]\nlaw = { kind = \"weibull\" }".to_owned(), "weibull"),
        ("[link]\nlaw = { sigma = 0.1 }".to_owned(), "kind"),
        ("[stall]\nprobability = 0.1\nfor_s = 1.0".to_owned(), "for_s"),
        (format!("{stall}{{ kind = \"uniform\", min = 0.1, max = 1.0, mode = 0.5 }}"), "mode"),
        (format!("{stall}{{ kind = \"exponential\" }}"), "mean"),
        ("[congestion]\ngod_s = 1.0".to_owned(), "god_s"),
        ("[regime]\nevery_s = 1.0\nfactor = { min = 1.0, max = 2.0 }\nphase = 1".to_owned(), "phase"),
        ("[[shifts]]\nfrom = 1\nfactor = 2.0\ntill = 3".to_owned(), "till"),
    ] {
        let error = parse(&text).expect_err(&text);
        assert!(error.contains(&format!("`{named}`")) || error.contains(named), "{text}: {error}");
        assert!(!error.contains("did not match"), "{text}: {error}");
    }
}

#[test]
fn errors_name_numbers_out_of_range_and_the_range() {
    for (text, named) in [
        ("nodes = 1", "nodes = 1: must be 2 to 100001"),
        ("nodes = 0", "nodes = 0"),
        ("reductions = 0", "reductions = 0"),
        ("tries = 0", "tries = 0"),
        ("message_bytes = []", "message_bytes is empty"),
        ("message_bytes = [0]", "message_bytes = 0"),
        ("message_bytes_range = { min = 9.0, max = 3.0 }", "message_bytes_range.max = 3"),
        ("reconnect_s = -1.0", "reconnect_s = -1"),
        ("reconnect_factor = nan", "reconnect_factor = NaN"),
        ("pause_s = inf", "pause_s = inf"),
        ("period_s = -1.0", "period_s = -1"),
        ("[link]\nbase_s = 0", "link.base_s = 0"),
        ("[link]\nbase_s = nan", "link.base_s = NaN"),
        ("[link]\nbase_s = { min = 2.0, max = 1.0 }", "link.base_s.max = 1"),
        ("[link]\nbase_s = { min = 0.0, max = 1.0 }", "link.base_s.min = 0"),
        ("[link]\nsize_share = 1.5", "link.size_share = 1.5: must be 0 to 1"),
        ("[link]\nlaw = { kind = \"lognormal\", sigma = -0.1 }", "link.law.sigma = -0.1"),
        ("[link]\nlaw = { kind = \"pareto\", alpha = 0.0 }", "link.law.alpha = 0"),
        (
            "[stall]\nprobability = 2.0\nduration_s = { kind = \"constant\", value = 1.0 }",
            "stall.probability = 2",
        ),
        (
            "[stall]\nprobability = 0.1\nduration_s = { kind = \"uniform\", min = 2.0, max = 1.0 }",
            "stall.duration_s.max = 1",
        ),
        (
            "[stall]\nprobability = 0.1\nduration_s = { kind = \"pareto\", alpha = 1.0, min = inf }",
            "stall.duration_s.min = inf",
        ),
        ("[congestion]\ngood_s = 0.0", "congestion.good_s = 0: must be at least 0.001"),
        ("[congestion]\ngood_s = 1.0\nfactor = 0.0", "congestion.factor = 0"),
        ("[congestion]\ngood_s = 1.0\nload_feedback = -0.5", "congestion.load_feedback = -0.5"),
        ("[regime]\nevery_s = 0.0\nfactor = { min = 1.0, max = 2.0 }", "regime.every_s = 0"),
        ("[regime]\nevery_s = 1.0\nfactor = { min = 0.0, max = 2.0 }", "regime.factor.min = 0"),
        ("[[shifts]]\nfrom = 1\nfactor = nan", "shifts.factor = NaN"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.starts_with(named), "{text}: {error}");
        assert!(!error.contains('\n'), "{error:?}");
    }
    for text in ["nodes = -1", "nodes = 2.5", "tries = \"five\"", "message_bytes = 5", "seed = -1"] {
        parse(text).expect_err(text);
    }
}
