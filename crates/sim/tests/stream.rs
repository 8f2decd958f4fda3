//! Connections in virtual time: delays, losses, resets, late copies.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_sim::stream::{Answer, AttemptFate, AttemptInfo, PathConfig, path};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);
const CONFIG: PathConfig = PathConfig { handshake_exchanges: 0, delivers_late: true };

async fn heard(stream: &mut (impl AsyncReadExt + Unpin), within: Duration) -> Option<std::io::Result<u8>> {
    timeout(within, stream.read_u8()).await.ok()
}

#[tokio::test(start_paused = true)]
async fn an_exchange_takes_the_times_of_its_law() {
    let fate = AttemptFate { arrives: Some(3 * SECOND), answer: Answer::After(2 * SECOND) };
    let (connector, acceptor) = path(CONFIG, move |_| fate, |_| Ok(SECOND));
    let began = Instant::now();
    let (client, server) = tokio::join!(connector.connect(), acceptor.accept());
    let (mut client, mut server) = (client.unwrap(), server.unwrap());
    assert_eq!(began.elapsed(), SECOND);
    client.write_all(b"ab").await.unwrap();
    client.flush().await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'a');
    assert_eq!(server.read_u8().await.unwrap(), b'b');
    assert_eq!(began.elapsed(), 4 * SECOND);
    server.write_all(b"c").await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'c');
    assert_eq!(began.elapsed(), 6 * SECOND);
    drop(server);
    assert_eq!(client.read_u8().await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(client.write_all(b"d").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[tokio::test(start_paused = true)]
async fn handshakes_take_no_time_and_lost_messages_never_arrive() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let law = move |info: &AttemptInfo| {
        seen.lock().unwrap().push(*info);
        AttemptFate::lost()
    };
    let (connector, acceptor) =
        path(PathConfig { handshake_exchanges: 1, ..CONFIG }, law, |_| Ok(Duration::ZERO));
    let began = Instant::now();
    let mut client = connector.connect().await.unwrap();
    let mut server = acceptor.accept().await.unwrap();
    client.write_all(b"g").await.unwrap();
    client.flush().await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'g');
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(asked.lock().unwrap().is_empty());
    client.write_all(b"mes").await.unwrap();
    client.flush().await.unwrap();
    assert!(heard(&mut server, 1000 * SECOND).await.is_none());
    let info = AttemptInfo { bytes: 3, started: Duration::ZERO, connection: 0, in_flight: 0 };
    assert_eq!(*asked.lock().unwrap(), [info]);
}

#[tokio::test(start_paused = true)]
async fn a_reset_is_an_error_at_both_ends() {
    let (connector, acceptor) = path(CONFIG, |_| AttemptFate::reset(SECOND), |_| Ok(Duration::ZERO));
    let mut client = connector.connect().await.unwrap();
    let mut server = acceptor.accept().await.unwrap();
    client.write_all(b"x").await.unwrap();
    client.flush().await.unwrap();
    let began = Instant::now();
    for end in [heard(&mut client, 9 * SECOND).await, heard(&mut server, 9 * SECOND).await] {
        assert_eq!(end.unwrap().unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(began.elapsed(), SECOND);
}

/// A cancelled copy arrives late or never, as configured, and counts as in flight meanwhile.
#[tokio::test(start_paused = true)]
async fn a_cancelled_copy_arrives_late_or_never_as_configured() {
    for delivers_late in [true, false] {
        let in_flight = Arc::new(Mutex::new(Vec::new()));
        let seen = in_flight.clone();
        let law = move |info: &AttemptInfo| {
            seen.lock().unwrap().push(info.in_flight);
            AttemptFate::after(5 * SECOND)
        };
        let (connector, acceptor) = path(PathConfig { delivers_late, ..CONFIG }, law, |_| Ok(Duration::ZERO));
        let mut servers = Vec::new();
        for wait in [SECOND, 9 * SECOND, SECOND] {
            let mut client = connector.connect().await.unwrap();
            servers.push(acceptor.accept().await.unwrap());
            client.write_all(b"x").await.unwrap();
            client.flush().await.unwrap();
            assert!(heard(&mut client, wait).await.is_none());
        }
        assert_eq!(*in_flight.lock().unwrap(), [0, 1, 0]);
        let late = heard(&mut servers[0], SECOND).await.unwrap();
        assert_eq!(late.ok(), delivers_late.then_some(b'x'));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_fails_after_its_delay() {
    let (connector, _acceptor) = path(CONFIG, |_| AttemptFate::lost(), |_| Err(2 * SECOND));
    let began = Instant::now();
    assert_eq!(connector.connect().await.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(began.elapsed(), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_the_range_of_the_clock_never_ends() {
    let max = Duration::MAX;
    let fates = [
        AttemptFate::after(max),
        AttemptFate::reset(max),
        AttemptFate { arrives: Some(SECOND), answer: Answer::After(max) },
        AttemptFate { arrives: Some(SECOND), answer: Answer::Reset(max) },
    ];
    for fate in fates {
        let (connector, acceptor) = path(CONFIG, move |_| fate, |_| Ok(SECOND));
        let (client, server) = tokio::join!(connector.connect(), acceptor.accept());
        let (mut client, mut server) = (client.unwrap(), server.unwrap());
        client.write_all(b"a").await.unwrap();
        client.flush().await.unwrap();
        let arrived = heard(&mut server, 1000 * SECOND).await;
        assert_eq!(arrived.is_some(), fate.arrives == Some(SECOND), "{fate:?}");
        if arrived.is_some() {
            server.write_all(b"b").await.unwrap();
        }
        assert!(heard(&mut client, 1000 * SECOND).await.is_none(), "{fate:?}");
    }
}
