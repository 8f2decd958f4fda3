//! A native client of the same WebSocket endpoint that pages use: the control that tells the station's share of a round
//! trip from the browser's.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use barograph_probe::wire::{Reply, Request};
use barograph_sim::Network;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

/// The times of `n` exchanges one after another on one connection (docs/spec/echo.md), in seconds.
pub(crate) fn exchanges(network: &Network, station: SocketAddr, n: u32) -> anyhow::Result<Vec<f64>> {
    // A socket stays in the namespace in which it was made.
    let stream = network.a.run(|| TcpStream::connect_timeout(&station, WAIT_MAX))??;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_write_timeout(Some(WAIT_MAX))?;
    let mut request = format!("ws://{station}/v1/echo").into_client_request()?;
    let protocol = HeaderValue::from_static("barograph-probe.1");
    request.headers_mut().insert("sec-websocket-protocol", protocol);
    let (mut socket, _) = client(request, stream).map_err(|error| anyhow::anyhow!("{error}"))?;
    socket.send(Message::binary(Request::Rtt { n }.encode().to_vec()))?;
    let reply = Reply::decode(&take(&mut socket)?).context("the station's reply")?;
    ensure!(matches!(reply, Reply::Ready { .. }), "the station declines: {reply:?}");
    let mut times_s = Vec::new();
    for i in 0..n {
        // Two bytes, as the page sends them.
        let message = (i as u16).to_be_bytes().to_vec();
        let began = Instant::now();
        socket.send(Message::binary(message))?;
        take(&mut socket)?;
        times_s.push(began.elapsed().as_secs_f64());
    }
    socket.close(None)?;
    Ok(times_s)
}

/// The next binary message.
fn take(socket: &mut WebSocket<TcpStream>) -> anyhow::Result<Vec<u8>> {
    loop {
        match socket.read()? {
            Message::Binary(bytes) => return Ok(bytes.to_vec()),
            Message::Ping(_) | Message::Pong(_) => {}
            other => bail!("the station sent {other:?}"),
        }
    }
}

/// Far beyond what any step takes on loopback.
const WAIT_MAX: Duration = Duration::from_secs(10);
