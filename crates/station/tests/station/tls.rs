//! HTTPS on the same port.

use crate::quiet;

#[test]
fn half_a_pair_of_files_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.tls_certificate = Some("/nowhere.pem".into());
    let archive = barograph_station::open_archive(&config).unwrap();
    let error = barograph_station::Station::start(config, std::sync::Arc::new(archive)).err().unwrap();
    assert!(error.to_string().contains("tls.key"), "{error}");
}
