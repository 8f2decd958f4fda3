//! Saved states: the corpus, and damaged states.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use barograph_timeout::fuzzing::fuzz_state;
use barograph_timeout::{
    Adaptive, AdaptiveConfig, AttemptOutcome, HostStatistics, MessageAttempts, TimeoutEstimator,
};
use proptest::prelude::*;

#[test]
fn the_state_corpus_replays_and_some_states_load() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/state");
    let (mut links, mut hosts) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let data = fs::read(entry.unwrap().path()).unwrap();
        fuzz_state(&data);
        links +=
            u32::from(Adaptive::load(&data, &AdaptiveConfig::default(), &HostStatistics::default()).is_ok());
        hosts += u32::from(HostStatistics::load(&data).is_ok());
    }
    assert!(links >= 1 && hosts >= 1, "states of {links} links and {hosts} hosts still load");
}

/// Saved states of a link and its host after responses and timeouts.
fn saved() -> (Vec<u8>, Vec<u8>) {
    let host = HostStatistics::default();
    let mut link = Adaptive::new(&AdaptiveConfig::default(), &host);
    for n in 0..200_u64 {
        let attempt = MessageAttempts::new(1000 * (n % 7), 3).attempt(Duration::ZERO);
        let took = Duration::from_millis(20 + n % 13);
        link.record(
            &attempt,
            if n % 40 == 39 { AttemptOutcome::TimedOut(took) } else { AttemptOutcome::Completed(took) },
        );
        link.record_connect(took);
    }
    (link.save(), host.save())
}

proptest! {
    #[test]
    fn states_that_load_give_timeouts_within_their_limits(
        of_host in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        numbers in prop::collection::vec((any::<prop::sample::Index>(), any::<f64>()), 0..4),
    ) {
        let (link, host) = saved();
        let mut data = if of_host { host } else { link };
        for (index, number) in numbers {
            // Most of the first numbers of a state are doubles, so overwrite one of the first 13
            // doubles.
            let at = 4 + 8 * index.index(13);
            data[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        for (index, byte) in changes {
            let at = index.index(data.len());
            data[at] = byte;
        }
        fuzz_state(&data);
    }

    #[test]
    fn random_states_cause_no_panic(data in prop::collection::vec(any::<u8>(), 0..2000)) {
        fuzz_state(&data);
        for kind in *b"LH" {
            fuzz_state(&[b"BT\x01", &[kind][..], &data].concat());
        }
    }
}

/// Writes the corpus: `cargo test -p barograph-timeout --test state -- --ignored`.
#[test]
#[ignore = "it writes files"]
fn write_the_state_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/state");
    let (link, host) = saved();
    fs::write(folder.join("link"), &link).unwrap();
    fs::write(folder.join("host"), host).unwrap();
    fs::write(folder.join("link-cut"), &link[..100]).unwrap();
    fs::write(folder.join("new-link"), Adaptive::default().save()).unwrap();
}
