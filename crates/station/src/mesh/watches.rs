//! The watches of the directory: one of each of the station's groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_engine::{Engine, TaskStatus};
use barograph_forecast::Name;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use super::board::Board;
use super::directory::{Told, keep_watching};

/// A watch of each of the station's groups.
pub(super) struct Watches {
    engine: Arc<dyn Engine>,
    board: Arc<Board>,
    again: Arc<Notify>,
    sender: mpsc::Sender<(Name, Told)>,
    under_way: BTreeMap<Name, AbortHandle>,
    /// Of all of them.
    task: Arc<TaskStatus>,
}

impl Watches {
    /// None yet; they tell `sender`, and `again` when the directory may have forgotten the station.
    pub(super) fn new(
        engine: Arc<dyn Engine>,
        board: Arc<Board>,
        again: Arc<Notify>,
        sender: mpsc::Sender<(Name, Told)>,
        task: Arc<TaskStatus>,
    ) -> Self {
        Self { engine, board, again, sender, under_way: BTreeMap::new(), task }
    }

    /// Watches what the station is in, and nothing else.
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
                let (board, again) = (Arc::clone(&self.board), Arc::clone(&self.again));
                let (group, sender, task) = (group.clone(), self.sender.clone(), Arc::clone(&self.task));
                tasks.spawn(async move {
                    let watch = || {
                        let (engine, board, again) =
                            (Arc::clone(&engine), Arc::clone(&board), Arc::clone(&again));
                        keep_watching(engine, group.clone(), board, sender.clone(), again)
                    };
                    task.restart(watch).await;
                })
            });
        }
    }
}
