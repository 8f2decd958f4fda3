//! Consent of the target: whether this station serves a transfer that a caller requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use barograph_api::{BulkTest, BulkTestState, Keyword};
use barograph_forecast::Name;
use barograph_mesh::{Cost, TestRefusal};
use barograph_probe::io::{BulkOutcome, BulkPermit, BulkRequest, Consent};
use barograph_probe::wire::{DeclineReason, Request};

use super::log::{self, ROLES};
use super::slot::BulkUse;
use super::{Bulk, iperf3, retry_after};
use crate::mesh::mesh_state::now_s;
use crate::sync::lock;

/// Consent of this station, which the responder requests before every transfer.
pub(crate) struct TestConsent(pub(crate) Arc<Bulk>);

impl Consent for TestConsent {
    fn is_loaded(&self) -> bool {
        self.0.slot.is_taken()
    }

    fn still_serves(&self, caller: &str, signed_at: Instant) -> bool {
        Name::new(caller).is_ok_and(|name| self.0.mesh_state.may_still_request(&name, signed_at))
    }

    fn agree(&self, transfer: &BulkRequest<'_>) -> Result<BulkPermit, DeclineReason> {
        let Some(caller) = transfer.caller else {
            if matches!(transfer.request, Request::Iperf3 { .. }) {
                return Err(DeclineReason::NotServed);
            }
            // For a caller on this host or with the owner's token, no budget applies. No test
            // between stations runs during the caller's transfer.
            let held = self.0.slot.take(BulkUse::Served).ok_or_else(|| self.0.busy())?;
            return Ok(BulkPermit::new(Duration::MAX, move |_| drop(held)));
        };
        match transfer.request {
            Request::Stream { ms, bytes_max } => {
                self.peer(caller, Duration::from_millis(ms.into()), bytes_max, None)
            }
            Request::Iperf3 { ms, bytes_max } => {
                let port = self.0.iperf3_port.ok_or(DeclineReason::NotServed)?;
                let length = Duration::from_millis(ms.into());
                let permit = self.peer(caller, length, bytes_max, Some(iperf3::NAME))?;
                Ok(permit.with_receiver(iperf3::Server::new(length, bytes_max, port)))
            }
            // Stations may request only streams and iperf3 tests, which count in the budgets.
            _ => Err(DeclineReason::NotServed),
        }
    }
}

impl TestConsent {
    fn peer(
        &self,
        caller: &str,
        length: Duration,
        bytes_max: u64,
        with: Option<&'static str>,
    ) -> Result<BulkPermit, DeclineReason> {
        let bulk = &self.0;
        let cap = bulk.plan.budget.test_cap();
        if !bulk.consents {
            return Err(DeclineReason::NotServed);
        }
        if cap.bytes < bytes_max {
            return Err(DeclineReason::TooLarge { limit: cap.bytes });
        }
        if cap.duration < length {
            return Err(DeclineReason::TooLarge { limit: ms(cap.duration) });
        }
        let row = log::begun(now_s(), ROLES[1], caller, length.as_secs_f64(), false);
        let row = BulkTest { with: with.map(Keyword::from), ..row };
        let refused = |why: String, retry_after: Duration| {
            lock(&bulk.log).add(log::refused(row.clone(), why, Some(retry_after.as_secs_f64())));
        };
        let Some(held) = bulk.slot.take(BulkUse::Test) else {
            refused("another bulk transfer is running here".into(), bulk.plan.budget.test_max);
            return Err(bulk.busy());
        };
        let token = bulk.grant(caller, Cost { duration: length, bytes: bytes_max }).map_err(|refusal| {
            let wait = retry_after(&refusal);
            refused(refusal.to_string(), wait);
            match refusal {
                TestRefusal::Busy { .. } => DeclineReason::BusyFor { retry_ms: ms(wait) },
                TestRefusal::Spent { .. } => DeclineReason::SpentFor { retry_ms: ms(wait) },
                TestRefusal::NotAMember => DeclineReason::NotServed,
            }
        })?;
        let id = lock(&bulk.log).add(row.clone());
        let bulk = Arc::clone(bulk);
        Ok(BulkPermit::new(GRACE, move |BulkOutcome { duration, bytes, failed }| {
            // The admission has already counted a test that did not end in time, so an error is
            // ignored here.
            let _ = lock(&bulk.gate).end(bulk.now(), token, Cost { duration, bytes });
            bulk.keep();
            drop(held);
            let why = match (failed, bytes) {
                (Some(why), _) => {
                    let why = format!("{}: {why}", row.with.as_deref().unwrap_or("here"));
                    tracing::warn!("a bulk test from {} failed: {why}", row.peer);
                    Some(why)
                }
                (None, 0) => Some("the peer sent nothing".into()),
                (None, _) => None,
            };
            let state = if why.is_some() { BulkTestState::Failed } else { BulkTestState::Done };
            let duration_s = Some(duration.as_secs_f64());
            lock(&bulk.log).end(id, BulkTest { state, why, duration_s, bytes: Some(bytes), ..row });
        }))
    }
}

impl Bulk {
    fn is_member(&self, caller: &str) -> bool {
        Name::new(caller).is_ok_and(|name| self.mesh_state.may_request(&name))
    }

    /// Grants budget and token for a peer's test, which starts at once: the peer sends on the
    /// connection of its request.
    fn grant(&self, caller: &str, expected: Cost) -> Result<u64, TestRefusal> {
        let is_member = self.is_member(caller);
        let now = self.now();
        let mut gate = lock(&self.gate);
        let grant = gate.request(now, caller, is_member, expected)?;
        let begun = gate.begin(now, grant.token, caller);
        drop(gate);
        self.keep();
        begun.map(|()| grant.token).map_err(|_| TestRefusal::Busy { retry_after: super::SLOT_RETRY })
    }

    fn busy(&self) -> DeclineReason {
        DeclineReason::BusyFor { retry_ms: ms(self.plan.budget.test_max) }
    }
}

/// Whole milliseconds, at least 1.
fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Longest time by which a test may end late, and longest silence of the peer. This time is less
/// than the 5 s after which the admission counts the test as ended.
const GRACE: Duration = Duration::from_secs(4);
