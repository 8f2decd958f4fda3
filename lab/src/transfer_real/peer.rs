//! What Barograph is compared with: each peer's programs, version, and rate over a network.

pub(crate) mod bench;
mod gridftp;
mod quinn;
mod ssh;
mod udt;
mod uftp;

use anyhow::Context as _;

use bench::{Bench, Tools};

use crate::iperf;
use crate::tool::{find, package_version};

/// A program, and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// iperf3 with this congestion control.
    Tcp(&'static str),
    /// iperf3, as fast as it can.
    Udp,
    /// Debian's example `appclient`.
    UdtMemory,
    /// Debian's example `sendfile`.
    UdtFile,
    /// At the rate it is told, or with TFMCC (RFC 4654).
    Uftp {
        has_control: bool,
    },
    /// So many TCP connections at once.
    GridFtp {
        streams: u32,
    },
    /// `lab/quinn` with this congestion control.
    Quinn(&'static str),
    Scp,
    RsyncSsh,
    RsyncDaemon,
}

impl Peer {
    /// Those of the table of an uncontended path.
    pub(crate) const ALL: [Self; 14] = [
        Self::Tcp("cubic"),
        Self::Tcp("bbr"),
        Self::Udp,
        Self::Quinn("cubic"),
        Self::Quinn("bbr"),
        Self::UdtMemory,
        Self::UdtFile,
        Self::Uftp { has_control: false },
        Self::Uftp { has_control: true },
        Self::GridFtp { streams: 1 },
        Self::GridFtp { streams: 8 },
        Self::Scp,
        Self::RsyncSsh,
        Self::RsyncDaemon,
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Tcp(congestion) => format!("iperf3 TCP, {congestion}"),
            Self::Udp => "iperf3 UDP".to_owned(),
            Self::UdtMemory => "UDT, memory".to_owned(),
            Self::UdtFile => "UDT, file".to_owned(),
            Self::Uftp { has_control: false } => "UFTP, rate told".to_owned(),
            Self::Uftp { has_control: true } => "UFTP, TFMCC".to_owned(),
            Self::GridFtp { streams } => format!("GridFTP, {streams} × TCP"),
            Self::Quinn(congestion) => format!("quinn, {congestion}"),
            Self::Scp => "scp".to_owned(),
            Self::RsyncSsh => "rsync over ssh".to_owned(),
            Self::RsyncDaemon => "rsync daemon".to_owned(),
        }
    }

    /// Whether what it sends is sealed.
    pub(crate) fn is_sealed(self) -> bool {
        matches!(self, Self::Quinn(_) | Self::Scp | Self::RsyncSsh)
    }

    /// Whether it sends over TCP with the system's default congestion control.
    pub(crate) fn uses_default_congestion_control(self) -> bool {
        matches!(self, Self::GridFtp { .. } | Self::Scp | Self::RsyncSsh | Self::RsyncDaemon)
    }

    /// Its version.
    ///
    /// # Errors
    /// What is missing here.
    pub(crate) fn version(self, tools: &Tools) -> Result<String, String> {
        if let Self::Quinn(_) = self {
            quinn::built(tools)?;
            return Ok(quinn::version());
        }
        let (programs, packages): (&[&str], &[&str]) = match self {
            Self::Tcp(_) | Self::Udp => (&["iperf3"], &["iperf3"]),
            Self::UdtMemory | Self::UdtFile => (&["g++"], &["libudt-dev"]),
            Self::Uftp { .. } => (&["uftp", "uftpd"], &["uftp"]),
            Self::GridFtp { .. } => (
                &["globus-gridftp-server", "globus-url-copy"],
                &["globus-gridftp-server-progs", "globus-gass-copy-progs"],
            ),
            Self::Scp | Self::Quinn(_) => (&["sshd", "scp", "ssh-keygen"], &["openssh-server"]),
            Self::RsyncSsh => (&["sshd", "rsync", "ssh-keygen"], &["rsync", "openssh-server"]),
            Self::RsyncDaemon => (&["rsync"], &["rsync"]),
        };
        if let Some(missing) = programs.iter().find(|program| find(program).is_none()) {
            return Err(format!("there is no {missing} (Debian: {})", packages.join(", ")));
        }
        if matches!(self, Self::UdtMemory | Self::UdtFile) {
            udt::built(tools)?;
        }
        let version = |package: &&str| package_version(package).unwrap_or_else(|| "?".to_owned());
        Ok(packages.iter().map(version).collect::<Vec<String>>().join(", "))
    }

    /// Its rate in bit/s of the user's bytes.
    ///
    /// # Errors
    /// Why it did not run.
    pub(crate) fn measure(self, bench: &Bench<'_>) -> anyhow::Result<f64> {
        match self {
            Self::Tcp(congestion) => {
                let report = report(bench, &["-C", congestion])?;
                report["end"]["sum_received"]["bits_per_second"].as_f64().context("iperf3 tells no rate")
            }
            Self::Udp => {
                // As fast as it can; at a bottleneck, at its rate.
                let rate = bench.rate_bps.unwrap_or(0).to_string();
                let report = report(bench, &["-u", "-l", "1472", "-b", &rate])?;
                let sum = &report["end"]["sum"];
                let (sent, lost) = (sum["bits_per_second"].as_f64(), sum["lost_percent"].as_f64());
                let (sent, lost) = sent.zip(lost).context("iperf3 tells no rate")?;
                Ok(sent * (1.0 - lost / 100.0))
            }
            Self::UdtMemory => udt::memory(bench),
            Self::UdtFile => udt::file(bench),
            Self::Uftp { has_control } => uftp::measure(bench, has_control),
            Self::GridFtp { streams } => gridftp::measure(bench, streams),
            Self::Quinn(congestion) => quinn::measure(bench, congestion),
            Self::Scp => ssh::scp(bench),
            Self::RsyncSsh => ssh::rsync(bench),
            Self::RsyncDaemon => ssh::rsync_daemon(bench),
        }
    }
}

fn report(bench: &Bench<'_>, options: &[&str]) -> anyhow::Result<serde_json::Value> {
    let seconds = bench.seconds.to_string();
    let options = [options, &["-t", &seconds]].concat();
    iperf::measured(bench.network, bench.seconds + iperf::GRACE_S, &options)
}
