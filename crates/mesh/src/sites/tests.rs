use super::*;
use crate::rng::SeededRng;

fn reports(hosts: &[&str]) -> Vec<SiteReport> {
    let report = |host: &&str| SiteReport { host: (*host).into(), site: None, represents: true };
    hosts.iter().map(report).collect()
}

/// A forecast with an interval of ± 10 %.
fn about(value: f64) -> PathEstimate {
    PathEstimate { value, lower: 0.9 * value, upper: 1.1 * value }
}

/// Hosts on a line, at these positions in ms of round-trip time.
fn line(positions: &[f64]) -> impl Fn(usize, usize) -> Option<PathEstimate> {
    move |a, b| Some(about(1e-4 + (positions[a] - positions[b]).abs() / 1e3))
}

fn called(sites: &[Site]) -> Vec<(&str, Vec<usize>)> {
    sites.iter().map(|site| (site.name.as_str(), site.proposal.hosts.clone())).collect()
}

#[test]
fn a_site_has_the_name_that_most_hosts_report_or_its_first_host() {
    let mut hosts = reports(&["a1", "a2", "a3", "b1", "b2"]);
    let rtt = line(&[0.0, 0.1, 0.2, 20.0, 20.1]);
    assert_eq!(called(&sites_of(&hosts, &rtt)), [("a1", vec![0, 1, 2]), ("b1", vec![3, 4])]);
    // Two sites want the name `north`. The name goes to the site in which more hosts report the
    // name.
    for (host, site) in [(1, "north"), (2, "north"), (0, "a1"), (3, "north")] {
        hosts[host].site = Some(site.into());
    }
    assert_eq!(called(&sites_of(&hosts, &rtt)), [("north", vec![0, 1, 2]), ("b1", vec![3, 4])]);
    // A name that another site already has is not used.
    hosts[3].site = None;
    hosts[0].site = Some("b1".into());
    hosts[1].site = Some("b1".into());
    assert_eq!(called(&sites_of(&hosts, &rtt)), [("b1", vec![0, 1, 2]), ("b1-2", vec![3, 4])]);
}

#[test]
fn hosts_within_the_forecast_error_are_too_close_to_call() {
    let hosts = reports(&["a", "b", "c", "d"]);
    // By the forecasts, host c is far enough from hosts a and b. By the lower ends of the
    // intervals, host c is too near.
    let positions = [0.0, 0.5, 3.4, 50.0];
    let wide = |a: usize, b: usize| {
        let value = line(&positions)(a, b)?.value;
        Some(PathEstimate { value, lower: 0.6 * value, upper: 1.4 * value })
    };
    let sites = sites_of(&hosts, wide);
    assert_eq!((called(&sites)[0].1.clone(), sites[0].close.clone()), (vec![0, 1], vec![2]));
    assert!(sites_of(&hosts, line(&positions))[0].close.is_empty());
    let (within, next) = (sites[0].within_s.unwrap(), sites[0].next_s.unwrap());
    assert!((within.value - 6e-4).abs() < 1e-9 && (within.upper - 8.4e-4).abs() < 1e-9, "{within:?}");
    assert!((next.value - 3.25e-3).abs() < 1e-9 && next.lower < 2e-3, "{next:?}");
}

#[test]
fn a_representative_is_near_its_site_and_keeps_the_role() {
    let mut hosts = reports(&["a", "b", "c", "d"]);
    // Host a is behind a slower link.
    let rtt = |a: usize, b: usize| Some(about(if a == 0 || b == 0 { 1.5e-3 } else { 3e-4 }));
    let of = |hosts: &[SiteReport]| sites_of(hosts, rtt)[0].representative.unwrap();
    assert_eq!(of(&hosts), 1);
    for host in [0, 3] {
        hosts[host].site = Some("a".into());
    }
    assert_eq!(of(&hosts), 3, "a represents it too, and is far");
    hosts[3].represents = false;
    assert_eq!(of(&hosts), 0, "a host that represents the site stays");
}

/// One direction between b and c gave 20 timeouts and no value.
#[test]
fn unmeasured_pairs_are_reported_and_no_host_moves_because_of_them() {
    let hosts = reports(&["a", "b", "c", "d"]);
    let sites = |of_b_and_c: RttState| {
        sites_of(&hosts, move |a, b| match (a.min(b), a.max(b)) {
            (1, 2) => of_b_and_c,
            (_, 3) => RttState::Known(about(2e-2)),
            _ => RttState::Known(about(1e-4)),
        })
    };
    let reason = |site: &Site| site.proposal.reason(|host| &hosts[host].host).to_string();
    let known = &sites(RttState::Known(about(1e-4)))[0];
    assert_eq!(reason(known), "a, b, c are within 0.1 ms of each other; the next host, d, is 20.0 ms away");
    assert_eq!(known.representative, Some(0));
    for state in [RttState::Failed, RttState::Unmeasured] {
        let sites = sites(state);
        let expected =
            "a, b, c are within 0.1 ms of each other; not measured: b–c; the next host, d, is 20.0 ms away";
        assert_eq!((reason(&sites[0]).as_str(), sites[0].representative), (expected, None), "{state:?}");
        assert!((0..3).all(|own| position(own, &hosts, &sites).is_none()), "{state:?}");
    }
    // A member sees only its own pairs, and must find its site from them.
    let sites = sites(RttState::NotVisible);
    assert!(reason(&sites[0]).contains("not measured: b–c"));
    assert_eq!(sites[0].representative, Some(0));
}

#[test]
fn a_new_host_with_unmeasured_pairs_does_not_replace_the_representative() {
    let mut hosts = reports(&["a", "b", "c"]);
    for host in [0, 1] {
        hosts[host].site = Some("a".into());
        hosts[host].represents = host == 0;
    }
    // Host b does not represent the site, so b shares no group with c.
    let rtt = |state: RttState| {
        move |a: usize, b: usize| if a.min(b) == 1 { state } else { RttState::Known(about(1e-4)) }
    };
    let sites = sites_of(&hosts, rtt(RttState::Unmeasured));
    assert_eq!(sites[0].representative, Some(0));
    // A host that joins the site represents it first.
    assert_eq!(position(2, &hosts, &sites), Some(SitePosition { site: "a".into(), represents: true }));
    assert_eq!(sites_of(&hosts, rtt(RttState::Failed))[0].representative, None);
}

#[test]
fn no_host_changes_its_site_without_a_reason() {
    let mut hosts = reports(&["a", "b"]);
    let none = sites_of(&hosts, |_, _| None);
    assert_eq!(position(0, &hosts, &none), None);
    let apart = sites_of(&hosts, line(&[0.0, 30.0]));
    assert_eq!(position(0, &hosts, &apart), None, "it has no site, and no host is near");
    hosts[0].site = Some("s".into());
    hosts[0].represents = false;
    let alone = Some(SitePosition { site: "s".into(), represents: true });
    assert_eq!(position(0, &hosts, &sites_of(&hosts, line(&[0.0, 30.0]))), alone);
    assert_eq!(position(0, &hosts, &sites_of(&hosts, |_, _| None)), None, "all others are away");
}

/// A mesh under `auto` in simulated time. Groups decide which pairs a station sees, as in a real
/// mesh.
struct Mesh {
    hosts: Vec<SiteReport>,
    positions: Vec<f64>,
    is_up: Vec<bool>,
    debounces: Vec<Debounce>,
    /// Largest noise of the forecasts of each host, as a share that is added or subtracted.
    noise: f64,
    now: Duration,
    changes: usize,
    rng: SeededRng,
}

impl Mesh {
    fn new(positions: &[f64], seed: u64) -> Self {
        let host = |at: usize| SiteReport { host: format!("h{at:02}"), site: None, represents: true };
        Self {
            hosts: (0..positions.len()).map(host).collect(),
            positions: positions.to_vec(),
            is_up: vec![true; positions.len()],
            debounces: vec![Debounce::new(Duration::from_secs(600)); positions.len()],
            noise: 0.1,
            now: Duration::ZERO,
            changes: 0,
            rng: SeededRng::new(seed, "auto"),
        }
    }

    /// Whether two hosts measure each other: they share the site's group or `global`, or have no
    /// site.
    fn measures(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.hosts[a], &self.hosts[b]);
        (a.represents && b.represents) || a.site == b.site
    }

    fn pass(&mut self, looks: usize) {
        for _ in 0..looks {
            self.now += Duration::from_secs(30);
            let up: Vec<usize> = (0..self.hosts.len()).filter(|host| self.is_up[*host]).collect();
            for (own, host) in up.iter().enumerate() {
                // The first hosts by name begin up to five minutes later than the last.
                if self.now < Duration::from_secs(60 * (self.hosts.len() - host) as u64) {
                    continue;
                }
                // Each host sees its own noise.
                let off = |uniform: f64| 1.0 + self.noise * (2.0 * uniform - 1.0);
                let noise: Vec<f64> = up.iter().map(|_| off(self.rng.uniform())).collect();
                let seen: Vec<SiteReport> = up.iter().map(|host| self.hosts[*host].clone()).collect();
                let rtt = |a: usize, b: usize| {
                    let far = line(&self.positions)(up[a], up[b])?.value * noise[a] * noise[b];
                    self.measures(up[a], up[b]).then(|| about(far))
                };
                let asked = certain_position(own, &seen, &sites_of(&seen, rtt));
                let report = &seen[own];
                let current =
                    report.site.clone().map(|site| SitePosition { site, represents: report.represents });
                let asked = asked.filter(|asked| Some(asked) != current.as_ref());
                // Hosts do not decide at the same moment.
                let now = self.now + Duration::from_millis(up[own] as u64);
                if let Some(due) = self.debounces[up[own]].observe(asked, now) {
                    self.changes += 1;
                    let report = &mut self.hosts[up[own]];
                    (report.site, report.represents) = (Some(due.site), due.represents);
                }
            }
        }
    }

    fn shown(&self) -> Vec<String> {
        let shown = |host: &SiteReport| {
            format!("{}{}", host.site.as_deref().unwrap_or("-"), if host.represents { "*" } else { "" })
        };
        self.hosts.iter().map(shown).collect()
    }
}

#[test]
fn stations_form_sites_and_then_stay() {
    for seed in 0..20 {
        let mut mesh = Mesh::new(&[0.0, 0.2, 0.4, 20.0, 20.1, 60.0], seed);
        mesh.pass(20);
        assert_eq!(mesh.shown(), ["-*"; 6], "no host moves at once");
        mesh.pass(80);
        let settled = ["h00*", "h00", "h00", "h03*", "h03", "-*"];
        assert_eq!(mesh.shown(), settled, "seed {seed}");
        let changes = mesh.changes;
        mesh.pass(500);
        assert_eq!(
            (mesh.shown(), mesh.changes),
            (settled.map(String::from).to_vec(), changes),
            "seed {seed}"
        );
        // When the representative leaves, another host represents the site. When the first
        // representative returns, one of the two representatives stops representing the site.
        mesh.is_up[0] = false;
        mesh.pass(60);
        assert_eq!(mesh.shown()[1..], ["h00*", "h00", "h03*", "h03", "-*"], "seed {seed}");
        mesh.is_up[0] = true;
        mesh.pass(60);
        let represent =
            mesh.hosts.iter().filter(|host| host.site.as_deref() == Some("h00") && host.represents);
        assert_eq!(represent.count(), 1, "{:?}", mesh.shown());
        // A host that is not a representative moves to another site.
        mesh.positions[4] = 0.3;
        mesh.pass(200);
        assert_eq!(mesh.hosts[4].site.as_deref(), Some("h00"), "{:?}", mesh.shown());
    }
}

#[test]
fn a_site_too_close_to_call_moves_no_host() {
    // Two hosts 1.6 ms apart, and a third host `times` as far away from them. The three hosts are
    // too far apart for one site.
    let at = |times: f64| vec![0.0, 1.5, 0.65 + 1.6 * times];
    let mut mesh = Mesh { noise: 0.0, ..Mesh::new(&at(2.9), 1) };
    let pass = |mesh: &mut Mesh, times: f64| {
        mesh.positions = at(times);
        mesh.pass(60);
        (mesh.shown().join(" "), mesh.changes)
    };
    for times in [2.9, 3.1, 2.9, 3.1] {
        assert_eq!(pass(&mut mesh, times), ("-* -* -*".into(), 0), "{times}");
    }
    let (settled, changes) = pass(&mut mesh, 4.0);
    assert_eq!(settled, "h00* h00 -*");
    for times in [3.1, 2.9, 3.1, 2.9, 2.3] {
        assert_eq!(pass(&mut mesh, times), (settled.clone(), changes), "{times}");
    }
    assert_eq!(pass(&mut mesh, 1.2).0, "h00* h00 h00", "that was clear");
}

#[test]
fn no_site_gets_the_reserved_name_default() {
    let hosts = reports(&["default", "other"]);
    assert_eq!(called(&sites_of(&hosts, line(&[0.0, 0.1]))), [("default-2", vec![0, 1])]);
}

#[test]
fn a_different_proposal_restarts_the_debounce_time() {
    let mut debounce = Debounce::new(Duration::from_secs(60));
    let to = |site: &str| Some(SitePosition { site: site.into(), represents: true });
    let mut observe = |asked, at| debounce.observe(asked, Duration::from_secs(at));
    assert_eq!(observe(to("x"), 0), None);
    assert_eq!(observe(to("x"), 59), None);
    assert_eq!(observe(to("y"), 60), None);
    assert_eq!(observe(None, 90), None);
    assert_eq!(observe(to("y"), 100), None);
    assert_eq!(observe(to("y"), 160), to("y"));
    assert_eq!(observe(to("y"), 161), None, "once");
}
