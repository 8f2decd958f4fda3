//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The content of a lock whose holder may have panicked: every change under our locks is one
/// statement, so what is inside is whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
