//! Loss rate in packets rather than in loss events.

/// Long-term loss rate: packets lost divided by packets sent, since the start. The paper does not
/// define its long-term loss rate (Dickens §2.2); this definition is our interpretation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cumulative {
    packets: u64,
    lost: u64,
}

impl Cumulative {
    /// Counts `packets` more packets, of which `lost` were lost.
    pub fn record(&mut self, packets: u64, lost: u64) {
        self.packets = self.packets.saturating_add(packets);
        self.lost = self.lost.saturating_add(lost);
    }

    /// Counts `lost` packets that were counted as lost as packets that were not lost.
    pub fn take_back(&mut self, lost: u64) {
        self.lost = self.lost.saturating_sub(lost);
    }

    /// Lost packets per packet, 0 to 1; 0 before the first loss.
    pub fn rate(&self) -> f64 {
        if self.lost == 0 { 0.0 } else { (self.lost as f64 / self.packets as f64).min(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cumulative_rate_divides_all_losses_by_all_packets() {
        let mut estimate = Cumulative::default();
        assert_eq!(estimate.rate(), 0.0);
        estimate.record(1000, 5);
        estimate.record(1000, 0);
        assert_eq!(estimate.rate(), 5.0 / 2000.0);
        estimate.record(0, u64::MAX);
        assert_eq!(estimate.rate(), 1.0);
        estimate.take_back(u64::MAX);
        assert_eq!(estimate.rate(), 0.0);
    }
}
