//! The `barograph` command: one file a verb.

pub mod classify;
pub mod compare;
pub mod forecast;
#[doc(hidden)]
pub mod fuzzing;
pub mod input;
pub mod plot;
pub mod tradeoff;
