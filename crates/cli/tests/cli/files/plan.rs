//! Tests of the command `barograph plan` on files.

use std::process::Output;

use super::barograph;

fn plan(arguments: &str) -> Output {
    barograph("plan", &arguments.split_whitespace().collect::<Vec<_>>()).output().unwrap()
}

fn told(arguments: &str) -> String {
    let output = plan(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &str) -> serde_json::Value {
    super::json(&plan(&format!("{arguments} --json")))
}

#[test]
fn ten_hosts_are_revisited_after_90_minutes_as_the_paper_counts() {
    let told = told("--hosts 10 --paper");
    assert!(told.contains("revisit of a pair                   90 min\n"), "{told}");
    assert!(told.contains("one for bandwidth and one for latency"), "{told}");
    // Gloperf §3 truncates this share to "1.6 %".
    assert!(told.contains("would spend 1.67 % of its time"), "{told}");
    let answer = json("--hosts 10 --paper");
    assert_eq!((answer["revisit_s"].as_f64(), answer["policy"].as_str()), (Some(5400.0), Some("paper")));
    assert_eq!(json("--hosts 10 --paper --every 10")["revisit_s"], 10_800.0);
}

#[test]
fn the_limiting_resource_is_named() {
    for (arguments, limit, word) in [
        (
            "--hosts 20 --test-seconds 0.5",
            "turns",
            "limited by turns: the budget (1 % of time, 1.25 GB an hour) has room",
        ),
        ("--hosts 20", "time", "limited by time: 1 % of it, 36 s an hour"),
        ("--hosts 20 --rate 1000", "bytes", "limited by bytes: 1.25 GB an hour"),
        (
            "--hosts 20 --rate 1000 --test-seconds 0.5 --bytes-per-hour 100000000",
            "bytes",
            "stopped at 50.0 MB",
        ),
    ] {
        assert_eq!(json(arguments)["limit"], limit, "{arguments}");
        let told = told(arguments);
        assert!(told.contains(word), "{told}");
    }
    assert_eq!(json("--hosts 20 --test-seconds 0.5")["revisit_s"], 5700.0);
}

#[test]
fn the_budget_bounds_the_test_time_of_a_host() {
    for arguments in
        ["--hosts 50", "--hosts 50 --share 0.5", "--hosts 50 --rate 10000", "--hosts 2 --every 0.1"]
    {
        let answer = json(arguments);
        let share = if arguments.contains("0.5") { 0.005 } else { 0.01 };
        // The budget counts a test at both ends, and the peers of a host start as many tests with
        // the host as the host starts itself. So the host takes part in twice as many tests as it
        // starts.
        assert!(2.0 * answer["host"]["seconds_per_hour"].as_f64().unwrap() <= 3600.0 * share, "{answer}");
        assert!(2.0 * answer["host"]["bytes_per_hour"].as_f64().unwrap() <= 1.25e9, "{answer}");
    }
}

#[test]
fn sites_have_representatives() {
    let answer = json("--hosts 60 --sites 3 --test-seconds 0.5");
    assert_eq!(answer["pairs"], 3 * 20 * 19 + 6);
    assert_eq!(answer["revisit_s"], 5700.0);
    assert_eq!(answer["representative_revisit_s"], 6300.0);
    let told = told("--hosts 60 --sites 3 --test-seconds 0.5");
    assert!(told.contains("revisit by a site's representative  105 min"), "{told}");
    assert!(json("--hosts 60")["representative_revisit_s"].is_null());
    assert!(told.contains("a site's representative starts"), "{told}");
    assert!(told.contains("* if no peer refuses"), "{told}");
    // With one host at each site, all hosts are representatives.
    let alone = json("--hosts 5 --sites 5");
    assert_eq!(alone["pairs"], 20);
    assert!(alone["revisit_s"].is_null() && alone["representative_revisit_s"].is_f64(), "{alone}");
    // With full tests, a representative divides its budget between its two groups.
    let full = json("--hosts 60 --sites 3");
    let tests = |role: &str| full[role]["tests_per_hour"].as_f64().unwrap();
    assert!((tests("representative") * 2.0 - tests("host")).abs() < 1e-6, "{full}");
    assert!((tests("mesh") - 57.0 * tests("host") - 3.0 * tests("representative")).abs() < 1e-6, "{full}");
}

#[test]
fn the_papers_plan_is_refused_where_its_tests_do_not_fit() {
    let output = plan("--hosts 10 --paper --every 0.017");
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("half of the budget"), "{told}");
}

#[test]
fn an_impossible_plan_is_refused_with_a_reason() {
    for (arguments, reason) in [
        ("--hosts 1", "--hosts must be 2–1,000,000"),
        (
            "--hosts 5 --sites 6",
            "5 hosts cannot have 6 sites; use at least 1 site and at most 1 for each host",
        ),
        ("--hosts 5 --share 0", "--share must be above 0 and at most 100 percent, found 0"),
        ("--hosts 5 --share 200", "at most 100 percent, found 200"),
        (
            "--hosts 5 --share 0.1",
            "a test of 5s does not fit into an hour: a share of 0.001 is 3.6s; use a larger share or a shorter test",
        ),
        ("--hosts 5 --share NaN", "at most 100 percent, found NaN"),
        ("--hosts 5 --rate -1", "unexpected argument '-1'"),
        ("--hosts 5 --rate 0", "--rate: expected a finite rate above 0 Mbit/s, found 0"),
        ("--hosts 5 --rate inf", "--rate: expected a finite rate above 0 Mbit/s, found inf"),
        ("--hosts 5 --every 0", "expected minutes"),
        ("--hosts 5 --test-seconds nan", "expected seconds"),
        ("--hosts 5 --bytes-per-hour 0", "expected 1 byte to 1000 TB"),
    ] {
        let output = plan(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
        assert!(message.contains(reason), "{arguments}: {message}");
    }
}
