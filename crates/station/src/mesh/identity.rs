//! The station's identity in its mesh: its key, and signed requests in both directions
//! (docs/spec/mesh.md §2).

mod challenges;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use barograph_forecast::Name;
use barograph_probe::io::ChallengeSigner;
use barograph_probe::signed::{Challenge, Credentials, text_to_sign};
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use challenges::Challenges;

use crate::state::StateFiles;
use crate::sync::lock;

/// A station's name and Ed25519 key (RFC 8032), and the challenges that it issues.
pub struct Identity {
    host: Name,
    key: Ed25519KeyPair,
    challenges: Mutex<Challenges>,
    /// Time from which the age of challenges is measured. The clock is monotonic, so that setting
    /// the wall clock does not change which challenges have expired.
    began: Instant,
}

/// Signs requests to one responder.
///
/// Does not sign a challenge of a different responder. Otherwise a station could forward a
/// different responder's challenge to this station, and use the signature to act as this station.
struct Signer {
    identity: Arc<Identity>,
    responder: Name,
}

/// Why a signed request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum SignatureError {
    #[error("expected `Authorization: Barograph-Station name=\"…\", challenge=\"…\", signature=\"…\"`")]
    Malformed,
    /// The challenge was never issued here, was answered before, or has expired.
    #[error("the challenge is unknown, used or expired; request a new one")]
    Challenge,
    /// The caller has signed the maximum number of requests within the lifetime of a challenge.
    #[error("this station has signed too many requests within 30 s; retry later")]
    TooMany,
    #[error("no peer of this station has this name")]
    Unknown,
    /// The peer's directory entry has no public key.
    #[error("the station with this name has no public key in the directory")]
    Keyless,
    /// The signature does not match the peer's public key.
    #[error("the signature does not match the station's public key")]
    Signature,
}

impl Identity {
    /// Opens the identity of `host`. Reads the key from the state directory, or creates it at the
    /// first start (mode 0600). If a new key cannot be written now, the station still uses the key,
    /// and writes the key later.
    ///
    /// # Errors
    /// The file cannot be read or holds no valid key, or the system gives no randomness. An invalid
    /// file is not replaced.
    pub fn open(files: &StateFiles, host: Name) -> std::io::Result<Self> {
        let random = SystemRandom::new();
        let document = match std::fs::read(files.directory().join(KEY_FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let document = Ed25519KeyPair::generate_pkcs8(&random).map_err(|_| {
                    std::io::Error::other("cannot create a key: the system provides no random numbers")
                })?;
                files.write_new(KEY_FILE, document.as_ref().to_vec(), NO_KEY);
                document.as_ref().to_vec()
            }
            Err(error) => return Err(error),
        };
        let key = Ed25519KeyPair::from_pkcs8(&document).map_err(|error| {
            let message = format!(
                "the file holds no Ed25519 key (PKCS#8): {error}; restore it, or remove it so that the next start \
                 creates a new key"
            );
            std::io::Error::new(std::io::ErrorKind::InvalidData, message)
        })?;
        let challenges = Challenges::new(&random).ok_or_else(|| {
            std::io::Error::other("cannot create challenges: the system provides no random numbers")
        })?;
        Ok(Self { host, key, challenges: Mutex::new(challenges), began: Instant::now() })
    }

    /// The public key that the station registers in the directory.
    #[must_use]
    pub fn public_key(&self) -> [u8; 32] {
        self.key
            .public_key()
            .as_ref()
            .try_into()
            .expect("an Ed25519 public key has 32 bytes (RFC 8032 §5.1.5)")
    }

    /// Issues a challenge for a caller.
    pub(crate) fn challenge(&self) -> Challenge {
        let challenge = lock(&self.challenges).issue(self.began.elapsed());
        Challenge { realm: self.host.clone(), challenge }
    }

    /// Verifies the value of an `Authorization` header and returns the caller's name. `key_of`
    /// returns the public key of a peer: `None` = no such peer, `Some(None)` = the peer has no key.
    ///
    /// # Errors
    /// [`SignatureError`]. Only a valid signature spends its challenge.
    pub(crate) fn verify(
        &self,
        authorization: &str,
        method: &str,
        path: &str,
        key_of: impl FnOnce(&Name) -> Option<Option<[u8; 32]>>,
    ) -> Result<Name, SignatureError> {
        let given = Credentials::parse(authorization).ok_or(SignatureError::Malformed)?;
        let now = self.began.elapsed();
        if !lock(&self.challenges).is_issued(&given.challenge, now) {
            return Err(SignatureError::Challenge);
        }
        let key = key_of(&given.name).ok_or(SignatureError::Unknown)?.ok_or(SignatureError::Keyless)?;
        let text = text_to_sign(&given.challenge, &self.host, &given.name, method, path);
        UnparsedPublicKey::new(&ED25519, key)
            .verify(text.as_bytes(), &given.signature)
            .map_err(|_| SignatureError::Signature)?;
        lock(&self.challenges).spend(&given.name, &given.challenge, now)?;
        Ok(given.name)
    }

    /// Signer for requests to `responder` only.
    pub(crate) fn signer(self: &Arc<Self>, responder: Name) -> Arc<dyn ChallengeSigner> {
        Arc::new(Signer { identity: Arc::clone(self), responder })
    }
}

impl std::fmt::Debug for Identity {
    /// Leaves out the private key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("host", &self.host).finish_non_exhaustive()
    }
}

impl ChallengeSigner for Signer {
    fn sign(&self, challenge: &Challenge, method: &str, path: &str) -> Option<Credentials> {
        if challenge.realm != self.responder {
            return None;
        }
        let Identity { host, key, .. } = &*self.identity;
        let text = text_to_sign(&challenge.challenge, &self.responder, host, method, path);
        let signature = key.sign(text.as_bytes()).as_ref().try_into().ok()?;
        Some(Credentials { name: host.clone(), challenge: challenge.challenge, signature })
    }
}

/// Name of the key's file in the state directory.
pub const KEY_FILE: &str = "station.key";
const NO_KEY: &str = "the station's key is only in memory; a restart creates another key";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn identity(directory: &Path, host: &str) -> Arc<Identity> {
        std::fs::create_dir_all(directory).unwrap();
        Arc::new(Identity::open(&StateFiles::new(directory), Name::new(host).unwrap()).unwrap())
    }

    #[test]
    fn the_key_file_is_private_and_persistent_and_a_damaged_key_is_an_error() {
        let state = tempfile::tempdir().unwrap();
        let first = identity(state.path(), "a").public_key();
        assert_eq!(identity(state.path(), "a").public_key(), first);
        let file = state.path().join(KEY_FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&file, "no key").unwrap();
        let error = Identity::open(&StateFiles::new(state.path()), Name::new("a").unwrap()).unwrap_err();
        assert!(error.to_string().contains("no Ed25519 key"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "no key");
    }

    #[test]
    fn a_signature_is_valid_once_for_one_request_of_one_caller() {
        let state = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|host| identity(&state.path().join(host), host));
        let name = |text| Name::new(text).unwrap();
        let key_of = |host: &Name| match host.as_str() {
            "a" => Some(Some(a.public_key())),
            "c" => Some(Some(c.public_key())),
            "keyless" => Some(None),
            _ => None,
        };
        let to_b = a.signer(name("b"));
        let sign = || to_b.sign(&b.challenge(), "GET", "/v1/probe").unwrap();
        let verify = |header: &str| b.verify(header, "GET", "/v1/probe", key_of);

        let good = sign().header();
        assert_eq!(verify(&good), Ok(name("a")));
        assert_eq!(verify(&good), Err(SignatureError::Challenge), "replayed");
        assert_eq!(b.verify(&sign().header(), "GET", "/v1/other", key_of), Err(SignatureError::Signature));
        let as_c = Credentials { name: name("c"), ..sign() };
        assert_eq!(verify(&as_c.header()), Err(SignatureError::Signature), "somebody else's name");
        let unknown = Credentials { name: name("x"), ..sign() };
        assert_eq!(verify(&unknown.header()), Err(SignatureError::Unknown));
        let keyless = Credentials { name: name("keyless"), ..sign() };
        assert_eq!(verify(&keyless.header()), Err(SignatureError::Keyless));
        let mut foreign = sign();
        foreign.challenge = c.challenge().challenge;
        assert_eq!(verify(&foreign.header()), Err(SignatureError::Challenge));
        assert_eq!(verify("Barograph-Station name=\"a\""), Err(SignatureError::Malformed));
        assert_eq!(to_b.sign(&c.challenge(), "GET", "/v1/probe"), None, "passed on by b for c");
    }

    #[test]
    fn challenges_issued_to_strangers_do_not_invalidate_earlier_challenges() {
        let state = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|host| identity(&state.path().join(host), host));
        let early = b.challenge();
        for _ in 0..10_000 {
            let _ = b.challenge();
        }
        let answer = a.signer(Name::new("b").unwrap()).sign(&early, "GET", "/v1/probe").unwrap().header();
        let verify = || b.verify(&answer, "GET", "/v1/probe", |_| Some(Some(a.public_key())));
        assert_eq!(verify(), Ok(Name::new("a").unwrap()));
        assert_eq!(verify(), Err(SignatureError::Challenge), "replayed");
    }
}
