//! Any order of appends, restarts and retention leaves the same records as a model, which is a set.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use barograph_engine::{Engine as _, Local, LocalConfig, Record};
use proptest::prelude::*;
use rusqlite::Connection;

use crate::archive::{config, name, record, stored};

/// Age in seconds up to which [`Step::RemoveOld`] keeps records.
const KEPT_S: u64 = 3;

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(bool, u64)>),
    Restart,
    RemoveOld,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => proptest::collection::vec((any::<bool>(), 1_u64..30), 0..12).prop_map(Step::Append),
        1 => Just(Step::Restart),
        1 => Just(Step::RemoveOld),
    ]
}

fn origin(south: bool) -> &'static str {
    if south { "south" } else { "north" }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_archive_equals_its_model(steps in proptest::collection::vec(step(), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(check(steps))?;
    }
}

async fn check(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().unwrap();
    let keeps_all = || Local::open(config(directory.path())).unwrap();
    let mut engine = Some(keeps_all());
    let mut ever = [BTreeSet::new(), BTreeSet::new()];
    let mut kept = BTreeSet::new();
    for step in steps {
        match step {
            Step::Append(identities) => {
                let batch: Vec<Record> = identities
                    .iter()
                    .map(|&(south, seq)| Record { origin: name(origin(south)), ..record(seq) })
                    .collect();
                engine.as_ref().unwrap().append(&batch).await.unwrap();
                for (south, seq) in identities {
                    if ever[usize::from(south)].insert(seq) {
                        kept.insert((origin(south).to_string(), seq));
                    }
                }
            }
            Step::Restart => {
                drop(engine.take());
                engine = Some(keeps_all());
            }
            Step::RemoveOld => {
                drop(engine.take());
                let keep = Duration::from_secs(KEPT_S);
                let keeps_few = LocalConfig { keep, ..config(directory.path()) };
                let removed = Local::open(keeps_few).unwrap().sweep().await.unwrap();
                let before = kept.len();
                // The age of a record, in seconds, is the highest number minus its own number.
                let newest = kept.iter().map(|(_, seq)| *seq).max().unwrap_or(0);
                kept.retain(|(_, seq)| newest <= seq + KEPT_S);
                prop_assert_eq!(removed, (before - kept.len()) as u64);
                engine = Some(keeps_all());
            }
        }
        let engine = engine.as_ref().unwrap();
        for (south, ever) in [false, true].into_iter().zip(&ever) {
            let contiguous = (1..).take_while(|seq| ever.contains(seq)).count() as u64;
            prop_assert_eq!(engine.watermark(&name(origin(south))).await.unwrap(), contiguous);
            let next = ever.last().map_or(1, |last| last + 1);
            prop_assert_eq!(engine.next_seq(&name(origin(south))).await.unwrap(), next);
            prop_assert_eq!(&runs(directory.path(), origin(south)), &runs_of(ever));
        }
        let found = stored(engine).await;
        prop_assert!(found.is_sorted_by(|a, b| a.0 < b.0), "cursors rise");
        prop_assert_eq!(found.len() as u64, engine.statistics().records);
        let found: BTreeSet<_> = found.into_iter().map(|(_, r)| (r.origin.to_string(), r.seq)).collect();
        prop_assert_eq!(&found, &kept);
    }
    Ok(())
}

/// Returns the number of runs of sequence numbers in the archive's table.
fn runs(directory: &Path, origin: &str) -> Vec<(i64, i64)> {
    let connection = Connection::open(directory.join(Local::FILE)).unwrap();
    let mut statement = connection
        .prepare("SELECT first, last FROM held JOIN origin ON id = origin WHERE name = ? ORDER BY first")
        .unwrap();
    let rows = statement.query_map([origin], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

fn runs_of(set: &BTreeSet<u64>) -> Vec<(i64, i64)> {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for seq in set.iter().map(|seq| seq.cast_signed()) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == seq => *last = seq,
            _ => runs.push((seq, seq)),
        }
    }
    runs
}
