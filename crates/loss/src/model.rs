//! Models as files: TOML that begins with its format and version.

use serde::de::DeserializeOwned;
use thiserror::Error;

/// The version of the formats of models that is read and written.
pub(crate) const VERSION: u64 = 1;

/// What is no model.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ModelError {
    /// A version that this program does not know.
    #[error("this model has version {0}, and this program knows {VERSION}")]
    Version(u64),
    /// What is wrong with it.
    #[error("this is no model: {0}")]
    Invalid(String),
}

/// What a file of this format says beside its format and version, which are looked at first: all else may differ in a newer one.
pub(crate) fn read<T: DeserializeOwned>(model: &str, format: &str) -> Result<T, ModelError> {
    let invalid = |error: toml::de::Error| ModelError::Invalid(error.message().to_owned());
    if model.len() > BYTES_MAX {
        return Err(ModelError::Invalid(format!(
            "it has {} bytes, and {BYTES_MAX} at most are read",
            model.len()
        )));
    }
    let mut table: toml::Table = model.parse().map_err(invalid)?;
    if table.remove("format").as_ref().and_then(toml::Value::as_str) != Some(format) {
        return Err(ModelError::Invalid(format!("its format is not \"{format}\"")));
    }
    let version = table.remove("version").and_then(|version| u64::try_from(version.as_integer()?).ok());
    match version {
        Some(VERSION) => table.try_into().map_err(invalid),
        Some(other) => Err(ModelError::Version(other)),
        None => Err(ModelError::Invalid("it has no version".to_owned())),
    }
}

/// The longest file that is read (bytes): the shipped ones have some kilobytes.
const BYTES_MAX: usize = 1 << 20;
