//! What sessions may cost: an account of bytes, or of milliseconds, for each address and one for all.
//! Pure: time comes in.
//!
//! Each account is the generic cell rate algorithm in its virtual-scheduling form (ITU-T I.371, annex A),
//! which is a token bucket kept as one number: the time up to which what was granted is paid for.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::limits::callers::holder;

/// The accounts of all addresses, and that of the station.
#[derive(Debug)]
pub(crate) struct Accounts {
    each: Rate,
    total: Account,
    /// Only of addresses whose account is not full.
    peers: HashMap<IpAddr, Account>,
}

/// One account, full at first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    rate: Rate,
    /// Nanoseconds since the fixed moment; in the past where the account is full.
    paid_until_ns: u64,
}

/// Bytes, or whatever else is paid for, an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate(u64);

impl Accounts {
    /// Accounts that are full.
    pub(crate) fn new(total: Rate, each: Rate) -> Self {
        Self { each, total: Account::new(total), peers: HashMap::new() }
    }

    /// Takes `bytes` from the account of `ip` and from that of the station, or from neither. `now` is a
    /// monotonic time since any fixed moment.
    #[must_use]
    pub(crate) fn pay(&mut self, ip: IpAddr, bytes: u64, now: Duration) -> bool {
        if !self.has_room_for(ip) {
            self.peers.retain(|_, account| !account.is_full(now));
        }
        let Some((own, total)) = self.after(ip, bytes, now) else { return false };
        self.total = total;
        self.peers.insert(holder(ip), own);
        true
    }

    /// Whether [`pay`](Self::pay) would take `bytes`, as far as can be seen without forgetting anybody.
    pub(crate) fn could_pay(&self, ip: IpAddr, bytes: u64, now: Duration) -> bool {
        self.after(ip, bytes, now).is_some()
    }

    /// The account of `ip` and that of the station once they have paid; `None` = they cannot.
    fn after(&self, ip: IpAddr, bytes: u64, now: Duration) -> Option<(Account, Account)> {
        let known = self.peers.get(&holder(ip)).copied();
        let (mut own, mut total) = (known.unwrap_or_else(|| Account::new(self.each)), self.total);
        (self.has_room_for(ip) && own.pay(bytes, now) && total.pay(bytes, now)).then_some((own, total))
    }

    fn has_room_for(&self, ip: IpAddr) -> bool {
        self.peers.len() < ADDRESSES_MAX || self.peers.contains_key(&holder(ip))
    }

    /// Takes `bytes` from the account of the station alone.
    #[must_use]
    pub(crate) fn pay_total(&mut self, bytes: u64, now: Duration) -> bool {
        self.total.pay(bytes, now)
    }

    /// Takes `bytes` from the account of `ip` for what it has had already: the account may go below zero, and
    /// pays nothing then until it has filled again. The station's is not touched: this is no traffic.
    pub(crate) fn charge(&mut self, ip: IpAddr, bytes: u64, now: Duration) {
        // Whoever is charged has paid before: no more are added here than have transfers at once.
        let account = self.peers.entry(holder(ip)).or_insert_with(|| Account::new(self.each));
        account.charge(bytes, now);
    }

    /// As [`charge`](Self::charge), also from the account of the station.
    pub(crate) fn charge_both(&mut self, ip: IpAddr, amount: u64, now: Duration) {
        self.charge(ip, amount, now);
        self.total.charge(amount, now);
    }

    /// The most bytes that can ever be paid at once.
    pub(crate) fn at_once_max(&self) -> u64 {
        self.each.burst().min(self.total.rate.burst())
    }
}

impl Account {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, paid_until_ns: 0 }
    }

    /// Takes `bytes`, or nothing when it does not hold them.
    #[must_use]
    pub(crate) fn pay(&mut self, bytes: u64, now: Duration) -> bool {
        let mut after = *self;
        after.charge(bytes, now);
        let holds = after.paid_until_ns.saturating_sub(nanoseconds(now)) <= BURST_NS;
        if holds {
            *self = after;
        }
        holds
    }

    fn charge(&mut self, bytes: u64, now: Duration) {
        let from_ns = self.paid_until_ns.max(nanoseconds(now));
        self.paid_until_ns = from_ns.saturating_add(self.rate.worth_ns(bytes));
    }

    fn is_full(&self, now: Duration) -> bool {
        self.paid_until_ns <= nanoseconds(now)
    }
}

impl Rate {
    /// At least one byte an hour.
    pub(crate) fn per_hour(bytes: u64) -> Self {
        Self(bytes.max(1))
    }

    /// How long `bytes` take at this rate, rounded up: never is more granted than the rate allows.
    fn worth_ns(self, bytes: u64) -> u64 {
        let ns = (u128::from(bytes) * HOUR_NS).div_ceil(self.0.into());
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// What a full account holds, rounded down.
    fn burst(self) -> u64 {
        u64::try_from(u128::from(self.0) * u128::from(BURST_NS) / HOUR_NS).unwrap_or(u64::MAX)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

const HOUR_NS: u128 = 3_600_000_000_000;
/// A full account holds an eighth of an hour's bytes: of the default GiB 128 MiB, which is every size of
/// a page's transfers, both ways, one after the other.
const BURST_NS: u64 = (HOUR_NS / 8) as u64;
/// Accounts kept, half a megabyte. Who makes more addresses spend at once spends the station's account
/// first, or keeps newcomers waiting for the moment that a spent KiB takes to be forgotten.
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
    fn an_account_holds_an_eighth_of_an_hour_and_fills_again() {
        let mut accounts = Accounts::new(Rate::per_hour(1 << 40), Rate::per_hour(8000));
        let peer = ip("192.0.2.1");
        assert!(accounts.pay(peer, 1000, at(0)));
        assert!(!accounts.pay(peer, 1, at(0)), "spent");
        assert!(accounts.pay(ip("192.0.2.2"), 1000, at(0)), "another's is its own");
        assert!(accounts.pay(peer, 1, at(1)), "8000 an hour are more than one in a second");
        assert!(accounts.pay(peer, 1000, at(3600)));
    }

    #[test]
    fn all_addresses_share_the_stations_account_and_a_refusal_costs_nothing() {
        let mut accounts = Accounts::new(Rate::per_hour(8000), Rate::per_hour(8000));
        assert!(accounts.pay(ip("192.0.2.1"), 600, at(0)));
        assert!(!accounts.pay(ip("192.0.2.2"), 600, at(0)));
        assert!(accounts.pay(ip("192.0.2.2"), 400, at(0)));
        assert_eq!(accounts.at_once_max(), 1000);
    }

    #[test]
    fn what_is_charged_to_both_is_a_share_of_the_time_and_makes_room_again() {
        let (each, total) = (Rate::per_hour(360), Rate::per_hour(720));
        let mut accounts = Accounts::new(total, each);
        let peer = |i: u32| IpAddr::from(std::net::Ipv4Addr::from_bits(i));
        let mut served = 0;
        // One that takes as much as it may, for a day.
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
    fn a_charge_may_bring_an_account_below_zero_and_leaves_the_stations() {
        let mut accounts = Accounts::new(Rate::per_hour(8000), Rate::per_hour(8000));
        let peer = ip("192.0.2.1");
        accounts.charge(peer, 3000, at(0));
        assert!(!accounts.pay(peer, 1, at(0)) && !accounts.pay(peer, 1, at(900)), "2000 are owed");
        assert!(accounts.pay(peer, 1, at(901)));
        assert!(accounts.pay(ip("192.0.2.2"), 999, at(901)));
    }

    #[test]
    fn a_v6_network_is_one_address() {
        let mut accounts = Accounts::new(Rate::per_hour(1 << 40), Rate::per_hour(8000));
        assert!(accounts.pay(ip("2001:db8::1"), 1000, at(0)));
        assert!(!accounts.pay(ip("2001:db8::2"), 1000, at(0)));
        assert!(accounts.pay(ip("2001:db8:0:1::1"), 1000, at(0)));
    }

    #[test]
    fn the_number_of_accounts_is_bounded_and_full_ones_are_forgotten() {
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
        /// Over any window no more than the burst and what the rate gives meanwhile.
        #[test]
        fn never_more_than_burst_and_rate(
            rate in 1_u64..1 << 40,
            steps in prop::collection::vec((0_u64..1 << 42, 0_u64..1 << 36, 0_u8..3), 1..60),
        ) {
            let mut accounts = Accounts::new(Rate::per_hour(rate), Rate::per_hour(rate / 2));
            let mut granted: Vec<(u64, u64, u8)> = Vec::new();
            let mut now_ns = 0;
            for (pause_ns, bytes, peer) in steps {
                now_ns += pause_ns;
                let address = IpAddr::from([192, 0, 2, peer]);
                if accounts.pay(address, bytes, Duration::from_nanos(now_ns)) {
                    granted.push((now_ns, bytes, peer));
                }
            }
            let holds = |rate: Rate, of: &[(u64, u64)]| {
                (0..of.len()).all(|first| (first..of.len()).all(|last| {
                    let sum: u128 = of[first..=last].iter().map(|(_, bytes)| u128::from(*bytes)).sum();
                    let window_ns = of[last].0 - of[first].0;
                    // sum ≤ rate · (burst + window), in whole numbers.
                    sum * HOUR_NS <= u128::from(rate.0) * u128::from(BURST_NS + window_ns)
                }))
            };
            let all: Vec<(u64, u64)> = granted.iter().map(|(at, bytes, _)| (*at, *bytes)).collect();
            prop_assert!(holds(accounts.total.rate, &all));
            for peer in 0..3 {
                let own: Vec<(u64, u64)> =
                    granted.iter().filter(|(.., of)| *of == peer).map(|(at, bytes, _)| (*at, *bytes)).collect();
                prop_assert!(holds(accounts.each, &own));
            }
        }

        /// What fits into a full account is granted: a bound that grants nothing would hold too.
        #[test]
        fn a_full_account_pays_what_it_holds(rate in 1_u64..1 << 50, after_s in 0_u64..1 << 30) {
            let mut accounts = Accounts::new(Rate::per_hour(rate), Rate::per_hour(rate));
            let most = accounts.at_once_max();
            prop_assert!(accounts.pay(IpAddr::from([192, 0, 2, 1]), most, Duration::from_secs(after_s)));
        }
    }
}
