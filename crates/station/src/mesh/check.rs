//! Finds the address at which a peer answers, and verifies that the station at this address is the
//! peer.
//!
//! A private address belongs to another host in another network, so the station that answers must
//! give its name.

use std::net::SocketAddr;
use std::time::Duration;

use barograph_forecast::{Failure, Name, Outcome, Quantity, SeriesId};
use barograph_probe::{signed, wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::forecast::series::Measurement;

/// Error: the peer answers at none of its addresses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PeerUnreachable {
    /// Failure at the first address of the peer.
    pub(super) failure: Failure,
    /// Duration of the check, in seconds.
    pub(super) after_s: f64,
    /// Each address of the peer with the reason why the address failed, in one text.
    pub(super) reason: String,
}

impl PeerUnreachable {
    /// The error for a check that panicked.
    pub(super) fn after_panic() -> Self {
        let reason = "internal error while checking its addresses, see the log".into();
        Self { failure: Failure::Unreachable, after_s: 0.0, reason }
    }

    /// The failed `rtt` that `host` records for the peer.
    pub(crate) fn to_measurement(&self, host: &Name, peer: &Name, time_unix_ns: i64) -> Measurement {
        Measurement {
            series: SeriesId { source: host.clone(), target: peer.clone(), quantity: Quantity::RTT },
            time_unix_ns,
            outcome: Outcome::Failed { failure: self.failure, after_s: self.after_s },
            detail: crate::detail::message(&self.reason),
        }
    }
}

/// Why one address failed: the class of the failure, and a text.
struct AddressError {
    failure: Failure,
    reason: String,
}

/// Finds the first of `addresses` at which `host` answers. The addresses are tried in their order.
/// Each try begins [`STAGGER`] after the try before (RFC 8305 §5).
///
/// # Errors
/// [`PeerUnreachable`] if `host` answers at no address.
pub(super) async fn first_that_answers(
    host: Name,
    addresses: Vec<SocketAddr>,
) -> Result<SocketAddr, PeerUnreachable> {
    let begun = Instant::now();
    let mut tries = JoinSet::new();
    for (index, address) in (0..).zip(addresses) {
        let host = host.clone();
        tries.spawn(async move {
            sleep(STAGGER * index).await;
            let answer = timeout(TRY_TIMEOUT, request_probe(&host, address)).await;
            let answer = answer.unwrap_or_else(|_| {
                let reason = format!("no answer for {} s", TRY_TIMEOUT.as_secs());
                Err(AddressError { failure: Failure::TimedOut, reason })
            });
            (index, address, answer)
        });
    }
    let mut errors = Vec::new();
    while let Some(tried) = tries.join_next().await {
        match tried {
            // Dropping the set aborts the other tries.
            Ok((_, address, Ok(()))) => return Ok(address),
            Ok((index, address, Err(error))) => errors.push((index, address, error)),
            Err(_) => {}
        }
    }
    errors.sort_by_key(|(index, ..)| *index);
    let failure = errors.first().map_or(Failure::Unreachable, |(.., error)| error.failure);
    let problems: Vec<String> =
        errors.into_iter().map(|(_, address, error)| format!("{address}: {}", error.reason)).collect();
    let reason = format!("no address answers ({})", problems.join("; "));
    Err(PeerUnreachable { failure, after_s: begun.elapsed().as_secs_f64(), reason })
}

/// Requests a probe at `address` without credentials: the refusal contains the name of the station.
async fn request_probe(host: &Name, address: SocketAddr) -> Result<(), AddressError> {
    let mut stream = TcpStream::connect(address).await?;
    let path = wire::PATH;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(read @ 1..) if bytes.len() < HEAD_BYTES_MAX => bytes.extend_from_slice(&buffer[..read]),
            Ok(_) => return Err(AddressError::no_station()),
            Err(error) => return Err(error.into()),
        }
    }
    let head = String::from_utf8_lossy(&bytes);
    let named = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let name = named.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(signed::NAME_HEADER));
    match name.and_then(|(_, value)| signed::read_name(value.trim())) {
        Some(name) if name == *host => Ok(()),
        // A different station answered, so the peer was not reached.
        Some(name) => Err(AddressError {
            failure: Failure::Unreachable,
            reason: format!("another station answers there: `{name}`"),
        }),
        None => Err(AddressError::no_station()),
    }
}

impl AddressError {
    fn no_station() -> Self {
        Self { failure: Failure::InvalidResponse, reason: "the server there is not a station".into() }
    }
}

impl From<std::io::Error> for AddressError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let failure = match error.kind() {
            ErrorKind::ConnectionRefused => Failure::Refused,
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
                Failure::Reset
            }
            ErrorKind::TimedOut => Failure::TimedOut,
            _ => Failure::Unreachable,
        };
        Self { failure, reason: error.to_string() }
    }
}

/// Delay between tries of two addresses of one peer, as RFC 8305 §5 recommends.
const STAGGER: Duration = Duration::from_millis(250);
/// Time limit for the try of one address. TCP repeats the SYN after 1 s and after 3 s (RFC 6298
/// §2). If all three SYNs are unanswered, the cause is hardly the loss of a single packet.
const TRY_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum size of a response head, in bytes. A refusal has some hundred bytes of headers.
const HEAD_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::net::TcpListener;

    use super::*;

    /// Starts a server that answers every request with `answer`.
    async fn server(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        address
    }

    #[tokio::test]
    async fn the_peer_is_distinguished_from_other_servers_at_its_address() {
        let b = Name::new("b").unwrap();
        let good = server("HTTP/1.1 401 No\r\nBarograph-Station: b\r\n\r\n").await;
        let other = server("HTTP/1.1 401 No\r\nBarograph-Station: c\r\n\r\n").await;
        let page = server("HTTP/1.1 404 No\r\n\r\n").await;
        let closed = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.local_addr().unwrap()
        };
        let found = first_that_answers(b.clone(), vec![closed, other, page, good]).await;
        assert_eq!(found, Ok(good));
        let error = first_that_answers(b.clone(), vec![other, page, closed]).await.unwrap_err();
        assert_eq!(error.failure, Failure::Unreachable, "the first address decides");
        let error = error.reason;
        assert!(
            error.contains("another station answers there: `c`") && error.contains("not a station"),
            "{error}"
        );
        assert!(error.find(&other.to_string()) < error.find(&page.to_string()), "{error}");
        let refused = first_that_answers(b.clone(), vec![closed, page]).await.unwrap_err();
        assert_eq!(refused.failure, Failure::Refused);
        let no_station = first_that_answers(b.clone(), vec![page]).await.unwrap_err();
        assert_eq!(no_station.failure, Failure::InvalidResponse);
        assert!(first_that_answers(b, Vec::new()).await.is_err());
    }
}
