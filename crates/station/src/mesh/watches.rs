//! Watches of the directory: one for each group of the station.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_engine::{Engine, TaskStatus};
use barograph_forecast::Name;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use super::directory::{WatchMessage, keep_watching};
use super::mesh_state::MeshState;

/// The running watches, one for each group of the station.
pub(super) struct Watches {
    engine: Arc<dyn Engine>,
    mesh_state: Arc<MeshState>,
    reregister: Arc<Notify>,
    sender: mpsc::Sender<(Name, WatchMessage)>,
    under_way: BTreeMap<Name, AbortHandle>,
    /// Status that all watch tasks share.
    task: Arc<TaskStatus>,
}

impl Watches {
    /// Creates a set without watches. Watches send events to `sender`, and notify `reregister` when
    /// the directory may have lost the station's registration.
    pub(super) fn new(
        engine: Arc<dyn Engine>,
        mesh_state: Arc<MeshState>,
        reregister: Arc<Notify>,
        sender: mpsc::Sender<(Name, WatchMessage)>,
        task: Arc<TaskStatus>,
    ) -> Self {
        Self { engine, mesh_state, reregister, sender, under_way: BTreeMap::new(), task }
    }

    /// Starts a watch for each new group in `groups`, and aborts the watches of all other groups.
    pub(super) fn follow(&mut self, groups: &[Name], tasks: &mut JoinSet<()>) {
        self.under_way.retain(|group, watch| {
            let stays = groups.contains(group);
            if !stays {
                watch.abort();
            }
            stays
        });
        for group in groups {
            self.under_way.entry(group.clone()).or_insert_with(|| {
                let engine = Arc::clone(&self.engine);
                let (mesh_state, reregister) = (Arc::clone(&self.mesh_state), Arc::clone(&self.reregister));
                let (group, sender, task) = (group.clone(), self.sender.clone(), Arc::clone(&self.task));
                tasks.spawn(async move {
                    let watch = || {
                        let (engine, mesh_state, reregister) =
                            (Arc::clone(&engine), Arc::clone(&mesh_state), Arc::clone(&reregister));
                        keep_watching(engine, group.clone(), mesh_state, sender.clone(), reregister)
                    };
                    task.restart(watch).await;
                })
            });
        }
    }
}
