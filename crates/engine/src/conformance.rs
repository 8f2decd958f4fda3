//! The suite that every implementation passes.
