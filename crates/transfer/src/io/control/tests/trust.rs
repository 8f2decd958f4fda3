//! Tests which certificates are accepted.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};

use super::*;
use crate::io::identity::IdentityError;

struct Authority {
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { certificate: params.self_signed(&key).unwrap(), key }
    }

    fn trust(&self) -> Trust {
        Trust::Authorities(self.certificate.pem().into_bytes())
    }

    /// An identity for `name`, valid until 1 January of the year `until`.
    fn identity(&self, name: &str, usage: ExtendedKeyUsagePurpose, until: i32) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.certificate, &self.key).unwrap();
        Identity::from_pem("test", certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }
}

const SERVER: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ServerAuth;
const CLIENT: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ClientAuth;

fn host(identity: Identity, trust: Option<Trust>) -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap(), ListenerConfig { identity, ..config(trust) }).unwrap()
}

fn by(trust: Trust, identity: Option<Identity>, token: Option<AuthToken>) -> Connector {
    Connector { trust, identity, token, software: "sender".into() }
}

#[test]
fn a_receiver_is_authenticated_by_a_certificate_authority() {
    let (ours, foreign) = (Authority::new("ours"), Authority::new("foreign"));
    let listener = host(ours.identity("127.0.0.1", SERVER, 2100), None);
    let token = Some(listener.receiver_address("").token);
    let (sender, guest) = connect(&listener, &by(ours.trust(), None, token));
    assert!(sender.is_ok() && (guest.is_some() || listener.accept(SOON).unwrap().is_some()), "{sender:?}");
    let refused = |identity: Identity, trust: Trust, why: &str| {
        let listener = host(identity, None);
        let (sender, guest) = connect(&listener, &by(trust, None, Some(listener.receiver_address("").token)));
        let error = sender.unwrap_err();
        assert!(matches!(error, ControlError::Tls(_)) && error.to_string().contains(why), "{error}");
        assert!(guest.is_none());
    };
    refused(foreign.identity("127.0.0.1", SERVER, 2100), ours.trust(), "UnknownIssuer");
    refused(ours.identity("127.0.0.1", SERVER, 2021), ours.trust(), "expired");
    refused(ours.identity("127.0.0.2", SERVER, 2100), ours.trust(), "not valid for name");
    refused(ours.identity("127.0.0.1", CLIENT, 2100), ours.trust(), "extended key usage");
    refused(Identity::fresh().unwrap(), ours.trust(), "");
}

#[test]
fn a_sender_without_a_token_is_authenticated_by_its_certificate() {
    let (ours, foreign) = (Authority::new("ours"), Authority::new("foreign"));
    let own = Identity::fresh().unwrap();
    let known = Identity::fresh().unwrap();
    let receiver = Trust::Pinned(vec![own.fingerprint()]);
    for (trust, good) in [
        (ours.trust(), ours.identity("sender", CLIENT, 2100)),
        (Trust::Pinned(vec![known.fingerprint()]), known.clone()),
    ] {
        let listener = host(own.clone(), Some(trust));
        let (sender, guest) = connect(&listener, &by(receiver.clone(), Some(good.clone()), None));
        assert!(sender.is_ok(), "{sender:?}");
        let guest = guest.or_else(|| listener.accept(SOON).unwrap()).unwrap();
        assert!(!guest.has_token);
        assert_eq!(guest.channel.peer_fingerprint(), Some(good.fingerprint()));
        for bad in [
            foreign.identity("sender", CLIENT, 2100),
            ours.identity("sender", CLIENT, 2021),
            Identity::fresh().unwrap(),
        ] {
            let (sender, guest) = connect(&listener, &by(receiver.clone(), Some(bad), None));
            assert!(matches!(sender, Err(ControlError::CertificateRejected(_))), "{sender:?}");
            assert!(guest.is_none());
        }
        // The sender has neither a certificate nor a token.
        let (sender, _) = connect(&listener, &by(receiver.clone(), None, None));
        assert!(
            matches!(sender, Err(ControlError::Refused { reason: RefuseReason::NotAllowed, .. })),
            "{sender:?}"
        );
        // The token alone is enough.
        let (sender, guest) =
            connect(&listener, &by(receiver.clone(), None, Some(listener.receiver_address("").token)));
        assert!(sender.is_ok());
        assert!(guest.or_else(|| listener.accept(SOON).unwrap()).unwrap().has_token);
    }
}

#[test]
fn a_receiver_with_an_empty_list_of_authorities_is_refused() {
    let at = "127.0.0.1:0".parse().unwrap();
    for (pem, why) in [(&b""[..], "has to name them"), (b"\n", "the file has none")] {
        let bound = Listener::bind(at, config(Some(Trust::Authorities(pem.to_vec()))));
        let error = bound.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_certificate_with_another_key_is_refused() {
    // With the key of a different certificate, the listener does not start.
    let (chain, _) = (Authority::new("a").certificate.pem(), ());
    let key = KeyPair::generate().unwrap().serialize_pem();
    let mixed = Identity::from_pem("test", chain.as_bytes(), key.as_bytes()).unwrap();
    let bound =
        Listener::bind("127.0.0.1:0".parse().unwrap(), ListenerConfig { identity: mixed, ..config(None) });
    assert!(matches!(bound, Err(ControlError::Identity(IdentityError::Tls(_)))), "{bound:?}");
}
