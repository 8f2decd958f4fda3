//! `barograph classify fit` in a build without the feature `fit`: it reports which build can fit a
//! model.

use std::ffi::OsString;

use super::Problem;

/// Arguments of `barograph classify fit`, which this build does not read.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

/// Returns an error that names the build that can fit a model.
///
/// # Errors
/// [`Problem::Failed`], whatever the input.
pub(super) fn fit(_args: &Args) -> Result<(), Problem> {
    Err(Problem::Failed(
        "this build cannot learn a model. Use a release build: `cargo install --locked --path crates/cli`, \
         or `cargo build --release --locked` in the repository"
            .to_owned(),
    ))
}
