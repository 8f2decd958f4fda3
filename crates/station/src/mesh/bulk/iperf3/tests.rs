//! Tests of both ends, with scripts instead of iperf3 and, where it is installed, with iperf3.
#![allow(clippy::unwrap_used)]
use super::*;

const TEST: Test = Test { seconds: 2, bytes_max: 100_000_000, forecast_bit_s: 100e6 };

#[test]
fn a_test_has_whole_seconds_and_room_for_twice_the_forecast() {
    let five = Duration::from_secs(5);
    let of = |length, bytes, rate| Test::new(length, bytes, rate).map(|test| test.seconds);
    assert_eq!(of(five, 125_000_000, 100e6), Some(5));
    assert_eq!(of(five, 625_000_000, 1e9), Some(2));
    assert_eq!(of(five, 625_000_000, 2.5e9), Some(1));
    // On a path this fast, iperf3 would exceed the byte limit of the default budget within a
    // second, so iperf3 cannot run. Barograph's own streams can run, because these streams end at a
    // number of bytes.
    assert_eq!(of(five, 625_000_000, 10e9), None);
    assert_eq!(of(five, 1_000_000, 1e12), None);
    assert_eq!(of(Duration::from_millis(2900), 125_000_000, 100e6), Some(2));
    assert_eq!(of(Duration::from_millis(900), 125_000_000, 100e6), None);
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(of(five, 125_000_000, rate), None, "{rate}");
    }
    assert_eq!(TEST.bit_s_max(), 400_000_000);
    assert_eq!(TEST.milliseconds(), 2000);
}

#[test]
fn a_peer_s_limit_shortens_a_test_and_never_slows_it_below_the_forecast() {
    assert_eq!(TEST.lowered(50_000_000), Some(Test { bytes_max: 50_000_000, ..TEST }));
    let halved = TEST.lowered(30_000_000).unwrap();
    assert_eq!(halved, Test { bytes_max: 30_000_000, seconds: 1, ..TEST });
    assert!(halved.bit_s_max() >= 200_000_000);
    assert_eq!(TEST.lowered(20_000_000), None, "it would be over in less than a second");
    assert_eq!(TEST.lowered(1500), Some(Test { seconds: 1, ..TEST }));
    assert_eq!(TEST.lowered(900), None);
}

/// A server that runs `script` instead of iperf3.
fn server(script: &str) -> (tempfile::TempDir, Server) {
    let (directory, program) = fake(script);
    let server = Server::new(Duration::from_secs(2), 1000, 0);
    (directory, Server { program: program.into(), ..server })
}

/// Waits for the result of a server, for some seconds at most.
fn end_of(server: &mut Server) -> Result<u64, InvalidTest> {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(ended) = server.poll_result() {
            return ended;
        }
        assert!(Instant::now() < limit, "it does not end");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn a_server_ends_when_its_handle_is_dropped() {
    let (directory, mut server) = server(r#"echo $$ > "${0%/*}/pid"; exec sleep 600"#);
    assert_ne!(server.start(IpAddr::from([127, 0, 0, 1])).unwrap(), 0);
    let path = directory.path().join("pid");
    let limit = Instant::now() + Duration::from_secs(20);
    let pid = loop {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Ok(pid) = text.trim().parse::<i32>() {
            break pid;
        }
        assert!(Instant::now() < limit, "it was not started");
        std::thread::park_timeout(Duration::from_millis(5));
    };
    let alive = || nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).is_ok();
    assert!(alive() && server.poll_result().is_none());
    assert!(
        (1000..=20_000).contains(&server.bytes_max()),
        "at twice the rate, for so long: {}",
        server.bytes_max()
    );
    drop(server);
    assert!(!alive());
}

#[test]
fn a_server_that_exits_at_once_returns_its_error_and_no_charge() {
    let (_directory, mut server) = server(
        r#"echo '{"start": {"connected": []}, "end": {}, "error": "Address already in use"}'; exit 1"#,
    );
    server.start(IpAddr::from([127, 0, 0, 1])).unwrap();
    assert_eq!(end_of(&mut server), Err(InvalidTest { bytes: 0, why: "Address already in use".into() }));
    let (directory, mut server) = self::server("");
    std::fs::remove_file(directory.path().join(NAME)).unwrap();
    assert_eq!(server.start(IpAddr::from([127, 0, 0, 1])).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!((server.bytes_max(), server.poll_result()), (0, None));
}

#[test]
fn a_client_that_runs_a_different_test_is_charged_for_its_bytes() {
    let (_directory, mut server) = server(
        r#"echo '{"start": {"connected": [{}], "test_start": {"protocol": "TCP", "num_streams": 1, "reverse": 1}},
        "end": {"sum_sent": {"bytes": 1700}, "sum_received": {"bytes": 0}}}'"#,
    );
    server.start(IpAddr::from([127, 0, 0, 1])).unwrap();
    let InvalidTest { bytes, why } = end_of(&mut server).unwrap_err();
    assert!(bytes >= 2000 && why.contains("not one TCP stream"), "{bytes} {why}");
}

#[test]
fn a_server_listens_on_the_local_address_of_the_session() {
    let server = Server::new(Duration::from_secs(2), 1000, 5201);
    for (address, word) in [("::1", "::1"), ("192.0.2.1", "192.0.2.1")] {
        let words = server.arguments(address.parse().unwrap(), 5201);
        let at = words.iter().position(|argument| argument == "-B").unwrap();
        assert_eq!((words[at + 1].as_str(), &words[3..5]), (word, &["-p".into(), "5201".into()][..]));
    }
    let (_directory, mut server) = self::server(r#"echo "$@" > "${0%/*}/words"; exec sleep 600"#);
    let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
    server.start(mapped).unwrap();
    let path = _directory.path().join("words");
    let limit = Instant::now() + Duration::from_secs(20);
    while !std::fs::read_to_string(&path).unwrap_or_default().contains("-B 127.0.0.1 ") {
        assert!(Instant::now() < limit, "{:?}", std::fs::read_to_string(&path));
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Starts an iperf3 server at `address`; returns the server and its socket address. `None` = iperf3
/// is not installed.
fn real(address: &str, seconds: u64) -> Option<(Server, SocketAddr)> {
    if let Err(why) = usable() {
        barograph_sim::report_missing(&why.to_string());
        return None;
    }
    let mut server = Server::new(Duration::from_secs(seconds), 12_500_000, 0);
    let address: IpAddr = address.parse().unwrap();
    let port = server.start(address).unwrap();
    Some((server, SocketAddr::new(address, port)))
}

#[test]
fn iperf3_keeps_the_rate_limit_and_both_ends_count_similar_bytes() {
    for address in ["127.0.0.1", "::1"] {
        let Some((mut server, at)) = real(address, 1) else { return };
        let test = Test { seconds: 1, bytes_max: 12_500_000, forecast_bit_s: 50e6 };
        let sent = AtomicU64::new(0);
        let streamed = test.send(at, Duration::from_secs(20), &CancellationToken::default(), &sent).unwrap();
        // Loopback is usually faster than the bit rate limit, so check that the limit was applied.
        // A busy machine may be slower.
        assert!(streamed.whole_bit_s <= 115e6, "{streamed:?}");
        assert!((11_000_000..14_000_000).contains(&streamed.bytes), "{streamed:?}");
        let received = end_of(&mut server).unwrap();
        assert!(11_000_000 <= received && received <= streamed.bytes, "{received} of {}", streamed.bytes);
    }
}

#[test]
fn a_stranger_that_takes_the_port_is_charged() {
    for way in [&["-R"][..], &["-u"], &["-P", "2"], &["--bidir"]] {
        let Some((mut server, at)) = real("127.0.0.1", 1) else { return };
        let words = ["-c", "127.0.0.1", "-t", "1", "-b", "20M", "-p"];
        let mut words: Vec<String> = words.iter().chain(way).map(ToString::to_string).collect();
        words.insert(7, at.port().to_string());
        let limit = Instant::now() + Duration::from_secs(20);
        loop {
            let mut stranger = Running::start(NAME.as_ref(), &words).unwrap();
            let said = stranger.ended(Duration::from_secs(20)).unwrap();
            if String::from_utf8_lossy(&said).contains("Mbits/sec") {
                break;
            }
            assert!(Instant::now() < limit, "{way:?}: no server listens");
            std::thread::park_timeout(RETRY_PAUSE);
        }
        let no_test = end_of(&mut server).unwrap_err();
        assert!(no_test.bytes >= 25_000_000, "{way:?}: {no_test:?}");
    }
}
