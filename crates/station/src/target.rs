//! What a station is asked to measure, and how often.

use std::time::Duration;

use barograph_forecast::{Name, NameError, Quantity};

/// Something to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `host:port`, an `http(s)://` address, or `barograph://host:port` for another station.
    pub address: Name,
    /// What to measure of it.
    pub quantities: Vec<Quantity>,
    /// How often; `None` = the station's own periods.
    pub period: Option<Duration>,
    /// Who asked.
    pub from: Provenance,
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
}

impl Provenance {
    /// As shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Config => "config",
            Self::Added => "added",
        }
    }
}

/// What sort of thing an address names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `host:port`: anything that accepts connections.
    Tcp,
    /// `http://…` or `https://…`.
    Http,
    /// `barograph://host:port`: a station, which answers every experiment.
    Station,
}

/// Why a target is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The text is not a name.
    #[error("`{text}` is not a target: {error}")]
    Name {
        /// What was given, cut to 80 characters.
        text: String,
        /// What is wrong with it.
        error: NameError,
    },
    /// No form that is known.
    #[error("`{0}` is not a target; give host:port, http://…, https://… or barograph://host:port")]
    Form(String),
    /// The port is not 1 to 65535.
    #[error("`{0}` has no port from 1 to 65535")]
    Port(String),
    /// The quantity is not a word.
    #[error("`{0}` is not a quantity")]
    Quantity(String),
    /// The quantity cannot be measured of such a target.
    #[error("`{quantity}` cannot be measured of `{address}`; of this kind of target: {possible}")]
    Impossible {
        /// The quantity asked for.
        quantity: String,
        /// The target.
        address: String,
        /// What would be possible.
        possible: String,
    },
}

impl Target {
    /// Parses an address and quantities; without quantities, what suits the kind of address.
    ///
    /// # Errors
    /// [`TargetError`], saying which part is wrong.
    pub fn parse(
        address: &str,
        quantities: &[String],
        period: Option<Duration>,
        from: Provenance,
    ) -> Result<Self, TargetError> {
        let short = || address.chars().take(80).collect::<String>();
        let name = Name::new(address).map_err(|error| TargetError::Name { text: short(), error })?;
        let kind = kind(address)?;
        let mut wanted = Vec::new();
        for word in quantities {
            let quantity = Quantity::new(word).map_err(|_| TargetError::Quantity(word.chars().take(80).collect()))?;
            if !kind.possible().contains(&quantity) {
                let possible: Vec<String> = kind.possible().iter().map(ToString::to_string).collect();
                let possible = possible.join(", ");
                return Err(TargetError::Impossible { quantity: word.clone(), address: short(), possible });
            }
            if !wanted.contains(&quantity) {
                wanted.push(quantity);
            }
        }
        let quantities = if wanted.is_empty() { kind.usual() } else { wanted };
        Ok(Self { address: name, quantities, period, from })
    }

    /// What sort of address it has.
    #[must_use]
    pub fn kind(&self) -> Kind {
        // Parsed at construction; anything else would have been refused there.
        kind(self.address.as_str()).unwrap_or(Kind::Tcp)
    }
}

impl Kind {
    /// What can be measured of it.
    #[must_use]
    pub fn possible(self) -> Vec<Quantity> {
        match self {
            Self::Tcp => vec![Quantity::CONNECT],
            Self::Http => vec![Quantity::RESPONSE_TIME, Quantity::FIRST_BYTE, Quantity::CONNECT],
            Self::Station => vec![
                Quantity::RTT,
                Quantity::RTT_NAGLE,
                Quantity::RTT_UDP,
                Quantity::LOSS,
                Quantity::CONNECT,
                Quantity::GOODPUT,
                Quantity::GOODPUT_DOWN,
            ],
        }
    }

    /// What is measured unless told otherwise: cheap, and never a bulk test.
    #[must_use]
    pub fn usual(self) -> Vec<Quantity> {
        match self {
            Self::Tcp => vec![Quantity::CONNECT],
            Self::Http => vec![Quantity::RESPONSE_TIME],
            Self::Station => vec![Quantity::RTT],
        }
    }
}

/// The kind of an address, or what is wrong with it.
///
/// # Errors
/// [`TargetError::Form`] and [`TargetError::Port`].
pub fn kind(address: &str) -> Result<Kind, TargetError> {
    let short = || address.chars().take(80).collect::<String>();
    for scheme in ["http://", "https://"] {
        if let Some(rest) = address.strip_prefix(scheme) {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let plain = !authority.is_empty() && !authority.contains('@');
            return if plain { Ok(Kind::Http) } else { Err(TargetError::Form(short())) };
        }
    }
    if let Some(rest) = address.strip_prefix("barograph://") {
        return host_and_port(rest.strip_suffix('/').unwrap_or(rest)).map(|()| Kind::Station);
    }
    host_and_port(address).map(|()| Kind::Tcp)
}

fn host_and_port(text: &str) -> Result<(), TargetError> {
    let short = || text.chars().take(80).collect::<String>();
    let (host, port) = text.rsplit_once(':').ok_or_else(|| TargetError::Port(short()))?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || host.contains(['/', '@', '?', '#']) || (host.contains(':') && !bracketed) {
        return Err(TargetError::Form(short()));
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(()),
        _ => Err(TargetError::Port(short())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn kinds_by_form() {
        for (address, expected) in [
            ("example.net:80", Kind::Tcp),
            ("192.0.2.1:53", Kind::Tcp),
            ("[2001:db8::1]:53", Kind::Tcp),
            ("http://example.net", Kind::Http),
            ("https://example.net:8443/a?b=c", Kind::Http),
            ("barograph://far:10132", Kind::Station),
            ("barograph://[::1]:10132/", Kind::Station),
        ] {
            assert_eq!(kind(address), Ok(expected), "{address}");
        }
    }

    #[test]
    fn broken_addresses_are_refused() {
        for address in [
            "", "example.net", ":80", "a:0", "a:65536", "a:b", "::1", "::1:80", "ftp://a:1", "a/b:80", "http://", "http:///x",
            "http://u:p@h/", "barograph://far", "a b:80", "u@h:80",
        ] {
            assert!(Target::parse(address, &[], None, Provenance::Config).is_err(), "{address}");
        }
    }

    #[test]
    fn quantities_must_suit_the_kind() {
        let parse = |quantities: &[&str]| {
            let words: Vec<String> = quantities.iter().map(ToString::to_string).collect();
            Target::parse("a:80", &words, None, Provenance::Config)
        };
        assert_eq!(parse(&[]).unwrap().quantities, [Quantity::CONNECT]);
        assert_eq!(parse(&["connect", "connect"]).unwrap().quantities, [Quantity::CONNECT]);
        assert!(matches!(parse(&["goodput"]), Err(TargetError::Impossible { .. })));
        assert!(matches!(parse(&["Rtt"]), Err(TargetError::Quantity(_))));
    }
}
