//! Model files: TOML with a format and a version.

use serde::de::DeserializeOwned;
use thiserror::Error;

/// Reason why a text is not a model.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ModelError {
    /// This program does not support the version.
    #[error(
        "the model has version {0}, which this program does not support; fit it again, or update the program"
    )]
    Version(u64),
    /// The model is invalid; the text names the defect.
    #[error("not a valid model: {0}")]
    Invalid(String),
}

/// Reads the contents of a model file. Format and version are checked first, because everything
/// else may differ in another version.
pub(crate) fn read<T: DeserializeOwned>(model: &str, format: &str, supported: u64) -> Result<T, ModelError> {
    let invalid = |error: toml::de::Error| ModelError::Invalid(error.message().to_owned());
    if model.len() > BYTES_MAX {
        return Err(ModelError::Invalid(format!(
            "the file has {} bytes, more than the limit of {BYTES_MAX}",
            model.len()
        )));
    }
    let mut table: toml::Table = model.parse().map_err(invalid)?;
    if table.remove("format").as_ref().and_then(toml::Value::as_str) != Some(format) {
        return Err(ModelError::Invalid(format!("`format` is not \"{format}\"")));
    }
    let found = table.remove("version").and_then(|version| u64::try_from(version.as_integer()?).ok());
    match found {
        Some(version) if version == supported => table.try_into().map_err(invalid),
        Some(other) => Err(ModelError::Version(other)),
        None => Err(ModelError::Invalid("`version` is missing".to_owned())),
    }
}

/// Longest file that is read, in bytes; the shipped models have some kilobytes.
const BYTES_MAX: usize = 1 << 20;
