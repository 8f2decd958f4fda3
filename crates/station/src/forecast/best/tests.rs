use std::cell::Cell;
use std::sync::Mutex;

use barograph_forecast::{Outcome, Quantity, Series};

use super::*;
use crate::forecast::bank::{Bank, Measured};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Fixed pairs, with a counter of look-ups.
#[derive(Default)]
struct Book {
    sights: BTreeMap<(String, String, Composition), Sight>,
    asked: Cell<usize>,
}

impl Knowledge for Book {
    fn sight(&self, from: &Name, to: &Name, what: Composition) -> Sight {
        self.asked.set(self.asked.get() + 1);
        let key = (from.as_str().into(), to.as_str().into(), what);
        self.sights.get(&key).copied().unwrap_or(Sight::Nothing)
    }
}

impl Book {
    fn set(&mut self, from: &str, to: &str, what: Composition, sight: Sight) {
        self.sights.insert((from.into(), to.into(), what), sight);
    }

    /// A measured pair: round trip in ms, goodput in Mbit/s, intervals of ± 5 %.
    fn pair(&mut self, from: &str, to: &str, rtt_ms: f64, mbit_s: f64) {
        self.set(from, to, Composition::Rtt, fresh(rtt_ms / 1e3));
        self.set(from, to, Composition::Goodput, fresh(mbit_s * 1e6));
    }
}

fn aged(seconds: f64) -> Age {
    Age { age_s: Some(seconds), ahead_s: None }
}

fn fresh(value: f64) -> Sight {
    let forecast = Estimate { value, lower: value / 1.05, upper: value * 1.05 };
    Sight::Fresh(Path { forecast, last: value, count: 50 }, aged(1.0))
}

fn places(hosts: &[(&str, &[&str])]) -> Places {
    let place = |(host, groups): &(&str, &[&str])| {
        let is_lost = groups.contains(&"lost");
        (name(host), Place { groups: groups.iter().map(|group| name(group)).collect(), is_lost })
    };
    Places::new(hosts.iter().map(place).collect())
}

/// Two sites; `ra` represents `local:a`, `rb` represents `local:b`.
fn two_sites() -> Places {
    places(&[
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

fn ask(to: &[&str], bytes: u64, places: &Places, book: &Book) -> Answer {
    let hosts: Vec<Name> = to.iter().map(|host| name(host)).collect();
    let models = Models::learnt(places, &Blank);
    let lost = hosts.iter().filter(|host| places.is_lost(host)).cloned().collect();
    let question = Question { from: &name("h"), hosts: &hosts, lost: &lost, bytes, elsewhere: None };
    best(&question, places, &models, book)
}

#[test]
fn measured_hosts_are_ranked_and_what_intervals_do_not_part_is_close() {
    let mut book = Book::default();
    book.pair("h", "g", 1.0, 100.0);
    book.pair("h", "ra", 1.0, 98.0);
    book.pair("h", "x", 1.0, 50.0);
    let answer = ask(&["x", "ra", "g"], 100_000_000, &two_sites(), &book);
    let order: Vec<(&str, bool)> =
        answer.ranked.iter().map(|one| (one.host.as_str(), one.is_close)).collect();
    assert_eq!(order, [("g", true), ("ra", true), ("x", false)]);
    let first = &answer.ranked[0];
    assert!((first.time_s.value - 8.002).abs() < 1e-9, "{first:?}");
    assert_eq!(first.goodput.as_ref().unwrap().basis, Basis::Measured(aged(1.0)));
    assert_eq!(answer.unknown, []);
}

#[test]
fn a_pair_never_measured_is_composed_by_way_of_representatives_and_wider() {
    let mut book = Book::default();
    book.pair("h", "ra", 1.0, 900.0);
    book.pair("ra", "rb", 20.0, 200.0);
    book.pair("rb", "x", 2.0, 900.0);
    let answer = ask(&["x"], 100_000_000, &two_sites(), &book);
    let found = &answer.ranked[0];
    let via = Basis::Composed { via: ["h", "ra", "rb", "x"].map(name).into() };
    assert_eq!((&found.rtt.basis, &found.goodput.as_ref().unwrap().basis), (&via, &via));
    assert!((found.rtt.estimate.value - 0.023).abs() < 1e-9, "{found:?}");
    let rate = found.goodput.as_ref().unwrap().estimate;
    assert!(rate.value < 200e6 && 2.0 < rate.upper / rate.value, "a factor of two is guessed: {rate:?}");
    assert_eq!(found.loss, None, "nothing is known of it");
    // Loss of a path: the shares of received packets of its legs multiply. The first leg loses
    // none.
    for (from, to, share) in [("h", "ra", 0.0), ("ra", "rb", 0.02), ("rb", "x", 0.1)] {
        let path = Path::of_losses(share, None, share, 50).unwrap();
        book.set(from, to, Composition::Loss, Sight::Fresh(path, aged(1.0)));
    }
    let answer = ask(&["x"], 100_000_000, &two_sites(), &book);
    let loss = answer.ranked[0].loss.as_ref().unwrap();
    assert_eq!(loss.basis, Basis::Composed { via: ["h", "ra", "rb", "x"].map(name).into() });
    assert!((loss.estimate.value - 0.118).abs() < 1e-9 && loss.estimate.contains(0.2), "{loss:?}");
    // Both hosts are in one site, so the path goes through the representative of the site.
    book.pair("ra", "g", 1.0, 900.0);
    let answer = ask(&["g"], 100_000_000, &two_sites(), &book);
    assert_eq!(answer.ranked[0].rtt.basis, Basis::Composed { via: ["h", "ra", "g"].map(name).into() });
}

#[test]
fn what_measured_pairs_teach_corrects_and_narrows() {
    let mut places_of: Vec<(String, [&str; 1])> = (0..8).map(|i| (format!("n{i}"), ["local:a"])).collect();
    places_of.push(("h".into(), ["local:a"]));
    let mut all: Vec<(&str, &[&str])> =
        places_of.iter().map(|(host, groups)| (host.as_str(), &groups[..])).collect();
    all.push(("ra", &["local:a", "global"]));
    let places = places(&all);
    let mut book = Book::default();
    for (i, (host, _)) in all.iter().enumerate().filter(|(_, (host, _))| *host != "ra") {
        book.pair(host, "ra", 1.0, 800.0);
        book.pair("ra", host, 1.0, 800.0);
        for (j, (other, _)) in all.iter().enumerate().filter(|(_, (other, _))| !["ra", *host].contains(other))
        {
            // The direct path is faster than the soft minimum of the path through the
            // representative, by varying amounts.
            book.pair(host, other, 1.0, 800.0 + 8.0 * ((i * 7 + j * 3) % 5) as f64);
        }
    }
    book.sights.remove(&("h".into(), "n3".into(), Composition::Goodput));
    let models = Models::learnt(&places, &book);
    let hosts = [name("n3")];
    let lost = BTreeSet::new();
    let asked = Question { from: &name("h"), hosts: &hosts, lost: &lost, bytes: 1_000_000, elsewhere: None };
    let answer = best(&asked, &places, &models, &book);
    let goodput = answer.ranked[0].goodput.as_ref().unwrap();
    assert!(matches!(goodput.basis, Basis::Composed { .. }));
    let rate = goodput.estimate;
    assert!((rate.value / 816e6 - 1.0).abs() < 0.1, "566 Mbit/s are composed, 816 learnt: {rate:?}");
    assert!(rate.upper / rate.lower < 1.5, "{rate:?}");
    assert!(8 < models.of(Composition::Goodput).pairs());
    assert_eq!(models.of(Composition::Rtt).pairs(), 0, "within a site the way round says nothing of others");
}

#[test]
fn of_whom_no_time_can_be_given_the_reason_is() {
    let mut book = Book::default();
    book.set("h", "g", Composition::Rtt, fresh(0.012));
    book.set("h", "x", Composition::Rtt, fresh(0.012));
    book.set("h", "x", Composition::Goodput, Sight::Stale(aged(20_000.0)));
    book.pair("h", "z", 1.0, 100.0);
    book.pair("h", "y", 1.0, 0.0);
    let answer = ask(&["g", "x", "z", "loner", "y"], 1_000_000, &two_sites(), &book);
    assert_eq!(answer.ranked, []);
    let reasons: BTreeMap<&str, &str> =
        answer.unknown.iter().map(|(host, reason)| (host.as_str(), reason.as_str())).collect();
    assert_eq!(reasons["z"], "it is gone from the mesh");
    assert_eq!(reasons["loner"], "no round-trip time was measured, and no representatives connect the two");
    let stale = "only its round-trip time is known, 12.0 ms: its newest goodput is 6 h old, and none is known from h to ra";
    assert!(reasons["x"].starts_with(stale), "{reasons:?}");
    assert!(reasons["g"].starts_with("only its round-trip time is known, 12.0 ms: no goodput was measured"));
    assert_eq!(reasons["y"], "what is forecast of it is no time");
    // Bytes that fit the initial window need no rate.
    let answer = ask(&["g", "x"], INITIAL_WINDOW_BYTES, &two_sites(), &book);
    assert_eq!(answer.ranked.len(), 2);
    assert!(answer.ranked[0].goodput.is_none() && (answer.ranked[0].time_s.value - 0.024).abs() < 1e-12);
}

#[test]
fn a_member_that_keeps_its_own_measurements_alone_says_whom_to_ask() {
    let mut book = Book::default();
    book.pair("h", "ra", 1.0, 900.0);
    let (hosts, lost, places) = ([name("x")], BTreeSet::new(), two_sites());
    let reason = |book: &Book, elsewhere| {
        let question = Question { from: &name("h"), hosts: &hosts, lost: &lost, bytes: 1_000_000, elsewhere };
        best(&question, &places, &Models::learnt(&places, &Blank), book).unknown.remove(0).1
    };
    let way =
        "no round-trip time was measured, and none is known from ra to rb, on the way by representatives";
    assert_eq!(reason(&book, None), way);
    assert_eq!(
        reason(&book, Some("http://hub/")),
        format!("{way}; what ra measures is not known here, ask http://hub/")
    );
    // No other station knows what this one should have measured.
    book.sights.clear();
    assert!(reason(&book, Some("http://hub/")).ends_with("from h to ra, on the way by representatives"));
}

#[test]
fn a_question_costs_a_few_look_ups_for_each_host() {
    let hosts: Vec<String> = (0..500).map(|i| format!("n{i}")).collect();
    let mut all: Vec<(&str, &[&str])> = hosts.iter().map(|host| (host.as_str(), &["local:b"][..])).collect();
    all.extend([("h", &["local:a"][..]), ("ra", &["local:a", "global"]), ("rb", &["local:b", "global"])]);
    let mut book = Book::default();
    book.pair("h", "ra", 1.0, 900.0);
    book.pair("ra", "rb", 20.0, 200.0);
    hosts.iter().for_each(|host| book.pair("rb", host, 1.0, 100.0));
    let to: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let answer = ask(&to, 1_000_000, &places(&all), &book);
    assert_eq!(answer.ranked.len(), 500);
    // For round trip and goodput: two look-ups for each host (its own pair and its last leg), and
    // two for the legs that all hosts share. For loss, which is unknown: one look-up for each host,
    // and one for the first leg.
    assert_eq!(book.asked.get(), 2 * (2 * 500 + 2) + 500 + 1);
}

fn measured(source: &str, target: &str, quantity: &Quantity, second: i64, value: f64) -> Measured {
    let series = Series { source: name(source), target: name(target), quantity: quantity.clone() };
    let time_unix_ns = second * 1_000_000_000;
    Measured { series, time_unix_ns, outcome: Outcome::Value(value), detail: String::new() }
}

#[test]
fn a_bank_knows_a_path_from_either_end_while_it_is_new() {
    let mut bank = Bank::new(100);
    for second in (0..100).step_by(10) {
        bank.observe(&measured("h", "x", &Quantity::RTT, second, 0.01 + 1e-5 * (second % 3) as f64));
        bank.observe(&measured("x", "h", &Quantity::GOODPUT_DOWN, second, 1e8));
        bank.observe(&measured("h", "x", &Quantity::LOSS, second, if second == 50 { 0.1 } else { 0.0 }));
    }
    bank.observe(&measured("h", "once", &Quantity::GOODPUT, 90, 1e6));
    let bank = Mutex::new(bank);
    let at = |second: i64| Pairs::new(&bank, second * 1_000_000_000, std::time::Duration::ZERO);
    let (h, x) = (name("h"), name("x"));
    for (from, to) in [(&h, &x), (&x, &h)] {
        let Sight::Fresh(rtt, age) = at(100).sight(from, to, Composition::Rtt) else { panic!() };
        let forecast = rtt.forecast;
        assert!(
            forecast.is_positive() && (forecast.value - 0.01).abs() < 1e-4 && age == aged(10.0),
            "{rtt:?}"
        );
        assert_eq!((rtt.last, rtt.count), (0.01, 10), "what was measured, and how often");
        let Sight::Fresh(loss, _) = at(100).sight(from, to, Composition::Loss) else { panic!() };
        let value = loss.forecast.value;
        assert!(0.0 < value && value < 0.1, "the mean: a median would be 0: {loss:?}");
    }
    // The rate at which x receives from h is a goodput from h to x. It gives no information about
    // the other direction.
    assert!(
        matches!(at(100).sight(&h, &x, Composition::Goodput), Sight::Fresh(rate, _) if rate.forecast.is_positive())
    );
    assert_eq!(at(100).sight(&x, &h, Composition::Goodput), Sight::Nothing);
    // A round trip stays fresh for six periods of ten seconds, a goodput for at least an hour.
    assert!(matches!(at(150).sight(&h, &x, Composition::Rtt), Sight::Fresh(..)));
    assert_eq!(at(151).sight(&h, &x, Composition::Rtt), Sight::Stale(aged(61.0)));
    assert!(matches!(at(3690).sight(&h, &x, Composition::Goodput), Sight::Fresh(..)));
    assert_eq!(at(3691).sight(&h, &x, Composition::Goodput), Sight::Stale(aged(3601.0)));
    // A value with a label ahead of now stays fresh as long as one with a label equally far in the
    // past.
    let ahead = |seconds: f64| Age { age_s: None, ahead_s: Some(seconds) };
    assert!(matches!(at(40).sight(&h, &x, Composition::Rtt), Sight::Fresh(_, age) if age == ahead(50.0)));
    assert_eq!(
        at(-1000).sight(&h, &x, Composition::Rtt),
        Sight::Stale(ahead(1090.0)),
        "it is not new for ever"
    );
    let Sight::Fresh(once, _) = at(100).sight(&h, &name("once"), Composition::Goodput) else { panic!() };
    let once = once.forecast;
    assert!(once.contains(2e6) && once.contains(5e5) && once.value == 1e6, "one value is a guess: {once:?}");
}

#[test]
fn a_path_that_lost_nothing_yet_may_lose_some() {
    let mut bank = Bank::new(100);
    for second in [0, 10] {
        bank.observe(&measured("h", "x", &Quantity::LOSS, second, 0.0));
    }
    let bank = Mutex::new(bank);
    let pairs = Pairs::new(&bank, 20_000_000_000, std::time::Duration::ZERO);
    let Sight::Fresh(loss, _) = pairs.sight(&name("h"), &name("x"), Composition::Loss) else { panic!() };
    assert_eq!((loss.forecast.value, loss.forecast.upper, loss.count), (0.0, 0.1, 2));
    // After `rest` the bank is unlocked.
    pairs.rest();
    assert!(bank.try_lock().is_ok());
}
