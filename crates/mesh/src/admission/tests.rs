use proptest::prelude::*;

use super::*;

const fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn idle_admission() -> TestAdmission {
    TestAdmission::new(TestAdmissionConfig::default()).unwrap()
}

/// Cost of a small test: half a second and one megabyte.
fn small() -> Cost {
    Cost { duration: Duration::from_millis(500), bytes: 1_000_000 }
}

#[test]
fn a_granted_test_begins_once_and_ends_once() {
    let mut admission = idle_admission();
    let grant = admission.request(seconds(0), "b", true, small()).unwrap();
    assert_eq!(grant.cap, BudgetConfig::default().test_cap());
    assert_eq!(admission.begin(seconds(1), grant.token, "c"), Err(TokenError::Unknown(grant.token)));
    admission.begin(seconds(1), grant.token, "b").unwrap();
    assert_eq!(admission.begin(seconds(1), grant.token, "b"), Err(TokenError::InUse(grant.token)));
    admission.end(seconds(2), grant.token, small()).unwrap();
    assert!(!admission.is_held(seconds(2)));
    assert_eq!(admission.spent(seconds(2)).target, small());
    assert_eq!(admission.end(seconds(2), grant.token, small()), Err(TokenError::Unknown(grant.token)));
}

#[test]
fn a_host_takes_part_in_one_test_at_a_time() {
    let mut admission = idle_admission();
    let grant = admission.start(seconds(0), "b", small()).unwrap();
    assert_eq!(
        admission.request(seconds(1), "c", true, small()),
        Err(TestRefusal::Busy { retry_after: seconds(2) })
    );
    admission.begin(seconds(2), grant.token, "b").unwrap();
    assert_eq!(
        admission.request(seconds(3), "b", true, small()),
        Err(TestRefusal::Busy { retry_after: seconds(9) })
    );
    admission.end(seconds(3), grant.token, small()).unwrap();
    assert!(admission.request(seconds(3), "b", true, small()).is_ok());
}

#[test]
fn a_non_member_is_refused_at_no_cost() {
    let mut admission = idle_admission();
    assert_eq!(admission.request(seconds(0), "x", false, small()), Err(TestRefusal::NotAMember));
    assert!(!admission.is_held(seconds(0)));
}

#[test]
fn an_unused_grant_expires_and_is_charged_to_its_holder() {
    let mut admission = idle_admission();
    let grant = admission.request(seconds(0), "idler", true, small()).unwrap();
    assert!(admission.is_held(Duration::from_millis(2999)));
    assert!(!admission.is_held(seconds(3)));
    assert_eq!(admission.begin(seconds(3), grant.token, "idler"), Err(TokenError::Unknown(grant.token)));
    assert_eq!(admission.spent(seconds(3)).target.duration, seconds(3));
    admission.request(seconds(3), "idler", true, small()).unwrap();
    // Two unused grants cost 3 s each, together more than an eighth of 36 s.
    let refusal = admission.request(seconds(6), "idler", true, small()).unwrap_err();
    assert_eq!(refusal, TestRefusal::Spent { retry_after: seconds(3597) });
    assert!(refusal.to_string().contains("budget"), "{refusal}");
    assert!(admission.request(seconds(6), "worker", true, small()).is_ok());
}

#[test]
fn a_test_that_never_ends_is_charged_in_full() {
    let mut admission = idle_admission();
    let grant = admission.start(seconds(0), "b", small()).unwrap();
    admission.begin(seconds(0), grant.token, "b").unwrap();
    assert!(admission.is_held(Duration::from_millis(9999)));
    assert_eq!(admission.spent(seconds(10)).source, BudgetConfig::default().test_cap());
    assert_eq!(admission.end(seconds(11), grant.token, small()), Err(TokenError::Unknown(grant.token)));
}

#[test]
fn a_test_that_the_host_did_not_start_is_free() {
    let mut admission = idle_admission();
    let grant = admission.start(seconds(0), "b", small()).unwrap();
    admission.return_grant(seconds(2), grant.token);
    assert_eq!(admission.spent(seconds(3)), BudgetUsage::default());
    // Giving back a token for the second time has no effect. Giving back an unknown token has no
    // effect either.
    admission.return_grant(seconds(3), grant.token);
    admission.return_grant(seconds(3), 0);
}

#[test]
fn tokens_depend_on_the_seed() {
    let token = |seed| {
        let mut admission =
            TestAdmission::new(TestAdmissionConfig { seed, ..TestAdmissionConfig::default() }).unwrap();
        admission.request(seconds(0), "b", true, small()).unwrap().token
    };
    assert_eq!(token(1), token(1));
    assert_ne!(token(1), token(2));
}

#[derive(Clone, Debug)]
enum Act {
    Ask(u8, bool),
    Start(u8),
    Begin(u8),
    End(u64),
    GiveBack,
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let act = prop_oneof![
        (0..4_u8, any::<bool>()).prop_map(|(peer, member)| Act::Ask(peer, member)),
        (0..4_u8).prop_map(Act::Start),
        (0..4_u8).prop_map(Act::Begin),
        any::<u64>().prop_map(Act::End),
        Just(Act::GiveBack),
    ];
    prop::collection::vec((prop_oneof![Just(0), 0..2000_u64, 0..20_000_u64], act), 1..200)
}

proptest! {
    #[test]
    fn a_host_is_free_in_bounded_time_for_any_sequence_of_peer_requests(acts in acts()) {
        let mut admission = idle_admission();
        let (mut now, mut token) = (Duration::ZERO, 0);
        for (wait_ms, act) in acts {
            now += Duration::from_millis(wait_ms);
            let was_held = admission.is_held(now);
            let granted = match act {
                Act::Ask(peer, member) => admission.request(now, &peer.to_string(), member, small()),
                Act::Start(peer) => admission.start(now, &peer.to_string(), small()),
                Act::Begin(peer) => {
                    let _ = admission.begin(now, token, &peer.to_string());
                    continue;
                }
                Act::End(bytes) => {
                    let _ = admission.end(now, token, Cost { duration: seconds(bytes % 6), bytes });
                    continue;
                }
                Act::GiveBack => {
                    admission.return_grant(now, token);
                    continue;
                }
            };
            match granted {
                Ok(grant) => {
                    prop_assert!(!was_held);
                    token = grant.token;
                }
                Err(TestRefusal::Busy { retry_after }) => {
                    prop_assert!(was_held && retry_after <= seconds(10));
                }
                Err(TestRefusal::Spent { retry_after }) => prop_assert!(retry_after <= seconds(3600)),
                Err(TestRefusal::NotAMember) => prop_assert!(matches!(act, Act::Ask(_, false))),
            }
        }
        prop_assert!(!admission.is_held(now + seconds(10)));
    }
}

#[test]
fn a_peer_that_returns_grants_at_once_excludes_only_itself() {
    let mut admission = TestAdmission::new(TestAdmissionConfig::default()).unwrap();
    let settled = Cost { duration: Duration::from_millis(500), bytes: 6_250_000 };
    let mut granted = 0;
    for i in 0..100_000_u64 {
        let now = Duration::from_millis(i);
        if let Ok(grant) = admission.request(now, "greedy", true, settled) {
            admission.return_grant(now, grant.token);
            granted += 1;
        }
    }
    assert_eq!(granted, 90);
    let now = Duration::from_secs(101);
    let other = admission.request(now, "other", true, settled).expect("its part is its own");
    admission.return_grant(now, other.token);
    assert!(admission.start(now, "anyone", settled).is_ok(), "its own tests go on");
    // Even if all peers together ask for tests, this host can still start its own.
    let mut admission = TestAdmission::new(TestAdmissionConfig::default()).unwrap();
    for i in 0..100_000_u64 {
        if let Ok(grant) = admission.request(now, &format!("peer{}", i % 100), true, settled) {
            admission.return_grant(now, grant.token);
        }
    }
    assert!(matches!(admission.request(now, "one more", true, settled), Err(TestRefusal::Spent { .. })));
    assert!(admission.start(now, "anyone", settled).is_ok());
}
