//! Seals: they open where they should, and nowhere else.
