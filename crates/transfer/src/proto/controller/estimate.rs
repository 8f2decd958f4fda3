//! Rates of lost packets, rather than of loss events.

/// All packets lost of all sent since the start: the paper does not define its long-term loss rate (Dickens §2.2), this is how we read it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cumulative {
    packets: u64,
    lost: u64,
}

impl Cumulative {
    /// So many more packets, of which so many were lost.
    pub fn record(&mut self, packets: u64, lost: u64) {
        self.packets = self.packets.saturating_add(packets);
        self.lost = self.lost.saturating_add(lost);
    }

    /// Losses a packet, 0 to 1; 0 where there was none so far.
    pub fn rate(&self) -> f64 {
        if self.lost == 0 { 0.0 } else { (self.lost as f64 / self.packets as f64).min(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_losses_of_all_packets() {
        let mut estimate = Cumulative::default();
        assert_eq!(estimate.rate(), 0.0);
        estimate.record(1000, 5);
        estimate.record(1000, 0);
        assert_eq!(estimate.rate(), 5.0 / 2000.0);
        estimate.record(0, u64::MAX);
        assert_eq!(estimate.rate(), 1.0);
    }
}
