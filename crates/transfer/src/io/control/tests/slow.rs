//! Tests with peers that are slow, or that stop responding.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::*;

const HASTE: Times = Times {
    entry_max: Duration::from_millis(300),
    message_max: Duration::from_millis(300),
    ping_every: Duration::from_millis(50),
    silence_max: Duration::from_secs(1),
};

#[test]
fn both_peers_can_send_long_messages_at_once() {
    let (mut sender, mut receiver) =
        hasty_pair(Times { ping_every: Duration::from_millis(1), ..Times::default() });
    // The messages are larger than in a real transfer, so that each direction needs more than the
    // system's buffers.
    let manifest = vec![9; 20 << 20];
    let digests = Message::Digests(vec![[4; 32]; 1 << 18]);
    let mut held = vec![];
    held.extend((0..100_000_u64).map(|n| (n << 30)..(n << 30 | 5)));
    let accept = Message::Accept { transfer: 1, port: 1, suite: Suite::Clear, datagram_bytes_max: 9, held };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sender.send(&offer(manifest.clone())).unwrap();
            assert_eq!(sender.wait(&GO).unwrap(), accept);
            sender.send(&digests).unwrap();
            // This end does not call `receive` here. `flush` still sends queued bytes, and keeps
            // messages that arrive.
            sender.flush(&GO).unwrap();
        });
        assert_eq!(receiver.wait(&GO).unwrap(), offer(manifest.clone()));
        receiver.send(&accept).unwrap();
        for count in 0..10_000 {
            receiver.send(&Message::Durable(count)).unwrap();
        }
        receiver.flush(&GO).unwrap();
        assert_eq!(receiver.wait(&GO).unwrap(), digests);
    });
    // Of consecutive Durable messages that wait to be returned, only the last is kept.
    let (mut last, mut count) = (0, 0);
    while let Some(Message::Durable(bytes)) = sender.receive(Duration::from_millis(200)).unwrap() {
        assert!(last <= bytes);
        (last, count) = (bytes, count + 1);
    }
    assert!(last == 9999 && count < 1000, "{last}, {count}");
}

#[test]
fn two_long_messages_that_cross_do_not_wait_for_each_other() {
    let (mut sender, mut receiver) = hasty_pair(Times::default());
    let long = frame_of_digests();
    sender.send(&offer(vec![3; 9 << 20])).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.flush(&GO));
        assert_eq!(receiver.wait(&GO).unwrap(), offer(vec![3; 9 << 20]));
    });
    receiver.send(&accept()).unwrap();
    assert_eq!(sender.wait(&GO).unwrap(), accept());
    // The receiver sends a similar amount in small messages. Both ends only send, and keep messages
    // that arrive meanwhile.
    let many = codec::encode(&Message::Durable(7)).unwrap().repeat(1 << 20);
    let flushed = AtomicUsize::new(0);
    let say = |channel: &mut Channel, bytes: &[u8]| {
        channel.send_raw(bytes).unwrap();
        channel.flush(&GO).unwrap();
        flushed.fetch_add(1, Ordering::Relaxed);
        let mut came = vec![];
        // Continue to read until both ends are flushed: otherwise the other end could not send the
        // rest of its bytes.
        while flushed.load(Ordering::Relaxed) < 2 {
            came.extend(channel.receive(Duration::from_millis(20)).unwrap());
        }
        came
    };
    let (mut at_sender, mut at_receiver) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| say(&mut sender, &long));
        let at_receiver = say(&mut receiver, &many);
        (sending.join().unwrap(), at_receiver)
    });
    at_sender.extend(sender.receive(Duration::from_millis(100)).unwrap());
    assert!(at_sender.iter().all(|message| *message == Message::Durable(7)) && !at_sender.is_empty());
    if at_receiver.is_empty() {
        at_receiver.push(receiver.wait(&GO).unwrap());
    }
    assert!(matches!(at_receiver[..], [Message::Digests(_)]));
}

fn frame_of_digests() -> Vec<u8> {
    codec::encode(&Message::Digests(vec![[1; 32]; 1 << 18])).unwrap()
}

#[test]
fn pings_keep_a_connection_open_and_silence_ends_the_connection() {
    let (mut sender, mut receiver) = hasty_pair(Times { entry_max: SOON, ..HASTE });
    let until = Instant::now() + 2 * HASTE.silence_max;
    while Instant::now() < until {
        assert_eq!(sender.receive(Duration::from_millis(20)).unwrap(), None);
        assert_eq!(receiver.receive(Duration::from_millis(20)).unwrap(), None);
    }
    // The receiver hangs.
    let error = sender.receive(SOON).unwrap_err();
    assert!(matches!(error, ControlError::Timeout { what: "sign of life", .. }), "{error}");
}

#[test]
fn a_sender_that_pings_but_offers_nothing_times_out() {
    let (mut sender, mut receiver) = hasty_pair(HASTE);
    let asked = Instant::now();
    let error = loop {
        let _ = sender.receive(Duration::from_millis(5));
        match receiver.receive(Duration::from_millis(5)) {
            Ok(None) => assert!(asked.elapsed() < SOON),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ControlError::Timeout { what: "offer", .. }), "{error}");
}

#[test]
fn a_sender_that_sends_byte_by_byte_times_out() {
    let times = Times { silence_max: SOON, ..HASTE };
    let (mut sender, mut receiver) = hasty_pair(times);
    let frame = codec::encode(&offer(vec![1; 1000])).unwrap();
    let asked = Instant::now();
    let mut bytes = frame.chunks(1);
    let error = loop {
        sender.send_raw(bytes.next().unwrap()).unwrap();
        match receiver.receive(Duration::from_millis(5)) {
            Ok(None) => {}
            Ok(Some(message)) => panic!("{message:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ControlError::Timeout { what: "message", .. }), "{error}");
    assert!(times.message_max <= asked.elapsed() && asked.elapsed() < SOON);
}

#[test]
fn a_peer_that_does_not_read_times_out() {
    let (mut sender, receiver) = hasty_pair(Times { silence_max: SOON, ..HASTE });
    sender.send(&offer(vec![1; 30 << 20])).unwrap();
    // The time limit for a message of 30 MiB is some minutes, so `silence_max` ends this test.
    sender.set_times(Times { silence_max: HASTE.silence_max, ..HASTE });
    let error = sender.flush(&GO).unwrap_err();
    assert!(matches!(error, ControlError::Timeout { .. }), "{error}");
    drop(receiver);
}

#[test]
fn a_slow_handshake_times_out() {
    let listener = Listener::bind_with("127.0.0.1:0".parse().unwrap(), config(None), HASTE).unwrap();
    let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
    let asked = Instant::now();
    // A long record that arrives byte by byte, so that there is never silence.
    stream.write_all(&[0x16, 3, 1, 0x20, 0]).unwrap();
    while listener.rejected().protocol == 0 {
        assert!(asked.elapsed() < SOON);
        let _ = stream.write_all(&[1]);
        assert!(listener.accept(Duration::from_millis(10)).unwrap().is_none());
    }
    assert!(asked.elapsed() >= HASTE.entry_max);
}

#[test]
fn a_cut_connection_is_distinguished_from_a_closed_connection() {
    let (sender, guest) = pair();
    let (sender, mut receiver) = (sender.channel, guest.channel);
    sender.shut_socket();
    assert!(matches!(receiver.receive(SOON), Err(ControlError::CutOff)));

    let (sender, guest) = pair();
    let mut receiver = guest.channel;
    let closing = std::thread::spawn(|| sender.channel.close());
    assert!(matches!(receiver.receive(SOON), Err(ControlError::Closed)));
    receiver.close();
    closing.join().unwrap();

    // The connection is closed with close_notify, but within a message.
    let (sender, guest) = pair();
    let (mut sender, mut receiver) = (sender.channel, guest.channel);
    sender.send_raw(&[0, 0, 0, 9, 3, 1]).unwrap();
    let closing = std::thread::spawn(|| sender.close());
    assert!(matches!(receiver.receive(SOON), Err(ControlError::CutOff)));
    receiver.close();
    closing.join().unwrap();
}

#[test]
fn a_refusal_is_read_while_a_long_message_is_sent() {
    let (mut sender, mut receiver) = hasty_pair(Times::default());
    let sending = std::thread::spawn(move || {
        sender.send(&offer(vec![1; 8 << 20])).unwrap();
        // The refusal may end `flush` early.
        let _ = sender.flush(&GO);
        sender.wait(&GO).map(|message| message.kind())
    });
    // One call reads at most 1 MiB, so the message is never complete.
    let until = Instant::now() + SOON;
    while !receiver.is_amid() {
        assert!(Instant::now() < until);
        assert!(receiver.receive(Duration::ZERO).unwrap().is_none());
    }
    receiver.refuse(RefuseReason::Busy, "too many transfers");
    let said = sending.join().unwrap();
    assert!(matches!(said, Err(ControlError::Refused { reason: RefuseReason::Busy, .. })), "{said:?}");
}

#[test]
fn endless_refusals_do_not_fill_memory() {
    let (mut sender, mut receiver) = hasty_pair(Times::default());
    let refuse = |text: &str| {
        codec::encode(&Message::Refuse { reason: RefuseReason::Full, text: text.into() }).unwrap()
    };
    let many = [refuse("first"), refuse("again").repeat(10_000)].concat();
    let saying = std::thread::spawn(move || {
        receiver.send_raw(&many).unwrap();
        receiver.flush(&GO).unwrap();
        receiver.close();
    });
    // The test does not call `receive`, but `flush` reads the messages that arrive.
    sender.send_raw(&codec::encode(&offer(vec![1; 4 << 20])).unwrap()).unwrap();
    let _ = sender.flush(&GO);
    assert!(sender.kept() <= 1, "{}", sender.kept());
    let said = sender.receive(SOON).map(|message| message.map(|message| message.kind()));
    assert!(matches!(&said, Err(ControlError::Refused { text, .. }) if text == "first"), "{said:?}");
    drop(sender);
    saying.join().unwrap();
}

#[test]
fn every_wait_can_be_stopped() {
    let stopped_within = |act: &(dyn Fn(&AtomicBool) -> Result<(), ControlError> + Sync)| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let acting = scope.spawn(|| {
                let result = act(&stop);
                (result, Instant::now())
            });
            std::thread::park_timeout(Duration::from_millis(50));
            let asked = Instant::now();
            stop.store(true, Ordering::Relaxed);
            let (result, ended) = acting.join().unwrap();
            assert!(matches!(result, Err(ControlError::Stopped)), "{result:?}");
            ended.duration_since(asked)
        })
    };
    let (sender, guest) = pair();
    let channel = std::sync::Mutex::new(sender.channel);
    let waited = stopped_within(&|stop| channel.lock().unwrap().wait(stop).map(drop));
    // The documented limit is 0.1 s; a busy machine may need more.
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    drop(guest);
    // A host that accepts the connection and sends nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let line = listener().receiver_address("127.0.0.1");
    let connector = Connector::to_address(&line, "sender");
    let port = silent.local_addr().unwrap().port();
    assert!(
        stopped_within(&|stop| connector.connect("127.0.0.1", port, stop).map(drop)) < Duration::from_secs(1)
    );
    // A host that does not answer at all: Linux ignores new connections while the accept queue is
    // full.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let at = full.local_addr().unwrap().as_socket().unwrap();
    let come = || TcpStream::connect_timeout(&at, Duration::from_millis(200));
    let waiting: Vec<_> = (0..8).map_while(|_| come().ok()).collect();
    assert!(waiting.len() < 8, "nobody would have to wait");
    assert!(
        stopped_within(&|stop| connector.connect("127.0.0.1", at.port(), stop).map(drop))
            < Duration::from_secs(1)
    );
}
