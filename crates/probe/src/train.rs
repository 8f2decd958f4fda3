//! Packet trains: some packets sent at once show the rate of the slowest link of a path
//! (docs/spec/probe.md §2.4). Pure.
//!
//! A train is cheap, but shows only the capacity for a short burst, not the goodput of a transfer.
//! So its rate is compared only with the rates of other trains.

use std::time::Duration;

/// Number of packets of a train. The rate is that of the second half. The first half, 29 kB, uses
/// up what a token bucket has saved; the buckets of home routers and of `tc` hold 10 to 30 kB.
pub const TRAIN_PACKETS: u32 = 48;

/// UDP payload of each packet of a train, in bytes: what every path of QUIC carries without
/// fragments (RFC 9000 §14).
pub const TRAIN_PACKET_BYTES: usize = 1200;

/// Rate (bit/s) of a train, from the times at which its packets arrived, in ascending order. The
/// rate counts IP and UDP headers.
///
/// The rate is that of the second half of the packets that arrived. `None` if fewer than a third of
/// a train arrived, or if the second half took no time.
#[must_use]
pub fn train_rate_bit_s(arrivals: &[Duration]) -> Option<f64> {
    if arrivals.len() < PACKETS_MIN {
        return None;
    }
    let second_half = &arrivals[arrivals.len() / 2..];
    let time = second_half.last()?.saturating_sub(*second_half.first()?);
    let bytes = (second_half.len() - 1) * (TRAIN_PACKET_BYTES + HEADER_BYTES);
    (!time.is_zero()).then(|| bytes as f64 * 8.0 / time.as_secs_f64())
}

/// Fewest packets that give a rate: a third of a train. A short queue before a slow link drops most
/// of a train, and those that pass arrive at the rate of the link.
const PACKETS_MIN: usize = TRAIN_PACKETS as usize / 3;

/// Bytes of the headers of IPv4 and UDP.
const HEADER_BYTES: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrival times of packets with the given gaps.
    fn arrivals(gaps_us: impl Iterator<Item = u64>) -> Vec<Duration> {
        gaps_us
            .scan(0, |at, gap| {
                *at += gap;
                Some(Duration::from_micros(*at))
            })
            .collect()
    }

    #[test]
    fn the_rate_is_that_of_the_second_half() {
        // 1228 bytes in 982 µs are 10 Mbit/s. The first half came at once, from a token bucket.
        let train = arrivals((0..48).map(|packet| if packet < 24 { 1 } else { 982 }));
        let rate = train_rate_bit_s(&train);
        assert!(rate.is_some_and(|rate| (rate / 10e6 - 1.0).abs() < 0.01), "{rate:?}");
        let lossy = arrivals((0..16).map(|_| 982));
        let rate = train_rate_bit_s(&lossy);
        assert!(rate.is_some_and(|rate| (rate / 10e6 - 1.0).abs() < 0.01), "{rate:?}");
    }

    #[test]
    fn too_few_packets_or_no_time_give_no_rate() {
        assert_eq!(train_rate_bit_s(&[]), None);
        assert_eq!(train_rate_bit_s(&arrivals((0..15).map(|_| 982))), None);
        assert_eq!(train_rate_bit_s(&[Duration::from_secs(1); 48]), None);
    }
}
