//! Names of requests in progress: names of an application's values, and names that stations claim.
//!
//! A claim is checked against these names and against the series that the station shows, because
//! values of a request in progress are in no series yet.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Mutex;

use barograph_forecast::Name;

use crate::sync::lock;

#[derive(Debug, Default)]
pub(crate) struct NameReservations(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    /// Each name in applications' requests in progress, with the number of requests that contain
    /// the name.
    reserved: HashMap<Name, usize>,
    claimed: HashSet<Name>,
}

/// Names of an application's request. No station can claim these names until this value is dropped.
#[derive(Debug)]
pub(super) struct NameReservation<'a> {
    reservations: &'a NameReservations,
    names: BTreeSet<Name>,
}

/// A station's claim to a name. The claim ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    reservations: &'a NameReservations,
    name: Name,
}

impl NameReservations {
    /// Records the names of an application's request.
    ///
    /// # Errors
    /// Returns a name that a station claims at this moment.
    pub(super) fn reserve(&self, names: BTreeSet<Name>) -> Result<NameReservation<'_>, Name> {
        let mut all = lock(&self.0);
        if let Some(claimed) = names.iter().find(|name| all.claimed.contains(name)) {
            return Err(claimed.clone());
        }
        for name in &names {
            *all.reserved.entry(name.clone()).or_default() += 1;
        }
        Ok(NameReservation { reservations: self, names })
    }

    /// Starts a claim to `name`. Returns `None` if a request of an application contains `name` at
    /// this moment, or if another station claims `name`.
    pub(super) fn claim(&self, name: &Name) -> Option<Claim<'_>> {
        let mut all = lock(&self.0);
        let is_free = !all.reserved.contains_key(name) && all.claimed.insert(name.clone());
        is_free.then(|| Claim { reservations: self, name: name.clone() })
    }
}

impl Drop for NameReservation<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.reservations.0);
        for name in &self.names {
            if let Some(requests) = all.reserved.get_mut(name) {
                *requests -= 1;
                if *requests == 0 {
                    all.reserved.remove(name);
                }
            }
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(&self.reservations.0).claimed.remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_cannot_be_fed_and_claimed_at_the_same_time() {
        let reservations = NameReservations::default();
        let [a, b] = ["a", "b"].map(|name| Name::new(name).unwrap());
        let names = || BTreeSet::from([a.clone(), b.clone()]);
        let (first, second) =
            (reservations.reserve(names()).unwrap(), reservations.reserve(names()).unwrap());
        assert!(reservations.claim(&a).is_none());
        drop(first);
        assert!(reservations.claim(&a).is_none(), "one request is still under way");
        drop(second);
        let claim = reservations.claim(&a).unwrap();
        assert!(reservations.claim(&a).is_none() && reservations.claim(&b).is_some());
        assert_eq!(reservations.reserve(names()).unwrap_err(), a);
        drop(claim);
        assert!(reservations.reserve(names()).is_ok() && reservations.claim(&a).is_some(), "nothing is kept");
    }
}
