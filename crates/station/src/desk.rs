//! Who is in the mesh, and how wrong composed paths are in it: kept for questions, and made anew beside them.
//!
//! Questions wait for it only when there is nothing yet, or nothing younger than a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barograph_engine::{Engine, Event};
use barograph_forecast::Name;
use futures_util::StreamExt;

use crate::bank::Bank;
use crate::best::{Models, Pairs, Place, Places};
use crate::health::lock;
use crate::mesh::{Board, Standing};
use crate::prober::now_unix_ns;

/// What questions are answered with, beside the bank.
#[derive(Clone)]
pub(crate) struct Desk {
    parts: Arc<Parts>,
}

struct Parts {
    host: Name,
    board: Arc<Board>,
    engine: Arc<dyn Engine>,
    bank: Arc<Mutex<Bank>>,
    kept: Mutex<Option<Kept>>,
    is_busy: AtomicBool,
    /// Held by whoever waits for a new one, so that it is made once for all who wait.
    waiting: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Kept {
    at: Instant,
    mesh: Arc<(Places, Models)>,
}

impl Desk {
    /// `host`: this station.
    pub(crate) fn new(
        host: Name,
        board: Arc<Board>,
        engine: Arc<dyn Engine>,
        bank: Arc<Mutex<Bank>>,
    ) -> Self {
        let (kept, is_busy) = (Mutex::default(), AtomicBool::new(false));
        let parts =
            Parts { host, board, engine, bank, kept, is_busy, waiting: tokio::sync::Mutex::default() };
        Self { parts: Arc::new(parts) }
    }

    /// The mesh, for somebody who has missed a host in [`Desk::mesh`]: it may have come since.
    pub(crate) async fn newest(&self) -> Arc<(Places, Models)> {
        self.parts.no_older_than(NEWEST).await
    }

    /// The mesh as it was a minute ago at most.
    pub(crate) async fn mesh(&self) -> Arc<(Places, Models)> {
        let kept = lock(&self.parts.kept).clone();
        let Some(kept) = kept.filter(|kept| kept.at.elapsed() < OLDEST) else {
            return self.parts.no_older_than(OLDEST).await;
        };
        if RENEWED < kept.at.elapsed() && !self.parts.is_busy.swap(true, Ordering::Relaxed) {
            let parts = Arc::clone(&self.parts);
            tokio::spawn(async move {
                parts.renewed().await;
                parts.is_busy.store(false, Ordering::Relaxed);
            });
        }
        kept.mesh
    }
}

impl Parts {
    async fn no_older_than(self: &Arc<Self>, age: Duration) -> Arc<(Places, Models)> {
        let _one = self.waiting.lock().await;
        let kept = lock(&self.kept).clone();
        match kept.filter(|kept| kept.at.elapsed() < age) {
            Some(kept) => kept.mesh,
            None => self.renewed().await,
        }
    }

    async fn renewed(self: &Arc<Self>) -> Arc<(Places, Models)> {
        let places = Places::new(self.members().await);
        let parts = Arc::clone(self);
        // Some tenths of a second in a large mesh: away from the thread that answers.
        let learn = move || {
            let knowledge = Pairs { bank: &parts.bank, now_unix_ns: now_unix_ns() };
            let models = Models::learnt(&places, &knowledge);
            Arc::new((places, models))
        };
        let mesh = match tokio::task::spawn_blocking(learn).await {
            Ok(mesh) => mesh,
            // The station is stopping.
            Err(_) => Arc::new((Places::default(), Models::learnt(&Places::default(), &crate::best::Blank))),
        };
        *lock(&self.kept) = Some(Kept { at: Instant::now(), mesh: Arc::clone(&mesh) });
        mesh
    }

    /// This station, those that it hears of all the time, and the directory's in the groups that they name.
    async fn members(&self) -> BTreeMap<Name, Place> {
        let (host, groups) = (&self.host, self.board.standing().groups);
        let mut members = BTreeMap::new();
        for peer in self.board.peers().all() {
            let is_lost = peer.standing == Standing::Lost;
            members.insert(peer.entry.host.clone(), Place { groups: peer.entry.groups.clone(), is_lost });
        }
        members.insert(host.clone(), Place { groups: groups.clone(), is_lost: false });
        // What of the own groups is there is known already.
        let mut asked: BTreeSet<Name> = groups.iter().cloned().collect();
        let deadline = tokio::time::Instant::now() + SNAPSHOTS;
        while asked.len() < GROUPS_MAX {
            let global = Name::new("global").ok();
            let named = global.iter().chain(members.values().flat_map(|place| &place.groups));
            let Some(group) = named.filter(|group| !asked.contains(*group)).min().cloned() else { break };
            let snapshot = tokio::time::timeout_at(deadline, self.snapshot(&group));
            for (host, groups) in snapshot.await.unwrap_or_default() {
                if members.len() < HOSTS_MAX {
                    members.entry(host).or_insert(Place { groups, is_lost: false });
                }
            }
            asked.insert(group);
        }
        members
    }

    /// Who is in a group now; nobody if the directory does not say.
    async fn snapshot(&self, group: &Name) -> Vec<(Name, Vec<Name>)> {
        let mut events = self.engine.watch(group);
        let mut found = Vec::new();
        while let Some(Ok(Event::Up(entry))) = events.next().await {
            found.push((entry.host, entry.groups));
        }
        found
    }
}

/// It is made anew beside a question when it is older: a lease.
const RENEWED: Duration = Duration::from_secs(10);
/// A question waits for a new one when it is older.
const OLDEST: Duration = Duration::from_secs(60);
/// One who asks for what is not there learns at most so late that it came.
const NEWEST: Duration = Duration::from_secs(1);
/// For all groups' snapshots together, so that a directory that is away delays the first question by no more.
const SNAPSHOTS: Duration = Duration::from_secs(1);
/// Groups asked for, the own ones among them, and hosts in all: ten times what a station measures.
const GROUPS_MAX: usize = 256;
const HOSTS_MAX: usize = 10_000;
