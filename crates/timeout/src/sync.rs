//! Mutexes that ignore poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even if a thread has panicked while it had the lock. Ignoring the panic is safe,
/// because a panic under these locks leaves no change incomplete.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
