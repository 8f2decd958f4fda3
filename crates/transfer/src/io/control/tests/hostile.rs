//! Tests with peers that break the protocol.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::*;
use crate::io::identity::{ALPN, IdentityError, client};

/// Serves `listener` while `act` runs; no sender may be accepted.
fn while_no_sender_is_accepted<T: Send>(listener: &Listener, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        while !acting.is_finished() {
            assert!(listener.accept(Duration::from_millis(20)).unwrap().is_none());
        }
        acting.join().unwrap()
    })
}

/// Serves `listener` until it has counted `strange` connections as
/// [`RejectedConnections::protocol`].
fn await_protocol_rejections(listener: &Listener, strange: u64) {
    let until = Instant::now() + SOON;
    while listener.rejected().protocol < strange && Instant::now() < until {
        assert!(listener.accept(Duration::from_millis(20)).unwrap().is_none());
    }
    assert_eq!(
        listener.rejected(),
        RejectedConnections { protocol: strange, ..RejectedConnections::default() }
    );
}

/// Sends `bytes` to the listener, and returns all bytes that the listener sends until it closes the
/// connection.
fn answer(listener: &Listener, bytes: &[u8]) -> Vec<u8> {
    let at = listener.local_addr();
    while_no_sender_is_accepted(listener, || {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = vec![];
        // A reset also ends the connection.
        let _ = stream.read_to_end(&mut answer);
        answer
    })
}

/// A TLS client that accepts this receiver's certificate. `change` changes the client's
/// configuration.
fn tls_client(
    listener: &Listener,
    change: impl FnOnce(&mut ClientConfig),
) -> StreamOwned<ClientConnection, TcpStream> {
    let trust = Trust::Pinned(vec![listener.receiver_address("x").fingerprint]);
    let mut config = client(&trust, None).unwrap();
    change(&mut config);
    let name = ServerName::try_from("host.invalid").unwrap();
    let stream = TcpStream::connect(listener.local_addr()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

#[test]
fn a_sender_with_a_wrong_token_is_refused() {
    let listener = listener();
    let mut line = listener.receiver_address("127.0.0.1");
    line.token = AuthToken::random().unwrap();
    let asked = Instant::now();
    let (sender, guest) = connect(&listener, &Connector::to_address(&line, "sender"));
    assert!(
        matches!(sender, Err(ControlError::Refused { reason: RefuseReason::NotAllowed, .. })),
        "{sender:?}"
    );
    assert!(guest.is_none() && Duration::from_secs(1) <= asked.elapsed());
    let without = Connector { token: None, ..Connector::to_address(&line, "sender") };
    let (sender, guest) = connect(&listener, &without);
    assert!(
        matches!(sender, Err(ControlError::Refused { reason: RefuseReason::NotAllowed, .. })),
        "{sender:?}"
    );
    assert!(guest.is_none());
    assert_eq!(
        listener.rejected(),
        RejectedConnections { unauthorised: 2, ..RejectedConnections::default() }
    );
}

#[test]
fn a_man_in_the_middle_is_detected_and_receives_no_token() {
    let (honest, between) = (listener(), listener());
    let line = honest.receiver_address("127.0.0.1");
    let (sender, guest) = connect(&between, &Connector::to_address(&line, "sender"));
    let found = between.receiver_address("").fingerprint;
    match sender {
        Err(ControlError::Identity(IdentityError::Untrusted { found: told })) => assert_eq!(told, found),
        other => panic!("{other:?}"),
    }
    assert!(guest.is_none());
    // The connection without a Hello is counted as rejected.
    await_protocol_rejections(&between, 1);
}

#[test]
fn tls_1_2_is_refused() {
    let listener = listener();
    let trust = Trust::Pinned(vec![]);
    let error = while_no_sender_is_accepted(&listener, || {
        let mut tls = tls_client(&listener, |config| {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let roots = rustls::RootCertStore::empty();
            let old = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[&rustls::version::TLS12]);
            *config = old.unwrap().with_root_certificates(roots).with_no_client_auth();
            config.alpn_protocols = vec![ALPN.to_vec()];
        });
        tls.write_all(b"x").and_then(|()| tls.flush()).unwrap_err()
    });
    assert!(error.to_string().contains("ProtocolVersion"), "{error}");
    assert!(client(&trust, None).is_ok());
    await_protocol_rejections(&listener, 1);
}

#[test]
fn a_client_without_the_right_alpn_protocol_is_refused() {
    let listener = listener();
    let error = while_no_sender_is_accepted(&listener, || {
        let mut tls = tls_client(&listener, |config| config.alpn_protocols = vec![b"h2".to_vec()]);
        tls.write_all(b"x").and_then(|()| tls.flush()).and_then(|()| tls.read(&mut [0; 9])).unwrap_err()
    });
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    await_protocol_rejections(&listener, 1);
    // Without any protocol name, TLS accepts the connection and this code refuses it.
    while_no_sender_is_accepted(&listener, || {
        let mut tls = tls_client(&listener, |config| config.alpn_protocols = vec![]);
        let hello =
            Message::Hello { token: Some(listener.receiver_address("x").token), software: "s".into() };
        tls.write_all(&codec::encode(&hello).unwrap()).unwrap();
        assert!(!matches!(tls.read(&mut [0; 9]), Ok(1..)));
    });
    await_protocol_rejections(&listener, 2);
}

#[test]
fn connections_of_scanners_are_rejected() {
    let listener = listener();
    for (count, bytes) in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        // No bytes; a handshake that is cut off within a record; a handshake that is cut off within
        // the header of a record.
        b"",
        &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 7, 7],
        &[0x16, 3],
        // A record that is longer than TLS allows.
        &[0x16, 3, 1, 0xff, 0xff, 0, 0],
        &[0; 4096],
    ]
    .into_iter()
    .enumerate()
    {
        let answer = answer(&listener, bytes);
        // The listener sends nothing, or an alert: content type 21 (RFC 8446 §5.1).
        assert!(answer.len() <= 7 && answer.first().is_none_or(|first| *first == 21), "{answer:?}");
        await_protocol_rejections(&listener, count as u64 + 1);
    }
    // After all these connections, the listener still accepts an honest sender.
    pair_of(&listener);
}

#[test]
fn a_first_message_other_than_hello_ends_the_connection_at_once() {
    let listener = listener();
    let told = |bytes: &[u8]| {
        while_no_sender_is_accepted(&listener, || {
            let mut tls = tls_client(&listener, |_| {});
            tls.write_all(bytes).unwrap();
            let mut answer = vec![];
            let _ = tls.read_to_end(&mut answer);
            answer
        })
    };
    let asked = Instant::now();
    // A message out of order, an unknown kind, a Hello of 4 GiB, and a Ping.
    for (count, bytes) in [
        &codec::encode(&offer(vec![1; 70_000])).unwrap()[..],
        &[0, 0, 0, 0, 77],
        &[0xff, 0xff, 0xff, 0xff, 1],
        &codec::encode(&Message::Ping).unwrap(),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(told(bytes), b"", "{bytes:?}");
        await_protocol_rejections(&listener, count as u64 + 1);
    }
    assert!(asked.elapsed() < Times::default().entry_max * 4, "none was waited for");
    // The reply to a sender of a different version contains the listener's version.
    let answer = told(&[0, 0, 0, 3, 1, 9, 0, 0]);
    let text = "the other end uses version 9 of the control connection, this end 1: use the same version at both ends";
    assert!(answer.ends_with(text.as_bytes()), "{answer:?}");
}

#[test]
fn messages_out_of_order_are_errors_at_both_ends() {
    type Wrong = fn(&mut Channel, &mut Channel);
    let cases: [(Wrong, bool, MessageKind); 6] = [
        (
            |sender, _| sender.send_raw(&frame(&Message::Digests(vec![]))).unwrap(),
            false,
            MessageKind::Digests,
        ),
        (|sender, _| sender.send_raw(&frame(&Message::Done)).unwrap(), false, MessageKind::Done),
        (
            |sender, _| {
                sender.send_raw(&frame(&Message::Hello { token: None, software: String::new() })).unwrap()
            },
            false,
            MessageKind::Hello,
        ),
        (|_, receiver| receiver.send_raw(&frame(&accept())).unwrap(), true, MessageKind::Accept),
        (|_, receiver| receiver.send_raw(&frame(&Message::Durable(1))).unwrap(), true, MessageKind::Durable),
        (|_, receiver| receiver.send_raw(&frame(&offer(vec![]))).unwrap(), true, MessageKind::Offer),
    ];
    for (act, at_sender, kind) in cases {
        let (sender, guest) = pair();
        let (mut sender, mut receiver) = (sender.channel, guest.channel);
        act(&mut sender, &mut receiver);
        let end = if at_sender { &mut sender } else { &mut receiver };
        let error = end.receive(SOON).unwrap_err();
        assert!(matches!(error, ControlError::Order(wrong) if wrong == kind), "{error}");
        // This end does not send messages out of order, either.
        assert!(matches!(end.send(&Message::Done), Err(ControlError::SentOutOfOrder(MessageKind::Done))));
    }
}

fn frame(message: &Message) -> Vec<u8> {
    codec::encode(message).unwrap()
}

#[test]
fn a_thousand_idle_connections_do_not_block_an_honest_sender() {
    let listener = listener();
    let (at, line) = (listener.local_addr(), listener.receiver_address("127.0.0.1"));
    let threads_before = threads();
    let mut threads_max = 0;
    let (sender, guest) = std::thread::scope(|scope| {
        // Each of the thousand connections stays open as long as possible; one half sends nothing,
        // and the other half sends the start of a handshake.
        let crowd = scope.spawn(move || {
            let mut streams = vec![];
            for count in 0..1000 {
                if let Ok(mut stream) = TcpStream::connect_timeout(&at, SOON) {
                    let _ = if count % 2 == 0 { Ok(()) } else { stream.write_all(&[0x16, 3, 1, 2, 0, 1]) };
                    streams.push(stream);
                }
            }
            streams
        });
        while !crowd.is_finished() {
            assert!(listener.accept(Duration::from_millis(10)).unwrap().is_none());
            threads_max = threads_max.max(threads().saturating_sub(threads_before));
        }
        let streams = crowd.join().unwrap();
        assert_eq!(streams.len(), 1000);
        // This honest sender has the same address as the thousand connections.
        let both = connect(&listener, &Connector::to_address(&line, "honest"));
        drop(streams);
        both
    });
    let guest = guest.or_else(|| listener.accept(SOON).unwrap());
    assert!(sender.is_ok() && guest.is_some(), "{sender:?}, {:?}", listener.rejected());
    // The process has threads of handshakes and threads of other tests.
    assert!(threads_max < 3 * handshake::HANDSHAKES_MAX, "{threads_max} threads");
}

/// Number of threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}
