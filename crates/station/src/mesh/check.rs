//! Which of a peer's addresses answers, and whether it is the peer who answers there.
//!
//! Private addresses mean another host in another network: whoever answers is asked for its name.

use std::net::SocketAddr;
use std::time::Duration;

use barograph_forecast::Name;
use barograph_probe::{signed, wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The first of `addresses` at which `host` answers: they are begun in their order, each a little after the
/// one before (RFC 8305 §5).
///
/// # Errors
/// A sentence that names each address and what is wrong with it.
pub(super) async fn first_that_answers(host: Name, addresses: Vec<SocketAddr>) -> Result<SocketAddr, String> {
    let mut tries = JoinSet::new();
    for (place, address) in (0..).zip(addresses) {
        let host = host.clone();
        tries.spawn(async move {
            sleep(STAGGER * place).await;
            let answer = timeout(TRY, ask(&host, address)).await;
            let answer = answer.unwrap_or_else(|_| Err(format!("no answer for {} s", TRY.as_secs())));
            (place, address, answer)
        });
    }
    let mut troubles = Vec::new();
    while let Some(tried) = tries.join_next().await {
        match tried {
            // Dropping the set ends the others.
            Ok((_, address, Ok(()))) => return Ok(address),
            Ok((place, address, Err(why))) => troubles.push((place, format!("{address}: {why}"))),
            Err(_) => {}
        }
    }
    troubles.sort();
    let troubles: Vec<String> = troubles.into_iter().map(|(_, trouble)| trouble).collect();
    Err(format!("no address answers ({})", troubles.join("; ")))
}

/// Asks whoever is at `address` for a probe without being able to get one: the refusal tells its name.
async fn ask(host: &Name, address: SocketAddr) -> Result<(), String> {
    let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let path = wire::PATH;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(read @ 1..) if bytes.len() < HEAD_BYTES_MAX => bytes.extend_from_slice(&buffer[..read]),
            Ok(_) => return Err("whoever is there is no station".into()),
            Err(error) => return Err(error.to_string()),
        }
    }
    let head = String::from_utf8_lossy(&bytes);
    let named = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let name = named.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(signed::NAME_HEADER));
    match name.and_then(|(_, value)| signed::read_name(value.trim())) {
        Some(name) if name == *host => Ok(()),
        Some(name) => Err(format!("the station there is `{name}`")),
        None => Err("whoever is there is no station".into()),
    }
}

/// Between two addresses of one peer, as RFC 8305 §5 recommends.
const STAGGER: Duration = Duration::from_millis(250);
/// A second SYN is sent after a second, a third after three (RFC 6298 §2); then it is not the loss of a packet.
const TRY: Duration = Duration::from_secs(4);
/// A refusal has a few hundred bytes of headers.
const HEAD_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::net::TcpListener;

    use super::*;

    /// Somebody who answers everything with `answer`.
    async fn somebody(answer: &'static str) -> SocketAddr {
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
    async fn the_peer_is_told_from_whoever_else_has_its_address() {
        let b = Name::new("b").unwrap();
        let good = somebody("HTTP/1.1 401 No\r\nBarograph-Station: b\r\n\r\n").await;
        let other = somebody("HTTP/1.1 401 No\r\nBarograph-Station: c\r\n\r\n").await;
        let page = somebody("HTTP/1.1 404 No\r\n\r\n").await;
        let nobody = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.local_addr().unwrap()
        };
        let found = first_that_answers(b.clone(), vec![nobody, other, page, good]).await;
        assert_eq!(found, Ok(good));
        let error = first_that_answers(b.clone(), vec![other, page, nobody]).await.unwrap_err();
        assert!(error.contains("the station there is `c`") && error.contains("no station"), "{error}");
        assert!(error.find(&other.to_string()) < error.find(&page.to_string()), "{error}");
        assert!(first_that_answers(b, Vec::new()).await.is_err());
    }
}
