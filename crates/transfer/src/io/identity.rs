//! How each end authenticates the other: by certificate, by a pinned fingerprint, or by the
//! receiver address.

mod receiver_address;
#[cfg(test)]
mod tests;
mod token;
mod trust;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use ring::hmac;
use rustix::process::geteuid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use thiserror::Error;

pub(crate) use receiver_address::fuzz;
pub use receiver_address::{ReceiverAddress, ReceiverAddressError};
pub use token::AuthToken;
pub(super) use token::random;
pub use trust::Trust;
pub(super) use trust::{ALPN, Untrusted, client, server};

/// SHA-256 of a certificate (DER), as `openssl x509 -fingerprint -sha256` prints it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use barograph_transfer::io::identity::Fingerprint;
///
/// let fingerprint = Fingerprint::of(b"abc");
/// assert!(fingerprint.to_string().starts_with("BA:78:16:BF:"));
/// assert_eq!(fingerprint.to_string().parse::<Fingerprint>()?, fingerprint);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Fingerprint of a certificate (DER).
    pub fn of(certificate: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            let colon = if place == 0 { "" } else { ":" };
            write!(f, "{colon}{byte:02X}")?;
        }
        Ok(())
    }
}

/// Parses hexadecimal digits in upper or lower case, with colons between all bytes or without
/// colons.
impl FromStr for Fingerprint {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let wrong = || IdentityError::Fingerprint(text.chars().take(128).collect());
        let digits = match text.len() {
            64 => text.as_bytes().chunks(2).collect::<Vec<_>>(),
            95 => text.as_bytes().split(|byte| *byte == b':').collect(),
            _ => return Err(wrong()),
        };
        let mut bytes = [0; 32];
        if digits.len() != bytes.len() {
            return Err(wrong());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits) {
            let [high, low] = *pair else { return Err(wrong()) };
            let digit = |digit: u8| char::from(digit).to_digit(16);
            let (Some(high), Some(low)) = (digit(high), digit(low)) else { return Err(wrong()) };
            *byte = (high << 4 | low) as u8;
        }
        Ok(Self(bytes))
    }
}

/// Why a certificate, a key or a fingerprint cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum IdentityError {
    /// The source has no usable certificate.
    #[error("no certificate in {0}: {1}")]
    Certificate(String, String),
    /// The source has no usable private key.
    #[error("no private key in {0}: {1}")]
    Key(String, String),
    /// A file cannot be read or written.
    #[error("{0}: {1}")]
    File(String, io::Error),
    #[error("cannot create a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("no trusted certificate authority: {0}")]
    Authorities(String),
    #[error("{0:?} is not a SHA-256 fingerprint: give 64 hexadecimal digits, with or without colons")]
    Fingerprint(String),
    /// The other end has a certificate that is not trusted.
    #[error("the other end has the certificate {found}, which is not trusted")]
    Untrusted { found: Fingerprint },
    /// Other users may read or write the key file. The field has the file's mode.
    #[error("{0} holds a private key, but others may read or write it (mode {1:04o}): run chmod 600")]
    Readable(String, u32),
    #[error("TLS cannot use it: {0}")]
    Tls(#[from] rustls::Error),
}

/// A certificate chain and its private key.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use barograph_transfer::io::identity::Identity;
///
/// let identity = Identity::fresh()?;
/// assert_eq!(identity.token(), identity.clone().token());
/// assert_ne!(identity.fingerprint(), Identity::fresh()?.fingerprint());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Identity {
    /// Certificates: first the certificate of this endpoint, then the certificates of intermediate
    /// authorities.
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint())
    }
}

impl Identity {
    /// Creates a new identity: ECDSA with P-256, self-signed.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn fresh() -> Result<Self, IdentityError> {
        let (certificate, key) = make()?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok(Self { chain: vec![certificate.der().clone()], key: Arc::new(key.into()) })
    }

    /// Reads an identity from PEM: certificates, with the certificate of this endpoint first, and a
    /// key (PKCS #8, PKCS #1 or SEC1). `name` identifies the source of the PEM text in errors.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use barograph_transfer::io::identity::Identity;
    ///
    /// let (chain, key) = (std::fs::read("chain.pem")?, std::fs::read("key.pem")?);
    /// let identity = Identity::from_pem("chain.pem and key.pem", &chain, &key)?;
    /// println!("{}", identity.fingerprint());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A part is missing or wrong.
    pub fn from_pem(name: &str, chain: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let none = |error: String| IdentityError::Certificate(name.into(), error);
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|error| none(error.to_string()))?;
        if chain.is_empty() {
            return Err(none("it has none".into()));
        }
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| IdentityError::Key(name.into(), error.to_string()))?;
        Ok(Self { chain, key: Arc::new(key) })
    }

    /// Reads an identity from one file with certificate and key. A file that does not exist is
    /// created, so that the certificate that others pin stays the same from run to run.
    ///
    /// Only the owner may read or write the file (mode 0600). The file is created atomically. A
    /// file of this user that others may read or write is refused, as ssh(1) does.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::path::Path;
    ///
    /// use barograph_transfer::io::ReceiveConfig;
    /// use barograph_transfer::io::identity::Identity;
    ///
    /// // The receiver address stays the same when the receiver is started again.
    /// let identity = Identity::kept_in(Path::new("identity.pem"))?;
    /// let mut config = ReceiveConfig::new("incoming".into());
    /// config.at = "[::]:4433".parse()?;
    /// config.token = Some(identity.token());
    /// config.identity = Some(identity);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The file cannot be read or created, its contents are wrong, or others may read or write it.
    pub fn kept_in(path: &Path) -> Result<Self, IdentityError> {
        let name = path.display().to_string();
        let file = |error| IdentityError::File(name.clone(), error);
        let opened = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (certificate, key) = make()?;
                let pem = certificate.pem() + &key.serialize_pem();
                match create(path, pem.as_bytes()) {
                    // A different process created the file first: both use that file.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    made => made.map_err(file)?,
                }
                File::open(path)
            }
            other => other,
        };
        let mut opened = opened.map_err(file)?;
        let metadata = opened.metadata().map_err(file)?;
        if metadata.is_file() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o077 != 0 {
            return Err(IdentityError::Readable(name, metadata.mode() & 0o7777));
        }
        let mut pem = vec![];
        opened.read_to_end(&mut pem).map_err(file)?;
        Self::from_pem(&name, &pem, &pem)
    }

    /// Fingerprint of the certificate, for others to pin.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.chain.first().map_or(&[], |certificate| certificate))
    }

    /// A token that only the holder of the key can compute. The same key always has the same token,
    /// so a restarted receiver has the same receiver address.
    pub fn token(&self) -> AuthToken {
        // The token is an HMAC of its purpose, with the private key as the key (RFC 2104).
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.secret_der());
        let tag = hmac::sign(&key, b"barograph-transfer token");
        AuthToken(tag.as_ref().first_chunk().copied().unwrap_or_default())
    }

    pub(super) fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain.clone(), self.key.clone_key())
    }
}

fn make() -> Result<(rcgen::Certificate, rcgen::KeyPair), rcgen::Error> {
    let key = rcgen::KeyPair::generate()?;
    // The certificate contains nothing about the machine, because peers without a token can read
    // it.
    let mut params = rcgen::CertificateParams::new(vec!["barograph.invalid".to_owned()])?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "barograph");
    Ok((params.self_signed(&key)?, key))
}

/// Creates the file at `path` atomically: writes a temporary file in the same directory, and links
/// it to `path`. The link fails if `path` exists.
fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    // The name of the temporary file is unique for this process and this thread.
    let thread = std::thread::current().id();
    let beside = path.with_file_name(format!(".{name}.{}.{thread:?}", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::hard_link(&beside, path)
    })();
    let removed = std::fs::remove_file(&beside);
    written?;
    removed?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}
