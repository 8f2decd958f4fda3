use super::*;
use crate::rng::SeededRng;

const MEMBERS: [Member<'_>; 6] = [
    Member { host: "a1", groups: &["local:a"] },
    Member { host: "a2", groups: &["local:a", "global"] },
    Member { host: "a3", groups: &["local:a", "global", "tier1"] },
    Member { host: "b1", groups: &["local:b", "tier1"] },
    Member { host: "b2", groups: &["local:b", "global"] },
    Member { host: "c1", groups: &["local:c"] },
];

#[test]
fn routes_between_sites_pass_the_representatives() {
    for (from, to, expected) in [
        ("a1", "a2", Some(vec!["a1", "a2"])),
        ("a1", "b1", Some(vec!["a1", "a2", "b2", "b1"])),
        ("a2", "b1", Some(vec!["a2", "b2", "b1"])),
        ("a1", "b2", Some(vec!["a1", "a2", "b2"])),
        ("a3", "b1", Some(vec!["a3", "b1"])),
        ("a1", "c1", None),
        ("a1", "unknown", None),
    ] {
        assert_eq!(route(&MEMBERS, from, to), expected, "{from} {to}");
    }
}

/// Random sites on a line. Returns the site of each host, and the round-trip times between hosts,
/// with independent noise in each direction.
fn sites(seed: u64, noise: f64) -> (Vec<usize>, Vec<Vec<f64>>) {
    let mut rng = SeededRng::new(seed, "sites");
    let sizes: Vec<usize> = (0..2 + rng.index_below(5)).map(|_| 1 + rng.index_below(7)).collect();
    let of: Vec<usize> = sizes.iter().enumerate().flat_map(|(site, n)| vec![site; *n]).collect();
    // On a line, 4 to 40 ms apart.
    let mut positions = vec![0.0];
    for site in 1..sizes.len() {
        positions.push(positions[site - 1] + 4e-3 * 10_f64.powf(rng.uniform()));
    }
    let access: Vec<f64> = of.iter().map(|_| 5e-5 + 2e-4 * rng.uniform()).collect();
    let rtt = (0..of.len())
        .map(|a| {
            (0..of.len())
                .map(|b| {
                    let mean = f64::abs(positions[of[a]] - positions[of[b]]) + access[a] + access[b];
                    mean * (1.0 + noise * (2.0 * rng.uniform() - 1.0))
                })
                .collect()
        })
        .collect();
    (of, rtt)
}

#[test]
fn sites_are_found_and_unchanged_under_noise() {
    let (mut together, mut found, mut right, mut same) = (0_usize, 0_usize, 0_usize, 0_usize);
    // The constants were chosen on seeds below 200.
    for seed in 1000..1200 {
        let (of, rtt) = sites(seed, 0.2);
        let sites_of = |rtt: &[Vec<f64>]| {
            let mut site = vec![0; of.len()];
            for (i, proposal) in propose_sites(of.len(), |a, b| Some(rtt[a][b])).iter().enumerate() {
                proposal.hosts.iter().for_each(|host| site[*host] = i);
            }
            site
        };
        let proposed = sites_of(&rtt);
        for a in 0..of.len() {
            for b in 0..a {
                together += usize::from(of[a] == of[b]);
                found += usize::from(proposed[a] == proposed[b]);
                right += usize::from(of[a] == of[b] && proposed[a] == proposed[b]);
            }
        }
        // Propose sites again from forecasts that differ by up to 5 %.
        let mut rng = SeededRng::new(seed, "later");
        let mut later = rtt.clone();
        later.iter_mut().flatten().for_each(|s| *s *= 0.95 + 0.1 * rng.uniform());
        same += usize::from(sites_of(&later) == proposed);
    }
    let (recall, precision) = (right as f64 / together as f64, right as f64 / found as f64);
    println!("sites: recall {recall:.3}, precision {precision:.3}, {same} of 200 meshes unchanged by noise");
    assert!(recall >= 0.95 && precision >= 0.95, "recall {recall}, precision {precision}");
    assert!(same >= 190, "{same}");
}

#[test]
fn every_proposal_reports_its_reason() {
    let names = ["a", "b", "c", "d"];
    let place_ms = [0.0_f64, 0.2, 0.4, 11.2];
    let rtt_s = |a: usize, b: usize| Some((place_ms[a] - place_ms[b]).abs() / 1e3);
    let proposals = propose_sites(4, rtt_s);
    let reasons: Vec<String> =
        proposals.iter().map(|one| one.reason(|host| names[host]).to_string()).collect();
    assert_eq!(
        reasons,
        [
            "a, b, c are within 0.4 ms of each other; the next host, d, is 11.0 ms away",
            "d has no near host; the next host, c, is 10.8 ms away"
        ]
    );
}

#[test]
fn unknown_or_absurd_round_trips_join_no_hosts() {
    assert_eq!(propose_sites(0, |_, _| None), []);
    for absurd in [None, Some(f64::NAN), Some(-1.0), Some(f64::INFINITY)] {
        let proposals = propose_sites(3, |_, _| absurd);
        assert_eq!(proposals.len(), 3);
        assert!(proposals.iter().all(|one| one.within_s.is_none() && one.next.is_none()));
    }
    // A forecast in one direction is enough. A host without forecasts is a site of its own.
    let proposals = propose_sites(3, |a, b| ((a, b) == (0, 1)).then_some(1e-4));
    assert_eq!(proposals.iter().map(|one| one.hosts.clone()).collect::<Vec<_>>(), [vec![0, 1], vec![2]]);
}

#[test]
fn hosts_at_equal_distances_in_a_row_form_no_site() {
    let proposals = propose_sites(6, |a, b| Some(a.abs_diff(b) as f64 * 4e-3));
    assert_eq!(proposals.len(), 6, "{proposals:?}");
}

#[test]
fn the_number_of_compared_hosts_is_bounded() {
    let proposals = propose_sites(SITES_HOSTS_MAX + 9, |a, b| Some(if a / 8 == b / 8 { 1e-4 } else { 2e-2 }));
    assert_eq!(proposals.len(), SITES_HOSTS_MAX / 8);
}
