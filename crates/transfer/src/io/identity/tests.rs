#![allow(clippy::unwrap_used)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;

fn line(host: &str) -> ReceiverAddress {
    ReceiverAddress {
        host: host.into(),
        port: 4433,
        fingerprint: Fingerprint([0xfb; 32]),
        token: AuthToken([0xff; 16]),
    }
}

#[test]
fn a_receiver_address_is_formatted_and_parsed() {
    let code = "-_v7".repeat(11);
    // The address has 32 bytes of fb and then 16 bytes of ff. The expected characters at the
    // boundary were computed by hand from fb fb ff.
    let shown = line("host.example").to_string();
    let (place, rest) = shown.rsplit_once('/').unwrap();
    assert_eq!((place, rest.len(), &rest[..4]), ("brg://host.example:4433", 64, "-_v7"));
    assert!(rest.ends_with(&"_".repeat(20)) && code.len() == 44);
    for host in ["host.example", "10.0.0.1", "::1", "fe80::1%eth0", "2001:db8::7"] {
        let line = line(host);
        assert_eq!(line.to_string().parse(), Ok(line.clone()));
        assert_eq!(format!(" {line}\n").parse(), Ok(line), "as pasted");
    }
    assert!(line("::1").to_string().starts_with("brg://[::1]:4433/"));
}

/// The example of `docs/spec/transfer.md` §9.2, encoded with another implementation (Python's
/// `base64`).
#[test]
fn a_receiver_address_matches_the_specification() {
    let line = ReceiverAddress {
        host: "2001:db8::1".into(),
        port: 4433,
        fingerprint: Fingerprint(std::array::from_fn(|at| at as u8)),
        token: AuthToken(*b"0123456789abcdef"),
    };
    let shown = "brg://[2001:db8::1]:4433/AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8wMTIzNDU2Nzg5YWJjZGVm";
    assert_eq!(line.to_string(), shown);
    assert_eq!(shown.parse(), Ok(line));
}

#[test]
fn the_error_explains_an_invalid_receiver_address() {
    let good = line("h").to_string();
    let told = |text: &str| text.parse::<ReceiverAddress>().unwrap_err();
    assert_eq!(told("http://h:1/"), ReceiverAddressError::Scheme);
    assert_eq!(told(""), ReceiverAddressError::Scheme);
    assert_eq!(told(&good[..good.len() - 9]), ReceiverAddressError::CutOff(55));
    assert_eq!(told("brg://h:4433"), ReceiverAddressError::CutOff(0));
    assert_eq!(told("brg://h:44"), ReceiverAddressError::CutOff(0));
    assert_eq!(told(&format!("{good}A")), ReceiverAddressError::TooLong(65));
    assert_eq!(told(&good.replace('_', "=")), ReceiverAddressError::Code);
    assert_eq!(told(&good.replace('_', "/")), ReceiverAddressError::Code);
    assert_eq!(told(&good.replace("h:4433", ":4433")), ReceiverAddressError::Host);
    assert_eq!(told(&good.replace("h:4433", "h h:4433")), ReceiverAddressError::Host);
    assert_eq!(told(&good.replace("h:4433", "::1:4433")), ReceiverAddressError::Host);
    assert_eq!(told(&good.replace("h:4433", "[::1:4433")), ReceiverAddressError::Host);
    assert_eq!(told(&good.replace("h:4433", "[h]:4433")), ReceiverAddressError::Host);
    for port in ["", "0", "65536", "+1", "x", "04433"] {
        assert_eq!(told(&good.replace("4433", port)), ReceiverAddressError::Port, "{port}");
    }
    assert_eq!(told(&good.replace(":4433", "")), ReceiverAddressError::Port);
    assert_eq!(told(&good.replace("h:4433", "[::1]")), ReceiverAddressError::Port);
    assert_eq!(
        told(&good[..20]).to_string(),
        "the receiver address is cut off: 7 of 64 characters after the last slash"
    );
}

proptest! {
    #[test]
    fn any_formatted_receiver_address_parses_to_the_same_address(host in "[a-z0-9.-]{1,30}", port in 1_u16.., print in any::<[u8; 32]>(), token in any::<[u8; 16]>()) {
        let line = ReceiverAddress { host, port, fingerprint: Fingerprint(print), token: AuthToken(token) };
        prop_assert_eq!(line.to_string().parse(), Ok(line));
    }

    #[test]
    fn a_receiver_address_has_only_one_spelling(text in "(brg://)?[a-z0-9.:/_\\[\\]%-]{0,90}") {
        if let Ok(line) = text.parse::<ReceiverAddress>() {
            prop_assert_eq!(line.to_string(), text);
        }
    }
}

#[test]
fn a_fingerprint_has_the_format_of_openssl() {
    // SHA-256 of "abc" (FIPS 180-4's example).
    let abc = Fingerprint::of(b"abc");
    let shown =
        "BA:78:16:BF:8F:01:CF:EA:41:41:40:DE:5D:AE:22:23:B0:03:61:A3:96:17:7A:9C:B4:10:FF:61:F2:00:15:AD";
    assert_eq!(abc.to_string(), shown);
    for text in [shown.into(), shown.replace(':', ""), shown.to_lowercase()] {
        assert_eq!(text.parse::<Fingerprint>().unwrap(), abc);
    }
    for wrong in [
        "",
        "BA",
        &shown[..92],
        &shown.replace(':', "-"),
        &shown.replace("BA", "XY"),
        &shown.replace(':', "")[1..],
    ] {
        assert!(matches!(wrong.parse::<Fingerprint>(), Err(IdentityError::Fingerprint(_))), "{wrong}");
    }
    // The right number of bytes, but characters that are not valid, or a colon at a wrong position.
    assert!("é".repeat(32).parse::<Fingerprint>().is_err());
    assert!(shown.replacen("BA:7", "BA7:", 1).parse::<Fingerprint>().is_err());
}

#[test]
fn an_identity_file_always_gives_the_same_identity() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("identity.pem");
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| Identity::kept_in(&path).unwrap().fingerprint())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    let again = Identity::kept_in(&path).unwrap();
    assert_eq!(again.fingerprint(), all[0]);
    assert_eq!(again.token(), Identity::kept_in(&path).unwrap().token());
    assert_ne!(again.token(), Identity::fresh().unwrap().token());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    assert_ne!(Identity::fresh().unwrap().fingerprint(), Identity::fresh().unwrap().fingerprint());
    assert!(format!("{:?}", Identity::kept_in(&path)).len() < 120, "no key is shown");
}

#[test]
fn a_key_file_that_other_users_can_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("identity.pem");
    let fingerprint = Identity::kept_in(&path).unwrap().fingerprint();
    let set = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    for mode in [0o640, 0o604, 0o620, 0o777] {
        set(mode);
        let told = Identity::kept_in(&path).unwrap_err();
        assert!(matches!(&told, IdentityError::Readable(_, found) if *found == mode), "{told}");
        assert!(told.to_string().contains("chmod 600"), "{told}");
    }
    for mode in [0o600, 0o400, 0o700] {
        set(mode);
        assert_eq!(Identity::kept_in(&path).unwrap().fingerprint(), fingerprint, "{mode:o}");
    }
}

#[test]
fn an_invalid_identity_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty");
    create(&path, b"").unwrap();
    assert!(matches!(Identity::kept_in(&path), Err(IdentityError::Certificate(..))));
    let (certificate, _) = make().unwrap();
    std::fs::write(&path, certificate.pem()).unwrap();
    assert!(matches!(Identity::kept_in(&path), Err(IdentityError::Key(..))));
    assert!(matches!(Identity::kept_in(folder.path()), Err(IdentityError::File(..))));
    assert!(matches!(Identity::kept_in(&folder.path().join("none/at/all")), Err(IdentityError::File(..))));
    assert!(matches!(
        client(&Trust::Authorities(b"no pem".to_vec()), None),
        Err(IdentityError::Authorities(_))
    ));
}

/// Writes the corpus of `fuzz_receiver_address`. Run this test by hand when the receiver address
/// changes.
#[test]
#[ignore = "writes the corpus"]
fn corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/line");
    let good = line("host.example").to_string();
    for (name, text) in [
        ("name", good.clone()),
        ("pasted", format!("  {good}\r\n")),
        ("v4", line("192.0.2.7").to_string()),
        ("v6", line("2001:db8::7").to_string()),
        ("zone", line("fe80::1%eth0").to_string()),
        ("cut-off", good[..good.len() - 9].to_owned()),
        ("too-long", format!("{good}AA")),
        ("no-port", good.replace(":4433", "")),
        ("port-zero", good.replace(":4433", ":04433")),
        ("standard-alphabet", good.replace('_', "/")),
        ("brackets", good.replace("host.example", "[[::1]]")),
        ("other-letters", good.replace("host.example", "h\u{f6}st\u{202e}")),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
}
