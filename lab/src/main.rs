//! The papers, reproduced.
fn main() {}
