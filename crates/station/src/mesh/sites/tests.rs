use std::collections::BTreeMap;

use super::assignment::FILE;
use super::*;
use crate::forecast::best::MeshMember;
use barograph_mesh::PathEstimate;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn members(hosts: &[(&str, &[&str])]) -> MeshMembers {
    let member =
        |groups: &[&str]| MeshMember { groups: groups.iter().map(|one| name(one)).collect(), is_lost: false };
    MeshMembers::new(
        hosts.iter().map(|(host, groups)| (name(host), member(groups))).collect::<BTreeMap<_, _>>(),
    )
}

/// Sites as the station `own` computes them. A round trip of 0 ms means that the measurement
/// failed.
fn view(own: &str, known: &[(&str, &str, f64)]) -> SiteProposals {
    let hosts: [(&str, &[&str]); 4] = ["a", "b", "c", "z"]
        .map(|host| (host, if host == "z" { &["local:y"][..] } else { &["local:default"] }));
    let assignment = SiteAssignment::configured(&MeshConfig::default());
    SiteProposals::new(&name(own), &members(&hosts), &assignment, |from, to| {
        match known.iter().find(|(a, b, _)| *a == from.as_str() && *b == to.as_str()) {
            None => RttState::Unmeasured,
            Some((.., 0.0)) => RttState::Failed,
            Some((.., ms)) => RttState::Known(PathEstimate {
                value: ms / 1e3,
                lower: 0.9 * ms / 1e3,
                upper: 1.1 * ms / 1e3,
            }),
        }
    })
}

#[test]
fn a_direction_that_times_out_leaves_its_pair_unknown() {
    let near = |a, b| [(a, b, 0.1), (b, a, 0.1)];
    // All measurements from b to c time out. Station c, which has measured b, computes the sites.
    let known = [&near("a", "b")[..], &near("a", "c"), &[("c", "b", 0.1), ("b", "c", 0.0)]].concat();
    let seen = view("c", &known);
    let site = &seen.sites[0];
    assert_eq!((sites(&seen)[0].as_slice(), site.representative), (&["a", "b", "c"][..], None));
    let reason = site.proposal.reason(|host| &seen.hosts[host].host).to_string();
    assert!(reason.contains("not measured: b–c"), "{reason}");
    assert_eq!((seen.proposed(), seen.automatic()), (None, None));
    let all = [near("a", "b"), near("a", "c"), near("b", "c")].concat();
    assert_eq!(view("c", &all).sites[0].representative, Some(0));
    // Station a receives the measurements of b and c, but b and c have not measured each other.
    let some = [near("a", "b"), near("a", "c")].concat();
    assert_eq!(view("a", &some).sites[0].representative, None);
    // A member receives only its own measurements.
    let own = [("a", "b", 0.1), ("a", "c", 0.1)];
    assert_eq!(view("a", &own).sites[0].representative, Some(0));
}

fn sites(view: &SiteProposals) -> Vec<Vec<&str>> {
    let names =
        |site: &Site| site.proposal.hosts.iter().map(|host| view.hosts[*host].host.as_str()).collect();
    view.sites.iter().map(names).collect()
}

#[test]
fn a_station_cannot_enter_a_site_by_its_own_values_alone() {
    let honest = [
        ("a", "b", 0.3),
        ("b", "a", 0.3),
        ("a", "z", 40.0),
        ("c", "z", 40.0),
        ("b", "c", 40.0),
        ("c", "b", 40.0),
    ];
    let lies = [("z", "a", 0.1), ("z", "b", 0.1), ("z", "c", 0.1)];
    let seen = view("c", &[&honest[..], &lies].concat());
    assert_eq!(sites(&seen), [vec!["a", "b"], vec!["c"], vec!["z"]]);
    // With false values, station z cannot separate other stations either: only z leaves the site.
    let lies = [("z", "a", 1e9), ("z", "b", f64::INFINITY), ("z", "c", 1e9)];
    let seen = view("c", &[&honest[..], &lies].concat());
    assert_eq!(sites(&seen)[0], ["a", "b"]);
    assert_eq!(seen.hosts[3].site.as_deref(), Some("y"));
}

#[test]
fn a_one_sided_measurement_counts_only_at_its_source() {
    let known = [("a", "b", 0.3), ("a", "c", 30.0), ("a", "z", 0.35)];
    let here = view("a", &known);
    assert_eq!(sites(&here), [vec!["a", "b", "z"], vec!["c"]]);
    let proposed = here.proposed().unwrap();
    assert_eq!((proposed.site.as_str(), proposed.represents), ("y", true), "what one of them says already");
    let there = view("b", &known);
    assert_eq!((there.unknown.len(), there.proposed()), (4, None));
}

#[test]
fn a_station_is_unset_only_in_the_default_site_and_outside_global() {
    let seen = |groups: &'static [&str]| {
        let assignment = SiteAssignment::configured(&MeshConfig::default());
        let members = members(&[("a", &["local:default"]), ("b", groups)]);
        SiteProposals::new(&name("a"), &members, &assignment, |_, _| RttState::Unmeasured).has_unset
    };
    assert!(seen(&["local:default"]));
    assert!(seen(&["lab", "local:default"]));
    assert!(!seen(&["local:default", "global"]));
    assert!(!seen(&["local:default", "local:b"]) && !seen(&["local:b", "local:default"]));
}

#[test]
fn a_configured_site_overrides_an_accepted_site() {
    let state = tempfile::tempdir().unwrap();
    let unset = MeshConfig::default();
    let groups = |config: &MeshConfig| -> Vec<String> {
        SiteAssignment::at_start(config, state.path()).groups.iter().map(ToString::to_string).collect()
    };
    assert_eq!(groups(&unset), ["local:default"]);
    let auto = MeshConfig { sites_auto: true, ..unset.clone() };
    assert_eq!(groups(&auto), ["local:default", "global"], "it represents itself until it has a position");
    std::fs::write(state.path().join(FILE), r#"{"site":"x","represents":true,"auto":true}"#).unwrap();
    // Other stations may have no site yet.
    assert_eq!(groups(&auto), ["local:x", "global", "local:default"]);
    assert_eq!(groups(&unset), ["local:default"], "it may not any more");
    std::fs::write(state.path().join(FILE), r#"{"site":"x","represents":false,"auto":false}"#).unwrap();
    for config in [&auto, &unset] {
        assert_eq!(groups(config), ["local:x", "local:default"]);
    }
    let told = MeshConfig { site: name("lab"), groups: vec![name("global")], ..auto };
    assert_eq!(groups(&told), ["local:lab", "global"]);
    let long = format!(r#"{{"site":"{}","represents":true,"auto":false}}"#, "x".repeat(Name::BYTES_MAX));
    for damaged in ["", "{", r#"{"site":"a b","represents":true,"auto":false}"#, &long] {
        std::fs::write(state.path().join(FILE), damaged).unwrap();
        assert_eq!(groups(&unset), ["local:default"], "{damaged}");
    }
}
