//! Tests sending with a scripted kernel that refuses calls.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const CAPABILITIES: SocketCapabilities = SocketCapabilities {
    train_max: 64,
    train_bytes_max: 65_507,
    receives_trains: true,
    has_drops: true,
    has_marks: true,
    has_times: true,
    receive_buffer_bytes: 0,
};

/// Scripted result of one call.
#[derive(Clone, Copy, Debug)]
enum Meets {
    /// The call accepts this many messages.
    Room(usize),
    Error(Errno),
}

/// Accepts datagrams like the kernel, limited by a script.
struct Kernel {
    script: VecDeque<Meets>,
    takes_trains: bool,
    datagram_max: usize,
    calls: usize,
    datagrams: Vec<Vec<u8>>,
}

impl Kernel {
    fn new(script: impl IntoIterator<Item = Meets>) -> Self {
        let script = script.into_iter().collect();
        Self { script, takes_trains: true, datagram_max: 9000, calls: 0, datagrams: Vec::new() }
    }

    fn call(&mut self, batch: &Batch<'_>) -> nix::Result<usize> {
        self.calls += 1;
        assert!(batch.count > 0 && batch.messages().iter().all(|[message]| message.len() <= 65_507));
        let room = match self.script.pop_front().unwrap_or(Meets::Room(MESSAGES)) {
            Meets::Error(error) => return Err(error),
            Meets::Room(room) => room.clamp(1, batch.count),
        };
        let mut sent = 0;
        for [message] in batch.messages().iter().take(room) {
            let segment = batch.segment.map_or(message.len(), usize::from);
            let is_cut = message.len() > segment;
            let error = if is_cut && !self.takes_trains {
                Some(Errno::EIO)
            } else if segment.min(message.len()) > self.datagram_max {
                Some(Errno::EMSGSIZE)
            } else {
                assert!(message.len().div_ceil(segment) <= 64);
                None
            };
            match error {
                Some(error) if sent == 0 => return Err(error),
                Some(_) => break,
                None => self.datagrams.extend(message.chunks(segment).map(<[u8]>::to_vec)),
            }
            sent += 1;
        }
        Ok(sent)
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn whole<'a>(trains: &[Train<'a>]) -> Vec<&'a [u8]> {
    trains.iter().flat_map(|train| train.bytes.chunks(train.segment)).collect()
}

fn send(
    trains: &[Train<'_>],
    kernel: &mut Kernel,
) -> (io::Result<usize>, SocketCapabilities, SocketCounters) {
    let (mut capabilities, mut counters) = (CAPABILITIES, SocketCounters::default());
    let sent =
        TrainSender::default().send(trains, &mut capabilities, &mut counters, |batch| kernel.call(batch));
    (sent, capabilities, counters)
}

#[test]
fn a_path_without_trains_gets_every_datagram_once() {
    let bytes = bytes(100_000);
    let trains = [1472, 1200].map(|segment| Train { bytes: &bytes, segment });
    let mut kernel = Kernel { takes_trains: false, ..Kernel::new([]) };
    let (sent, capabilities, counters) = send(&trains, &mut kernel);
    assert_eq!((sent.unwrap(), capabilities.train_max, counters), (2, 1, SocketCounters::default()));
    assert_eq!(kernel.datagrams, whole(&trains));
}

#[test]
fn an_error_of_an_earlier_datagram_changes_nothing() {
    let bytes = bytes(30_000);
    let trains = [Train { bytes: &bytes, segment: 1472 }];
    for error in [Errno::EMSGSIZE, Errno::ECONNREFUSED, Errno::EHOSTUNREACH, Errno::EINTR, Errno::EPROTO] {
        let mut kernel = Kernel::new([Meets::Error(error)]);
        let (sent, capabilities, counters) = send(&trains, &mut kernel);
        assert_eq!((sent.unwrap(), capabilities, counters.lost), (1, CAPABILITIES, 0), "{error}");
        assert_eq!(kernel.datagrams, whole(&trains), "{error}");
    }
}

#[test]
fn a_too_large_datagram_is_an_error_and_trains_stay_enabled() {
    let bytes = bytes(30_000);
    let trains = [1472, 1200].map(|segment| Train { bytes: &bytes, segment });
    let mut kernel = Kernel { datagram_max: 1400, ..Kernel::new([]) };
    let (sent, capabilities, _) = send(&trains, &mut kernel);
    assert!(super::super::is_too_large(&sent.unwrap_err()));
    assert_eq!(capabilities, CAPABILITIES);
    // If a valid train precedes the train that is too long, the valid train is sent.
    let (sent, ..) = send(&[trains[1], trains[0]], &mut kernel);
    assert_eq!(
        (sent.unwrap(), &kernel.datagrams[..]),
        (1, &whole(&trains[1..]).into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>()[..])
    );
}

#[test]
fn datagrams_lost_to_a_lasting_error_are_counted() {
    let bytes = bytes(1000);
    let trains = [Train { bytes: &bytes, segment: 500 }; 2];
    let mut kernel = Kernel::new([Meets::Error(Errno::ENETUNREACH); 2]);
    let (sent, capabilities, counters) = send(&trains, &mut kernel);
    assert_eq!((sent.unwrap(), capabilities, counters.lost, counters.passing), (2, CAPABILITIES, 2, 2));
    assert_eq!(counters.last_passing, Some(Errno::ENETUNREACH as i32));
    assert_eq!(kernel.datagrams, whole(&trains[1..]));
}

#[test]
fn unexpected_socket_errors_are_returned() {
    let trains = [Train { bytes: &[1], segment: 1 }];
    let (sent, ..) = send(&trains, &mut Kernel::new([Meets::Error(Errno::EBADF); 2]));
    assert_eq!(sent.unwrap_err().raw_os_error(), Some(Errno::EBADF as i32));
}

#[test]
fn a_different_train_after_a_partial_send_is_sent_whole() {
    let (one, mut other) = (bytes(5000), bytes(5000));
    other[0] ^= 1;
    let (mut outbox, mut counters) = (TrainSender::default(), SocketCounters::default());
    let mut capabilities = SocketCapabilities { train_max: 1, ..CAPABILITIES };
    let mut kernel = Kernel::new([Meets::Room(2), Meets::Error(Errno::EAGAIN)]);
    let sent =
        outbox.send(&[Train { bytes: &one, segment: 1000 }], &mut capabilities, &mut counters, |batch| {
            kernel.call(batch)
        });
    assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let sent =
        outbox.send(&[Train { bytes: &other, segment: 1000 }], &mut capabilities, &mut counters, |batch| {
            kernel.call(batch)
        });
    assert_eq!((sent.unwrap(), kernel.datagrams.concat()), (1, [&one[..2000], &other].concat()));
}

#[test]
fn trains_of_the_largest_length_are_sent_in_one_call() {
    let bytes = bytes(44 * 1472);
    let trains = [Train { bytes: &bytes, segment: 1472 }; 3];
    let mut kernel = Kernel::new([]);
    assert_eq!(send(&trains, &mut kernel).0.unwrap(), 3);
    assert_eq!((kernel.calls, kernel.datagrams.len()), (1, 132));
}

fn meets() -> impl Strategy<Value = Meets> {
    let error = prop::sample::select(vec![Errno::EAGAIN, Errno::EINTR, Errno::ECONNREFUSED]);
    prop_oneof![(1..80usize).prop_map(Meets::Room), error.prop_map(Meets::Error)]
}

proptest! {
    /// Every datagram is sent once and in order, or is counted as lost. This property must not
    /// depend on how much the kernel accepts in one call, or on whether it accepts trains.
    #[test]
    fn every_datagram_is_sent_once_or_counted_as_lost(
        shapes in prop::collection::vec((0..150_000usize, 500..9000usize), 1..6),
        script in prop::collection::vec(meets(), 0..40),
        takes_trains: bool,
    ) {
        let bytes = bytes(150_000);
        let trains: Vec<_> = shapes.iter().map(|&(length, segment)| Train { bytes: &bytes[..length], segment }).collect();
        let mut kernel = Kernel { takes_trains, ..Kernel::new(script) };
        let (mut outbox, mut capabilities, mut counters) = (TrainSender::default(), CAPABILITIES, SocketCounters::default());
        let (mut done, mut calls) = (0, 0);
        while done < trains.len() {
            calls += 1;
            prop_assert!(calls < 100);
            match outbox.send(&trains[done..], &mut capabilities, &mut counters, |batch| kernel.call(batch)) {
                Ok(sent) => done += sent,
                Err(error) => prop_assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        let expected = whole(&trains);
        prop_assert_eq!(kernel.datagrams.len() + counters.lost as usize, expected.len());
        if counters.lost == 0 {
            prop_assert!(kernel.datagrams == expected);
        }
        prop_assert!(takes_trains || capabilities.train_max == 1 || expected.len() <= trains.len() || counters.lost > 0);
    }
}
