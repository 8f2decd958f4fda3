//! The clock by which the station labels its records.

use std::fmt;
use std::str::FromStr;

/// How the clock is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// So many seconds ahead.
    Ahead(i64),
    /// An hour ahead, an hour behind, and right, a hundred records each.
    Jumps,
}

impl Clock {
    pub(super) const RIGHT: Self = Self::Ahead(0);

    /// Seconds by which the record of this number is labelled ahead.
    pub(super) fn ahead_s(self, seq: u64) -> i64 {
        match self {
            Self::Ahead(seconds) => seconds,
            Self::Jumps => [0, HOUR_S, -HOUR_S][(seq / 100 % 3) as usize],
        }
    }
}

/// A line of the station's input.
impl fmt::Display for Clock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ahead(seconds) => write!(out, "{seconds}"),
            Self::Jumps => out.write_str(JUMPS),
        }
    }
}

impl FromStr for Clock {
    type Err = std::num::ParseIntError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        if line == JUMPS { Ok(Self::Jumps) } else { line.parse().map(Self::Ahead) }
    }
}

const JUMPS: &str = "jumps";
const HOUR_S: i64 = 3600;

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn the_station_reads_what_the_experiment_writes() {
        for clock in [Clock::RIGHT, Clock::Ahead(-3600), Clock::Jumps] {
            assert_eq!(clock.to_string().parse(), Ok(clock));
        }
    }
}
