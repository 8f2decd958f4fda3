//! State that the threads of one responder share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::consent::{BulkPermit, BulkRequest, Consent};
use super::grants::DatagramGrants;
use super::limits::ResponderLimits;
use super::slots::SessionSlots;
use super::workers::WorkerPool;
use crate::TokenTable;
use crate::io::deadline::CancellationToken;
use crate::wire::DeclineReason;

/// State that the threads of one responder share.
pub(super) struct Shared {
    pub(super) limits: ResponderLimits,
    consent: Option<Arc<dyn Consent>>,
    pub(super) stop: CancellationToken,
    pub(super) serves_datagrams: bool,
    began: Instant,
    /// Whether the responder serves a transfer. The responder serves one transfer at a time,
    /// because two transfers would disturb each other's measurement.
    bulk: AtomicBool,
    /// Number of transfers on this host that the responder does not serve. Several of these
    /// transfers may run at the same time.
    foreign_bulk: AtomicU64,
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
    pub(super) fn new(
        limits: ResponderLimits,
        consent: Option<Arc<dyn Consent>>,
        serves_datagrams: bool,
    ) -> Self {
        Self {
            limits,
            consent,
            stop: CancellationToken::default(),
            began: Instant::now(),
            serves_datagrams,
            bulk: AtomicBool::new(false),
            foreign_bulk: AtomicU64::new(0),
            bulk_begun: AtomicU64::new(0),
            declined: AtomicU64::new(0),
            slots: Mutex::default(),
            tokens: Mutex::new(TokenTable::new(TOKEN_LIFETIME_S, TOKENS_MAX)),
            grants: Mutex::default(),
            workers: WorkerPool::new(),
        }
    }

    /// Counts a transfer on this host that the responder does not serve, until the guard is
    /// dropped.
    pub(super) fn count_foreign_bulk(shared: &Arc<Self>) -> ForeignBulk {
        shared.foreign_bulk.fetch_add(1, Ordering::Relaxed);
        shared.bulk_begun.fetch_add(1, Ordering::Relaxed);
        ForeignBulk(Arc::clone(shared))
    }

    /// Requests the host's consent to a transfer; without a [`Consent`], every transfer is
    /// accepted.
    pub(super) fn agree(&self, transfer: &BulkRequest<'_>) -> Result<BulkPermit, DeclineReason> {
        match &self.consent {
            Some(consent) => consent.agree(transfer),
            None => Ok(BulkPermit::new(self.limits.transfer_grace, |_| ())),
        }
    }

    /// Whether the session of `caller` may continue; `None` = the caller did not sign.
    pub(super) fn still_serves(&self, caller: Option<&SignedCaller>) -> bool {
        let (Some(consent), Some(caller)) = (&self.consent, caller) else { return true };
        consent.still_serves(&caller.name, caller.signed_at)
    }

    /// Counts a declined request if the reason is a limit.
    pub(super) fn record_declined(&self, declined: DeclineReason) {
        let is_limit =
            matches!(declined, DeclineReason::Busy | DeclineReason::TooLarge { .. } | DeclineReason::Spent);
        self.declined.fetch_add(is_limit.into(), Ordering::Relaxed);
    }

    /// Whether a bulk transfer runs on this host, in the responder or elsewhere.
    pub(super) fn is_loaded(&self) -> bool {
        self.bulk.load(Ordering::Relaxed)
            || self.foreign_bulk.load(Ordering::Relaxed) > 0
            || self.consent.as_ref().is_some_and(|consent| consent.is_loaded())
    }

    /// Seconds on the responder's own monotonic clock.
    pub(super) fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Reserves the single slot for a transfer; `None` if the slot is in use. Dropping the guard
    /// frees the slot.
    pub(super) fn take_bulk_slot(&self) -> Option<BulkSlot<'_>> {
        let free = self.bulk.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        free.ok()?;
        self.bulk_begun.fetch_add(1, Ordering::Relaxed);
        Some(BulkSlot(&self.bulk))
    }
}

/// The station that signed for a session.
#[derive(Debug)]
pub(super) struct SignedCaller {
    pub(super) name: String,
    /// Time that was read before the signature of the station was verified.
    pub(super) signed_at: Instant,
}

pub(super) struct BulkSlot<'a>(&'a AtomicBool);

impl Drop for BulkSlot<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The single slot for a transfer, with the permit for this transfer. Dropping the value ends the
/// permit and frees the slot.
pub(super) struct AdmittedBulk<'a> {
    // Fields drop in this order, so the permit reports the result of the transfer before the slot
    // is free.
    pub(super) permit: BulkPermit,
    _bulk: BulkSlot<'a>,
}

impl<'a> AdmittedBulk<'a> {
    pub(super) fn take(transfer: &BulkRequest<'_>, shared: &'a Shared) -> Result<Self, DeclineReason> {
        let bulk = shared.take_bulk_slot().ok_or(DeclineReason::Busy)?;
        Ok(Self { permit: shared.agree(transfer)?, _bulk: bulk })
    }

    /// Ends the transfer, and records that the transfer moved `bytes` bytes.
    pub(super) fn end(mut self, bytes: u64) {
        self.permit.set_bytes(bytes);
    }
}

/// Guard for a transfer on this host that the responder does not serve
/// ([`count_foreign_bulk`](crate::io::Responder::count_foreign_bulk)); when the guard is dropped,
/// the transfer no longer counts.
#[derive(Debug)]
pub struct ForeignBulk(Arc<Shared>);

impl Drop for ForeignBulk {
    fn drop(&mut self) {
        self.0.foreign_bulk.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lifetime of a token. A client connects at once after it has received a token. The lifetime
/// allows a few round trips on the slowest path.
const TOKEN_LIFETIME_S: f64 = 30.0;
/// Maximum number of unused tokens. This number of tokens takes 24 KB of memory.
const TOKENS_MAX: usize = 1024;
