//! What a station is asked to measure, and how often.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use barograph_forecast::{Name, Quantity};
use barograph_probe::{Direction, Experiment, Plan};

/// Something to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where it is.
    pub address: barograph_probe::Target,
    /// Its one spelling: the target of its series.
    pub name: Name,
    /// What to measure of it; empty = what it turns out to answer ([`Kind::usual`]).
    pub quantities: Vec<Quantity>,
    /// How often; `None` = the station's own periods.
    pub period: Option<Duration>,
    /// Who asked.
    pub from: Provenance,
    /// File with the token presented to it.
    pub token_file: Option<PathBuf>,
    /// The token presented to it; `None` = it gets none.
    pub token: Option<Secret>,
}

/// A token that is not shown when what holds it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` from being shown.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The token itself.
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

/// Who asked for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provenance {
    /// The station itself: its responder, the gateway, the resolver.
    Default,
    /// The configuration.
    Config,
    /// Someone through the API; kept in the state directory.
    Added,
    /// The mesh: it is a peer.
    Mesh,
}

impl Provenance {
    /// As shown.
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

/// Why a target is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum TargetError {
    #[error(transparent)]
    Address(#[from] barograph_probe::TargetError),
    /// The quantity is not one that can be measured of a target.
    #[error("`{word}` cannot be measured of a target; possible: {possible}")]
    Quantity {
        /// What was given, shortened.
        word: String,
        /// The quantities that are possible.
        possible: String,
    },
}

impl Target {
    /// Parses an address and quantities.
    ///
    /// # Errors
    /// [`TargetError`], saying which part is wrong.
    pub fn parse(
        address: &str,
        quantities: &[String],
        period: Option<Duration>,
        from: Provenance,
    ) -> Result<Self, TargetError> {
        let parsed = barograph_probe::Target::parse(address)?;
        let mut wanted = Vec::new();
        for word in quantities {
            let quantity = Kind::ALL
                .into_iter()
                .flat_map(Kind::quantities)
                .find(|quantity| quantity.as_str() == word)
                .ok_or_else(|| unknown_quantity(word))?;
            if !wanted.contains(quantity) {
                wanted.push(quantity.clone());
            }
        }
        let spelling = parsed.to_string();
        // The canonical spelling may be longer than what was parsed (a path is added); then it is not a name.
        let name = Name::new(&spelling).or_else(|_| Name::new(address)).map_err(|_| {
            barograph_probe::TargetError {
                text: address.chars().take(80).collect(),
                expected: "a shorter target",
            }
        })?;
        let (token_file, token) = (None, None);
        Ok(Self { address: parsed, name, quantities: wanted, period, from, token_file, token })
    }

    /// How often it is measured, where `usual` is the station's own period; a mesh makes it only longer.
    #[must_use]
    pub fn period_or(&self, usual: Duration) -> Duration {
        match (self.period, self.from) {
            (Some(period), Provenance::Mesh) => period.max(usual),
            (period, _) => period.unwrap_or(usual),
        }
    }

    /// The experiments that give the quantities asked for; empty = to be found out.
    #[must_use]
    pub fn kinds(&self) -> Vec<Kind> {
        let gives = |kind: &Kind| kind.quantities().iter().any(|given| self.quantities.contains(given));
        Kind::ALL.into_iter().filter(gives).collect()
    }

    /// Whether a reading of `quantity` was asked for.
    #[must_use]
    pub fn wants(&self, quantity: &Quantity) -> bool {
        self.quantities.is_empty() || self.quantities.contains(quantity)
    }
}

/// An experiment without its sizes: what a job of the timetable is named by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Round-trip time to a station.
    Rtt,
    /// The same through TLS.
    RttTls,
    /// Round-trip time with Nagle's algorithm on.
    RttNagle,
    /// Loss and round-trip time of datagrams.
    Loss,
    /// TCP handshake.
    Connect,
    /// HTTP GET.
    Response,
    /// A transfer to a station.
    Goodput,
    /// A transfer from a station.
    GoodputDown,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Rtt,
        Self::RttTls,
        Self::RttNagle,
        Self::Loss,
        Self::Connect,
        Self::Response,
        Self::Goodput,
        Self::GoodputDown,
    ];

    /// The experiment, with transfers of `bytes`.
    #[must_use]
    pub fn experiment(self, bytes: u64) -> Experiment {
        match self {
            Self::Rtt => Experiment::Rtt { n: Plan::RTT_EXCHANGES },
            Self::RttTls => Experiment::RttTls { n: Plan::RTT_EXCHANGES },
            Self::RttNagle => Experiment::RttNagle { n: Plan::NAGLE_EXCHANGES },
            Self::Loss => Experiment::Loss { n: Plan::DATAGRAMS },
            // One handshake a period: a watched third party sees no more connections than a reader's browser makes.
            Self::Connect => Experiment::Connect { n: 1 },
            Self::Response => Experiment::ResponseTime,
            Self::Goodput => Experiment::Goodput { direction: Direction::Up, bytes },
            Self::GoodputDown => Experiment::Goodput { direction: Direction::Down, bytes },
        }
    }

    /// The quantities it gives.
    #[must_use]
    pub fn quantities(self) -> &'static [Quantity] {
        self.experiment(1).quantities()
    }

    /// Whether it is a bulk test.
    #[must_use]
    pub fn is_bulk(self) -> bool {
        self.experiment(1).is_bulk()
    }

    /// What is measured of a target of which nothing was said: cheap, and never a bulk test.
    #[must_use]
    pub fn usual(is_station: bool, is_url: bool) -> &'static [Self] {
        match (is_station, is_url) {
            (true, _) => &[Self::Rtt, Self::Loss],
            (false, true) => &[Self::Connect, Self::Response],
            (false, false) => &[Self::Connect],
        }
    }
}

fn unknown_quantity(word: &str) -> TargetError {
    let all: Vec<&str> = Kind::ALL.into_iter().flat_map(Kind::quantities).map(Quantity::as_str).collect();
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
    fn one_spelling_names_the_series() {
        assert_eq!(parse("HTTP://Example.NET", &[]).unwrap().name.as_str(), "http://example.net/");
        assert_eq!(parse("Example.net:080", &[]).unwrap().name.as_str(), "example.net:80");
    }

    #[test]
    fn quantities_become_experiments_once_each() {
        let target = parse("a:80", &["first_byte", "response_time", "connect", "connect"]).unwrap();
        assert_eq!(target.quantities.len(), 3);
        assert_eq!(target.kinds(), [Kind::Connect, Kind::Response]);
        assert!(!target.wants(&Quantity::RTT));
        assert!(parse("a:80", &[]).unwrap().kinds().is_empty());
    }

    #[test]
    fn what_cannot_be_measured_is_refused_by_name() {
        let error = parse("a:80", &["memory_free"]).unwrap_err().to_string();
        assert!(error.contains("`memory_free`") && error.contains("response_time"), "{error}");
        for address in ["", "example.net", "a:0", "ftp://a:1", "a b:1", "http://u:p@h/"] {
            assert!(matches!(parse(address, &[]), Err(TargetError::Address(_))), "{address}");
        }
    }

    #[test]
    fn nothing_usual_is_a_bulk_test() {
        for station in [true, false] {
            for url in [true, false] {
                assert!(!Kind::usual(station, url).iter().any(|kind| kind.is_bulk()));
            }
        }
    }
}
