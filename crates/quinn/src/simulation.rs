//! Connections of quinn-proto in virtual time: a bottleneck, and a receiving host that does not
//! always run.

mod floors;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::congestion::ControllerFactory;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event,
    IdleTimeout, ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt,
};

use crate::controller::HostLossController;
use crate::drops::{DropMeter, Reporter};
use crate::inbox::LossCounts;
use crate::tests::epoch;
use crate::wire::Datagram;

/// Path and receiving host of a simulation.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    pub(super) mbit_s: f64,
    pub(super) round_trip: Duration,
    /// Queue of the bottleneck in products of rate and round trip.
    pub(super) queue: f64,
    /// The host runs for the first of each second time.
    pub(super) runs: [Duration; 2],
    /// Time in which the host reads a packet.
    pub(super) read_time: Duration,
}

/// What one flow does.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) factory: Arc<dyn ControllerFactory + Send + Sync>,
    pub(super) receiver: Receiver,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Receiver {
    Stock,
    Reports,
    /// Claims that its socket dropped whatever is lost.
    Lies,
}

/// What came of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) mbit_s: f64,
    /// Share of the packets that were lost (0 to 1).
    pub(super) lost: f64,
    pub(super) counts: Option<LossCounts>,
}

/// Runs flows with receivers on one host for this time. The rates are those after `START`.
pub(super) fn run(world: World, plans: &[Plan], time: Duration) -> Vec<Outcome> {
    let start = epoch();
    let mut flows: Vec<Flow> = plans.iter().map(|plan| Flow::new(plan.clone(), start)).collect();
    let mut link = Link::new(world, start);
    let mut now = start;
    while now < start + time {
        for flow in &mut flows {
            if now < start + START {
                flow.received_bytes = 0;
            }
            flow.drive(&world, start, now, &mut link);
        }
        let next = flows.iter_mut().filter_map(|flow| flow.next(&world, start)).min();
        now = next.expect("a timer runs").max(now + TICK);
    }
    let seconds = (time - START).as_secs_f64();
    flows.iter().map(|flow| flow.outcome(seconds)).collect()
}

/// The bottleneck towards the receivers.
struct Link {
    bytes_s: f64,
    queue_s: f64,
    delay: Duration,
    free: Instant,
}

impl Link {
    fn new(world: World, start: Instant) -> Self {
        Self {
            bytes_s: world.mbit_s * 125e3,
            queue_s: world.queue * world.round_trip.as_secs_f64(),
            delay: world.round_trip / 2,
            free: start,
        }
    }

    /// When a packet arrives; `None` if the queue is full.
    fn send(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let begins = self.free.max(now);
        if (begins - now).as_secs_f64() > self.queue_s {
            return None;
        }
        self.free = begins + Duration::from_secs_f64((bytes + HEADER_BYTES) as f64 / self.bytes_s);
        Some(self.free + self.delay)
    }
}

/// Packets with their times of arrival, in order.
type Arrivals = VecDeque<(Instant, BytesMut)>;

struct Peer {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    arriving: Arrivals,
}

impl Peer {
    fn new(server: Option<ServerConfig>, seed: u8) -> Self {
        let config = Arc::new(EndpointConfig::default());
        let endpoint = Endpoint::new(config, server.map(Arc::new), false, Some([seed; 32]));
        Self { endpoint, connection: None, arriving: Arrivals::new() }
    }

    fn handle(&mut self, now: Instant, packet: BytesMut) {
        let mut response = Vec::new();
        let event = self.endpoint.handle(now, ADDRESS, None, None, packet, &mut response);
        match event {
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, now, &mut response, None);
                self.connection = accepted.ok();
            }
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }

    /// Timers and events between connection and endpoint.
    fn maintain(&mut self, now: Instant) {
        let Some((handle, connection)) = &mut self.connection else { return };
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
    }

    /// Packets that are sent now.
    fn packets(&mut self, now: Instant) -> Vec<BytesMut> {
        let Some((_, connection)) = &mut self.connection else { return Vec::new() };
        let mut packets = Vec::new();
        let mut buffer = Vec::new();
        while let Some(transmit) = connection.poll_transmit(now, SEGMENTS, &mut buffer) {
            let bytes = &buffer[..transmit.size];
            packets.extend(bytes.chunks(transmit.segment_size.unwrap_or(transmit.size)).map(BytesMut::from));
            buffer.clear();
        }
        packets
    }

    fn timeout(&mut self) -> Option<Instant> {
        self.connection.as_mut().and_then(|(_, connection)| connection.poll_timeout())
    }
}

struct Flow {
    receiver: Receiver,
    sender: Peer,
    server: Peer,
    stream: Option<StreamId>,
    incoming: Option<StreamId>,
    is_offered: bool,
    received_bytes: u64,
    /// Packets in the buffer of the receiver's socket.
    socket: VecDeque<BytesMut>,
    drops: u32,
    busy_until: Instant,
    meter: DropMeter,
    reporter: Option<Reporter>,
    reported: Instant,
    reported_bytes: u64,
}

impl Flow {
    fn new(plan: Plan, start: Instant) -> Self {
        let (server, mut client) = configs();
        client.transport_config(Arc::new(transport(Some(plan.factory))));
        let mut sender = Peer::new(None, 1);
        sender.connection = sender.endpoint.connect(start, client, ADDRESS, "localhost").ok();
        let mut meter = DropMeter::default();
        meter.restart(start);
        Self {
            receiver: plan.receiver,
            sender,
            server: Peer::new(Some(server), 2),
            stream: None,
            incoming: None,
            is_offered: false,
            received_bytes: 0,
            socket: VecDeque::new(),
            drops: 0,
            busy_until: start,
            meter,
            reporter: None,
            reported: start,
            reported_bytes: 0,
        }
    }

    /// Everything that happens now.
    fn drive(&mut self, world: &World, start: Instant, now: Instant, link: &mut Link) {
        while let Some((_, packet)) = self.sender.arriving.pop_front_if(|(at, _)| *at <= now) {
            self.sender.handle(now, packet);
        }
        self.sender.maintain(now);
        self.write(now);
        for packet in self.sender.packets(now) {
            if let Some(at) = link.send(now, packet.len()) {
                self.server.arriving.push_back((at, packet));
            }
        }
        while let Some((_, packet)) = self.server.arriving.pop_front_if(|(at, _)| *at <= now) {
            if self.socket.len() < SOCKET_PACKETS {
                self.socket.push_back(packet);
            } else {
                self.drops += 1;
            }
        }
        if world.is_running(start, now) && self.busy_until <= now {
            self.serve(world, now);
        }
    }

    /// When something may happen next.
    fn next(&mut self, world: &World, start: Instant) -> Option<Instant> {
        let work = if self.socket.is_empty() { self.server.timeout() } else { Some(self.busy_until) };
        let work = work.map(|at| world.runs_from(start, at.max(self.busy_until)));
        let first = |arriving: &Arrivals| arriving.front().map(|(at, _)| *at);
        let arrivals = [first(&self.sender.arriving), first(&self.server.arriving)];
        arrivals.into_iter().flatten().chain(work).chain(self.sender.timeout()).min()
    }

    /// The sending application and its part of the extension.
    fn write(&mut self, now: Instant) {
        let Some((_, connection)) = &mut self.sender.connection else { return };
        while let Some(event) = connection.poll() {
            if matches!(event, Event::Connected) {
                self.stream = connection.streams().open(Dir::Uni);
            }
        }
        if let Some(stream) = self.stream {
            while connection.send_stream(stream).write(&BLOCK).is_ok() {}
        }
        while let Some(datagram) = connection.datagrams().recv() {
            let inbox = inbox(connection);
            if let (Ok(Datagram::Report(report)), Some(inbox)) = (Datagram::decode(&datagram), inbox) {
                inbox.add(now, report);
            }
        }
        if self.stream.is_some() && !self.is_offered {
            self.is_offered = true;
            let _ = connection.datagrams().send(Datagram::Offer.encode().into(), true);
        }
    }

    /// The receiving host reads a batch, as quinn does, and answers.
    fn serve(&mut self, world: &World, now: Instant) {
        let batch: Vec<BytesMut> = self.socket.drain(..self.socket.len().min(BATCH)).collect();
        if !batch.is_empty() {
            let drops = if self.receiver == Receiver::Lies { self.drops + LIE } else { self.drops };
            self.drops = drops;
            self.meter.on_read(now, drops, batch.iter().map(|packet| packet.len()));
        }
        self.busy_until = now + world.read_time * batch.len() as u32;
        for packet in batch {
            self.server.handle(now, packet);
        }
        self.server.maintain(now);
        self.read();
        self.report(now);
        let at = self.busy_until.max(now) + world.round_trip / 2;
        let packets = self.server.packets(now);
        self.sender.arriving.extend(packets.into_iter().map(|packet| (at, packet)));
    }

    /// The receiving application reads all that came.
    fn read(&mut self) {
        let Some((_, connection)) = &mut self.server.connection else { return };
        while let Some(event) = connection.poll() {
            if matches!(event, Event::Stream(StreamEvent::Opened { .. })) {
                self.incoming = connection.streams().accept(Dir::Uni);
            }
        }
        let Some(id) = self.incoming else { return };
        let mut stream = connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(false) else { return };
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            self.received_bytes += chunk.bytes.len() as u64;
        }
        let _ = chunks.finalize();
    }

    /// The receiver's part of the extension.
    fn report(&mut self, now: Instant) {
        let Some((_, connection)) = &mut self.server.connection else { return };
        let mut is_due = false;
        while let Some(datagram) = connection.datagrams().recv() {
            if self.receiver != Receiver::Stock && Datagram::decode(&datagram) == Ok(Datagram::Offer) {
                self.reporter.get_or_insert_with(|| Reporter::new(&self.meter));
                is_due = true;
            }
        }
        let Some(reporter) = &mut self.reporter else { return };
        let is_new = self.meter.dropped_bytes() != self.reported_bytes;
        if is_due || (is_new && now >= self.reported + REPORT_INTERVAL) {
            (self.reported, self.reported_bytes) = (now, self.meter.dropped_bytes());
            let report = Datagram::Report(reporter.report(now, &self.meter));
            let _ = connection.datagrams().send(report.encode().into(), true);
        }
    }

    fn outcome(&self, seconds: f64) -> Outcome {
        let (_, connection) = self.sender.connection.as_ref().expect("it was connected");
        let path = connection.stats().path;
        Outcome {
            mbit_s: self.received_bytes as f64 * 8e-6 / seconds,
            lost: path.lost_packets as f64 / path.sent_packets.max(1) as f64,
            counts: inbox(connection).map(|inbox| inbox.counts()),
        }
    }
}

impl World {
    fn is_running(&self, start: Instant, now: Instant) -> bool {
        self.phase(start, now) < self.runs[0]
    }

    /// The next time from `at` on at which the host runs.
    fn runs_from(&self, start: Instant, at: Instant) -> Instant {
        if self.is_running(start, at) { at } else { at + (self.runs[1] - self.phase(start, at)) }
    }

    fn phase(&self, start: Instant, at: Instant) -> Duration {
        let since = at.saturating_duration_since(start).as_nanos() % self.runs[1].as_nanos();
        Duration::from_nanos(since as u64)
    }
}

fn inbox(connection: &Connection) -> Option<Arc<crate::inbox::Inbox>> {
    HostLossController::inbox_of(connection.congestion_state())
}

fn transport(factory: Option<Arc<dyn ControllerFactory + Send + Sync>>) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
        .receive_window(VarInt::from_u32(WINDOW_BYTES))
        .send_window(u64::from(WINDOW_BYTES))
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(60_000))))
        .mtu_discovery_config(None)
        .initial_mtu(MTU);
    if let Some(factory) = factory {
        transport.congestion_controller_factory(factory);
    }
    transport
}

fn configs() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a name");
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.key_pair.serialize_der());
    let certificate = made.cert.der().clone();
    let mut server = ServerConfig::with_single_cert(vec![certificate.clone()], key.into()).expect("a key");
    server.transport_config(Arc::new(transport(None)));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let client = ClientConfig::with_root_certificates(Arc::new(roots)).expect("roots");
    (server, client)
}

/// One address for all: each endpoint has one peer.
const ADDRESS: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4433);
/// Time until slow start is over.
const START: Duration = Duration::from_secs(2);
/// Least time of a step: the precision of a timer.
const TICK: Duration = Duration::from_micros(5);
/// Packets that fit into Linux's default receive buffer: each takes 2304 of its 212 992 bytes.
const SOCKET_PACKETS: usize = 92;
/// Buffers that quinn reads at once.
const BATCH: usize = 32;
/// Segments that quinn sends at once.
const SEGMENTS: usize = 10;
/// Bytes of the IPv4 and UDP headers.
const HEADER_BYTES: usize = 28;
const MTU: u16 = 1452;
const WINDOW_BYTES: u32 = 25_000_000;
static BLOCK: [u8; 65_536] = [7; 65_536];
const REPORT_INTERVAL: Duration = Duration::from_millis(2);
/// Drops that a receiver claims at each read, although there were none.
const LIE: u32 = 50;
