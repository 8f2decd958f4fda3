//! Reports skipped tests, if emulated links are not permitted or a program is missing.

use std::io::Write;

#[cfg(target_os = "linux")]
use crate::{Error, Link, Network};

/// Evaluates to the network for a test. If the process may not create a network, prints `SKIPPED:
/// …` and returns from the test.
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
        match $crate::network_or_report($link, concat!(file!(), ":", line!())) {
            Some(network) => network,
            None => return,
        }
    };
}

/// Creates the network. If networks are not permitted, reports that `test` is skipped and returns
/// `None`.
///
/// # Panics
/// If the network fails for another reason, which a test must not ignore.
#[cfg(target_os = "linux")]
pub fn network_or_report(link: Link, test: &str) -> Option<Network> {
    match Network::new(link) {
        Ok(network) => Some(network),
        Err(error @ Error::NotPermitted { .. }) => {
            report_skipped(&format!("{test}: {error}"));
            None
        }
        Err(error) => panic!("{test}: no emulated network: {error:?}"),
    }
}

/// Writes `SKIPPED: reason` to standard error, past the capture of the test harness.
pub fn report_skipped(reason: &str) {
    // The harness captures `eprintln!` in passing tests, but not direct writes. Write once, because
    // the harness also writes to the stream. A closed stream is not an error.
    let _ = std::io::stderr().write_all(format!("SKIPPED: {reason}\n").as_bytes());
}

/// Reports a skipped test as [`report_skipped`] does, if a program that
/// `scripts/install-test-needs` installs is missing.
///
/// # Panics
/// If the environment has [`MUST_RUN`]: then the program should have been installed.
pub fn report_missing(reason: &str) {
    assert!(std::env::var_os(MUST_RUN).is_none(), "{reason}, and {MUST_RUN} is set");
    report_skipped(reason);
}

/// Environment variable that forbids skipping tests because of a missing program; `.ci/run` sets
/// it.
pub const MUST_RUN: &str = "TESTS_MUST_RUN";
