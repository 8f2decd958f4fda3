use super::*;

#[test]
fn a_station_is_named_by_host_address_or_url() {
    for (text, url) in [
        ("head", "http://head:10132/"),
        ("head.example", "http://head.example:10132/"),
        ("head:1", "http://head:1/"),
        ("192.0.2.1", "http://192.0.2.1:10132/"),
        ("192.0.2.1:7", "http://192.0.2.1:7/"),
        ("2001:db8::1", "http://[2001:db8::1]:10132/"),
        ("[2001:db8::1]", "http://[2001:db8::1]:10132/"),
        ("[2001:db8::1]:7", "http://[2001:db8::1]:7/"),
        ("http://head", "http://head:10132/"),
        ("http://head:80/", "http://head:80/"),
        ("https://head", "https://head:10132/"),
        ("https://[2001:db8::1]:443", "https://[2001:db8::1]:443/"),
        ("https://[2001:db8::1]", "https://[2001:db8::1]:10132/"),
    ] {
        assert_eq!(station_url(text.into()).as_deref(), Ok(url), "{text}");
    }
    for bad in ["", "a b", "http://", "ftp://a", "http://a/b", "head:0", "head:x", "a/b", "http://a?x"] {
        assert!(station_url(bad.into()).is_err(), "{bad}");
    }
}

#[test]
fn groups_and_addresses_are_checked() {
    let list = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(groups(list(&["global", "lab"])).is_ok());
    for bad in ["local:x", "a b", ""] {
        assert!(groups(list(&[bad])).is_err(), "{bad}");
    }
    let name = |text| Name::new(text).unwrap();
    assert_eq!(local_group(&name("x")), Ok(name("local:x")));
    let told = "`local:x` is the group of a site; set mesh.site = \"x\" instead";
    assert_eq!(local_group(&name("local:x")), Err(told.into()));
    let good = addresses(list(&["192.0.2.7", "[2001:db8::7]:1"])).unwrap();
    assert_eq!(good[0].port(), crate::config::PORT);
    for bad in ["0.0.0.0:1", "224.0.0.1:1", "192.0.2.1:0", "head:1", "[ff02::1]:1"] {
        assert!(addresses(list(&[bad])).is_err(), "{bad}");
    }
}

#[test]
fn conflicting_settings_return_an_error_that_names_a_key() {
    let good = MeshConfig { join: Some("http://a:1/".into()), ..MeshConfig::default() };
    assert_eq!(good.check(), Ok(()));
    for (bad, key) in [
        (MeshConfig { nats: vec!["a".into()], ..good.clone() }, "mesh.join"),
        (MeshConfig { archive: true, ..good.clone() }, "mesh.archive"),
        (MeshConfig { nats_key: Some("k".into()), ..good.clone() }, "mesh.nats_key"),
    ] {
        assert_eq!(bad.check().unwrap_err().0, key);
    }
}

#[test]
fn the_latency_test_rate_does_not_depend_on_the_mesh_size() {
    let config = MeshConfig::default();
    for peers in [1, 10, 100, 10_000] {
        let per_s = peers as f64 * 2.0 / config.latency_period(peers, 2).as_secs_f64();
        assert!((per_s - config.latency_per_s).abs() < 1e-6, "{peers}: {per_s}");
    }
    assert_eq!(config.latency_period(0, 2), Duration::ZERO);
}

#[test]
fn the_site_is_a_group_and_duplicate_groups_are_removed() {
    let name = |text| Name::new(text).unwrap();
    let config = MeshConfig { groups: vec![name("lab"), name("lab")], ..MeshConfig::default() };
    assert_eq!(config.all_groups(), [name("local:default"), name("lab")]);
}
