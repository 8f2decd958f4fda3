//! HTTPS on the same port, with a certificate that openssl makes for the test.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use barograph_probe::io::{ProbeContext, TargetKind, detect, run_one, trusting};
use barograph_probe::wire::Request;
use barograph_probe::{Experiment, Target};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::http::{raw, send};
use crate::{quiet, start};

/// Makes `cert.pem` and `key.pem` for 127.0.0.1; returns false without openssl.
fn make_certificate(directory: &Path) -> bool {
    let made = Command::new("openssl")
        .current_dir(directory)
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=barograph test", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .output();
    made.is_ok_and(|output| output.status.success())
}

#[test]
fn https_and_plain_probes_share_the_port() {
    let state = tempfile::tempdir().unwrap();
    if !make_certificate(state.path()) {
        barograph_sim::report_missing("there is no openssl to make a certificate with");
        return;
    }
    let certificate = state.path().join("cert.pem");
    let mut config = quiet(state.path());
    config.tls_certificate = Some(certificate.clone());
    config.tls_key = Some(state.path().join("key.pem"));
    let station = start(config);
    let address = station.address();
    assert!(station.url().starts_with("https://"));

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificate).unwrap()).unwrap();
    let context = ProbeContext { tls: Some(Arc::new(trusting(roots).unwrap())), ..ProbeContext::default() };
    let target = Target::parse(&format!("https://{address}/healthz")).unwrap();
    assert_eq!(detect(&target, &context).unwrap(), TargetKind::Station);
    for experiment in [
        Experiment::ResponseTime,
        Experiment::RttTls { n: 3 },
        // The upgrade over TLS returns a token, and the exchanges use a plain connection.
        Experiment::Rtt { n: 3 },
        Experiment::Loss { n: 3 },
    ] {
        for reading in run_one(&target, experiment, &context) {
            assert!(reading.result.is_ok(), "{experiment:?}: {reading:?}");
        }
    }

    // A page's session runs inside TLS. In the experiment with Nagle's algorithm, each byte is sent
    // in a separate TLS record.
    let tls = context.tls.clone().unwrap();
    let connection = rustls::ClientConnection::new(tls, address.ip().into()).unwrap();
    let stream = rustls::StreamOwned::new(connection, crate::http::connect(address));
    let origin = format!("https://{address}");
    let mut page = crate::echo::client::Page::through(stream, address, Some(&origin)).unwrap();
    page.rtt(3).unwrap();
    assert_eq!(page.up(1 << 20).unwrap().bytes, 1 << 20);
    assert_eq!(page.down(1 << 20).unwrap().0, 1 << 20);
    page.request(Request::RttNagle { n: 1 }).unwrap();
    page.send(&[1, 2]);
    assert_eq!((page.take(), page.take()), (vec![1], vec![2]));
    assert_eq!(crate::echo::client::Page::try_open(address, None).err(), Some(403), "not beside TLS");

    // A plain connection without a single-use token is refused, also on loopback.
    let plain = send(address, "GET", "/v1/series", &[], "");
    assert_eq!(plain.status, 403);
    assert!(plain.error().contains("HTTPS"));
    let upgrade = [("Connection", "Upgrade"), ("Upgrade", "barograph-probe/1")];
    assert_eq!(send(address, "GET", "/v1/probe", &upgrade, "").status, 401);
    let spent = ("Authorization", "Probe 00000000000000000000000000000000");
    assert_eq!(send(address, "GET", "/v1/probe", &[upgrade[0], upgrade[1], spent], "").status, 401);
    assert_eq!(raw(address, b"garbage\r\n\r\n").status, 400);
}

#[test]
fn unusable_certificates_are_named() {
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    let file = state.path().join("empty.pem");
    std::fs::write(&file, "no certificate\n").unwrap();
    config.tls_certificate = Some(file.clone());
    let refusal = |config: &barograph_station::Config| {
        let archive = barograph_station::open_archive(config).unwrap();
        barograph_station::Station::start(config.clone(), Arc::new(archive)).err().unwrap().to_string()
    };
    let error = refusal(&config);
    assert!(error.contains("tls.key"), "{error}");
    config.tls_key = Some(file.clone());
    let error = refusal(&config);
    assert!(error.starts_with(file.to_str().unwrap()), "{error}");
}
