//! Receivers that misbehave, tested from the sender's side.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use barograph_timeout::link::wire::{
    AckStatus, Acknowledgement, HEADER_BYTES, HELLO_BYTES, Header, Welcome, WireError,
};
use barograph_timeout::link::{AttemptError, Connect, SendError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, sleep};

use crate::common::{MS, SECOND, link};

type Script = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// Makes connections with a peer that runs `script`. The argument of `script` is the number of
/// earlier connections.
fn scripted(script: impl Fn(usize, DuplexStream) -> Script + Send + Sync) -> impl Connect {
    let connections = AtomicUsize::new(0);
    move || {
        let (near, far) = duplex(64);
        tokio::spawn(script(connections.fetch_add(1, Ordering::SeqCst), far));
        async { Ok(near) }
    }
}

async fn greet(stream: &mut DuplexStream) -> io::Result<()> {
    stream.read_exact(&mut [0; HELLO_BYTES]).await?;
    stream.write_all(&Welcome::Ready { message_bytes_max: 1000 }.encode()).await
}

async fn message(stream: &mut DuplexStream) -> io::Result<u64> {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).await?;
    let header = Header::decode(&head, 1000).map_err(io::Error::other)?;
    stream.read_exact(&mut vec![0; header.length as usize]).await?;
    Ok(header.id)
}

async fn acknowledge(stream: &mut DuplexStream, id: u64) -> io::Result<()> {
    stream.write_all(&Acknowledgement { id, status: AckStatus::Handled }.encode()).await
}

/// Serves correctly until the sender disconnects.
async fn serve_well(mut stream: DuplexStream) -> io::Result<()> {
    greet(&mut stream).await?;
    loop {
        let id = message(&mut stream).await?;
        acknowledge(&mut stream, id).await?;
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_acknowledges_twice_does_no_harm() {
    // Without a pause, the next send finds the second acknowledgement. With a pause, the second
    // acknowledgement counts as the response to the next message.
    for pause in [Duration::ZERO, 20 * MS] {
        let connector = scripted(move |n, mut stream| {
            Box::pin(async move {
                if n != 0 {
                    return serve_well(stream).await;
                }
                greet(&mut stream).await?;
                let id = message(&mut stream).await?;
                acknowledge(&mut stream, id).await?;
                if !pause.is_zero() {
                    message(&mut stream).await?;
                }
                acknowledge(&mut stream, id).await?;
                std::future::pending().await
            })
        });
        let mut link = link(connector, SECOND, 5);
        assert_eq!(link.send(b"a").await.unwrap().attempts, 1);
        sleep(MS).await;
        let receipt = link.send(b"b").await.unwrap();
        assert_eq!(receipt.id, 2);
        assert_eq!(receipt.attempts, if pause.is_zero() { 1 } else { 2 });
        assert_eq!((link.counters().protocol_errors, link.counters().connections), (1, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn acknowledging_the_wrong_message_is_an_error() {
    let connector = scripted(|_, mut stream| {
        Box::pin(async move {
            greet(&mut stream).await?;
            let id = message(&mut stream).await?;
            acknowledge(&mut stream, id + 1).await?;
            std::future::pending().await
        })
    });
    let mut link = link(connector, SECOND, 3);
    let error = link.send(b"a").await.unwrap_err();
    let SendError::Unacknowledged { attempts: 3, timeouts: 0, last } = error else { panic!("{error:?}") };
    assert!(matches!(last, AttemptError::WrongMessage { sent: 1, acknowledged: 2 }), "{last:?}");
    assert_eq!((link.counters().protocol_errors, link.counters().acknowledged), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_sends_garbage_fails_the_attempt() {
    for (after_greeting, garbage) in [(false, [0x47; 64]), (true, [0x47; 64]), (true, [0; 64])] {
        let connector = scripted(move |_, mut stream| {
            Box::pin(async move {
                if after_greeting {
                    greet(&mut stream).await?;
                    message(&mut stream).await?;
                } else {
                    stream.read_exact(&mut [0; HELLO_BYTES]).await?;
                }
                stream.write_all(&garbage).await?;
                std::future::pending().await
            })
        });
        let mut link = link(connector, SECOND, 2);
        let error = link.send(b"a").await.unwrap_err();
        assert!(
            matches!(error, SendError::Unacknowledged { attempts: 2, last: AttemptError::Wire(_), .. }),
            "{error:?}"
        );
        assert_eq!(link.counters().protocol_errors, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_with_another_version_is_an_error() {
    let connector = scripted(|_, mut stream| {
        Box::pin(async move {
            let mut welcome = Welcome::OtherVersion.encode();
            welcome[4] = 9;
            stream.write_all(&welcome).await?;
            std::future::pending().await
        })
    });
    let mut link = link(connector, SECOND, 5);
    let error = link.send(b"a").await.unwrap_err();
    assert!(matches!(error, SendError::Version { theirs: 9 }), "{error:?}");
    assert!(error.to_string().contains("version 9"), "{error}");
    assert_eq!(link.counters().attempts, 1, "asking again would not help");
    let own = WireError::Version(9).to_string();
    assert!(own.contains("version 9"), "{own}");
}

#[tokio::test(start_paused = true)]
async fn a_link_retries_a_receiver_that_is_full_until_it_has_room() {
    let connector = scripted(|n, mut stream| {
        Box::pin(async move {
            match n {
                0 => stream.write_all(&Welcome::Full.encode()).await,
                1 => stream.write_all(&Welcome::Stopping.encode()).await,
                2 => Ok(()),
                _ => serve_well(stream).await,
            }
        })
    });
    let mut link = link(connector, SECOND, 1);
    let receipt = link.send(b"a").await.unwrap();
    assert_eq!((receipt.attempts, receipt.timeouts), (1, 0));
    assert_eq!((link.counters().unreachable, link.counters().protocol_errors), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_sends_its_welcome_ends_the_send_with_an_error() {
    let connector = scripted(|_, stream| {
        Box::pin(async move {
            let _held = stream;
            std::future::pending().await
        })
    });
    let mut link = link(connector, MS, 2);
    let began = Instant::now();
    let error = link.send(b"a").await.unwrap_err();
    assert!(
        matches!(
            error,
            SendError::Unacknowledged { timeouts: 0, last: AttemptError::ConnectTimedOut(_), .. }
        ),
        "{error:?}"
    );
    assert_eq!(began.elapsed(), 30 * SECOND, "3 s, 6 s, 12 s, and the rest of the 30 s");
}

/// The peer reads only a part of the message, so the write does not complete. The timeout also ends
/// the write, not only the wait for the response.
#[tokio::test(start_paused = true)]
async fn a_timeout_ends_the_write_to_a_peer_that_stops_reading() {
    let connector = scripted(|n, mut stream| {
        Box::pin(async move {
            if n != 0 {
                return serve_well(stream).await;
            }
            greet(&mut stream).await?;
            stream.read_exact(&mut [0; 100]).await?;
            std::future::pending().await
        })
    });
    let mut link = link(connector, SECOND, 5);
    let receipt = link.send(&[7; 900]).await.unwrap();
    assert_eq!((receipt.attempts, receipt.timeouts), (2, 1));
}

/// An idle connection that the peer has closed costs no attempt.
#[tokio::test(start_paused = true)]
async fn a_connection_closed_between_messages_costs_no_attempt() {
    let connector = scripted(|_, mut stream| {
        Box::pin(async move {
            greet(&mut stream).await?;
            let id = message(&mut stream).await?;
            acknowledge(&mut stream, id).await
        })
    });
    let mut link = link(connector, SECOND, 5);
    for _ in 0..5 {
        assert_eq!(link.send(b"a").await.unwrap().attempts, 1);
        sleep(MS).await;
    }
    assert_eq!((link.counters().connections, link.counters().failures), (5, 0));
}
