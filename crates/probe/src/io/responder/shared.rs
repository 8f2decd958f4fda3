//! State that the threads of one responder share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::consent::{Agreement, Consent, Wish};
use super::grants::DatagramGrants;
use super::limits::Limits;
use super::slots::SessionSlots;
use super::workers::WorkerPool;
use crate::TokenTable;
use crate::io::clock::Cancel;
use crate::wire::Declined;

/// State that the threads of one responder share.
pub(super) struct Shared {
    pub(super) limits: Limits,
    consent: Option<Arc<dyn Consent>>,
    pub(super) stop: Cancel,
    pub(super) serves_datagrams: bool,
    began: Instant,
    /// Whether the responder serves a transfer. It serves one at a time, because two would disturb
    /// each other's measurement.
    bulk: AtomicBool,
    /// Number of transfers that other parts of this host serve; several may run at once.
    bulk_elsewhere: AtomicU64,
    pub(super) bulk_begun: AtomicU64,
    pub(super) declined: AtomicU64,
    pub(super) slots: Mutex<SessionSlots>,
    pub(super) tokens: Mutex<TokenTable>,
    pub(super) grants: Mutex<DatagramGrants>,
    pub(super) workers: Arc<WorkerPool>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(limits: Limits, consent: Option<Arc<dyn Consent>>, serves_datagrams: bool) -> Self {
        Self {
            limits,
            consent,
            stop: Cancel::default(),
            began: Instant::now(),
            serves_datagrams,
            bulk: AtomicBool::new(false),
            bulk_elsewhere: AtomicU64::new(0),
            bulk_begun: AtomicU64::new(0),
            declined: AtomicU64::new(0),
            slots: Mutex::default(),
            tokens: Mutex::new(TokenTable::new(TOKEN_LIFETIME_S, TOKENS_MAX)),
            grants: Mutex::default(),
            workers: WorkerPool::new(),
        }
    }

    /// Counts a transfer that another part of this host serves, until the guard is dropped.
    pub(super) fn bulk_elsewhere(shared: &Arc<Self>) -> BulkElsewhere {
        shared.bulk_elsewhere.fetch_add(1, Ordering::Relaxed);
        shared.bulk_begun.fetch_add(1, Ordering::Relaxed);
        BulkElsewhere(Arc::clone(shared))
    }

    /// Requests the host's consent to a transfer; without a [`Consent`], every transfer is
    /// accepted.
    pub(super) fn agree(&self, wish: &Wish<'_>) -> Result<Agreement, Declined> {
        match &self.consent {
            Some(consent) => consent.agree(wish),
            None => Ok(Agreement::new(self.limits.transfer_grace, |_| ())),
        }
    }

    /// Whether the session of `caller` may continue; `None` = the caller did not sign.
    pub(super) fn still_serves(&self, caller: Option<&str>, since: Instant) -> bool {
        let (Some(consent), Some(caller)) = (&self.consent, caller) else { return true };
        consent.still_serves(caller, since)
    }

    /// Counts a declined request if the reason is a limit.
    pub(super) fn note_declined(&self, declined: Declined) {
        let is_limit = matches!(declined, Declined::Busy | Declined::TooLarge { .. } | Declined::Spent);
        self.declined.fetch_add(is_limit.into(), Ordering::Relaxed);
    }

    /// Whether a bulk transfer runs on this host, in the responder or elsewhere.
    pub(super) fn is_loaded(&self) -> bool {
        self.bulk.load(Ordering::Relaxed)
            || 0 < self.bulk_elsewhere.load(Ordering::Relaxed)
            || self.consent.as_ref().is_some_and(|consent| consent.is_loaded())
    }

    /// Seconds on the responder's own monotonic clock.
    pub(super) fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Takes the slot for the single transfer; `None` if it is taken. Dropping the guard frees it.
    pub(super) fn bulk(&self) -> Option<Bulk<'_>> {
        let free = self.bulk.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        free.ok()?;
        self.bulk_begun.fetch_add(1, Ordering::Relaxed);
        Some(Bulk(&self.bulk))
    }
}

pub(super) struct Bulk<'a>(&'a AtomicBool);

impl Drop for Bulk<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The single slot for a transfer, with the agreement to it. Dropping it ends both.
pub(super) struct TransferSlot<'a> {
    // Fields drop in this order: the transfer is settled before the slot is free.
    pub(super) agreement: Agreement,
    _bulk: Bulk<'a>,
}

impl<'a> TransferSlot<'a> {
    pub(super) fn take(wish: &Wish<'_>, shared: &'a Shared) -> Result<Self, Declined> {
        let bulk = shared.bulk().ok_or(Declined::Busy)?;
        Ok(Self { agreement: shared.agree(wish)?, _bulk: bulk })
    }

    /// Ends the transfer, which moved `bytes` bytes.
    pub(super) fn end(mut self, bytes: u64) {
        self.agreement.moved(bytes);
    }
}

/// Guard for a transfer that another part of this host serves
/// ([`bulk_elsewhere`](crate::io::Responder::bulk_elsewhere)); when the guard is dropped, the
/// transfer no longer counts.
#[derive(Debug)]
pub struct BulkElsewhere(Arc<Shared>);

impl Drop for BulkElsewhere {
    fn drop(&mut self) {
        self.0.bulk_elsewhere.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lifetime of a token. A client connects at once after it has received one; this allows a few
/// round trips on the slowest path.
const TOKEN_LIFETIME_S: f64 = 30.0;
/// Maximum number of unused tokens; 24 KB.
const TOKENS_MAX: usize = 1024;
