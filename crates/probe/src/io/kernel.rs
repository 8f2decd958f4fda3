//! The kernel's view of a connection: `TCP_INFO` on Linux.

use std::os::fd::AsFd;

use crate::TcpInfo;

/// `TCP_INFO` of a connection; `elapsed_s` is the duration of the measured part in seconds. Returns
/// `None` if the system does not provide `TCP_INFO`.
pub(super) fn tcp_info(tcp: &impl AsFd, elapsed_s: f64) -> Option<TcpInfo> {
    read(tcp, elapsed_s, false)
}

/// `TCP_INFO` after a transfer during which the sender always had data. If the transfer was too
/// short for the kernel's clock, `limited_by` is `None`.
pub fn bulk_tcp_info(tcp: &impl AsFd, elapsed_s: f64) -> Option<TcpInfo> {
    read(tcp, elapsed_s, true)
}

#[cfg(target_os = "linux")]
fn read(tcp: &impl AsFd, elapsed_s: f64, bulk: bool) -> Option<TcpInfo> {
    use nix::sys::socket::{getsockopt, sockopt};

    let bytes = getsockopt(tcp, linux::Info).ok()?;
    let congestion = getsockopt(tcp, sockopt::TcpCongestion).ok().and_then(|name| name.into_string().ok());
    Some(linux::decode(&bytes, congestion.filter(|name| !name.is_empty()), elapsed_s, bulk))
}

/// Counters of the kernel for a connection up to now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    /// Bytes that the peer's kernel has acknowledged over the life of the connection.
    pub(super) acked_bytes: u64,
    pub(super) rtt_s: Option<f64>,
    pub(super) min_rtt_s: Option<f64>,
    pub(super) total_retrans: u32,
    pub(super) app_limited: bool,
}

#[cfg(target_os = "linux")]
pub(super) fn counters(tcp: &impl AsFd) -> Option<Counters> {
    nix::sys::socket::getsockopt(tcp, linux::Info).ok().map(|bytes| linux::counters(&bytes))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn counters(_tcp: &impl AsFd) -> Option<Counters> {
    None
}

/// Other systems have no Linux `TCP_INFO`.
#[cfg(not(target_os = "linux"))]
fn read(_tcp: &impl AsFd, _elapsed_s: f64, _bulk: bool) -> Option<TcpInfo> {
    None
}

#[cfg(target_os = "linux")]
mod linux {
    use nix::{getsockopt_impl, libc, sockopt_impl};

    use crate::{SenderLimit, TcpInfo};

    /// `struct tcp_info` up to `tcpi_sndbuf_limited` (Linux 4.10, `include/uapi/linux/tcp.h`).
    ///
    /// The kernel fills only the requested bytes, so fields added later change nothing.
    const BYTES: usize = 192;

    sockopt_impl!(
        /// The first [`BYTES`] bytes of `struct tcp_info`.
        Info, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, [u8; BYTES]
    );

    pub(super) fn counters(info: &[u8; BYTES]) -> super::Counters {
        let seconds = |us: u32| f64::from(us) / 1e6;
        let (rtt_us, min_rtt_us) = (u32_at(info, 68), u32_at(info, 148));
        super::Counters {
            acked_bytes: u64_at(info, 120),
            // Before the first sample, `rtt` is zero and `min_rtt` is all ones.
            rtt_s: (rtt_us != 0).then(|| seconds(rtt_us)),
            min_rtt_s: (min_rtt_us != u32::MAX).then(|| seconds(min_rtt_us)),
            total_retrans: u32_at(info, 100),
            app_limited: is_app_limited(info),
        }
    }

    fn is_app_limited(info: &[u8; BYTES]) -> bool {
        info[7] & if cfg!(target_endian = "little") { 0x01 } else { 0x80 } != 0
    }

    pub(super) fn decode(
        info: &[u8; BYTES],
        congestion: Option<String>,
        elapsed_s: f64,
        bulk: bool,
    ) -> TcpInfo {
        let app_limited = is_app_limited(info);
        let min_rtt_us = u32_at(info, 148);
        let delivery_rate = u64_at(info, 160);
        TcpInfo {
            // `min_rtt` is all ones before the first sample.
            min_rtt_s: (min_rtt_us != u32::MAX).then(|| f64::from(min_rtt_us) / 1e6),
            total_retrans: u32_at(info, 100),
            congestion,
            limited_by: SenderTimes::of(info).limit(bulk, elapsed_s),
            // The kernel keeps an application-limited sample only if the sample is larger than the
            // sample before. So an application-limited sample is not the path's rate.
            delivery_rate_bit_s: (!app_limited && delivery_rate != 0).then_some(delivery_rate as f64 * 8.0),
        }
    }

    /// Times of the sender that the kernel counts, in µs, and whether the application limits it.
    #[derive(Clone, Copy)]
    struct SenderTimes {
        /// Whether the application had no data to send when the newest rate was sampled.
        app_limited: bool,
        /// Time with unacknowledged data.
        busy_us: u64,
        /// Time in which the receive window was the limit.
        rwnd_us: u64,
        /// Time in which the send buffer was the limit.
        sndbuf_us: u64,
    }

    impl SenderTimes {
        fn of(info: &[u8; BYTES]) -> Self {
            Self {
                app_limited: is_app_limited(info),
                busy_us: u64_at(info, 168),
                rwnd_us: u64_at(info, 176),
                sndbuf_us: u64_at(info, 184),
            }
        }

        /// What limited the sender for the largest part of the time in which it had unacknowledged
        /// data. `None` for a `bulk` transfer that was too short for the kernel's clock.
        fn limit(self, bulk: bool, elapsed_s: f64) -> Option<SenderLimit> {
            let Self { app_limited, busy_us, rwnd_us, sndbuf_us } = self;
            if bulk && busy_us < BUSY_US_MIN {
                return None;
            }
            let neither_us = busy_us.saturating_sub(rwnd_us).saturating_sub(sndbuf_us);
            let busy_half = elapsed_s * 1e6 / 2.0 <= busy_us as f64;
            Some(match rwnd_us.max(sndbuf_us) {
                most if most <= neither_us && (app_limited || !busy_half) => SenderLimit::Application,
                most if most <= neither_us => SenderLimit::Network,
                most if most == rwnd_us => SenderLimit::ReceiveWindow,
                _ => SenderLimit::SendBuffer,
            })
        }
    }

    /// Minimum busy time, in µs, for which the limit of a bulk transfer is determined. The kernel
    /// counts busy time in jiffies of 1 to 10 ms, so a shorter time is too inaccurate.
    const BUSY_US_MIN: u64 = 10_000;

    fn u32_at(info: &[u8; BYTES], at: usize) -> u32 {
        u32::from_ne_bytes(info[at..at + 4].try_into().expect("a range of four is four bytes"))
    }

    fn u64_at(info: &[u8; BYTES], at: usize) -> u64 {
        u64::from_ne_bytes(info[at..at + 8].try_into().expect("a range of eight is eight bytes"))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_largest_share_of_time_determines_the_sender_limit() {
            for (app_limited, busy_us, rwnd_us, sndbuf_us, elapsed_s, expected) in [
                (false, 1_000_000, 700_000, 100_000, 1.0, SenderLimit::ReceiveWindow),
                (false, 1_000_000, 100_000, 700_000, 1.0, SenderLimit::SendBuffer),
                (false, 1_000_000, 300_000, 300_000, 1.0, SenderLimit::Network),
                (true, 1_000_000, 0, 0, 1.0, SenderLimit::Application),
                (false, 100_000, 0, 0, 1.0, SenderLimit::Application),
                (true, 0, 0, 0, 1.0, SenderLimit::Application),
            ] {
                let times = SenderTimes { app_limited, busy_us, rwnd_us, sndbuf_us };
                for bulk in [false, true] {
                    let expected = (!bulk || busy_us > 0).then_some(expected);
                    assert_eq!(times.limit(bulk, elapsed_s), expected);
                }
            }
            let short = SenderTimes { app_limited: true, busy_us: 9_999, rwnd_us: 0, sndbuf_us: 0 };
            assert_eq!(short.limit(true, 0.003), None, "too short to tell");
            assert_eq!(short.limit(false, 0.003), Some(SenderLimit::Application));
        }

        /// Checks every offset above against the declaration of the C library.
        #[cfg(target_env = "gnu")]
        #[test]
        fn offsets_of_tcp_info_equal_those_of_the_c_library() {
            use std::mem::offset_of;
            assert_eq!(offset_of!(libc::tcp_info, tcpi_snd_rcv_wscale), 6);
            assert_eq!(offset_of!(libc::tcp_info, tcpi_rtt), 68);
            assert_eq!(offset_of!(libc::tcp_info, tcpi_total_retrans), 100);
            assert_eq!(offset_of!(libc::tcp_info, tcpi_bytes_acked), 120);
            assert_eq!(offset_of!(libc::tcp_info, tcpi_min_rtt), 148);
            assert_eq!(offset_of!(libc::tcp_info, tcpi_delivery_rate), 160);
            assert_eq!(offset_of!(libc::tcp_info, tcpi_busy_time), 168);
            assert_eq!(offset_of!(libc::tcp_info, tcpi_rwnd_limited), 176);
            assert_eq!(offset_of!(libc::tcp_info, tcpi_sndbuf_limited), 184);
            assert_eq!(offset_of!(libc::tcp_info, tcpi_delivered), BYTES);
        }
    }
}
