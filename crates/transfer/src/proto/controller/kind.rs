//! Kinds of controllers and their names.

use std::fmt;
use std::str::FromStr;

use super::limits::positive;
use super::model::ModelController;
use super::paper::{Mode, Paper};
use super::{Controller, DrainLimiter, Equation, Fixed, RATE_MAX_BYTES_S, Scalable, UndecidedHold};

/// Kinds of controllers; the default is [`ModelController`].
///
/// ```
/// use barograph_transfer::controller::ControllerKind;
///
/// assert_eq!("highspeed".parse::<ControllerKind>(), Ok(ControllerKind::HighSpeed));
/// assert_eq!(ControllerKind::default().name(), "model");
/// assert!("cubic".parse::<ControllerKind>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ControllerKind {
    /// Controller that models the path's bandwidth and delay ([`ModelController`]).
    #[default]
    Model,
    /// The paper's controller, which changes the rate after each transmission window ([`Paper`]).
    Paper,
    /// The paper's controller, which changes the rate at each congestion event ([`Paper`]).
    PaperRate,
    /// A controller with the equation of HighSpeed TCP ([`Equation::highspeed`]).
    HighSpeed,
    /// TFRC, as in RFC 5348 ([`Equation::tfrc`]).
    Tfrc,
    /// Scalable TCP, Kelly 2003 ([`Scalable`]).
    Scalable,
    /// A fixed rate, for links without other users ([`Fixed`]).
    Fixed,
}

impl ControllerKind {
    /// The kind that is used if the user does not choose a controller. `docs/design/transfer.md`
    /// gives the reasons.
    pub const DEFAULT: Self = Self::Model;

    /// All kinds, in the order of the help text.
    pub const ALL: [Self; 7] =
        [Self::Model, Self::HighSpeed, Self::Tfrc, Self::Scalable, Self::Fixed, Self::Paper, Self::PaperRate];

    /// Name as users write it; [`FromStr`] parses it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Paper => "paper",
            Self::PaperRate => "paper-rate",
            Self::HighSpeed => "highspeed",
            Self::Tfrc => "tfrc",
            Self::Scalable => "scalable",
            Self::Fixed => "fixed",
        }
    }

    /// One-line description for the help text.
    pub fn about(self) -> &'static str {
        match self {
            Self::Model => {
                "models the path's bandwidth and delay; random loss under 2 % does not slow it down"
            }
            Self::Paper => {
                "the paper's FOBS: starts at the given rate, then follows the loss rate since the start, window by window"
            }
            Self::PaperRate => "the same, but changes the rate at each loss",
            Self::HighSpeed => "the equation of HighSpeed TCP over recent loss events",
            Self::Tfrc => "RFC 5348: about as fast as TCP, with a steadier rate",
            Self::Scalable => {
                "Scalable TCP: the window grows by 1 % a round trip, and falls by 1/8 at a loss"
            }
            Self::Fixed => {
                "sends at the given rate whatever is lost; only for links that no other user shares"
            }
        }
    }

    /// Creates a controller of this kind. All controllers except the paper's limit their rate to
    /// the receiver's drain rate ([`DrainLimiter`]).
    pub fn controller(self, config: ControllerConfig) -> Box<dyn Controller> {
        let inner: Box<dyn Controller> = match self {
            Self::Paper => return Box::new(Paper::new(Mode::Window, config)),
            Self::PaperRate => return Box::new(Paper::new(Mode::Rate, config)),
            Self::Model => Box::new(ModelController::new(config.packet_bytes, config.seed)),
            Self::HighSpeed => Box::new(Equation::highspeed()),
            Self::Tfrc => Box::new(Equation::tfrc()),
            Self::Scalable => Box::new(Scalable::default()),
            Self::Fixed => Box::new(Fixed::new(config)),
        };
        Box::new(DrainLimiter::new(Box::new(UndecidedHold::new(inner))))
    }
}

impl fmt::Display for ControllerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ControllerKind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

/// Error: no controller has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no controller {0:?}: choose one of {names}", names = ControllerKind::ALL.map(ControllerKind::name).join(", "))]
pub struct UnknownKind(pub String);

/// Parameters of controllers; each kind uses only some of these parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerConfig {
    /// Constant rate of [`Fixed`], and initial rate of [`Paper`] (bytes a second, headers
    /// included).
    pub rate_bytes_s: f64,
    /// Bytes of a full packet, headers included.
    pub packet_bytes: u32,
    /// Seed for the times of [`ModelController`]'s bandwidth probes, so that flows that start
    /// together do not probe together.
    pub seed: u64,
}

impl ControllerConfig {
    /// The configured rate, or the default if it is not positive and finite.
    pub(super) fn rate(self) -> f64 {
        positive(self.rate_bytes_s).unwrap_or(Self::default().rate_bytes_s).min(RATE_MAX_BYTES_S)
    }
}

impl Default for ControllerConfig {
    /// The rate is 1 Gbit/s, like the links of the paper's hosts (Dickens §4.1.1) and of most hosts
    /// today. Packets have 1500 bytes, as on Ethernet.
    fn default() -> Self {
        Self { rate_bytes_s: 125e6, packet_bytes: 1500, seed: 0 }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn every_controller_is_parsed_from_its_own_name() {
        for kind in ControllerKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("".parse::<ControllerKind>().is_err());
        let error = "cubic".parse::<ControllerKind>().unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no controller \"cubic\": choose one of model, highspeed, tfrc, scalable, fixed, paper, paper-rate"
        );
    }

    #[test]
    fn the_default_controller_is_the_model() {
        assert_eq!(
            (ControllerKind::default(), ControllerKind::DEFAULT.name()),
            (ControllerKind::DEFAULT, "model")
        );
    }

    #[test]
    fn an_invalid_rate_is_replaced_by_the_default_rate() {
        for rate_bytes_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let fixed = ControllerKind::Fixed
                .controller(ControllerConfig { rate_bytes_s, ..ControllerConfig::default() });
            assert_eq!(fixed.rate_bytes_s(), 125e6);
        }
    }
}
