//! Each long-lived task of the engine on NATS is killed, and its status reports that.

use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{Engine, Nats};

use crate::nats::server::{self, NatsServer};
use crate::nats::values::{entry, eventually, name};

#[tokio::test]
async fn the_failure_of_each_task_is_reported() {
    if server::binary().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = NatsServer::start(directory.path()).unwrap();
    let nats = Arc::new(Nats::new(server::config(&server.url, "archive")).unwrap());
    let (archiver, _local) = server::archive(&nats, directory.path());
    let lease = eventually("a registration", async || {
        nats.register(&entry("archive"), Duration::from_secs(2)).await.ok()
    })
    .await;
    let mut tasks = archiver.tasks();
    tasks.extend(nats.tasks());
    let mut names: Vec<&str> = tasks.iter().map(|task| task.name()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["archive_answerer", "archive_reader", "lease_renewal", "nats"],
        "a task that no test kills"
    );
    // Kill the task of the connection last, because all other tasks run on it.
    tasks.sort_by_key(|task| task.name() == "nats");
    for task in tasks {
        assert_eq!((task.is_up(), task.panics()), (true, 0), "{}", task.name());
        task.kill();
        let told = eventually(task.name(), async || {
            // The answering task waits for a request.
            let _ = tokio::time::timeout(Duration::from_millis(100), nats.watermark(&name("x"))).await;
            task.failure()
        })
        .await;
        assert!(told.contains(task.name()) && told.contains("killed by a test"), "{told}");
        assert_eq!(task.panics(), 1, "{}", task.name());
    }
    drop(lease);
}
