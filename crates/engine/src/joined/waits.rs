//! Time limits and jitter.

use std::time::Duration;

use tokio::time::timeout;

use crate::EngineError;

/// Generator of random numbers for jitter: SplitMix by Steele, Lea and Flood (2014).
pub(super) struct SplitMix(pub(super) u64);

impl SplitMix {
    /// Returns a time from 0 to below `limit`.
    pub(super) fn below(&mut self, limit: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // 32 bits are enough for jitter.
        limit.mul_f64(f64::from((z >> 32) as u32) / 4_294_967_296.0)
    }
}

/// Waits for a response of the mesh, at most for [`ANSWER_WITHIN`].
pub(super) async fn limited<T>(
    answer: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, EngineError> {
    timeout(ANSWER_WITHIN, answer).await.unwrap_or_else(|_| {
        Err(EngineError::Unknown(format!("the mesh did not respond within {ANSWER_WITHIN:?}")))
    })
}

/// Longest wait for one response. Each engine also has a shorter deadline.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
