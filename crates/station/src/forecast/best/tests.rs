use std::cell::Cell;
use std::sync::Mutex;

use barograph_forecast::{Outcome, Quantity, SeriesId};

use super::*;
use crate::forecast::series::{Measurement, RATE_MAX_BIT_S, SeriesTable};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Fixed pairs, with a counter of look-ups.
#[derive(Default)]
struct FixedForecasts {
    forecasts: BTreeMap<(String, String, ComposedQuantity), PathForecast>,
    lookups: Cell<usize>,
}

impl PathForecasts for FixedForecasts {
    fn path_forecast(&self, from: &Name, to: &Name, what: ComposedQuantity) -> PathForecast {
        self.lookups.set(self.lookups.get() + 1);
        let key = (from.as_str().into(), to.as_str().into(), what);
        self.forecasts.get(&key).copied().unwrap_or(PathForecast::Missing)
    }

    fn goodput_over(&self, from: &Name, to: &Name, _: f64, _: f64) -> PathForecast {
        self.path_forecast(from, to, ComposedQuantity::Goodput)
    }
}

impl FixedForecasts {
    fn set(&mut self, from: &str, to: &str, what: ComposedQuantity, forecast: PathForecast) {
        self.forecasts.insert((from.into(), to.into(), what), forecast);
    }

    /// A measured pair: round trip in ms, goodput in Mbit/s, intervals of ± 5 %.
    fn pair(&mut self, from: &str, to: &str, rtt_ms: f64, mbit_s: f64) {
        self.set(from, to, ComposedQuantity::Rtt, fresh(rtt_ms / 1e3));
        self.set(from, to, ComposedQuantity::Goodput, fresh(mbit_s * 1e6));
    }
}

fn aged(seconds: f64) -> Age {
    Age { age_s: Some(seconds), ahead_s: None }
}

fn fresh(value: f64) -> PathForecast {
    let forecast = PathEstimate { value, lower: value / 1.05, upper: value * 1.05 };
    PathForecast::Fresh(LegForecast { forecast, last: value, count: 50 }, aged(1.0))
}

fn members(hosts: &[(&str, &[&str])]) -> MeshMembers {
    let member = |(host, groups): &(&str, &[&str])| {
        let is_lost = groups.contains(&"lost");
        (name(host), MeshMember { groups: groups.iter().map(|group| name(group)).collect(), is_lost })
    };
    MeshMembers::new(hosts.iter().map(member).collect())
}

/// Two sites; `ra` represents `local:a`, `rb` represents `local:b`.
fn two_sites() -> MeshMembers {
    members(&[
        ("h", &["local:a"]),
        ("g", &["local:a"]),
        ("ra", &["local:a", "global"]),
        ("rb", &["local:b", "global"]),
        ("x", &["local:b"]),
        ("y", &["local:b"]),
        ("z", &["local:b", "lost"]),
        ("loner", &["local:c"]),
    ])
}

fn rank_hosts(to: &[&str], bytes: u64, members: &MeshMembers, forecasts: &FixedForecasts) -> Ranking {
    let hosts: Vec<Name> = to.iter().map(|host| name(host)).collect();
    let models = Models::learnt(members, &NoForecasts);
    let lost = hosts.iter().filter(|host| members.is_lost(host)).cloned().collect();
    let request = BestRequest { from: &name("h"), hosts: &hosts, lost: &lost, bytes, other_source: None };
    best(&request, members, &models, forecasts)
}

#[test]
fn measured_hosts_are_ranked_and_hosts_with_overlapping_intervals_are_close() {
    let mut forecasts = FixedForecasts::default();
    forecasts.pair("h", "g", 1.0, 100.0);
    forecasts.pair("h", "ra", 1.0, 98.0);
    forecasts.pair("h", "x", 1.0, 50.0);
    let ranking = rank_hosts(&["x", "ra", "g"], 100_000_000, &two_sites(), &forecasts);
    let order: Vec<(&str, bool)> =
        ranking.ranked.iter().map(|one| (one.host.as_str(), one.is_close)).collect();
    assert_eq!(order, [("g", true), ("ra", true), ("x", false)]);
    let first = &ranking.ranked[0];
    assert!((first.time_s.value - 8.002).abs() < 1e-9, "{first:?}");
    assert_eq!(first.goodput.as_ref().unwrap().basis, Basis::Measured(aged(1.0)));
    assert_eq!(ranking.unknown, []);
}

#[test]
fn an_unmeasured_pair_is_composed_through_representatives_and_is_wider() {
    let mut forecasts = FixedForecasts::default();
    forecasts.pair("h", "ra", 1.0, 900.0);
    forecasts.pair("ra", "rb", 20.0, 200.0);
    forecasts.pair("rb", "x", 2.0, 900.0);
    let ranking = rank_hosts(&["x"], 100_000_000, &two_sites(), &forecasts);
    let found = &ranking.ranked[0];
    let via = Basis::Composed { via: ["h", "ra", "rb", "x"].map(name).into() };
    assert_eq!((&found.rtt.basis, &found.goodput.as_ref().unwrap().basis), (&via, &via));
    assert!((found.rtt.estimate.value - 0.023).abs() < 1e-9, "{found:?}");
    let rate = found.goodput.as_ref().unwrap().estimate;
    assert!(rate.value < 200e6 && rate.upper / rate.value > 2.0, "a factor of two is guessed: {rate:?}");
    assert_eq!(found.loss, None, "nothing is known of it");
    // Loss of a path: the shares of received packets of its legs multiply. The first leg loses no
    // packets.
    for (from, to, share) in [("h", "ra", 0.0), ("ra", "rb", 0.02), ("rb", "x", 0.1)] {
        let path = LegForecast::from_loss(share, None, share, 50).unwrap();
        forecasts.set(from, to, ComposedQuantity::Loss, PathForecast::Fresh(path, aged(1.0)));
    }
    let ranking = rank_hosts(&["x"], 100_000_000, &two_sites(), &forecasts);
    let loss = ranking.ranked[0].loss.as_ref().unwrap();
    assert_eq!(loss.basis, Basis::Composed { via: ["h", "ra", "rb", "x"].map(name).into() });
    assert!((loss.estimate.value - 0.118).abs() < 1e-9 && loss.estimate.contains(0.2), "{loss:?}");
    // Both hosts are in one site, so the path goes through the representative of the site.
    forecasts.pair("ra", "g", 1.0, 900.0);
    let ranking = rank_hosts(&["g"], 100_000_000, &two_sites(), &forecasts);
    assert_eq!(ranking.ranked[0].rtt.basis, Basis::Composed { via: ["h", "ra", "g"].map(name).into() });
}

#[test]
fn measured_pairs_correct_and_narrow_composed_forecasts() {
    let mut places_of: Vec<(String, [&str; 1])> = (0..8).map(|i| (format!("n{i}"), ["local:a"])).collect();
    places_of.push(("h".into(), ["local:a"]));
    let mut all: Vec<(&str, &[&str])> =
        places_of.iter().map(|(host, groups)| (host.as_str(), &groups[..])).collect();
    all.push(("ra", &["local:a", "global"]));
    let members = members(&all);
    let mut forecasts = FixedForecasts::default();
    for (i, (host, _)) in all.iter().enumerate().filter(|(_, (host, _))| *host != "ra") {
        forecasts.pair(host, "ra", 1.0, 800.0);
        forecasts.pair("ra", host, 1.0, 800.0);
        for (j, (other, _)) in all.iter().enumerate().filter(|(_, (other, _))| !["ra", *host].contains(other))
        {
            // The direct path is faster than the soft minimum of the path through the
            // representative, by varying amounts.
            forecasts.pair(host, other, 1.0, 800.0 + 8.0 * ((i * 7 + j * 3) % 5) as f64);
        }
    }
    forecasts.forecasts.remove(&("h".into(), "n3".into(), ComposedQuantity::Goodput));
    let models = Models::learnt(&members, &forecasts);
    let hosts = [name("n3")];
    let lost = BTreeSet::new();
    let lookups =
        BestRequest { from: &name("h"), hosts: &hosts, lost: &lost, bytes: 1_000_000, other_source: None };
    let ranking = best(&lookups, &members, &models, &forecasts);
    let goodput = ranking.ranked[0].goodput.as_ref().unwrap();
    assert!(matches!(goodput.basis, Basis::Composed { .. }));
    let rate = goodput.estimate;
    assert!((rate.value / 816e6 - 1.0).abs() < 0.1, "566 Mbit/s are composed, 816 learnt: {rate:?}");
    assert!(rate.upper / rate.lower < 1.5, "{rate:?}");
    assert!(models.of(ComposedQuantity::Goodput).pairs() > 8);
    assert_eq!(
        models.of(ComposedQuantity::Rtt).pairs(),
        0,
        "within a site the way round says nothing of others"
    );
}

#[test]
fn a_host_without_a_time_forecast_is_listed_with_a_reason() {
    let mut forecasts = FixedForecasts::default();
    forecasts.set("h", "g", ComposedQuantity::Rtt, fresh(0.012));
    forecasts.set("h", "x", ComposedQuantity::Rtt, fresh(0.012));
    forecasts.set("h", "x", ComposedQuantity::Goodput, PathForecast::Stale(aged(20_000.0)));
    forecasts.pair("h", "z", 1.0, 100.0);
    forecasts.pair("h", "y", 1.0, 0.0);
    let ranking = rank_hosts(&["g", "x", "z", "loner", "y"], 1_000_000, &two_sites(), &forecasts);
    assert_eq!(ranking.ranked, []);
    let reasons: BTreeMap<&str, &str> =
        ranking.unknown.iter().map(|(host, reason)| (host.as_str(), reason.as_str())).collect();
    assert_eq!(reasons["z"], "its lease has ended (lost)");
    assert_eq!(
        reasons["loner"],
        "the round-trip time was never measured, and no representatives connect the two sites"
    );
    let stale = "no goodput forecast (round trip 12.0 ms): its newest goodput is 6 h old, and no forecast from h to ra";
    assert!(reasons["x"].starts_with(stale), "{reasons:?}");
    assert!(
        reasons["g"].starts_with("no goodput forecast (round trip 12.0 ms): the goodput was never measured")
    );
    assert_eq!(reasons["y"], "its forecasts yield no time");
    // Bytes that fit the initial window need no rate.
    let ranking = rank_hosts(&["g", "x"], INITIAL_WINDOW_BYTES, &two_sites(), &forecasts);
    assert_eq!(ranking.ranked.len(), 2);
    assert!(ranking.ranked[0].goodput.is_none() && (ranking.ranked[0].time_s.value - 0.024).abs() < 1e-12);
}

#[test]
fn a_member_without_the_measurements_of_others_names_the_station_to_ask() {
    let mut forecasts = FixedForecasts::default();
    forecasts.pair("h", "ra", 1.0, 900.0);
    let (hosts, lost, members) = ([name("x")], BTreeSet::new(), two_sites());
    let reason = |forecasts: &FixedForecasts, other_source| {
        let request =
            BestRequest { from: &name("h"), hosts: &hosts, lost: &lost, bytes: 1_000_000, other_source };
        best(&request, &members, &Models::learnt(&members, &NoForecasts), forecasts).unknown.remove(0).1
    };
    let way = "the round-trip time was never measured, and no forecast from ra to rb, a part of the path through representatives";
    assert_eq!(reason(&forecasts, None), way);
    assert_eq!(
        reason(&forecasts, Some("http://hub/")),
        format!("{way}; this station has no measurements made by ra; ask http://hub/")
    );
    // No other station has the measurements that this station should have made.
    forecasts.forecasts.clear();
    assert!(
        reason(&forecasts, Some("http://hub/"))
            .ends_with("from h to ra, a part of the path through representatives")
    );
}

#[test]
fn a_ranking_needs_few_look_ups_for_each_host() {
    let hosts: Vec<String> = (0..500).map(|i| format!("n{i}")).collect();
    let mut all: Vec<(&str, &[&str])> = hosts.iter().map(|host| (host.as_str(), &["local:b"][..])).collect();
    all.extend([("h", &["local:a"][..]), ("ra", &["local:a", "global"]), ("rb", &["local:b", "global"])]);
    let mut forecasts = FixedForecasts::default();
    forecasts.pair("h", "ra", 1.0, 900.0);
    forecasts.pair("ra", "rb", 20.0, 200.0);
    hosts.iter().for_each(|host| forecasts.pair("rb", host, 1.0, 100.0));
    let to: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let ranking = rank_hosts(&to, 1_000_000, &members(&all), &forecasts);
    assert_eq!(ranking.ranked.len(), 500);
    // For round trip and goodput: two look-ups for each host (its own pair and its last leg), and
    // two for the legs that all hosts share. For loss, which is unknown: one look-up for each host,
    // and one for the first leg.
    assert_eq!(forecasts.lookups.get(), 2 * (2 * 500 + 2) + 500 + 1);
}

fn measured(source: &str, target: &str, quantity: &Quantity, second: i64, value: f64) -> Measurement {
    let series = SeriesId { source: name(source), target: name(target), quantity: quantity.clone() };
    let time_unix_ns = second * 1_000_000_000;
    Measurement { series, time_unix_ns, outcome: Outcome::Value(value), detail: String::new() }
}

#[test]
fn the_series_table_forecasts_a_fresh_path_from_either_end() {
    let mut series_table = SeriesTable::new(100);
    for second in (0..100).step_by(10) {
        series_table.observe(&measured("h", "x", &Quantity::RTT, second, 0.01 + 1e-5 * (second % 3) as f64));
        series_table.observe(&measured("x", "h", &Quantity::GOODPUT_DOWN, second, 1e8));
        series_table.observe(&measured(
            "h",
            "x",
            &Quantity::LOSS,
            second,
            if second == 50 { 0.1 } else { 0.0 },
        ));
    }
    series_table.observe(&measured("h", "once", &Quantity::GOODPUT, 90, 1e6));
    let series_table = Mutex::new(series_table);
    let at = |second: i64| Pairs::new(&series_table, second * 1_000_000_000, std::time::Duration::ZERO);
    let (h, x) = (name("h"), name("x"));
    for (from, to) in [(&h, &x), (&x, &h)] {
        let PathForecast::Fresh(rtt, age) = at(100).path_forecast(from, to, ComposedQuantity::Rtt) else {
            panic!()
        };
        let forecast = rtt.forecast;
        assert!(
            forecast.is_positive() && (forecast.value - 0.01).abs() < 1e-4 && age == aged(10.0),
            "{rtt:?}"
        );
        assert_eq!((rtt.last, rtt.count), (0.01, 10), "what was measured, and how often");
        let PathForecast::Fresh(loss, _) = at(100).path_forecast(from, to, ComposedQuantity::Loss) else {
            panic!()
        };
        let value = loss.forecast.value;
        assert!(0.0 < value && value < 0.1, "the mean: a median would be 0: {loss:?}");
    }
    // The rate at which x receives from h is a goodput from h to x. It gives no information about
    // the other direction.
    assert!(
        matches!(at(100).path_forecast(&h, &x, ComposedQuantity::Goodput), PathForecast::Fresh(rate, _) if rate.forecast.is_positive())
    );
    assert_eq!(at(100).path_forecast(&x, &h, ComposedQuantity::Goodput), PathForecast::Missing);
    // A round trip stays fresh for six periods of ten seconds, a goodput for ever.
    assert!(matches!(at(150).path_forecast(&h, &x, ComposedQuantity::Rtt), PathForecast::Fresh(..)));
    assert_eq!(at(151).path_forecast(&h, &x, ComposedQuantity::Rtt), PathForecast::Stale(aged(61.0)));
    let rate_width = |second| {
        let PathForecast::Fresh(rate, age) = at(second).path_forecast(&h, &x, ComposedQuantity::Goodput)
        else {
            panic!()
        };
        assert_eq!(age, aged((second - 90) as f64));
        rate.forecast.upper / rate.forecast.lower
    };
    let widths = [100, 3690, 86_500, 30 * 86_400].map(rate_width);
    assert!(widths.is_sorted_by(|a, b| a < b), "the interval widens: {widths:?}");
    // A value with a label ahead of now stays fresh as long as a value with a label equally far in
    // the past.
    let ahead = |seconds: f64| Age { age_s: None, ahead_s: Some(seconds) };
    assert!(
        matches!(at(40).path_forecast(&h, &x, ComposedQuantity::Rtt), PathForecast::Fresh(_, age) if age == ahead(50.0))
    );
    assert_eq!(
        at(-1000).path_forecast(&h, &x, ComposedQuantity::Rtt),
        PathForecast::Stale(ahead(1090.0)),
        "it is not new for ever"
    );
    let PathForecast::Fresh(once, _) = at(100).path_forecast(&h, &name("once"), ComposedQuantity::Goodput)
    else {
        panic!()
    };
    let once = once.forecast;
    assert!(once.contains(2e6) && once.contains(5e5) && once.value == 1e6, "one value is a guess: {once:?}");
}

#[test]
fn a_path_without_losses_so_far_has_a_nonzero_upper_loss_bound() {
    let mut series_table = SeriesTable::new(100);
    for second in [0, 10] {
        series_table.observe(&measured("h", "x", &Quantity::LOSS, second, 0.0));
    }
    let series_table = Mutex::new(series_table);
    let pairs = Pairs::new(&series_table, 20_000_000_000, std::time::Duration::ZERO);
    let PathForecast::Fresh(loss, _) = pairs.path_forecast(&name("h"), &name("x"), ComposedQuantity::Loss)
    else {
        panic!()
    };
    assert_eq!((loss.forecast.value, loss.forecast.upper, loss.count), (0.0, 0.1, 2));
    // After `unlock` the series table is unlocked.
    pairs.unlock();
    assert!(series_table.try_lock().is_ok());
}

/// Deterministic noise around 1: a factor with a logarithm between −`spread` and `spread`.
fn noise(spread: f64, seed: u64) -> f64 {
    let hash = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let hash = (hash ^ (hash >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (spread * ((hash >> 11) as f64 / (1_u64 << 52) as f64 - 1.0)).exp()
}

/// A host of the simulation: round trip (s), rate after slow start (bit/s), and spreads of their
/// logarithms.
struct SimulatedHost {
    name: &'static str,
    rtt_s: f64,
    rate_bit_s: f64,
    spreads: [f64; 2],
}

impl SimulatedHost {
    const ALL: [Self; 5] = [
        Self { name: "lan", rtt_s: 0.001, rate_bit_s: 50e6, spreads: [0.2, 0.05] },
        Self { name: "metro", rtt_s: 0.01, rate_bit_s: 90e6, spreads: [0.1, 0.1] },
        Self { name: "near", rtt_s: 0.04, rate_bit_s: 400e6, spreads: [0.05, 0.2] },
        Self { name: "far", rtt_s: 0.16, rate_bit_s: 1e9, spreads: [0.02, 0.1] },
        Self { name: "slow", rtt_s: 0.08, rate_bit_s: 5e6, spreads: [0.05, 0.4] },
    ];

    /// Values of round trip and rate at a time.
    fn at(&self, seed: u64) -> (f64, f64) {
        let [rtt, rate] = self.spreads;
        (self.rtt_s * noise(rtt, 2 * seed), self.rate_bit_s * noise(rate, 2 * seed + 1))
    }

    /// Time of a transfer in steps of a packet: the sender has `window` packets on the way, each
    /// packet takes its time at the bottleneck, and each acknowledgement lets the sender send
    /// `per_ack` packets.
    fn transfer_s(&self, bytes: u64, seed: u64, per_ack: f64) -> f64 {
        let (rtt_s, rate_bit_s) = self.at(seed);
        let packets = bytes.div_ceil(1448);
        let packet_s = 8.0 * 1448.0 / rate_bit_s;
        let (mut window, mut free_at_s) = (10.0_f64, 0.0_f64);
        let mut acked_at_s: std::collections::VecDeque<f64> = std::collections::VecDeque::new();
        let mut now_s = 0.0;
        for _ in 0..packets {
            if acked_at_s.len() as f64 + 1.0 > window {
                now_s = acked_at_s.pop_front().unwrap().max(now_s);
                window += per_ack - 1.0;
            }
            free_at_s = free_at_s.max(now_s) + packet_s;
            acked_at_s.push_back(free_at_s + rtt_s);
        }
        // The handshake, and the way of the last byte and of its acknowledgement.
        rtt_s + acked_at_s.pop_back().unwrap()
    }
}

/// A series table with a day of values of all simulated hosts: a round trip a minute, a goodput
/// every ten minutes. `size` makes goodputs those of transfers of this size.
fn simulated(size: Option<u64>) -> Mutex<SeriesTable> {
    let mut series_table = SeriesTable::new(100);
    for minute in 0..1440_u64 {
        for (index, host) in SimulatedHost::ALL.iter().enumerate() {
            let seed = 10_000 * (index as u64 + 1) + minute;
            let (rtt_s, rate) = host.at(seed);
            series_table.observe(&measured("h", host.name, &Quantity::RTT, 60 * minute as i64, rtt_s));
            if minute.is_multiple_of(10) {
                let goodput = size.map_or(rate, |bytes| {
                    8.0 * bytes as f64 / (host.transfer_s(bytes, seed, 2.0) - 2.0 * rtt_s)
                });
                let second = 60 * minute as i64 + 1;
                let value = measured("h", host.name, &Quantity::GOODPUT, second, goodput);
                let detail = size.map_or(String::new(), |bytes| format!(r#"{{"n":1,"bytes":{bytes}}}"#));
                series_table.observe(&Measurement { detail, ..value });
            }
        }
    }
    Mutex::new(series_table)
}

/// Time of the newest round trip of [`simulated`].
const SIMULATED_NS: i64 = 1439 * 60 * 1_000_000_000;

fn rank_simulated(series_table: &Mutex<SeriesTable>, bytes: u64) -> Ranking {
    let hosts: Vec<Name> = SimulatedHost::ALL.iter().map(|host| name(host.name)).collect();
    let (models, lost) = (Models::learnt(&MeshMembers::default(), &NoForecasts), BTreeSet::new());
    let request = BestRequest { from: &name("h"), hosts: &hosts, lost: &lost, bytes, other_source: None };
    let pairs = Pairs::new(series_table, SIMULATED_NS + 5_000_000_000, std::time::Duration::ZERO);
    best(&request, &MeshMembers::default(), &models, &pairs)
}

/// Packets that an acknowledgement permits: two with every byte counted, 1.5 if they are delayed.
const PER_ACK: [f64; 2] = [2.0, 1.5];

#[test]
fn the_fastest_of_five_hosts_is_found_and_times_are_inside_their_intervals() {
    let series_table = simulated(None);
    let (mut inside, mut times, mut right, mut questions) = (0, 0, 0, 0);
    for bytes in [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000] {
        let ranking = rank_simulated(&series_table, bytes);
        assert_eq!((ranking.ranked.len(), ranking.unknown.len()), (5, 0), "{bytes}");
        let close: Vec<&str> =
            ranking.ranked.iter().filter(|one| one.is_close).map(|one| one.host.as_str()).collect();
        for question in 0..40_u64 {
            let took = |host: &SimulatedHost| {
                let per_ack = PER_ACK[usize::from(question.is_multiple_of(2))];
                // At most 20 MB are simulated in packets; the rest is at the rate.
                let part = bytes.min(20_000_000);
                let rest_s = 8.0 * (bytes - part) as f64 / host.at(question).1;
                (host.name, host.transfer_s(part, question, per_ack) + rest_s)
            };
            let took: Vec<(&str, f64)> = SimulatedHost::ALL.iter().map(took).collect();
            let fastest = took.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0;
            right += usize::from(close.contains(&fastest));
            questions += 1;
            for one in &ranking.ranked {
                let time_s = took.iter().find(|(host, _)| *host == one.host.as_str()).unwrap().1;
                inside += usize::from(one.time_s.contains(time_s));
                times += 1;
            }
        }
    }
    assert!(95 * questions <= 100 * right, "{right} of {questions}");
    assert!(85 * times <= 100 * inside, "{inside} of {times}");
}

#[test]
fn slow_start_in_the_tests_of_a_series_does_not_count_twice() {
    let time_s = |series_table: &Mutex<SeriesTable>, bytes, host: &str| {
        let ranking = rank_simulated(series_table, bytes);
        ranking.ranked.into_iter().find(|one| one.host == name(host)).unwrap().time_s
    };
    let (settled, megabyte) = (simulated(None), simulated(Some(1 << 20)));
    for (host, bytes) in
        [("lan", 10_000_000), ("metro", 1_000_000), ("slow", 1_000_000), ("slow", 10_000_000)]
    {
        let (with, without) = (time_s(&megabyte, bytes, host), time_s(&settled, bytes, host));
        let ratio = with.value / without.value;
        assert!((0.8..1.25).contains(&ratio), "{bytes} bytes to {host}: {with:?} {without:?}");
    }
    // A megabyte never fills the path to `far`: 160 ms at 1 Gbit/s.
    let far = time_s(&megabyte, 100_000_000, "far");
    assert!(
        far.contains(time_s(&settled, 100_000_000, "far").value) && far.upper > 2.0 * far.lower,
        "{far:?}"
    );
}

/// A table with a round trip every ten seconds until 990 s for each of `rtts`, and tests of the
/// goodput from `h` to `x` every ten seconds from 0 on: bit/s, and the bytes of those that include
/// slow start.
fn tested_path(rtts: &[(&str, &str, f64)], goodputs: &[(f64, Option<u64>)]) -> Mutex<SeriesTable> {
    let mut series_table = SeriesTable::new(10);
    for second in (0..1000).step_by(10) {
        for (from, to, rtt_s) in rtts {
            series_table.observe(&measured(from, to, &Quantity::RTT, second, *rtt_s));
        }
    }
    for (second, (bit_s, bytes)) in (0..).step_by(10).zip(goodputs) {
        let test = measured("h", "x", &Quantity::GOODPUT, second, *bit_s);
        let detail = bytes.map_or(String::new(), |bytes| format!(r#"{{"bytes":{bytes}}}"#));
        series_table.observe(&Measurement { detail, ..test });
    }
    Mutex::new(series_table)
}

/// Goodput (bit/s) of a test of 1 MiB over a round trip of 160 ms, and the rate after its slow
/// start.
const SHORT_TEST: (f64, Option<u64>) = (6.453e6, Some(1 << 20));
const SETTLED_BIT_S: f64 = 10.08e6;

#[test]
fn a_composed_round_trip_takes_the_slow_start_out_of_a_measured_goodput() {
    let way = [("h", "ra", 0.001), ("ra", "rb", 0.158), ("rb", "x", 0.001)];
    let series_table = tested_path(&way, &[SHORT_TEST; 50]);
    // The pair's own round trip is too old to count.
    crate::sync::lock(&series_table).observe(&measured("h", "x", &Quantity::RTT, 0, 0.16));
    let (hosts, lost, members) = ([name("x")], BTreeSet::new(), two_sites());
    let models = Models::learnt(&members, &NoForecasts);
    let request =
        BestRequest { from: &name("h"), hosts: &hosts, lost: &lost, bytes: 10_000_000, other_source: None };
    let pairs = Pairs::new(&series_table, 995_000_000_000, std::time::Duration::ZERO);
    let ranking = best(&request, &members, &models, &pairs);
    let found = &ranking.ranked[0];
    assert!(matches!(found.rtt.basis, Basis::Composed { .. }), "{found:?}");
    let goodput = found.goodput.as_ref().unwrap();
    assert!(matches!(goodput.basis, Basis::Measured(_)), "{found:?}");
    assert!((goodput.estimate.value / SETTLED_BIT_S - 1.0).abs() < 1e-3, "{goodput:?}");
    // Set-up and slow start take 1.0 s, and the rest of the 10 MB 7.8 s.
    assert!((8.5..9.2).contains(&found.time_s.value), "{found:?}");
}

#[test]
fn a_test_of_another_kind_does_not_change_how_a_series_is_read() {
    let long_test = (SETTLED_BIT_S, None);
    let rate = |goodputs: &[(f64, Option<u64>)]| {
        let series_table = tested_path(&[("h", "x", 0.16)], goodputs);
        let pairs = Pairs::new(&series_table, 995_000_000_000, std::time::Duration::ZERO);
        match pairs.path_forecast(&name("h"), &name("x"), ComposedQuantity::Goodput) {
            PathForecast::Fresh(rate, _) => (rate.forecast.value, rate.last),
            other => panic!("{other:?}"),
        }
    };
    let is_settled = |bit_s: f64| (bit_s / SETTLED_BIT_S - 1.0).abs() < 0.02;
    let (value, last) = rate(&[vec![long_test; 40], vec![SHORT_TEST]].concat());
    assert!(value < 1.02 * SETTLED_BIT_S, "the long tests have no slow start: {value}");
    assert!(is_settled(last), "the short one has: {last}");
    let (value, last) = rate(&[vec![SHORT_TEST; 40], vec![(6.453e6, None)]].concat());
    assert!(is_settled(value), "the short tests have slow start: {value}");
    assert_eq!(last, 6.453e6, "the long one has not");
}

#[test]
fn a_goodput_over_a_horizon_is_the_forecast_of_the_mean() {
    let (h, x) = (name("h"), name("x"));
    // Alternating rates: the next one is known, and the mean of six lies between them.
    let goodputs: Vec<_> = (0..300).map(|n| (if n % 2 == 0 { 8e7 } else { 2e7 }, None)).collect();
    let series_table = tested_path(&[("h", "x", 0.01)], &goodputs);
    let series = SeriesId { source: h.clone(), target: x.clone(), quantity: Quantity::GOODPUT };
    let mean = |horizon_s| {
        let table = crate::sync::lock(&series_table);
        table.get(&series).unwrap().forecaster().transfer_rate(0.5, 2995.0, horizon_s).unwrap()
    };
    let (next, minute) = (mean(0.0), mean(60.0));
    assert!((next - minute).abs() > 1e6, "{next} {minute}");
    let pairs = Pairs::new(&series_table, 2_995_000_000_000, std::time::Duration::ZERO);
    assert_eq!(rate(pairs.path_forecast(&h, &x, ComposedQuantity::Goodput)).value, next);
    assert_eq!(rate(pairs.goodput_over(&h, &x, 60.0, 0.01)).value, minute);
}

/// A path with a lower rate over more than four seconds.
struct FallingRate;

impl PathForecasts for FallingRate {
    fn path_forecast(&self, _: &Name, _: &Name, what: ComposedQuantity) -> PathForecast {
        match what {
            ComposedQuantity::Rtt => fresh(0.001),
            ComposedQuantity::Goodput => fresh(80e6),
            ComposedQuantity::Loss => PathForecast::Missing,
        }
    }

    fn goodput_over(&self, _: &Name, _: &Name, horizon_s: f64, _: f64) -> PathForecast {
        fresh(if horizon_s <= 4.0 { 80e6 } else { 8e6 })
    }
}

#[test]
fn the_rate_of_a_transfer_is_that_over_its_own_time() {
    let (hosts, lost) = ([name("x")], BTreeSet::new());
    let models = Models::learnt(&MeshMembers::default(), &NoForecasts);
    let time_s = |bytes| {
        let request = BestRequest { from: &name("h"), hosts: &hosts, lost: &lost, bytes, other_source: None };
        best(&request, &MeshMembers::default(), &models, &FallingRate).ranked[0].time_s.value
    };
    let (short_s, long_s) = (time_s(20_000_000), time_s(100_000_000));
    assert!((2.0..2.1).contains(&short_s), "20 MB at 80 Mbit/s: {short_s}");
    assert!((100.0..100.1).contains(&long_s), "100 MB at 8 Mbit/s: {long_s}");
}

#[test]
fn the_newer_of_two_fresh_forecasts_counts() {
    let of_age = |value: f64, age_s: f64| match fresh(value) {
        PathForecast::Fresh(path, _) => PathForecast::Fresh(path, aged(age_s)),
        other => other,
    };
    // Both goodputs are old and count, and neither is recent.
    let mut series_table = SeriesTable::new(10);
    for (source, target, quantity, second, bit_s) in
        [("h", "x", &Quantity::GOODPUT, 0, 1e6), ("x", "h", &Quantity::GOODPUT_DOWN, 500, 2e6)]
    {
        series_table.observe(&measured(source, target, quantity, second, bit_s));
    }
    let series_table = Mutex::new(series_table);
    let pairs = Pairs::new(&series_table, 10_000_000_000_000, std::time::Duration::ZERO);
    let forecast = pairs.path_forecast(&name("h"), &name("x"), ComposedQuantity::Goodput);
    assert!((rate(forecast).value / 2e6 - 1.0).abs() < 1e-9, "{forecast:?}");
    let newer = |own, others| super::pairs::newer((own, false), (others, false));
    let (old, new) = (of_age(1.0, 90.0), of_age(2.0, 60.0));
    assert_eq!([newer(old, new), newer(new, old)], [new, new]);
    assert_eq!(newer(old, of_age(2.0, 90.0)), old, "the own one of two that are equally old");
}

/// The rows of `/v1/forecast?bytes` and of `/v1/best` agree.
#[test]
fn the_time_of_a_transfer_in_the_direction_of_a_series_is_that_of_best() {
    let now_unix_ns = SIMULATED_NS + 5_000_000_000;
    for series_table in [simulated(None), simulated(Some(1 << 20))] {
        for bytes in [10_000, 1_000_000, 100_000_000] {
            let ranked = rank_simulated(&series_table, bytes).ranked;
            assert_eq!(ranked.len(), SimulatedHost::ALL.len(), "{bytes}");
            for one in ranked {
                let table = crate::sync::lock(&series_table);
                let series =
                    SeriesId { source: name("h"), target: one.host.clone(), quantity: Quantity::GOODPUT };
                let state = table.get(&series).unwrap();
                let time = series_transfer_time(&table, (&series, state), bytes, 0.9, now_unix_ns).unwrap();
                let (lower_s, upper_s) = time.ends_s.unwrap();
                let pairs = [
                    (time.forecast_s, one.time_s.value),
                    (lower_s, one.time_s.lower),
                    (upper_s, one.time_s.upper),
                ];
                // `best` has a largest rate, at which these bytes take 80 µs.
                let is_equal = |(a, b): &(f64, f64)| (a - b).abs() < 1e-4;
                assert!(pairs.iter().all(is_equal), "{bytes} bytes to {}: {pairs:?}", one.host);
            }
        }
    }
}

#[test]
fn a_transfer_has_no_time_without_a_recent_round_trip_and_no_ends_while_calibrating() {
    // `x` measured all: a round trip is the same from both ends, and this goodput is from `h`.
    let series = SeriesId { source: name("x"), target: name("h"), quantity: Quantity::GOODPUT_DOWN };
    let time = |rtts: i64, tests: i64| {
        let mut table = SeriesTable::new(10);
        for n in 0..rtts {
            table.observe(&measured("h", "x", &Quantity::RTT, 10 * n, 0.01));
        }
        for n in 0..tests {
            table.observe(&measured("x", "h", &Quantity::GOODPUT_DOWN, 10 * n, 1e7 + (n % 7) as f64));
        }
        let state = table.get(&series).unwrap();
        series_transfer_time(&table, (&series, state), 10_000_000, 0.5, 1_000_000_000_000)
    };
    assert_eq!(time(50, 100), None, "the newest round trip is 510 s old");
    let young = time(100, 1).unwrap();
    assert!((8.0..8.1).contains(&young.forecast_s) && young.ends_s.is_none(), "{young:?}");
    let known = time(100, 100).unwrap();
    let (lower_s, upper_s) = known.ends_s.unwrap();
    assert!(8.0 <= lower_s && lower_s < upper_s && upper_s < 8.1, "{known:?}");
    let other = SeriesId { quantity: Quantity::RTT, ..series };
    assert!(!is_goodput(&other));
}

#[test]
fn a_host_that_lies_about_itself_does_not_move_the_times_of_others() {
    let honest = simulated(None);
    let lying = simulated(None);
    for second in 0..50 {
        let label = SIMULATED_NS / 1_000_000_000 - 50 + second;
        let rate = if second % 2 == 0 { 1.0 } else { 9e12 };
        crate::sync::lock(&lying).observe(&measured("h", "slow", &Quantity::GOODPUT, label, rate));
    }
    for bytes in [10_000, 1_000_000, 100_000_000] {
        let times = |series_table| {
            let mut ranked = rank_simulated(series_table, bytes).ranked;
            ranked.retain(|one| one.host != name("slow"));
            ranked.into_iter().map(|one| (one.host, one.time_s)).collect::<Vec<_>>()
        };
        assert_eq!(times(&honest), times(&lying), "{bytes}");
    }
}

#[test]
fn a_goodput_with_few_values_is_a_guess_that_widens_with_its_age() {
    let mut series_table = SeriesTable::new(10);
    for second in 0..100 {
        series_table.observe(&measured("h", "x", &Quantity::RTT, 10 * second, 0.01));
    }
    series_table.observe(&measured("h", "x", &Quantity::GOODPUT, 0, 1e8));
    let series_table = Mutex::new(series_table);
    let (hosts, lost) = ([name("x")], BTreeSet::new());
    let models = Models::learnt(&MeshMembers::default(), &NoForecasts);
    let request = BestRequest {
        from: &name("h"),
        hosts: &hosts,
        lost: &lost,
        bytes: 1_000_000_000,
        other_source: None,
    };
    let pairs = Pairs::new(&series_table, 1_000_000_000_000, std::time::Duration::ZERO);
    let found = best(&request, &MeshMembers::default(), &models, &pairs).ranked.remove(0);
    assert!(found.rtt.is_calibrated && !found.goodput.unwrap().is_calibrated);
    assert!(found.time_s.upper > 3.0 * found.time_s.value, "a factor of two: {:?}", found.time_s);
}

fn rate(forecast: PathForecast) -> PathEstimate {
    match forecast {
        PathForecast::Fresh(path, _) => path.forecast,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tests_that_did_not_fill_a_path_bound_its_legs_but_not_its_transfers() {
    let (from, far) = (name("h"), name("far"));
    let few = Mutex::new(SeriesTable::new(10));
    for second in 0..100 {
        crate::sync::lock(&few).observe(&measured("h", "far", &Quantity::RTT, 10 * second, 0.16));
    }
    let mut test = measured("h", "far", &Quantity::GOODPUT, 990, 9e6);
    test.detail = r#"{"bytes":1048576}"#.into();
    crate::sync::lock(&few).observe(&test);
    for (series_table, now_unix_ns) in
        [(simulated(Some(1 << 20)), SIMULATED_NS + 5_000_000_000), (few, 1_000_000_000_000)]
    {
        let pairs = Pairs::new(&series_table, now_unix_ns, std::time::Duration::ZERO);
        let leg = rate(pairs.path_forecast(&from, &far, ComposedQuantity::Goodput));
        assert!(leg.upper < 100.0 * leg.value, "{leg:?}");
        assert_eq!(rate(pairs.goodput_over(&from, &far, 10.0, 0.16)).upper, RATE_MAX_BIT_S);
    }
}

#[test]
fn the_low_rate_of_an_old_volatile_goodput_falls_with_its_age() {
    let mut series_table = SeriesTable::new(1);
    for n in 0..200_i64 {
        let rate_bit_s = 4e7 + 1e6 * (n * 7919 % 101) as f64;
        series_table.observe(&measured("h", "x", &Quantity::GOODPUT, 300 * n, rate_bit_s));
    }
    let series_table = Mutex::new(series_table);
    let lower = |age_s: i64| {
        let now_unix_ns = (300 * 199 + age_s) * 1_000_000_000;
        let pairs = Pairs::new(&series_table, now_unix_ns, std::time::Duration::ZERO);
        rate(pairs.goodput_over(&name("h"), &name("x"), 1.0, 0.01)).lower
    };
    let [hour, day, month] = [3600, 86_400, 30 * 86_400].map(lower);
    assert!(month < 0.8 * day && day < 0.8 * hour, "{hour} {day} {month}");
}
