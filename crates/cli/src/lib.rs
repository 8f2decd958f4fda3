//! The `barograph` command.
