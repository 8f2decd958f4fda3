//! A build without the feature `fit`: `barograph classify fit` says which build can learn a model.

use std::ffi::OsString;

use super::Problem;

/// Arguments of `barograph classify fit`, which this build does not read.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

/// Refuses to learn a model, and names the build that can.
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
