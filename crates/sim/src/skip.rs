//! Skipping loudly where emulated links are not permitted, or a program is missing.

use std::io::Write;

#[cfg(target_os = "linux")]
use crate::{Error, Link, Network};

/// The network for a test, or an early return from the test after a line `SKIPPED: …` where the process may
/// not make one.
///
/// ```
/// # use barograph_sim::{Link, LinkSpec, network_or_skip};
/// fn test() {
///     let network = network_or_skip!(Link::symmetric(LinkSpec::default()));
///     // …
/// }
/// ```
#[cfg(target_os = "linux")]
#[macro_export]
macro_rules! network_or_skip {
    ($link:expr) => {
        match $crate::network_or_say($link, concat!(file!(), ":", line!())) {
            Some(network) => network,
            None => return,
        }
    };
}

/// The network; or `None` after having said that `test` is skipped, where it is not permitted.
///
/// # Panics
/// When the network fails for another reason, which a test must not pass over.
#[cfg(target_os = "linux")]
pub fn network_or_say(link: Link, test: &str) -> Option<Network> {
    match Network::new(link) {
        Ok(network) => Some(network),
        Err(error @ Error::NotPermitted { .. }) => {
            say_skipped(&format!("{test}: {error}"));
            None
        }
        Err(error) => panic!("{test}: no emulated network: {error:?}"),
    }
}

/// Writes `SKIPPED: reason` where the test harness does not swallow it.
pub fn say_skipped(reason: &str) {
    // `eprintln!` is captured in a test that passes; the stream itself is not, and the harness writes to it between two
    // writes. A closed stream is no failure.
    let _ = std::io::stderr().write_all(format!("SKIPPED: {reason}\n").as_bytes());
}

/// As [`say_skipped`], for want of a program that `scripts/install-test-needs` installs.
///
/// # Panics
/// Where the environment has [`MUST_RUN`]: there the programs were to be installed.
pub fn say_missing(reason: &str) {
    assert!(std::env::var_os(MUST_RUN).is_none(), "{reason}, and {MUST_RUN} is set");
    say_skipped(reason);
}

/// The variable under which no test is skipped for want of a program; `.ci/run` sets it.
pub const MUST_RUN: &str = "TESTS_MUST_RUN";
