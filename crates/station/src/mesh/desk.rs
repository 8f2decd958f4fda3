//! Who is in the mesh, and how wrong composed paths are in it: kept for questions, and made anew beside them.
//!
//! A question waits for it only when there is nothing yet, which is so at the start and when nobody has asked for an hour: until then it is
//! renewed, and every question is answered from the last. Who is lost since is asked of [`Board::peers`], which is in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_engine::{Engine, Event, TaskStatus};
use barograph_forecast::Name;
use barograph_mesh::GLOBAL;
use futures_util::StreamExt;
use tokio::time::Instant;

use super::{Board, Standing};
use crate::config::unset_group;
use crate::forecast::bank::Bank;
use crate::forecast::best::{Blank, Models, Pairs, Place, Places};
use crate::sync::lock;
use crate::time::now_unix_ns;

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
    /// Of the one that renews.
    task: Arc<TaskStatus>,
    kept: Mutex<Kept>,
    /// Held by whoever looks who is there, and by whoever learns, so that both are done once for all who wait, and the newer is kept.
    looking: tokio::sync::Mutex<()>,
    learning: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Kept {
    /// Who is there, and since when that is known.
    places: Option<(Instant, Arc<Places>)>,
    models: Option<Arc<Models>>,
    /// The last question; `None` = nobody tends.
    asked_at: Option<Instant>,
    /// The last look for somebody who was missed.
    missed_at: Option<Instant>,
}

impl Desk {
    /// `host`: this station.
    pub(crate) fn new(
        host: Name,
        board: Arc<Board>,
        engine: Arc<dyn Engine>,
        bank: Arc<Mutex<Bank>>,
        task: Arc<TaskStatus>,
    ) -> Self {
        let (kept, looking, learning) = (Mutex::default(), Default::default(), Default::default());
        Self { parts: Arc::new(Parts { host, board, engine, bank, task, kept, looking, learning }) }
    }

    /// A question: the mesh as it was when it was last renewed, [`UNASKED`] ago or less.
    pub(crate) async fn mesh(&self) -> (Arc<Places>, Arc<Models>) {
        if let Some(mesh) = self.parts.asked() {
            return mesh;
        }
        let places = self.places(RENEWED).await;
        let _one = self.parts.learning.lock().await;
        let known = lock(&self.parts.kept).models.clone();
        match known {
            Some(models) => (places, models),
            None => (Arc::clone(&places), self.parts.learnt(places).await),
        }
    }

    /// Who is there, as of so long ago at most. It is no question.
    pub(crate) async fn places(&self, age: Duration) -> Arc<Places> {
        let _one = self.parts.looking.lock().await;
        let known = lock(&self.parts.kept).places.clone();
        match known {
            Some((at, places)) if at.elapsed() <= age => places,
            _ => self.parts.looked().await,
        }
    }

    /// Looks anew at the next question: a station was removed from the mesh.
    pub(crate) fn forget_places(&self) {
        lock(&self.parts.kept).places = None;
    }

    /// Who is there now, for somebody who has missed a host in `places`: it may have come since. `None` = somebody has been looked for less
    /// than [`RENEWED`] ago: anyone may ask for what is not there, and a look costs the directory all groups.
    pub(crate) async fn newer(&self, places: &Arc<Places>) -> Option<Arc<Places>> {
        let _one = self.parts.looking.lock().await;
        {
            let mut kept = lock(&self.parts.kept);
            match &kept.places {
                Some((_, newer)) if !Arc::ptr_eq(newer, places) => return Some(Arc::clone(newer)),
                _ if kept.missed_at.is_some_and(|at| at.elapsed() < RENEWED) => return None,
                _ => kept.missed_at = Some(Instant::now()),
            }
        }
        Some(self.parts.looked().await)
    }
}

impl Parts {
    /// What there is for a question, which somebody tends from now on.
    fn asked(self: &Arc<Self>) -> Option<(Arc<Places>, Arc<Models>)> {
        let mut kept = lock(&self.kept);
        if kept.asked_at.replace(Instant::now()).is_none() {
            let parts = Arc::clone(self);
            tokio::spawn(async move { parts.task.restart(|| Arc::clone(&parts).tend()).await });
        }
        Some((Arc::clone(&kept.places.as_ref()?.1), Arc::clone(kept.models.as_ref()?)))
    }

    /// Keeps it new for as long as somebody asks.
    async fn tend(self: Arc<Self>) {
        let mut renewed_at = Instant::now();
        loop {
            tokio::time::sleep(RENEWED).await;
            let unasked = {
                let mut kept = lock(&self.kept);
                let unasked = kept.asked_at.map_or(IDLE, |at| at.elapsed());
                if IDLE <= unasked {
                    *kept = Kept::default();
                    return;
                }
                unasked
            };
            if unasked < RENEWED || UNASKED - RENEWED <= renewed_at.elapsed() {
                renewed_at = Instant::now();
                let places = {
                    let _one = self.looking.lock().await;
                    self.looked().await
                };
                let _one = self.learning.lock().await;
                self.learnt(places).await;
            }
        }
    }

    /// Looks who is there, while `looking` is held.
    async fn looked(&self) -> Arc<Places> {
        let at = Instant::now();
        let members = self.members().await;
        let found = away("sorting the mesh", move || Places::new(members)).await.map(Arc::new);
        let mut kept = lock(&self.kept);
        let places = found.or_else(|| Some(Arc::clone(&kept.places.as_ref()?.1))).unwrap_or_default();
        kept.places = Some((at, Arc::clone(&places)));
        places
    }

    /// Learns from the pairs of these, while `learning` is held.
    async fn learnt(&self, places: Arc<Places>) -> Arc<Models> {
        let bank = Arc::clone(&self.bank);
        let learn = move || Models::learnt(&places, &Pairs::new(&bank, now_unix_ns(), PAUSE));
        // A second or two in a large mesh.
        let found = away("learning from pairs", learn).await.map(Arc::new);
        let mut kept = lock(&self.kept);
        let models = found
            .or_else(|| kept.models.clone())
            .unwrap_or_else(|| Arc::new(Models::learnt(&Places::default(), &Blank)));
        kept.models = Some(Arc::clone(&models));
        models
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
        let mut named = Named::default();
        members.values().for_each(|place| named.note(&place.groups));
        // Representatives, and those for whom stations with a place come back.
        Name::new(GLOBAL).ok().into_iter().chain([unset_group()]).for_each(|group| named.first(group));
        let deadline = tokio::time::Instant::now() + SNAPSHOTS;
        while asked.len() < GROUPS_MAX {
            let Some(group) = named.next() else { break };
            if !asked.insert(group.clone()) {
                continue;
            }
            let snapshot = tokio::time::timeout_at(deadline, self.snapshot(&group));
            for (host, groups) in snapshot.await.unwrap_or_default() {
                if members.len() < HOSTS_MAX && !members.contains_key(&host) {
                    named.note(&groups);
                    members.insert(host, Place { groups, is_lost: false });
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

/// Groups that members name, and how much each weighs: a member has one vote, which it shares among
/// those that it names. So one that names many pushes none out that others are in.
#[derive(Default)]
struct Named(BTreeMap<Name, f64>);

impl Named {
    fn note(&mut self, groups: &[Name]) {
        for group in groups {
            *self.0.entry(group.clone()).or_default() += 1.0 / groups.len() as f64;
        }
    }

    /// Before all that members name.
    fn first(&mut self, group: Name) {
        self.0.insert(group, f64::INFINITY);
    }

    /// Takes the one that weighs most.
    fn next(&mut self) -> Option<Name> {
        let heaviest = self.0.iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
        let group = heaviest.map(|(group, _)| group.clone())?;
        self.0.remove(&group);
        Some(group)
    }
}

/// Makes something away from the thread that answers; `None` if that broke off, or the station is stopping: what was known is kept.
async fn away<T: Send + 'static>(what: &str, make: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let made = tokio::task::spawn_blocking(make).await;
    made.inspect_err(|error| {
        if error.is_panic() {
            tracing::error!("{what} broke off ({error}); what was known before is kept");
        }
    })
    .ok()
}

/// It is renewed so often while there are questions: a lease.
pub(crate) const RENEWED: Duration = Duration::from_secs(10);
/// And so often in the hour after the last one.
const UNASKED: Duration = Duration::from_secs(60);
/// After so long without a question it is dropped: it costs the directory a look at every group.
const IDLE: Duration = Duration::from_hours(1);
/// While learning, between look-ups in the bank, so that neither questions nor measurements queue behind it.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);
/// Entries of a snapshot after which the thread that answers is left to others: some tens of microseconds.
const YIELDED: usize = 64;
/// For all groups' snapshots together, so that a directory that is away delays the first question by no more.
const SNAPSHOTS: Duration = Duration::from_secs(1);
/// Groups asked for, the own ones among them, and hosts in all: ten times what a station measures.
const GROUPS_MAX: usize = 256;
const HOSTS_MAX: usize = 10_000;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
