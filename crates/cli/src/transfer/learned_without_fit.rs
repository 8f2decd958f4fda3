//! Learning a model in a build without the feature `fit`: it reports which build can learn one.

use std::path::Path;

use barograph_transfer::LossClassification;

/// Returns an error that names the build that can learn a model.
pub(super) fn learn(_directory: &Path, _report: impl FnOnce(String)) -> Result<LossClassification, String> {
    Err("this build cannot learn a model: leave out --classifier learned, or use a release build".into())
}
