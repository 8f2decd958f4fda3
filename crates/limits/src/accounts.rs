//! A budget for each address, and one for the server.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::caller_group::limit_address;
use crate::token_bucket::{Rate, TokenBucket};

/// The account of each address, and the account of the server. A full account holds an eighth of an
/// hour's amount.
#[derive(Debug)]
pub struct Accounts {
    each: TokenBucket,
    total: TokenBucket,
    /// Account of each address that paid or was charged. Full accounts are removed when the table
    /// needs room.
    peers: HashMap<IpAddr, TokenBucket>,
}

impl Accounts {
    /// Creates full accounts: `total` is the rate of the server, and `each` is the rate of one
    /// address.
    #[must_use]
    pub fn new(total: Rate, each: Rate) -> Self {
        let [total, each] = [total, each].map(|rate| TokenBucket::new(rate, BURST_TIME));
        Self { each, total, peers: HashMap::new() }
    }

    /// Takes `amount` from both the account of `ip` and the account of the server, or from neither
    /// account. Returns whether `amount` was taken. `now` is a monotonic time since any fixed
    /// moment.
    #[must_use]
    pub fn pay(&mut self, ip: IpAddr, amount: u64, now: Duration) -> bool {
        if !self.has_room_for(ip) {
            self.peers.retain(|_, account| !account.is_full(now));
        }
        let Some((own, total)) = self.after(ip, amount, now) else { return false };
        self.total = total;
        self.peers.insert(limit_address(ip), own);
        true
    }

    /// Whether the accounts of `ip` and of the server hold `amount`. Unlike [`pay`](Self::pay),
    /// this function does not remove refilled accounts, so it returns false for a new address while
    /// the table has its largest number of accounts.
    #[must_use]
    pub fn could_pay(&self, ip: IpAddr, amount: u64, now: Duration) -> bool {
        self.after(ip, amount, now).is_some()
    }

    /// Returns the account of `ip` and the account of the server after the payment; `None` if one
    /// of the two accounts cannot pay.
    fn after(&self, ip: IpAddr, amount: u64, now: Duration) -> Option<(TokenBucket, TokenBucket)> {
        let mut own = self.peers.get(&limit_address(ip)).copied().unwrap_or(self.each);
        let mut total = self.total;
        let pays = self.has_room_for(ip) && own.take(amount, now).is_ok() && total.take(amount, now).is_ok();
        pays.then_some((own, total))
    }

    fn has_room_for(&self, ip: IpAddr) -> bool {
        self.peers.len() < ADDRESSES_MAX || self.peers.contains_key(&limit_address(ip))
    }

    /// Takes `amount` from the account of the server alone.
    #[must_use]
    pub fn pay_total(&mut self, amount: u64, now: Duration) -> bool {
        self.total.take(amount, now).is_ok()
    }

    /// Takes `amount` from the account of `ip` for work that was already done. The account of `ip`
    /// may go below zero; then [`pay`](Self::pay) takes nothing from it until it has refilled. The
    /// account of the server is unchanged, because work is not traffic.
    pub fn charge(&mut self, ip: IpAddr, amount: u64, now: Duration) {
        // A charged caller has called [`Self::pay`] before, so this line adds an account only if
        // the caller's account was removed since.
        self.peers.entry(limit_address(ip)).or_insert(self.each).charge(amount, now);
    }

    /// Takes `amount` from the account of `ip`, like [`charge`](Self::charge), and also from the
    /// account of the server.
    pub fn charge_both(&mut self, ip: IpAddr, amount: u64, now: Duration) {
        self.charge(ip, amount, now);
        self.total.charge(amount, now);
    }

    /// Largest amount that one payment can take: the smaller of the two full accounts.
    #[must_use]
    pub fn burst_max(&self) -> u64 {
        self.each.capacity().min(self.total.capacity())
    }
}

/// Time in which an empty account fills: an eighth of an hour, so a full account holds an eighth of
/// an hour's amount. By default a page may transfer 1 GiB in an hour, so its account holds 128 MiB.
/// This amount is enough for one transfer of each size in each direction.
const BURST_TIME: Duration = Duration::from_secs(450);
/// Largest number of accounts that are kept; together they take half a megabyte. Only full accounts
/// are removed. If no account can be removed, a new address waits until one account is full again.
///
/// A caller may have more addresses than this number. If the caller spends much from each address,
/// the server's account is empty before this number of accounts is reached. If the caller spends
/// little from each address, other new addresses wait only a short time: an account is full again
/// soon after a payment of 1 KiB.
const ADDRESSES_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_account_holds_an_eighth_of_an_hour_and_refills() {
        let mut accounts = Accounts::new(Rate::per_hour(1 << 40), Rate::per_hour(8000));
        let peer = ip("192.0.2.1");
        assert!(accounts.pay(peer, 1000, at(0)));
        assert!(!accounts.pay(peer, 1, at(0)), "spent");
        assert!(accounts.pay(ip("192.0.2.2"), 1000, at(0)), "another's is its own");
        assert!(accounts.pay(peer, 1, at(1)), "8000 an hour are more than one in a second");
        assert!(accounts.pay(peer, 1000, at(3600)));
    }

    #[test]
    fn all_addresses_share_the_station_account_and_a_refused_payment_is_free() {
        let mut accounts = Accounts::new(Rate::per_hour(8000), Rate::per_hour(8000));
        assert!(accounts.pay(ip("192.0.2.1"), 600, at(0)));
        assert!(!accounts.pay(ip("192.0.2.2"), 600, at(0)));
        assert!(accounts.pay(ip("192.0.2.2"), 400, at(0)));
        assert_eq!(accounts.burst_max(), 1000);
    }

    #[test]
    fn charges_to_both_accounts_keep_a_caller_within_its_rate() {
        let (each, total) = (Rate::per_hour(360), Rate::per_hour(720));
        let mut accounts = Accounts::new(total, each);
        let peer = |i: u32| IpAddr::from(std::net::Ipv4Addr::from_bits(i));
        let mut served = 0;
        // Simulates a caller that takes, for one day, all that the accounts allow.
        for second in 0..86_400 {
            if accounts.pay(peer(1), 1, at(second)) {
                accounts.charge_both(peer(1), 9, at(second));
                served += 10;
            }
        }
        assert!((24 * 360..=25 * 360 + 60).contains(&served), "{served}");
        for i in 0..2 * ADDRESSES_MAX as u32 {
            let now = at(100_000 + 100 * u64::from(i));
            assert!(accounts.pay(peer(i), 1, now), "{i}: older ones are full again and forgotten");
            accounts.charge_both(peer(i), 1, now);
        }
    }

    #[test]
    fn a_charge_can_overdraw_one_account_and_leaves_the_station_account() {
        let mut accounts = Accounts::new(Rate::per_hour(8000), Rate::per_hour(8000));
        let peer = ip("192.0.2.1");
        accounts.charge(peer, 3000, at(0));
        assert!(!accounts.pay(peer, 1, at(0)) && !accounts.pay(peer, 1, at(900)), "2000 are owed");
        assert!(accounts.pay(peer, 1, at(901)));
        assert!(accounts.pay(ip("192.0.2.2"), 999, at(901)));
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_an_account() {
        let mut accounts = Accounts::new(Rate::per_hour(1 << 40), Rate::per_hour(8000));
        assert!(accounts.pay(ip("2001:db8::1"), 1000, at(0)));
        assert!(!accounts.pay(ip("2001:db8::2"), 1000, at(0)));
        assert!(accounts.pay(ip("2001:db8:0:1::1"), 1000, at(0)));
    }

    #[test]
    fn the_number_of_accounts_is_bounded_and_full_accounts_are_removed() {
        let mut accounts = Accounts::new(Rate::per_hour(1 << 40), Rate::per_hour(8000));
        let many = |i: usize| IpAddr::from(u32::try_from(i).unwrap().to_be_bytes());
        for i in 0..ADDRESSES_MAX {
            assert!(accounts.pay(many(i), 1000, at(0)));
        }
        assert!(!accounts.pay(many(ADDRESSES_MAX), 1, at(1)), "no account is free");
        assert!(accounts.pay(many(ADDRESSES_MAX), 1, at(3600)));
        assert_eq!(accounts.peers.len(), 1, "all others are full again");
    }

    proptest! {
        /// In any time window, one address gets at most the burst plus the rate of one address. All
        /// addresses together get at most the burst plus the rate of the server.
        #[test]
        fn accounts_never_grant_more_than_burst_and_rate(
            rate in 1_u64..1 << 40,
            steps in prop::collection::vec((0_u64..1 << 42, 0_u64..1 << 36, 0_u8..3), 1..60),
        ) {
            let (total, each) = (Rate::per_hour(rate), Rate::per_hour(rate / 2));
            let mut accounts = Accounts::new(total, each);
            let mut alone = [total, each, each, each].map(|rate| TokenBucket::new(rate, BURST_TIME));
            let mut now = Duration::ZERO;
            for (pause_ns, amount, peer) in steps {
                now += Duration::from_nanos(pause_ns);
                if accounts.pay(IpAddr::from([192, 0, 2, peer]), amount, now) {
                    prop_assert_eq!(alone[0].take(amount, now), Ok(()));
                    prop_assert_eq!(alone[1 + usize::from(peer)].take(amount, now), Ok(()));
                }
            }
        }
    }
}
