//! Parts of a transfer for the lab, benchmarks and fuzzers. These parts may change in any version.
//!
//! - The protocol: [`Sender`], [`Receiver`], [`wire`], and [`controller`] with the parts of
//!   controllers.
//! - [`pair`] runs both halves over a link in virtual time; [`Cubic`] is a TCP-like flow that
//!   competes with them.
//! - [`fuzz`] has the functions that fuzzers call.
//! - With the features `files` and `io`: files, sockets, seals, flows and the control connection.

mod cubic;
pub mod fuzz;
pub mod pair;

pub use self::cubic::Cubic;
pub use crate::proto::*;

/// The files of a transfer as one object.
#[cfg(feature = "files")]
pub mod files {
    pub use crate::files::{
        destination::*, error::*, existing::*, journal::*, journal_state::*, manifest::*, path::*, rename::*,
        source::*, tree::*, walk::*,
    };
}

/// Sockets, seals, flows and the control connection.
#[cfg(feature = "io")]
pub mod io {
    /// The control connection of both ends.
    pub mod control {
        pub use crate::io::control::*;
    }
    /// The loops that move one object.
    pub mod flow {
        pub use crate::io::flow::*;
    }
    pub mod seal {
        pub use crate::io::seal::*;
    }
    pub mod socket {
        pub use crate::io::socket::*;
    }
}
