//! Tests in which callers at five addresses in four networks occupy all live streams, or all
//! sessions of pages.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use barograph_sim::{Link, Network, network_or_report};
use barograph_station::Config;

use super::{add_addresses, attackers};
use crate::engine::invite;
use crate::http::{get, post};
use crate::{LIMIT, Running, quiet, serve};

const PAGE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const MEMBER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const SLOTS: usize = 16;

/// The kind of slot that is held.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Slot {
    /// A live stream, `/v1/stream`.
    Stream,
    /// A session of a page, `/v1/echo`.
    Session,
}

/// Whether an address has sent a member's token.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Caller {
    Anonymous,
    Authenticated,
}

struct Stage {
    network: Network,
    station: Running,
    token: String,
    _state: tempfile::TempDir,
}

impl Stage {
    fn set() -> Option<Self> {
        let network = network_or_report(Link::Veth { rate_bps: None }, "a crowd that holds every slot")?;
        add_addresses(&network);
        let state = tempfile::tempdir().unwrap();
        let mut config = Config {
            listen: "0.0.0.0:0".parse().unwrap(),
            allowed_hosts: vec!["station".into()],
            streams_max: SLOTS,
            ..quiet(state.path())
        };
        config.echo.sessions_max = SLOTS;
        let (station, token) = network
            .b
            .run(|| {
                let station = serve(config);
                let token = invite(([127, 0, 0, 1], station.address().port()).into(), Some("member"));
                (station, token)
            })
            .unwrap();
        Some(Self { network, station, token, _state: state })
    }

    fn address(&self) -> SocketAddr {
        (barograph_sim::B_V4, self.station.address().port()).into()
    }

    /// Sends a request from an address; returns the connection and the status of the response.
    fn ask(&self, source: Ipv4Addr, request: &str) -> (TcpStream, u16) {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
        socket.connect_timeout(&self.address().into(), LIMIT).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            assert_eq!(stream.read(&mut byte).unwrap(), 1, "closed amid a head");
            head.push(byte[0]);
        }
        let status = String::from_utf8(head).unwrap()[9..12].parse().unwrap();
        (stream, status)
    }

    /// Takes a slot; `None` if it is refused.
    fn take(&self, slot: Slot, source: Ipv4Addr, caller: Caller) -> Option<TcpStream> {
        if caller == Caller::Authenticated {
            let request = format!(
                "GET /v1/engine/next_seq?origin=member HTTP/1.1\r\nHost: station\r\nAuthorization: Bearer {}\r\n\r\n",
                self.token
            );
            assert_eq!(self.ask(source, &request).1, 200);
        }
        let (stream, status) = self.ask(source, slot.request());
        (status < 300).then_some(stream)
    }
}

impl Slot {
    fn request(self) -> &'static str {
        match self {
            Self::Stream => "GET /v1/stream?quantity=fed HTTP/1.1\r\nHost: station\r\n\r\n",
            Self::Session => {
                "GET /v1/echo HTTP/1.1\r\nHost: station\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: barograph-probe.1\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            }
        }
    }

    fn limit(self) -> &'static str {
        match self {
            Self::Stream => "streams",
            Self::Session => "echo_sessions",
        }
    }

    /// Whether the station still serves the connection after a new record.
    fn is_served(self, mut stream: TcpStream) -> bool {
        let wanted: &[u8] = match self {
            Self::Stream => b"event: point",
            Self::Session => {
                // Send a ping that is masked with zeros (RFC 6455 §5.2), and expect the pong.
                stream.write_all(&[0x89, 0x80, 0, 0, 0, 0]).unwrap();
                &[0x8a, 0]
            }
        };
        let mut read = Vec::new();
        let mut buffer = [0; 1024];
        while !read.windows(wanted.len()).any(|window: &[u8]| window == wanted) {
            match stream.read(&mut buffer) {
                Ok(count @ 1..) => read.extend(&buffer[..count]),
                _ => return false,
            }
        }
        true
    }
}

/// The attackers take as many slots as the station gives. Then a page and a member take one slot
/// each, and the attackers try again.
fn a_crowd_keeps_no_other_caller_out(slot: Slot, crowd: Caller) {
    let Some(stage) = Stage::set() else { return };
    let honest = stage.network.a.run(|| {
        let crowd_takes = || {
            let mut held = Vec::new();
            for source in attackers().take(5) {
                held.extend((0..SLOTS).map_while(|_| stage.take(slot, source, crowd)));
            }
            held
        };
        let _held = crowd_takes();
        assert!(
            attackers().take(5).all(|source| stage.take(slot, source, crowd).is_none()),
            "it has its fill"
        );
        let page = stage.take(slot, PAGE, Caller::Anonymous).expect("the page is kept out");
        let member = stage.take(slot, MEMBER, Caller::Authenticated).expect("the member is kept out");
        let _more = crowd_takes();
        let check_health = || {
            let here = ([127, 0, 0, 1], stage.station.address().port()).into();
            assert_eq!(
                post(here, "/v1/measurements", r#"{"records":[{"quantity":"fed","value":1}]}"#).status,
                201
            );
            let health = get(here, "/healthz").json();
            let row = health["limits"].as_array().unwrap().iter().find(|row| row["limit"] == slot.limit());
            let row = row.unwrap();
            assert!(row["now"].as_u64() <= row["max"].as_u64() && row["max"] == SLOTS, "{row}");
            assert!(row["refused"].as_u64().unwrap() > 0, "what was closed for others is counted: {row}");
        };
        stage.network.b.run(check_health).unwrap();
        [page, member].map(|stream| slot.is_served(stream))
    });
    assert_eq!(honest.unwrap(), [true; 2], "the page and the member were closed for the crowd");
    stage.station.stop(LIMIT);
}

#[test]
fn callers_that_hold_every_stream_do_not_lock_out_pages_or_members() {
    a_crowd_keeps_no_other_caller_out(Slot::Stream, Caller::Anonymous);
    a_crowd_keeps_no_other_caller_out(Slot::Stream, Caller::Authenticated);
}

#[test]
fn callers_that_hold_every_session_do_not_lock_out_pages_or_members() {
    a_crowd_keeps_no_other_caller_out(Slot::Session, Caller::Anonymous);
    a_crowd_keeps_no_other_caller_out(Slot::Session, Caller::Authenticated);
}
