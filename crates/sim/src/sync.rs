//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The content of a lock whose holder may have panicked: its test has failed already.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
