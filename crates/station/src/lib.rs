//! The daemon: sensors, probing, storage, HTTP API, page and metrics.
