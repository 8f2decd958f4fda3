//! A seeded link emulator over network namespaces and TUN, for tests and the lab.
