//! Who is in the mesh, and how wrong composed paths are in it: kept for questions, and made anew beside them.
//!
//! A question waits for it only when there is nothing yet, which is so at the start and when nobody has asked for an hour: until then it is
//! renewed, and every question is answered from the last. That is enough, for what of the mesh has died has no fresh forecasts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barograph_engine::{Engine, Event};
use barograph_forecast::Name;
use barograph_mesh::GLOBAL;
use futures_util::StreamExt;

use crate::bank::Bank;
use crate::best::{Models, Pairs, Place, Places};
use crate::config::unset_group;
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
    /// Held by whoever waits for a new one, so that it is made once for all who wait.
    waiting: tokio::sync::Mutex<()>,
}

struct Kept {
    at: Instant,
    asked_at: Instant,
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
        let (kept, waiting) = (Mutex::default(), tokio::sync::Mutex::default());
        let parts = Parts { host, board, engine, bank, kept, waiting };
        Self { parts: Arc::new(parts) }
    }

    /// The mesh, for somebody who has missed a host in [`Desk::mesh`]: it may have come since.
    pub(crate) async fn newest(&self) -> Arc<(Places, Models)> {
        let _one = self.parts.waiting.lock().await;
        if let Some(mesh) = self.parts.kept(NEWEST) {
            return mesh;
        }
        let (mesh, is_first) = self.parts.renewed().await;
        if is_first {
            tokio::spawn(Arc::clone(&self.parts).tend());
        }
        mesh
    }

    /// The mesh as it was when it was last renewed: [`UNASKED`] ago or less.
    pub(crate) async fn mesh(&self) -> Arc<(Places, Models)> {
        match self.parts.kept(Duration::MAX) {
            Some(mesh) => mesh,
            None => self.newest().await,
        }
    }
}

impl Parts {
    /// What there is, if it is no older; this is a question.
    fn kept(&self, age: Duration) -> Option<Arc<(Places, Models)>> {
        let mut kept = lock(&self.kept);
        let kept = kept.as_mut()?;
        kept.asked_at = Instant::now();
        (kept.at.elapsed() <= age).then(|| Arc::clone(&kept.mesh))
    }

    /// Keeps it new for as long as somebody asks.
    async fn tend(self: Arc<Self>) {
        loop {
            tokio::time::sleep(RENEWED).await;
            let (age, unasked) = {
                let mut kept = lock(&self.kept);
                let Some(now) = kept.as_ref() else { return };
                if IDLE < now.asked_at.elapsed() {
                    *kept = None;
                    return;
                }
                (now.at.elapsed(), now.asked_at.elapsed())
            };
            if unasked < RENEWED || UNASKED - RENEWED <= age {
                self.renewed().await;
            }
        }
    }

    /// A new one, and whether there was none, so that nobody tends it yet.
    async fn renewed(self: &Arc<Self>) -> (Arc<(Places, Models)>, bool) {
        let members = self.members().await;
        let parts = Arc::clone(self);
        // Some tenths of a second in a large mesh: away from the thread that answers.
        let learn = move || {
            let places = Places::new(members);
            let knowledge = Pairs::new(&parts.bank, now_unix_ns(), PAUSE);
            let models = Models::learnt(&places, &knowledge);
            Arc::new((places, models))
        };
        let mesh = match tokio::task::spawn_blocking(learn).await {
            Ok(mesh) => mesh,
            // The station is stopping.
            Err(_) => Arc::new((Places::default(), Models::learnt(&Places::default(), &crate::best::Blank))),
        };
        let now = Instant::now();
        let mut kept = lock(&self.kept);
        let asked_at = kept.as_ref().map(|kept| kept.asked_at);
        *kept = Some(Kept { at: now, asked_at: asked_at.unwrap_or(now), mesh: Arc::clone(&mesh) });
        (mesh, asked_at.is_none())
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
        let mut named: BTreeSet<Name> = members.values().flat_map(|place| place.groups.clone()).collect();
        // Representatives, and those for whom stations with a place come back.
        named.extend(Name::new(GLOBAL).ok().into_iter().chain([unset_group()]));
        let deadline = tokio::time::Instant::now() + SNAPSHOTS;
        while asked.len() < GROUPS_MAX {
            let Some(group) = named.pop_first() else { break };
            if !asked.insert(group.clone()) {
                continue;
            }
            let snapshot = tokio::time::timeout_at(deadline, self.snapshot(&group));
            for (host, groups) in snapshot.await.unwrap_or_default() {
                if members.len() < HOSTS_MAX {
                    named.extend(groups.iter().filter(|group| !asked.contains(*group)).cloned());
                    members.entry(host).or_insert(Place { groups, is_lost: false });
                }
            }
        }
        members
    }

    /// Who is in a group now; nobody if the directory does not say.
    async fn snapshot(&self, group: &Name) -> Vec<(Name, Vec<Name>)> {
        let mut events = self.engine.watch(group);
        let mut found = Vec::new();
        while let Some(Ok(Event::Up(entry))) = events.next().await {
            found.push((entry.host, entry.groups));
            if found.len().is_multiple_of(YIELDED) {
                tokio::task::yield_now().await;
            }
        }
        found
    }
}

/// It is renewed so often while there are questions: a lease.
const RENEWED: Duration = Duration::from_secs(10);
/// And so often in the hour after the last one.
const UNASKED: Duration = Duration::from_secs(60);
/// After so long without a question it is dropped: it costs the directory a look at every group.
const IDLE: Duration = Duration::from_hours(1);
/// While learning, between look-ups in the bank, so that neither questions nor measurements queue behind it.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);
/// Entries of a snapshot after which the thread that answers is left to others: some tens of microseconds.
const YIELDED: usize = 64;
/// One who asks for what is not there learns at most so late that it came.
const NEWEST: Duration = Duration::from_secs(1);
/// For all groups' snapshots together, so that a directory that is away delays the first question by no more.
const SNAPSHOTS: Duration = Duration::from_secs(1);
/// Groups asked for, the own ones among them, and hosts in all: ten times what a station measures.
const GROUPS_MAX: usize = 256;
const HOSTS_MAX: usize = 10_000;
