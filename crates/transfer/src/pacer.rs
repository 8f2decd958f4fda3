//! Packets spread in time.
