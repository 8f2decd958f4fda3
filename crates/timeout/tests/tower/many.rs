//! Many targets: calls from several threads, and more targets than `max_targets`.

use std::time::Duration;

use barograph_timeout::tower::{AdaptiveTimeoutLayer, Targets, TargetsConfig};
use tokio::time::advance;
use tower::{Layer, Service, ServiceExt, service_fn};

const TARGETS: u32 = 10_000;
const THREADS: u32 = 4;
const ROUNDS: u32 = 3;

#[test]
fn ten_thousand_targets_on_several_threads_lose_no_call() {
    let targets = Targets::default();
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let targets = targets.clone();
            threads.spawn(move || call_all(&targets, thread));
        }
    });
    let metrics = targets.metrics();
    assert_eq!((metrics.targets.len(), targets.len(), metrics.forgotten), (10_000, 10_000, 0));
    for target in &metrics.targets {
        let counts = target.counts;
        let calls = u64::from(THREADS * ROUNDS);
        assert_eq!((counts.attempts, counts.answered), (calls, calls), "target {}", target.key);
    }
}

/// Calls every target in every round; each thread starts with a different target.
fn call_all(targets: &Targets<u32>, thread: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let layer = AdaptiveTimeoutLayer::sharing(targets, |key: &u32| *key);
    let mut client = layer.layer(service_fn(async |key: u32| Ok::<_, std::io::Error>(key)));
    runtime.block_on(async {
        for n in 0..ROUNDS * TARGETS {
            let key = (n + thread * TARGETS / THREADS) % TARGETS;
            assert_eq!(client.ready().await.unwrap().call(key).await.unwrap(), key);
        }
    });
}

#[tokio::test(start_paused = true)]
async fn hostile_keys_do_not_exceed_the_limit_or_displace_a_busy_target() {
    let targets = Targets::new(TargetsConfig { max_targets: 100, ..TargetsConfig::default() });
    let layer = AdaptiveTimeoutLayer::sharing(&targets, |key: &u32| *key);
    let service = service_fn(async |key: u32| Ok::<_, std::io::Error>(key));
    let mut clients = [layer.layer(service), layer.layer(service)];
    for key in 1..=10_000 {
        let [client, other] = &mut clients;
        client.ready().await.unwrap().call(key).await.unwrap();
        advance(Duration::from_millis(1)).await;
        other.ready().await.unwrap().call(0).await.unwrap();
        advance(Duration::from_millis(1)).await;
        assert!(targets.len() <= 100);
    }
    let metrics = targets.metrics();
    let busy = metrics.targets.iter().find(|target| target.key == 0).expect("the busy target");
    assert_eq!(busy.counts.attempts, 10_000);
    assert_eq!(metrics.forgotten + targets.len() as u64, 10_001);
}

#[tokio::test(start_paused = true)]
async fn loading_too_many_targets_keeps_the_limit() {
    let all = Targets::default();
    (0..500).for_each(|key| all.start_from(key, Duration::from_millis(20), Duration::from_millis(5)));
    let few = Targets::<u32>::new(TargetsConfig { max_targets: 0, ..TargetsConfig::default() });
    assert_eq!(few.load_all(all.save_all()), []);
    assert_eq!(few.len(), 1, "no room counts as room for one");
}
