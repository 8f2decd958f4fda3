//! After any order of faults, restarts and outages, each acknowledged record is in the mesh once.

use std::time::Duration;

use barograph_engine::Engine as _;
use proptest::prelude::*;

use crate::joined::mesh::{self, Fault};
use crate::joined::{Station, assert_in_order, name, quick, records, stored};

#[derive(Clone, Debug)]
enum Step {
    Append(u64),
    Fault(Fault),
    Away(u64),
    Wait(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let fault = prop_oneof![
        Just(Fault::None),
        Just(Fault::Unavailable),
        Just(Fault::StoredUnknown),
        Just(Fault::LostUnknown),
        Just(Fault::AcknowledgedLost),
        Just(Fault::Silent),
    ];
    prop_oneof![
        6 => (1_u64..300).prop_map(Step::Append),
        6 => fault.prop_map(Step::Fault),
        1 => (1_u64..60_000).prop_map(Step::Away),
        3 => (1_u64..5_000).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn acknowledged_records_are_in_the_mesh_exactly_once(steps in proptest::collection::vec(step(), 1..40), seed: u64) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(check(steps, seed));
    }
}

async fn check(steps: Vec<Step>, seed: u64) {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(archive.path());
    let config = barograph_engine::JoinedConfig { seed: Some(seed), ..quick() };
    let mut station = Some(Station::start(config.clone(), directory.path(), &mesh).await);
    // A record that was acknowledged, lost and sent again arrives late.
    let loses = steps.iter().any(|step| matches!(step, Step::Fault(Fault::AcknowledgedLost)));
    let mut next = 1;
    for step in steps {
        let running = station.as_ref().unwrap();
        match step {
            Step::Append(count) => {
                running.append(&records(next..=next + count - 1)).await.unwrap();
                next += count;
            }
            Step::Fault(fault) => mesh.faults.lock().unwrap().push_back(fault),
            Step::Away(milliseconds) => mesh.go_away(Duration::from_millis(milliseconds)),
            Step::Wait(milliseconds) => tokio::time::sleep(Duration::from_millis(milliseconds)).await,
            Step::Restart => {
                station.take().unwrap().stop().await;
                station = Some(Station::start(config.clone(), directory.path(), &mesh).await);
            }
        }
    }
    let station = station.unwrap();
    station.drained().await;
    assert_eq!(stored(&mesh.local()).await, (1..next).collect::<Vec<_>>());
    if !loses {
        assert_in_order(&mesh.local()).await;
    }
    assert_eq!(mesh.local().watermark(&name("north")).await, Ok(next - 1));
}
