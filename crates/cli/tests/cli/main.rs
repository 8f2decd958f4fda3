//! Runs the `barograph` binary as people run it. One test binary: most of these tests wait for
//! stations, so tests of different modules run at the same time.
#![allow(clippy::unwrap_used, missing_docs)]

mod files;
#[cfg(target_os = "linux")]
mod guide;
#[cfg(target_os = "linux")]
mod guides;
#[cfg(target_os = "linux")]
mod mesh;
#[cfg(target_os = "linux")]
mod sites;
#[cfg(target_os = "linux")]
mod transfer;
mod up;
