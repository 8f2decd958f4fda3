//! The parts of a transfer by themselves, for the lab, benchmarks and fuzzers. They may change with any version.
//!
//! - The protocol: [`Sender`], [`Receiver`], [`wire`], and [`controller`] with all that controllers are made of.
//! - [`pair`] runs both halves over a link in virtual time; [`Cubic`] is a flow beside them.
//! - [`fuzz`] is what fuzzers run.
//! - With the features, `files` and `io` as transfers use them.

mod cubic;
pub mod fuzz;
pub mod pair;

pub use self::cubic::Cubic;
pub use crate::proto::*;

/// Files as one object.
#[cfg(feature = "files")]
pub mod files {
    pub use crate::files::{
        destination::*, error::*, journal::*, kept::*, manifest::*, path::*, place::*, present::*, source::*,
        tree::*, walk::*,
    };
}

/// What sends and receives for real.
#[cfg(feature = "io")]
pub mod io {
    /// What both ends agree on.
    pub mod control {
        pub use crate::io::control::*;
    }
    /// One object on its way.
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
