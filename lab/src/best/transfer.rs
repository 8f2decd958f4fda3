//! Transfers over plain TCP, as an application makes them.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use barograph_sim::Host;

/// Starts a receiver in a host. It acknowledges each connection's bytes with one byte, after the
/// sender's end of file. Its threads end with the process.
pub(super) fn receive(host: &Host, address: Ipv4Addr) -> anyhow::Result<SocketAddr> {
    let listener = host.run(|| TcpListener::bind((address, 0)))?.context("the receiver cannot listen")?;
    let to = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || acknowledge(stream));
        }
    });
    Ok(to)
}

fn acknowledge(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(LIMIT))?;
    let mut block = vec![0_u8; BLOCK_BYTES];
    while stream.read(&mut block)? > 0 {}
    stream.write_all(&[0])
}

/// Sends so many bytes to each of the receivers at the same time; returns the times in seconds. A
/// time begins before the connection is opened, and ends with the acknowledgement.
pub(super) fn send(from: &Host, to: &[SocketAddr], bytes: u64) -> anyhow::Result<Vec<f64>> {
    // Threads that are started in a host are in that host.
    let times = from.run(|| {
        thread::scope(|scope| {
            let sending: Vec<_> = to.iter().map(|to| scope.spawn(move || send_one(*to, bytes))).collect();
            sending
                .into_iter()
                .map(|sending| sending.join().expect("a transfer does not panic"))
                .collect::<io::Result<Vec<f64>>>()
        })
    })?;
    times.with_context(|| format!("a transfer of {bytes} bytes failed"))
}

fn send_one(to: SocketAddr, bytes: u64) -> io::Result<f64> {
    let block = vec![0_u8; BLOCK_BYTES];
    let began = Instant::now();
    let mut stream = TcpStream::connect_timeout(&to, LIMIT)?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut left = bytes;
    while left > 0 {
        let part = left.min(BLOCK_BYTES as u64);
        stream.write_all(&block[..part as usize])?;
        left -= part;
    }
    stream.shutdown(Shutdown::Write)?;
    stream.read_exact(&mut [0])?;
    Ok(began.elapsed().as_secs_f64())
}

/// A transfer that does not move within a minute has failed. 100 MB take a third of that.
const LIMIT: Duration = Duration::from_secs(60);

/// One call of the system for several segments.
const BLOCK_BYTES: usize = 1 << 18;
