//! The `barograph` command.
fn main() {}
