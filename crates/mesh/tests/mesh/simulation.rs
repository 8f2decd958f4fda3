//! A mesh of stations in virtual time: tokens, budgets, and messages that take time or are lost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use barograph_mesh::{
    Cost, Grant, PairForecast, PlanConfig, PlannedTest, Planner, TestAdmission, TestAdmissionConfig,
    TestKind, TestRefusal,
};

mod report;

/// Probabilities of faults, 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// Probability that a message is lost.
    pub(crate) message: f64,
    /// Probability that a test fails.
    pub(crate) test: f64,
    /// Probability that the message about the end of a test never reaches the target.
    pub(crate) result: f64,
}

impl Faults {
    pub(crate) const NONE: Self = Self { message: 0.0, test: 0.0, result: 0.0 };
}

pub(crate) struct Mesh {
    config: PlanConfig,
    faults: Faults,
    stations: Vec<Station>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    sequence: u64,
    rng_state: u64,
    now: Duration,
    /// Length of a test that stops early.
    pub(crate) settles_in: Duration,
    /// Index of a station without a plan. This station asks one peer again and again, as soon as it
    /// may.
    pub(crate) greedy: Option<usize>,
    taken: BTreeMap<usize, Duration>,
}

struct Station {
    planner: Planner,
    admission: TestAdmission,
    peers: Vec<usize>,
    /// Last turn of each peer.
    visited: BTreeMap<usize, Duration>,
    gap_max: Duration,
    gap_sum: Duration,
    gaps: u64,
    /// Start, end and cost of all tests of the station.
    tests: Vec<(Duration, Duration, Cost)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Turn(usize),
    Ask(Exchange),
    Answer(Exchange, Option<u64>, Duration),
    Done { exchange: Exchange, target_token: u64, began: Duration, actual_ns: u64, bytes: u64 },
    Greed(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Exchange {
    from: usize,
    to: usize,
    token: u64,
    is_full: bool,
}

fn name(i: usize) -> String {
    format!("h{i}")
}

fn index(name: &str) -> usize {
    name[1..].parse().unwrap()
}

/// One-way delay of a message: half of a round-trip time of 50 ms.
const DELAY: Duration = Duration::from_millis(25);
/// Longest wait for a response.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const GOODPUT_BIT_S: f64 = 1e8;
/// Time between two changes of a pair's mean rate (s), for the pairs with a mean rate that changes.
const MOVES_S: u64 = 3 * 3600;

impl Mesh {
    /// A mesh with all hosts in one group.
    pub(crate) fn flat(hosts: usize, config: PlanConfig, faults: Faults) -> Self {
        Self::sites(1, hosts, config, faults)
    }

    /// A mesh in which each site is a group, and the first host of each site represents the site.
    pub(crate) fn sites(sites: usize, hosts: usize, config: PlanConfig, faults: Faults) -> Self {
        let stations = (0..sites * hosts)
            .map(|i| {
                let site = i / hosts;
                let mut peers: Vec<usize> = (site * hosts..(site + 1) * hosts).filter(|j| *j != i).collect();
                let is_representative = sites > 1 && i % hosts == 0;
                if is_representative {
                    peers.extend((0..sites).map(|other| other * hosts).filter(|j| *j != i));
                }
                Station::new(i, config, peers, 1 + u32::from(is_representative && hosts > 1))
            })
            .collect();
        let mut mesh = Self {
            config,
            faults,
            stations,
            events: BinaryHeap::new(),
            sequence: 0,
            rng_state: config.seed,
            now: Duration::ZERO,
            settles_in: Duration::from_millis(500),
            greedy: None,
            taken: BTreeMap::new(),
        };
        for i in 0..mesh.stations.len() {
            mesh.at(mesh.stations[i].planner.next_at(), Event::Turn(i));
        }
        mesh
    }

    pub(crate) fn run(&mut self, until: Duration) {
        if let Some(greedy) = self.greedy {
            self.at(Duration::ZERO, Event::Greed(greedy));
        }
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if until <= now {
                break;
            }
            self.now = now;
            match event {
                Event::Turn(i) => self.turn(i),
                Event::Ask(exchange) => self.request(exchange),
                Event::Answer(exchange, token, retry) => self.answer(exchange, token, retry),
                Event::Done { exchange, target_token, began, actual_ns, bytes } => {
                    let duration = Duration::from_nanos(actual_ns);
                    self.done(exchange, target_token, began, Cost { duration, bytes });
                }
                Event::Greed(i) => self.greed(i),
            }
        }
        self.now = until;
    }

    /// Gives every station forecasts of all its peers, as after a restart.
    pub(crate) fn know_all(&mut self) {
        for i in 0..self.stations.len() {
            for to in self.stations[i].peers.clone() {
                let forecast = self.forecast(GOODPUT_BIT_S);
                self.stations[i].planner.set_forecast(&name(to), forecast);
            }
        }
    }

    fn forecast(&self, goodput_bit_s: f64) -> PairForecast {
        PairForecast { goodput_bit_s, settles_in: self.settles_in }
    }

    /// Rate that a test measures (bit/s). For every fourth pair, the rate alternates every three
    /// hours between 50 % above and 50 % below the mean. The other pairs have noise of 2 to 40 %,
    /// different for each pair.
    fn rate(&mut self, from: usize, to: usize) -> f64 {
        let kind = from * 31 + to * 17;
        let noise = 2.0 * self.uniform() - 1.0;
        let off = if kind.is_multiple_of(4) {
            let period = (self.now.as_secs() / MOVES_S) as usize;
            if (kind / 4 + period).is_multiple_of(2) { 0.5 } else { -0.5 }
        } else {
            (0.02 + 0.38 * (kind % 97) as f64 / 97.0) * noise
        };
        GOODPUT_BIT_S * (1.0 + off)
    }

    fn at(&mut self, time: Duration, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    fn uniform(&mut self) -> f64 {
        // Mixes bits as in SplitMix64 (Steele, Lea, Flood 2014).
        self.rng_state = self.rng_state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.rng_state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn turn(&mut self, i: usize) {
        let now = self.now;
        let station = &mut self.stations[i];
        let Some(PlannedTest { peer, kind, expected }) = station.planner.next(now) else {
            let next_at = station.planner.next_at();
            return self.at(next_at, Event::Turn(i));
        };
        match station.admission.start(now, &peer, expected) {
            Ok(Grant { token, .. }) => {
                let is_full = kind == TestKind::Full;
                let exchange = Exchange { from: i, to: index(&peer), token, is_full };
                if self.uniform() < self.faults.message {
                    self.at(now + ANSWER_MAX, Event::Answer(exchange, None, Duration::ZERO));
                } else {
                    self.at(now + DELAY, Event::Ask(exchange));
                }
            }
            Err(TestRefusal::Busy { retry_after } | TestRefusal::Spent { retry_after }) => {
                station.planner.postpone(now, retry_after);
                self.again(i);
            }
            Err(refusal) => panic!("{refusal}"),
        }
    }

    fn again(&mut self, i: usize) {
        let next_at = self.stations[i].planner.next_at().max(self.now);
        self.at(next_at, Event::Turn(i));
    }

    fn request(&mut self, exchange: Exchange) {
        let now = self.now;
        let duration = if exchange.is_full { self.config.budget.test_max } else { self.settles_in };
        let bytes = (GOODPUT_BIT_S / 8.0 * duration.as_secs_f64()) as u64;
        let target = &mut self.stations[exchange.to];
        let (token, retry) =
            match target.admission.request(now, &name(exchange.from), true, Cost { duration, bytes }) {
                Ok(grant) => (Some(grant.token), Duration::ZERO),
                Err(TestRefusal::Busy { retry_after } | TestRefusal::Spent { retry_after }) => {
                    (None, retry_after)
                }
                Err(refusal) => panic!("{refusal}"),
            };
        if self.uniform() < self.faults.message {
            self.at(now - DELAY + ANSWER_MAX, Event::Answer(exchange, None, Duration::ZERO));
        } else {
            self.at(now + DELAY, Event::Answer(exchange, token, retry));
        }
    }

    fn answer(&mut self, exchange: Exchange, token: Option<u64>, retry: Duration) {
        let now = self.now;
        let Exchange { from, to, token: own, is_full } = exchange;
        let began = token.is_some_and(|token| {
            self.stations[to].admission.begin(now, token, &name(from)).is_ok()
                && self.stations[from].admission.begin(now, own, &name(to)).is_ok()
        });
        if let (Some(target_token), true) = (token, began) {
            let cap = self.config.budget.test_max.as_secs_f64();
            let expected = if is_full { cap } else { self.settles_in.as_secs_f64() };
            // Tests take as long as expected ± 50 %, and one test in fifty does not settle at all.
            let actual = if self.uniform() < 0.02 { cap } else { expected * (0.5 + self.uniform()) };
            let actual = Duration::from_secs_f64(actual.min(cap));
            let bytes = (GOODPUT_BIT_S / 8.0 * actual.as_secs_f64()) as u64;
            let actual_ns = actual.as_nanos() as u64;
            return self
                .at(now + actual, Event::Done { exchange, target_token, began: now, actual_ns, bytes });
        }
        let station = &mut self.stations[from];
        station.admission.return_grant(now, own);
        station.planner.record_refusal(now, &name(to), retry);
        self.again(from);
    }

    fn done(&mut self, exchange: Exchange, target_token: u64, began: Duration, cost: Cost) {
        let now = self.now;
        let Exchange { from, to, token, .. } = exchange;
        for i in [from, to] {
            self.stations[i].tests.push((began, now, cost));
        }
        *self.taken.entry(from).or_default() += cost.duration;
        let is_lost = self.uniform() < self.faults.result;
        if !is_lost {
            self.stations[to].admission.end(now, target_token, cost).unwrap();
        }
        let has_failed = self.uniform() < self.faults.test;
        let rate = self.rate(from, to);
        let forecast = self.forecast(rate);
        let station = &mut self.stations[from];
        station.admission.end(now, token, cost).unwrap();
        if self.greedy == Some(from) {
            return self.at(now, Event::Greed(from));
        }
        if has_failed {
            station.planner.record_failure(now, &name(to), cost);
        } else {
            station.planner.record_test(now, &name(to), cost, rate);
            station.planner.set_forecast(&name(to), forecast);
        }
        station.record_visit(to, now);
        self.again(from);
    }

    /// Asks station 1 for a full test, again and again, whatever the response.
    fn greed(&mut self, i: usize) {
        let now = self.now;
        // The greedy station ignores its own admission.
        self.stations[i].admission = TestAdmission::new(TestAdmissionConfig {
            budget: self.config.budget,
            ..TestAdmissionConfig::default()
        })
        .unwrap();
        let cap = self.config.budget.test_cap();
        let own = self.stations[i].admission.start(now, &name(1), cap).unwrap();
        match self.stations[1].admission.request(now, &name(i), true, cap) {
            Ok(grant) => {
                let exchange = Exchange { from: i, to: 1, token: own.token, is_full: true };
                self.at(now, Event::Answer(exchange, Some(grant.token), Duration::ZERO));
            }
            Err(_) => self.at(now + Duration::from_secs(1), Event::Greed(i)),
        }
    }
}

impl Station {
    fn new(i: usize, config: PlanConfig, peers: Vec<usize>, groups: u32) -> Self {
        let mut planner = Planner::new(&name(i), config, Duration::ZERO).unwrap();
        let names: Vec<String> = peers.iter().copied().map(name).collect();
        planner.set_peers(names.iter().map(String::as_str));
        let admission =
            TestAdmissionConfig { budget: config.budget, seed: i as u64, ..TestAdmissionConfig::default() };
        let mut admission = TestAdmission::new(admission).unwrap();
        admission.set_peers(peers.len());
        planner.set_groups(groups);
        Self {
            planner,
            admission,
            peers,
            visited: BTreeMap::new(),
            gap_max: Duration::ZERO,
            gap_sum: Duration::ZERO,
            gaps: 0,
            tests: Vec::new(),
        }
    }

    fn record_visit(&mut self, to: usize, now: Duration) {
        if let Some(last) = self.visited.insert(to, now) {
            self.gap_max = self.gap_max.max(now - last);
            self.gap_sum += now - last;
            self.gaps += 1;
        } else {
            self.gap_max = self.gap_max.max(now);
        }
    }
}
