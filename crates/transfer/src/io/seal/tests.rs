//! Tests that a sealed datagram opens with the right key and header only.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use proptest::prelude::*;

use super::*;
use crate::proto::wire::{DataHead, PacketKind};

const SUITES: [Suite; 2] = [Suite::Aes128Gcm, Suite::ChaCha20Poly1305];
const EPOCH: u64 = 1 << EPOCH_BITS;

fn secret() -> [u8; 32] {
    std::array::from_fn(|at| at as u8)
}

fn hex(text: &str) -> Vec<u8> {
    let text: String = text.split_whitespace().collect();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// A data packet of transfer 01020304, with space for the seal.
fn plain(suite: Suite, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut datagram = Header { kind: PacketKind::Data, transfer: 0x0102_0304, number }.encode().to_vec();
    DataHead { sent_us: 1_000_000, offset: 65_536, note: None }.encode(&mut datagram);
    datagram.extend(payload);
    datagram.resize(datagram.len() + Sealer::new(suite, &secret()).seal_bytes(), 0);
    datagram
}

fn sealed(suite: Suite, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut datagram = plain(suite, number, payload);
    assert!(Sealer::new(suite, &secret()).seal(number, &mut datagram));
    datagram
}

/// The bytes are those of the specification. The bytes were computed with a different
/// implementation (Python's `hmac` and `cryptography`).
#[test]
fn sealed_packets_match_the_specification() {
    let shown = [
        (Suite::Aes128Gcm, 5, "b0db351b4a4dca2443be0ac6357e3c af3856aeb9e5798339f223092392c89d"),
        (Suite::Aes128Gcm, EPOCH + 5, "59832620682f195d414bdd4fd2b16f 3d2c1c433e48f7da91cb7e4cdb1a0d60"),
        (Suite::ChaCha20Poly1305, 5, "405cf13ea1356c61911a7bb25121e9 b4bc3f725f7236752b539a18ef0c898d"),
        (
            Suite::ChaCha20Poly1305,
            EPOCH + 5,
            "6b79d7256b7ad6281a9d92b5f42bbd 5ee166937f2bd6968e8a5742ecdfee12",
        ),
    ];
    for (suite, number, shown) in shown {
        let datagram = sealed(suite, number, b"abc");
        assert_eq!(datagram[..HEADER_BYTES], Header::encode(&Header::decode(&datagram).unwrap().0));
        assert_eq!(datagram[HEADER_BYTES..], hex(shown), "{suite:?} {number}");
    }
}

/// Compares keys and IVs with those of the specification. The test of sealed packets does not show
/// the keys and IVs themselves.
#[test]
fn keys_match_the_specification() {
    let shown = [
        (Suite::Aes128Gcm, 5, "b35a4d05aae820ab85921c9bc651b632", "8227d98915dccc6c8b5bdad5"),
        (Suite::Aes128Gcm, EPOCH + 5, "42a8d0a81f8ed594a139484fb7f10587", "324b709319ba6385f7944b63"),
        (
            Suite::ChaCha20Poly1305,
            5,
            "068b7381b0e52d765283bb4b74ce8d9cbb55953336d476df61947c6af27a34a3",
            "977e77048fdfb9d25888e133",
        ),
        (
            Suite::ChaCha20Poly1305,
            EPOCH + 5,
            "0f35f3f4e53681bf466033ba8ae945906d8e0828ae99ad29462cbbcc3a298f0a",
            "ef4376f21fa853ac4b186603",
        ),
    ];
    for (suite, number, key, iv) in shown {
        let (algorithm, ..) = suite.parts().unwrap();
        let key = LessSafeKey::new(UnboundKey::new(algorithm, &hex(key)).unwrap());
        let made = Keys::new(suite, &secret()).unwrap().key(epoch(number)).unwrap();
        assert_eq!(made.iv[..], hex(iv), "{suite:?} {number}");
        let mut nonce: [u8; NONCE_LEN] = hex(iv).try_into().unwrap();
        let place = u64::from_be_bytes(nonce[4..].try_into().unwrap()) ^ number;
        nonce[4..].copy_from_slice(&place.to_be_bytes());
        let datagram = sealed(suite, number, b"abc");
        let (header, body) = datagram.split_at(HEADER_BYTES);
        let opened = &mut body.to_vec()[..];
        let opened = key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(header), opened);
        assert_eq!(opened.unwrap()[12..], b"abc"[..], "{suite:?} {number}");
    }
}

#[test]
fn a_packet_of_the_clear_suite_opens_unchanged() {
    let mut datagram = plain(Suite::Clear, 5, b"abc");
    let before = datagram.clone();
    assert!(Sealer::new(Suite::Clear, &secret()).seal(5, &mut datagram));
    assert_eq!(datagram, before);
    let (header, body) = Opener::new(Suite::Clear, &secret()).open(&mut datagram).unwrap();
    assert_eq!((header.number, &body[12..]), (5, &b"abc"[..]));
}

#[test]
fn a_datagram_too_short_for_a_seal_is_not_sealed() {
    for suite in SUITES {
        let mut sealer = Sealer::new(suite, &secret());
        assert!(!sealer.seal(0, &mut [0; 31]) && sealer.seal(0, &mut [0; 32]));
    }
}

#[test]
fn keys_change_with_the_epoch_and_adjacent_epochs_still_open() {
    for suite in SUITES {
        let mut opener = Opener::new(suite, &secret());
        let mut opens = |number| opener.open(&mut sealed(suite, number, b"abc")).is_some();
        // These packets open: packets in order, some late packets of the previous epoch, and the
        // first packet of an epoch before a packet of the previous epoch.
        for number in
            [0, EPOCH - 1, EPOCH, EPOCH - 2, 2 * EPOCH - 1, 2 * EPOCH, EPOCH, 3 * EPOCH + 7, 2 * EPOCH]
        {
            assert!(opens(number), "{number}");
        }
        // These packets do not open: older keys were dropped, and newer keys were not derived yet.
        for number in [0, EPOCH, 2 * EPOCH - 1, 5 * EPOCH, 1 << 61] {
            assert!(!opens(number), "{number}");
        }
        assert!(opens(4 * EPOCH), "and what was refused changed nothing");
    }
}

#[test]
fn a_forged_packet_of_the_next_epoch_does_not_change_the_keys() {
    let mut opener = Opener::new(Suite::Aes128Gcm, &secret());
    for _ in 0..3 {
        let mut forged = sealed(Suite::Aes128Gcm, EPOCH + 1, b"abc");
        forged[20] ^= 1;
        assert!(opener.open(&mut forged).is_none());
    }
    assert_eq!((opener.current, opener.forgeries_left), (0, (1 << 52) - 3));
    assert!(opener.open(&mut sealed(Suite::Aes128Gcm, 2 * EPOCH, b"abc")).is_none());
    assert!(opener.open(&mut sealed(Suite::Aes128Gcm, 1, b"abc")).is_some());
}

#[test]
fn no_packet_opens_after_the_forgery_limit() {
    let mut opener = Opener::new(Suite::ChaCha20Poly1305, &secret());
    opener.forgeries_left = 1;
    assert!(opener.open(&mut sealed(Suite::ChaCha20Poly1305, 1, b"abc")).is_some());
    let mut forged = sealed(Suite::ChaCha20Poly1305, 2, b"abc");
    forged[30] ^= 1;
    assert!(opener.open(&mut forged).is_none());
    assert!(opener.open(&mut sealed(Suite::ChaCha20Poly1305, 3, b"abc")).is_none());
}

#[test]
fn the_fastest_suite_is_offered_first() {
    assert_eq!(Suite::sealed()[0], Suite::fastest());
    assert!(SUITES.iter().all(|suite| Suite::sealed().contains(suite)));
}

#[test]
fn debug_output_does_not_show_secrets() {
    let shown = format!(
        "{:?} {:?} {:?}",
        Secrets { data: [7; 32], feedback: [7; 32] },
        Sealer::new(Suite::Aes128Gcm, &[7; 32]),
        Opener::new(Suite::Clear, &[7; 32])
    );
    assert_eq!(shown, "Secrets Sealer(Aes128Gcm) Opener(Clear)");
}

#[test]
fn sealing_and_opening_a_packet_allocates_no_memory() {
    for suite in SUITES {
        let mut sealer = Sealer::new(suite, &secret());
        let mut opener = Opener::new(suite, &secret());
        let mut datagram = plain(suite, 1, &[7; 1400]);
        let allocated = allocation_counter::measure(|| {
            assert!(sealer.seal(1, &mut datagram));
            assert!(opener.open(&mut datagram).is_some());
        });
        assert_eq!(allocated.count_total, 0);
    }
}

proptest! {
    #[test]
    fn a_sealed_packet_opens_to_its_payload(
        number in 0..2 * EPOCH,
        payload in proptest::collection::vec(any::<u8>(), 0..1500),
    ) {
        for suite in SUITES {
            let mut datagram = sealed(suite, number, &payload);
            prop_assert!(payload.len() < 8 || datagram[28..28 + payload.len()] != payload[..]);
            let mut opener = Opener::new(suite, &secret());
            let (header, body) = opener.open(&mut datagram).unwrap();
            prop_assert_eq!((header.number, &body[12..]), (number, &payload[..]));
        }
    }

    #[test]
    fn a_changed_packet_does_not_open(
        number in 0..EPOCH,
        payload in proptest::collection::vec(any::<u8>(), 0..1500),
        place in any::<prop::sample::Index>(),
        bit in 0..8u32,
    ) {
        for suite in SUITES {
            let whole = sealed(suite, number, &payload);
            let mut opener = Opener::new(suite, &secret());
            let mut flipped = whole.clone();
            flipped[place.index(whole.len())] ^= 1 << bit;
            prop_assert!(opener.open(&mut flipped).is_none());
            let mut cut = whole[..place.index(whole.len())].to_vec();
            prop_assert!(opener.open(&mut cut).is_none());
            let mut longer = whole.clone();
            longer.push(bit as u8);
            prop_assert!(opener.open(&mut longer).is_none());
            prop_assert!(opener.open(&mut whole.clone()).is_some(), "the same opener still opens what was sealed");
        }
    }

    #[test]
    fn a_packet_does_not_open_with_another_secret_suite_or_number(number in 0..EPOCH, at in 0..32usize, bit in 0..8u32) {
        let mut other = secret();
        other[at] ^= 1 << bit;
        for suite in SUITES {
            let whole = sealed(suite, number, b"abc");
            // A different direction or transfer has a different secret.
            prop_assert!(Opener::new(suite, &other).open(&mut whole.clone()).is_none());
            let foreign = SUITES.into_iter().find(|foreign| *foreign != suite).unwrap();
            prop_assert!(Opener::new(foreign, &secret()).open(&mut whole.clone()).is_none());
            // A sealed packet does not open as a different packet: the nonce depends on the
            // packet's number, and the rest of the header is authenticated.
            let mut renumbered = whole.clone();
            let header = Header { kind: PacketKind::Feedback, transfer: 0x0102_0304, number };
            renumbered[..HEADER_BYTES].copy_from_slice(&header.encode());
            prop_assert!(Opener::new(suite, &secret()).open(&mut renumbered).is_none());
        }
    }
}
