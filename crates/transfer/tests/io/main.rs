//! Flows over loopback.
#![cfg(feature = "io")]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_transfer::controller::{self, Config};
use barograph_transfer::io::flow::{FlowError, Inflow, Origin, Outflow, Sink, Watch};
use barograph_transfer::io::seal::{Opener, Sealer, Suite};
use barograph_transfer::io::socket::{Socket, SocketConfig};
use barograph_transfer::{Receiver, ReceiverConfig, Sender, SenderConfig};
use rangemap::RangeSet;

struct Memory(Arc<Mutex<Vec<u8>>>);

impl Origin for Memory {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FlowError> {
        let at = offset as usize;
        out.copy_from_slice(&self.0.lock().unwrap()[at..at + out.len()]);
        Ok(())
    }
}

impl Sink for Memory {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError> {
        let at = offset as usize;
        self.0.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn sync(&mut self) -> Result<(), FlowError> {
        Ok(())
    }
}

#[test]
fn an_object_arrives_sealed() {
    let bytes: Vec<u8> = (0..4_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let config = SocketConfig { buffer_bytes: 1 << 20, trains: true, ecn: true };
    let here = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let there = Socket::bind(here, config).unwrap();
    let mut socket = Socket::bind(here, config).unwrap();
    socket.connect(there.local_addr().unwrap()).unwrap();
    let suite = Suite::fastest();
    let (data, back) = ([1; 32], [2; 32]);
    let out = Arc::new(Mutex::new(vec![0; bytes.len()]));
    let (length, silence_max) = (bytes.len() as u64, Duration::from_secs(5));
    let sender = Sender::new(
        SenderConfig { payload_bytes: 1400, overhead_bytes: 72, seed: 1, has_ear: true },
        length,
        &RangeSet::new(),
        controller::Kind::DEFAULT.controller(Config::default()),
    )
    .unwrap();
    let outflow = Outflow {
        socket,
        sealer: Sealer::new(suite, &data),
        opener: Opener::new(suite, &back),
        transfer: 7,
        sender,
        origin: Box::new(Memory(Arc::new(Mutex::new(bytes.clone())))),
        silence_max,
    };
    let inflow = Inflow {
        socket: there,
        opener: Opener::new(suite, &data),
        sealer: Sealer::new(suite, &back),
        transfer: 7,
        receiver: Receiver::new(ReceiverConfig { feedback_bytes_max: 1200 }, length, RangeSet::new())
            .unwrap(),
        sink: Box::new(Memory(out.clone())),
        from: here.ip(),
        silence_max,
    };
    let watch = Watch::default();
    let inflow = std::thread::spawn(move || inflow.run(&Watch::default()).map(|_| ()));
    let (stats, _) = outflow.run(&watch).unwrap_or_else(|error| panic!("{error}"));
    inflow.join().unwrap().unwrap();
    assert_eq!(stats.acked_bytes, length);
    assert!(*out.lock().unwrap() == bytes);
}
