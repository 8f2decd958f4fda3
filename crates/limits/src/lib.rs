//! What one caller may cost a server, so that none keeps the others from their work.
//!
//! [`bucket`] is a budget that refills, [`accounts`] one for each address; [`callers`] says which addresses count as one, [`proved`] which of them showed a token or a signature
//! lately, [`admission`] which connections are open and which is closed for a newcomer, [`credentials`]
//! how long the answer to a wrong token waits, and [`pace`] how slowly bytes may move.
//!
//! Pure: addresses and times come in, decisions go out. This crate opens no socket and reads no clock.

pub mod accounts;
pub mod admission;
pub mod bucket;
pub mod callers;
pub mod credentials;
pub mod pace;
pub mod proved;
