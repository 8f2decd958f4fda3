//! The link over real TCP on this host.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use barograph_timeout::link::wire::{Hello, Welcome};
use barograph_timeout::link::{
    Accept, AttemptError, Connect, Link, LinkConfig, ListenConfig, Listener, SendError, SenderId, Tcp,
};
use barograph_timeout::{Attempt, AttemptOutcome, FixedTimeout, TimeoutDecision, TimeoutEstimator};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::common::{Tape, serve};

/// Every test here is much faster; a test that waits longer has failed.
const LONG: Duration = Duration::from_secs(60);

async fn ten_messages(address: SocketAddr) {
    let listener = match Listener::bind(address, ListenConfig::default()).await {
        Ok(listener) => listener,
        Err(error) if address.is_ipv6() && error.kind() == ErrorKind::AddrNotAvailable => {
            barograph_sim::report_skipped(&format!("the link over IPv6: {error}"));
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let target = listener.local_addr().unwrap().to_string();
    let serving = serve(listener);
    let mut link = Link::tcp(target, LinkConfig::default(), FixedTimeout(LONG));
    for n in 1..=10 {
        // The lengths are below and above the limit up to which a message is sent together with its
        // header. One length exceeds the sockets' buffers.
        let message = vec![n as u8; if n == 10 { 8 << 20 } else { n * 5000 }];
        let receipt = timeout(LONG, link.send(&message)).await.unwrap().unwrap();
        assert_eq!((receipt.attempts, receipt.duplicate), (1, false));
    }
    assert_eq!(link.counters().connections, 1);
    let whole = |(id, bytes): &(u64, Vec<u8>)| bytes.iter().all(|&byte| u64::from(byte) == *id);
    assert!(serving.handled.lock().unwrap().iter().all(whole));
    assert_eq!(serving.stop().await, (1..=10).collect::<Vec<u64>>());
}

#[tokio::test]
async fn messages_arrive_over_ipv4_and_ipv6() {
    ten_messages((Ipv4Addr::LOCALHOST, 0).into()).await;
    ten_messages((Ipv6Addr::LOCALHOST, 0).into()).await;
}

#[tokio::test]
async fn both_ends_of_a_connection_set_keepalive_and_nodelay() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    // The name may also have an IPv6 address, and no program listens on this address. Without a
    // hosts file, the name has no address at all.
    let mut host = "localhost";
    if tokio::net::lookup_host((host, 0)).await.is_err() {
        barograph_sim::report_skipped("connecting by a name: 'localhost' has no address on this machine");
        host = "127.0.0.1";
    }
    let target = Tcp::new(format!("{host}:{}", listener.local_addr().unwrap().port()));
    let both = async { tokio::join!(target.connect(), Accept::accept(&listener)) };
    let (near, far) = timeout(LONG, both).await.unwrap();
    for stream in [near.unwrap(), far.unwrap()] {
        assert!(stream.nodelay().unwrap());
        assert!(SockRef::from(&stream).keepalive().unwrap());
    }
}

#[tokio::test]
async fn a_send_to_a_closed_port_is_an_error_without_attempts() {
    // A port on which no program listens. No other program can bind this port while `held` exists.
    let held = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    held.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = held.local_addr().unwrap().as_socket().unwrap();
    let config = LinkConfig { connect_timeout: Duration::from_millis(300), ..LinkConfig::default() };
    let mut link = Link::tcp(address.to_string(), config, FixedTimeout(LONG));
    let error = timeout(LONG, link.send(b"a")).await.unwrap().unwrap_err();
    assert!(
        matches!(&error, SendError::Unacknowledged { attempts: 0, last: AttemptError::Connect(_), .. }),
        "{error:?}"
    );
    assert!(link.counters().unreachable > 1);
    let config = LinkConfig { connect_timeout: Duration::ZERO, ..LinkConfig::default() };
    let nameless = Link::tcp("no-port", config, FixedTimeout(LONG)).send(b"a").await.unwrap_err();
    assert!(
        matches!(nameless, SendError::Unacknowledged { last: AttemptError::Connect(_), .. }),
        "{nameless:?}"
    );
}

/// A receiver sends a frame and closes the connection. The peer can read this frame, even if the
/// receiver has not read the peer's hello.
#[tokio::test]
async fn a_full_receiver_sends_its_reply_before_it_closes() {
    let config = ListenConfig { connections_max: 0, ..ListenConfig::default() };
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0), config).await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let serving = serve(listener);
    for _ in 0..50 {
        let mut stream = TcpStream::connect(&target).await.unwrap();
        let hello = Hello { sender: SenderId([1; 16]) };
        stream.write_all(&hello.encode()).await.unwrap();
        // After this pause, a connection that was closed with an unread hello would be reset.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let mut said = Vec::new();
        timeout(LONG, stream.read_to_end(&mut said)).await.unwrap().unwrap();
        assert_eq!(said, Welcome::Full.encode());
    }
    assert_eq!(serving.listener.counters().declined, 50);
    serving.stop().await;
}

/// A link can move to another thread. A send in progress can move, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_links_send_at_once() {
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0), ListenConfig::default()).await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let serving = serve(listener);
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let estimator: Box<dyn TimeoutEstimator + Send> = Box::new(FixedTimeout(LONG));
        let mut link = Link::tcp(target.clone(), LinkConfig::default(), estimator);
        senders.spawn(async move {
            for _ in 0..20 {
                link.send(&[1; 100]).await.unwrap();
            }
        });
    }
    timeout(LONG, senders.join_all()).await.unwrap();
    assert_eq!(serving.listener.senders(), 50);
    assert_eq!(serving.stop().await.len(), 1000);
}

/// Cuts the first attempt off early. The timeout of all other attempts is so long that they succeed
/// even on a busy machine.
struct FirstCut;

impl TimeoutEstimator for FirstCut {
    fn decide(&self, attempt: &Attempt) -> TimeoutDecision {
        let timeout = if attempt.number == 0 { Duration::from_millis(300) } else { LONG };
        FixedTimeout(timeout).decide(attempt)
    }

    fn record(&mut self, _: &Attempt, _: AttemptOutcome) {}
}

/// A socket that never responds accepts the first connection; the link succeeds with the second
/// connection.
#[tokio::test]
async fn a_stall_over_tcp_is_cut_off_and_the_message_arrives() {
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0), ListenConfig::default()).await.unwrap();
    let serving_at = listener.local_addr().unwrap();
    let serving = serve(listener);
    let middle = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let target = middle.local_addr().unwrap().to_string();
    let relay = tokio::spawn(async move {
        // The relay passes on the hello and the welcome of the first connection, and nothing after
        // them.
        let (mut first, _) = middle.accept().await.unwrap();
        let mut onward = TcpStream::connect(serving_at).await.unwrap();
        let (mut hello, mut welcome) = ([0; 24], [0; 16]);
        first.read_exact(&mut hello).await.unwrap();
        onward.write_all(&hello).await.unwrap();
        onward.read_exact(&mut welcome).await.unwrap();
        first.write_all(&welcome).await.unwrap();
        let (mut second, _) = middle.accept().await.unwrap();
        let mut onward = TcpStream::connect(serving_at).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut second, &mut onward).await;
        drop(first);
    });
    let mut link = Link::tcp(target, LinkConfig::default(), Tape::new(FirstCut));
    let receipt = timeout(LONG, link.send(&vec![1; 16 << 20])).await.unwrap().unwrap();
    assert_eq!((receipt.attempts, receipt.timeouts, receipt.duplicate), (2, 1, false));
    assert!(matches!(
        link.estimator().ended[..],
        [(0, AttemptOutcome::TimedOut(_)), (1, AttemptOutcome::Completed(_))]
    ));
    drop(link);
    timeout(LONG, relay).await.unwrap().unwrap();
    assert_eq!(serving.stop().await, [1]);
}
