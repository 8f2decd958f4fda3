//! Messages over TCP. An attempt is cut off at its timeout, and the message is sent again. The
//! receiver handles the message once.
//!
//! This is the messaging of Allen, Wolski and Plank (2002, §3). The receiving application
//! acknowledges each message. The link's estimator gives a timeout. If the acknowledgement does not
//! arrive within this timeout, the sender closes the connection. Then the sender opens a new
//! connection and sends the message again. Messages have identifiers, so a message that arrives
//! twice is handled once. `docs/spec/link.md` specifies the wire format and the guarantees.
//!
//! ```
//! use barograph_timeout::link::{Link, LinkConfig, ListenConfig, Listener, Message};
//! use barograph_timeout::Adaptive;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = Listener::bind("127.0.0.1:0", ListenConfig::default()).await?;
//! let target = listener.local_addr()?.to_string();
//! let (hand_on, mut messages) = tokio::sync::mpsc::channel(16);
//! let handler = move |message: Message| {
//!     let hand_on = hand_on.clone();
//!     async move { hand_on.send(message.bytes).await }
//! };
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let serving =
//!     tokio::spawn(async move { listener.serve(handler, async { _ = stopped.await }).await });
//!
//! let mut link = Link::tcp(target, LinkConfig::default(), Adaptive::default());
//! let receipt = link.send(b"17 hPa and falling").await?;
//! assert_eq!((receipt.attempts, receipt.duplicate), (1, false));
//! assert_eq!(messages.recv().await.as_deref(), Some(&b"17 hPa and falling"[..]));
//!
//! drop(stop);
//! serving.await?;
//! # Ok(())
//! # }
//! ```
//!
//! The protocol neither authenticates nor encrypts, and a receiver that restarts has no record of
//! the messages that it has handled.

mod attempt_guard;
mod backoff;
mod buffer_limit;
mod client_connection;
mod connect;
mod error;
mod listener;
mod sender;
mod sender_table;
mod serve;
pub mod wire;

#[doc(hidden)]
pub mod fuzzing;

pub use connect::{Accept, Connect, Tcp};
pub use error::{AttemptError, SendError};
pub use listener::{ListenConfig, ListenCounters, Listener, Message};
pub use sender::{Link, LinkConfig, LinkCounters, Receipt};
pub use wire::SenderId;
