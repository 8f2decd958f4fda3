//! Senders that misbehave, tested from the listener's side.

use std::io;
use std::time::Duration;

use barograph_timeout::link::wire::{AckStatus, Acknowledgement, Header, Hello, WELCOME_BYTES, Welcome};
use barograph_timeout::link::{Accept, ListenConfig, Listener, SenderId};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep};

use crate::common::{MS, SECOND, Serving, serve, serve_if};

/// Opens connections to a listener by hand.
struct Dialer(mpsc::UnboundedSender<DuplexStream>);

impl Dialer {
    fn open(&self) -> DuplexStream {
        let (near, far) = duplex(1 << 20);
        self.0.send(far).unwrap();
        near
    }

    /// Opens a connection, sends hello and checks the welcome.
    async fn enter(&self, sender: u8) -> DuplexStream {
        let mut stream = self.open();
        stream.write_all(&Hello { sender: SenderId([sender; 16]) }.encode()).await.unwrap();
        assert!(matches!(welcome(&mut stream).await, Ok(Welcome::Ready { .. })));
        stream
    }
}

async fn welcome(stream: &mut DuplexStream) -> io::Result<Welcome> {
    let mut frame = [0; WELCOME_BYTES];
    stream.read_exact(&mut frame).await?;
    Welcome::decode(&frame).map_err(io::Error::other)
}

async fn status(stream: &mut DuplexStream) -> io::Result<(u64, AckStatus)> {
    let mut frame = [0; 16];
    stream.read_exact(&mut frame).await?;
    let acknowledgement = Acknowledgement::decode(&frame).map_err(io::Error::other)?;
    Ok((acknowledgement.id, acknowledgement.status))
}

fn frame(id: u64, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&Header { id, length }.encode()[..], message].concat()
}

async fn is_closed(stream: &mut DuplexStream) -> bool {
    matches!(stream.read(&mut [0; 64]).await, Ok(0) | Err(_))
}

fn listener(config: ListenConfig) -> (Dialer, Listener<impl Accept + 'static>) {
    let (dialer, streams) = mpsc::unbounded_channel();
    let streams = std::sync::Arc::new(Mutex::new(streams));
    let accept = move || {
        let streams = streams.clone();
        async move { streams.lock().await.recv().await.ok_or_else(|| io::ErrorKind::BrokenPipe.into()) }
    };
    (Dialer(dialer), Listener::new(accept, config))
}

fn serving(config: ListenConfig) -> (Dialer, Serving<impl Accept + 'static>) {
    let (dialer, listener) = listener(config);
    (dialer, serve(listener))
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_announces_a_giant_length_is_disconnected() {
    let (dialer, serving) = serving(ListenConfig::default());
    let mut stream = dialer.enter(1).await;
    let giant = Header { id: 1, length: u32::MAX }.encode();
    stream.write_all(&giant).await.unwrap();
    assert!(is_closed(&mut stream).await);
    assert_eq!(serving.listener.counters().protocol_errors, 1);
    assert_eq!(serving.stop().await, []);
}

/// On each of 500 connections, a sender announces 64 MiB and sends one byte. The receiver has room
/// for one message of 64 MiB. The announcements do not reserve memory that other senders need.
#[tokio::test(start_paused = true)]
async fn announced_but_unsent_bytes_reserve_no_memory() {
    let config = ListenConfig { buffered_bytes_max: (64 << 20) + 16, ..ListenConfig::default() };
    let (dialer, serving) = serving(config);
    let mut liars = Vec::new();
    for n in 0..500 {
        let mut stream = dialer.enter((n % 200) as u8).await;
        let claim = Header { id: 1, length: 64 * 1024 * 1024 }.encode();
        stream.write_all(&claim).await.unwrap();
        stream.write_all(&[0]).await.unwrap();
        liars.push(stream);
    }
    let mut honest = dialer.enter(201).await;
    honest.write_all(&frame(1, b"fair")).await.unwrap();
    assert_eq!(status(&mut honest).await.unwrap(), (1, AckStatus::Handled));
    // A minute of silence closes the connection.
    let began = Instant::now();
    for mut liar in liars {
        assert!(is_closed(&mut liar).await);
    }
    assert!(began.elapsed() <= 60 * SECOND, "{:?}", began.elapsed());
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_memory_of_all_messages_is_bounded() {
    let config = ListenConfig { buffered_bytes_max: 10_000, ..ListenConfig::default() };
    let (dialer, serving) = serving(config);
    let (mut first, mut second) = (dialer.enter(1).await, dialer.enter(2).await);
    let long = frame(1, &[0; 8000]);
    first.write_all(&long[..7000]).await.unwrap();
    sleep(MS).await;
    second.write_all(&long).await.unwrap();
    assert!(is_closed(&mut second).await, "there is no room for both");
    first.write_all(&long[7000..]).await.unwrap();
    assert_eq!(status(&mut first).await.unwrap(), (1, AckStatus::Handled));
    let mut second = dialer.enter(2).await;
    second.write_all(&long).await.unwrap();
    assert_eq!(status(&mut second).await.unwrap(), (1, AckStatus::Handled));
    assert_eq!(serving.listener.counters().declined, 1);
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn messages_larger_than_the_buffer_are_not_allowed() {
    let config = ListenConfig { buffered_bytes_max: 1016, ..ListenConfig::default() };
    let (dialer, serving) = serving(config);
    let mut stream = dialer.open();
    stream.write_all(&Hello { sender: SenderId([1; 16]) }.encode()).await.unwrap();
    assert_eq!(welcome(&mut stream).await.unwrap(), Welcome::Ready { message_bytes_max: 1000 });
    stream.write_all(&frame(1, &[0; 1000])).await.unwrap();
    assert_eq!(status(&mut stream).await.unwrap(), (1, AckStatus::Handled));
    stream.write_all(&frame(2, &[0; 1001])).await.unwrap();
    assert!(is_closed(&mut stream).await);
    assert_eq!(serving.stop().await, [1]);
}

#[tokio::test(start_paused = true)]
async fn connections_with_invalid_or_no_hello_are_closed() {
    let config = ListenConfig { hello_max: 10 * SECOND, ..ListenConfig::default() };
    let (dialer, serving) = serving(config);
    let mut web = dialer.open();
    web.write_all(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n").await.unwrap();
    assert!(is_closed(&mut web).await);

    let mut newer = dialer.open();
    let mut hello = Hello { sender: SenderId([1; 16]) }.encode();
    hello[4] = 2;
    newer.write_all(&hello).await.unwrap();
    assert_eq!(welcome(&mut newer).await.unwrap(), Welcome::OtherVersion);
    assert!(is_closed(&mut newer).await);

    let (mut silent, began) = (dialer.open(), Instant::now());
    silent.write_all(&hello[..20]).await.unwrap();
    assert!(is_closed(&mut silent).await);
    assert_eq!(began.elapsed(), 10 * SECOND);
    assert_eq!(serving.listener.counters().handshake_failures, 3);
    assert_eq!(serving.stop().await, []);
}

#[tokio::test(start_paused = true)]
async fn connections_beyond_the_limit_are_declined() {
    let config = ListenConfig { connections_max: 2, ..ListenConfig::default() };
    let (dialer, serving) = serving(config);
    let first = dialer.enter(1).await;
    let _second = dialer.enter(2).await;
    let mut third = dialer.open();
    assert_eq!(welcome(&mut third).await.unwrap(), Welcome::Full);
    assert!(is_closed(&mut third).await);
    drop(first);
    sleep(MS).await;
    dialer.enter(3).await;
    assert_eq!(serving.listener.counters().declined, 1);
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_is_received_whole_after_dropped_connections_and_in_pieces() {
    let (dialer, serving) = serving(ListenConfig::default());
    let message: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
    let whole = frame(1, &message);
    for cut in [1, 15, 16, 17, 50_000, whole.len() - 1] {
        let mut stream = dialer.enter(1).await;
        stream.write_all(&whole[..cut]).await.unwrap();
        drop(stream);
    }
    let mut stream = dialer.enter(1).await;
    for piece in whole.chunks(777) {
        stream.write_all(piece).await.unwrap();
        sleep(MS).await;
    }
    assert_eq!(status(&mut stream).await.unwrap(), (1, AckStatus::Handled));
    assert_eq!(*serving.handled.lock().unwrap(), [(1, message)]);
    assert_eq!(serving.listener.counters().protocol_errors, 0);
    serving.stop().await;
}

/// Two copies of a message arrive on two connections while the handler works on the first. The
/// handler is called once, and is called again only if the first call fails.
#[tokio::test(start_paused = true)]
async fn a_copy_during_handling_is_handled_only_if_the_first_call_fails() {
    for first_fails in [false, true] {
        let (dialer, listener) = listener(ListenConfig::default());
        let calls = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = calls.clone();
        let serving = serve_if(listener, 10 * SECOND, move |_| {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst) != 0 || !first_fails
        });
        let (mut first, mut second) = (dialer.enter(1).await, dialer.enter(1).await);
        let began = Instant::now();
        first.write_all(&frame(1, b"a")).await.unwrap();
        sleep(SECOND).await;
        second.write_all(&frame(1, b"a")).await.unwrap();
        let received = status(&mut second).await.unwrap();
        if first_fails {
            assert!(is_closed(&mut first).await, "no acknowledgement");
            assert_eq!((received, began.elapsed()), ((1, AckStatus::Handled), 20 * SECOND));
        } else {
            assert_eq!(status(&mut first).await.unwrap(), (1, AckStatus::Handled));
            assert_eq!((received, began.elapsed()), ((1, AckStatus::Waited), 10 * SECOND));
        }
        assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 1 + u32::from(first_fails));
        assert_eq!(serving.stop().await, [1]);
    }
}

/// With more senders than are remembered, a message may be handled twice.
#[tokio::test(start_paused = true)]
async fn a_message_of_a_forgotten_sender_may_be_handled_twice() {
    let config = ListenConfig { senders_max: 10, ..ListenConfig::default() };
    let (dialer, serving) = serving(config);
    let send = async |sender| {
        let mut stream = dialer.enter(sender).await;
        stream.write_all(&frame(1, b"a")).await.unwrap();
        let received = status(&mut stream).await.unwrap().1;
        drop(stream);
        sleep(MS).await;
        received
    };
    for sender in 0..10 {
        assert_eq!(send(sender).await, AckStatus::Handled);
    }
    for sender in 0..10 {
        assert_eq!(send(sender).await, AckStatus::Duplicate);
    }
    assert_eq!(send(10).await, AckStatus::Handled);
    assert_eq!(serving.listener.senders(), 10);
    assert_eq!(send(0).await, AckStatus::Handled, "it was forgotten, so this is handled twice");
    assert_eq!(send(5).await, AckStatus::Duplicate);
    serving.stop().await;
}

/// A sender that disappears within a message occupies its memory and its connection for a minute,
/// not for two hours.
#[tokio::test(start_paused = true)]
async fn a_sender_that_disappears_within_a_message_is_closed_after_a_minute() {
    let whole = frame(1, &[0; 8000]);
    for cut in [1, 16, 7000] {
        let (dialer, serving) = serving(ListenConfig { connections_max: 1, ..ListenConfig::default() });
        let mut vanished = dialer.enter(1).await;
        sleep(SECOND).await;
        let began = Instant::now();
        vanished.write_all(&whole[..cut]).await.unwrap();
        assert!(is_closed(&mut vanished).await);
        assert_eq!(began.elapsed(), 60 * SECOND, "cut after {cut}");
        let mut next = dialer.enter(2).await;
        next.write_all(&whole).await.unwrap();
        assert_eq!(status(&mut next).await.unwrap(), (1, AckStatus::Handled));
        serving.stop().await;
    }
}

/// If a sender connects again, its older connection with half a message is closed at once. On an
/// older connection without data, a whole copy is still accepted for a while.
#[tokio::test(start_paused = true)]
async fn a_new_connection_of_a_sender_closes_the_older_incomplete_one() {
    let (dialer, serving) = serving(ListenConfig { buffered_bytes_max: 10_000, ..ListenConfig::default() });
    let whole = frame(1, &[0; 8000]);
    let mut half = dialer.enter(1).await;
    half.write_all(&whole[..7000]).await.unwrap();
    sleep(MS).await;
    let mut other = dialer.enter(2).await;
    let began = Instant::now();
    let (mut late, mut silent) = (dialer.enter(1).await, dialer.enter(1).await);
    let mut newest = dialer.enter(1).await;
    assert!(is_closed(&mut half).await);
    assert_eq!(began.elapsed(), Duration::ZERO);
    newest.write_all(&whole).await.unwrap();
    assert_eq!(status(&mut newest).await.unwrap(), (1, AckStatus::Handled), "there is room again");
    sleep(30 * SECOND).await;
    late.write_all(&whole).await.unwrap();
    assert_eq!(status(&mut late).await.unwrap(), (1, AckStatus::Duplicate));
    assert!(is_closed(&mut silent).await);
    assert_eq!(began.elapsed(), 60 * SECOND);
    // The limit of 60 s does not apply to the newest connection or to connections of other senders.
    sleep(600 * SECOND).await;
    newest.write_all(&frame(2, b"b")).await.unwrap();
    assert_eq!(status(&mut newest).await.unwrap(), (2, AckStatus::Handled));
    other.write_all(&frame(1, b"o")).await.unwrap();
    assert_eq!(status(&mut other).await.unwrap(), (1, AckStatus::Handled));
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_after_the_idle_limit() {
    let config = ListenConfig { idle_max: 60 * SECOND, ..ListenConfig::default() };
    let (dialer, serving) = serving(config);
    let (mut stream, began) = (dialer.enter(1).await, Instant::now());
    assert!(is_closed(&mut stream).await);
    assert_eq!(began.elapsed(), Duration::from_secs(60));
    serving.stop().await;
}
