//! Targets of a station: what to measure, and how often.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use barograph_forecast::{Name, Quantity};
use barograph_probe::io::TargetKind;
use barograph_probe::target::Scheme;
use barograph_probe::{Direction, Experiment, Plan};

/// A target: another station, `host:port` or a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Parsed address of the target.
    pub address: barograph_probe::Target,
    /// Canonical spelling of the address: the target of its series.
    pub name: Name,
    /// Quantities to measure. If empty, the station detects what the target supports, and measures
    /// the usual quantities ([`ExperimentKind::usual`]).
    pub quantities: Vec<Quantity>,
    /// Period of the target's experiments; `None` = the station's own periods.
    pub period: Option<Duration>,
    /// Where the target comes from.
    pub provenance: Provenance,
    /// File with the token that is sent to the target.
    pub token_file: Option<PathBuf>,
    /// Token that is sent to the target; `None` = no token.
    pub token: Option<Secret>,
}

/// A token that `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`, so that `Debug` does not show it.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the token as text.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Where a target comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provenance {
    /// The station itself: its responder, the gateway, the resolver.
    Default,
    /// The configuration: its file, or `--target` flags.
    Config,
    /// A request to the API; kept in the state directory.
    Added,
    /// The mesh: the target is a peer.
    Mesh,
}

impl Provenance {
    /// Name of the provenance in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Config => "config",
            Self::Added => "added",
            Self::Mesh => "mesh",
        }
    }
}

/// Why an address with its quantities cannot be a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum TargetError {
    #[error(transparent)]
    Address(#[from] barograph_probe::TargetError),
    /// No experiment measures this quantity for a target.
    #[error("`{word}` is not a quantity of a target; use one of: {possible}")]
    Quantity {
        /// The given word, shortened.
        word: String,
        /// The quantities that can be measured.
        possible: String,
    },
}

impl Target {
    /// Parses an address and quantities.
    ///
    /// # Errors
    /// [`TargetError`], with the part that is wrong.
    pub fn parse(
        address: &str,
        quantities: &[String],
        period: Option<Duration>,
        provenance: Provenance,
    ) -> Result<Self, TargetError> {
        let parsed = barograph_probe::Target::parse(address)?;
        let mut wanted = Vec::new();
        for word in quantities {
            let quantity = ExperimentKind::ALL
                .into_iter()
                .flat_map(ExperimentKind::quantities)
                .find(|quantity| quantity.as_str() == word)
                .ok_or_else(|| unknown_quantity(word))?;
            if !wanted.contains(quantity) {
                wanted.push(quantity.clone());
            }
        }
        let spelling = parsed.to_string();
        // The canonical spelling may be longer than the input, because a path is added, and then
        // too long for a name.
        let name = Name::new(&spelling).or_else(|_| Name::new(address)).map_err(|_| {
            barograph_probe::TargetError {
                text: address.chars().take(80).collect(),
                expected: "a shorter target",
            }
        })?;
        let (token_file, token) = (None, None);
        Ok(Self { address: parsed, name, quantities: wanted, period, provenance, token_file, token })
    }

    /// Period of the target's experiments; `usual` is the station's own period. For a peer, the
    /// period is never shorter than `usual`.
    #[must_use]
    pub fn period_or(&self, usual: Duration) -> Duration {
        match (self.period, self.provenance) {
            (Some(period), Provenance::Mesh) => period.max(usual),
            (period, _) => period.unwrap_or(usual),
        }
    }

    /// Experiments that measure the configured quantities; empty = the station must detect what the
    /// target supports.
    #[must_use]
    pub fn kinds(&self) -> Vec<ExperimentKind> {
        let gives =
            |kind: &ExperimentKind| kind.quantities().iter().any(|given| self.quantities.contains(given));
        ExperimentKind::ALL.into_iter().filter(gives).collect()
    }

    /// Whether `quantity` is to be measured.
    #[must_use]
    pub fn wants(&self, quantity: &Quantity) -> bool {
        self.quantities.is_empty() || self.quantities.contains(quantity)
    }
}

/// Kind of an experiment, without its sizes. The kind identifies a job of the timetable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExperimentKind {
    /// Round-trip time to a station.
    Rtt,
    /// Round-trip time to a station through TLS.
    RttTls,
    /// Round-trip time with Nagle's algorithm on.
    RttNagle,
    /// Loss and round-trip time of datagrams.
    Loss,
    /// Time of a TCP handshake.
    Connect,
    /// Response time of an HTTP GET.
    ResponseTime,
    /// Goodput of a transfer to a station.
    Goodput,
    /// Goodput of a transfer from a station.
    GoodputDown,
}

impl ExperimentKind {
    /// All kinds, in the order of this enum.
    pub const ALL: [Self; 8] = [
        Self::Rtt,
        Self::RttTls,
        Self::RttNagle,
        Self::Loss,
        Self::Connect,
        Self::ResponseTime,
        Self::Goodput,
        Self::GoodputDown,
    ];

    /// The experiment of this kind. If the experiment is a transfer, the transfer has `bytes`
    /// bytes.
    #[must_use]
    pub fn experiment(self, bytes: u64) -> Experiment {
        match self {
            Self::Rtt => Experiment::Rtt { n: Plan::RTT_EXCHANGES },
            Self::RttTls => Experiment::RttTls { n: Plan::RTT_EXCHANGES },
            Self::RttNagle => Experiment::RttNagle { n: Plan::NAGLE_EXCHANGES },
            Self::Loss => Experiment::Loss { n: Plan::DATAGRAMS },
            // Make one handshake in each period, so that a target that is not a station gets no
            // more connections than a browser makes.
            Self::Connect => Experiment::Connect { n: 1 },
            Self::ResponseTime => Experiment::ResponseTime,
            Self::Goodput => Experiment::Goodput { direction: Direction::Up, bytes },
            Self::GoodputDown => Experiment::Goodput { direction: Direction::Down, bytes },
        }
    }

    /// Quantities that the experiment measures.
    #[must_use]
    pub fn quantities(self) -> &'static [Quantity] {
        self.experiment(1).quantities()
    }

    /// Whether the experiment is a bulk test.
    #[must_use]
    pub fn is_bulk(self) -> bool {
        self.experiment(1).is_bulk()
    }

    /// Experiments for a target without configured quantities: only cheap experiments, and never a
    /// bulk test.
    #[must_use]
    pub fn usual(kind: TargetKind, scheme: Scheme) -> &'static [Self] {
        match (kind, scheme) {
            (TargetKind::Station, _) => &[Self::Rtt, Self::Loss],
            (TargetKind::Server, Scheme::Http | Scheme::Https) => &[Self::Connect, Self::ResponseTime],
            (TargetKind::Server, Scheme::Address) => &[Self::Connect],
        }
    }
}

fn unknown_quantity(word: &str) -> TargetError {
    let all: Vec<&str> =
        ExperimentKind::ALL.into_iter().flat_map(ExperimentKind::quantities).map(Quantity::as_str).collect();
    TargetError::Quantity { word: word.chars().take(80).collect(), possible: all.join(", ") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(address: &str, quantities: &[&str]) -> Result<Target, TargetError> {
        let words: Vec<String> = quantities.iter().map(ToString::to_string).collect();
        Target::parse(address, &words, None, Provenance::Config)
    }

    #[test]
    fn target_spellings_are_normalized_to_one_series_name() {
        assert_eq!(parse("HTTP://Example.NET", &[]).unwrap().name.as_str(), "http://example.net/");
        assert_eq!(parse("Example.net:080", &[]).unwrap().name.as_str(), "example.net:80");
    }

    #[test]
    fn quantities_become_experiments_once_each() {
        let target = parse("a:80", &["first_byte", "response_time", "connect", "connect"]).unwrap();
        assert_eq!(target.quantities.len(), 3);
        assert_eq!(target.kinds(), [ExperimentKind::Connect, ExperimentKind::ResponseTime]);
        assert!(!target.wants(&Quantity::RTT));
        assert!(parse("a:80", &[]).unwrap().kinds().is_empty());
    }

    #[test]
    fn an_unmeasurable_quantity_or_address_is_refused_by_name() {
        let error = parse("a:80", &["memory_free"]).unwrap_err().to_string();
        assert!(error.contains("`memory_free`") && error.contains("response_time"), "{error}");
        for address in ["", "example.net", "a:0", "ftp://a:1", "a b:1", "http://u:p@h/"] {
            assert!(matches!(parse(address, &[]), Err(TargetError::Address(_))), "{address}");
        }
    }

    /// Lists kinds as an array. It does not compile if a kind is missing, because the pattern must
    /// be exhaustive.
    macro_rules! every_kind {
        ($($kind:ident)*) => {{
            for kind in ExperimentKind::ALL {
                let ($(ExperimentKind::$kind)|*) = kind;
            }
            [$(ExperimentKind::$kind),*]
        }};
    }

    #[test]
    fn the_list_of_all_experiments_contains_every_kind() {
        let every = every_kind!(Rtt RttTls RttNagle Loss Connect ResponseTime Goodput GoodputDown);
        assert_eq!(ExperimentKind::ALL[..], every[..]);
    }

    #[test]
    fn no_default_experiment_is_a_bulk_test() {
        for target in [TargetKind::Station, TargetKind::Server] {
            for scheme in [Scheme::Address, Scheme::Http, Scheme::Https] {
                assert!(!ExperimentKind::usual(target, scheme).iter().any(|kind| kind.is_bulk()));
            }
        }
    }
}
