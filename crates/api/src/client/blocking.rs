//! The client for callers without an asynchronous runtime.

use std::time::{Duration, Instant};

use http::StatusCode;
use tokio::runtime::{Builder, Runtime};

use super::{Answer, Ask, Cause, Client, ClientConfig, Trouble};

/// Sends requests to one server, and blocks until the response arrives.
pub struct BlockingClient {
    client: Client,
    /// `None` only during drop.
    runtime: Option<Runtime>,
}

/// How the reading of a stream ended.
#[derive(Debug)]
pub enum Followed {
    /// The caller's function returned false.
    Enough,
    /// The stream ended, because the server closed the connection.
    Ended,
    /// The server rejected the request: its status and body.
    Refused(StatusCode, Vec<u8>),
}

impl BlockingClient {
    /// Creates a client; it does not connect yet.
    ///
    /// # Errors
    /// A sentence about the URL, the token or the runtime.
    pub fn new(config: ClientConfig) -> Result<Self, String> {
        let client = Client::new(config)?;
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        Ok(Self { client, runtime: Some(runtime) })
    }

    /// Sends a request once, and reads its whole response of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// [`Trouble`] if the request fails; the call returns at `until` at the latest.
    pub fn ask(
        &self,
        ask: &Ask<'_>,
        bytes_max: usize,
        until: Instant,
    ) -> Result<(StatusCode, Vec<u8>), Trouble> {
        self.block_on(async {
            let answer = self.client.ask(ask, until.into()).await?;
            let status = answer.status;
            Ok((status, answer.whole(bytes_max, until.into()).await?))
        })
    }

    /// Sends a request once, and returns the status without reading the body.
    ///
    /// # Errors
    /// [`Trouble`] if the request fails; the call returns at `until` at the latest.
    pub fn status(&self, ask: &Ask<'_>, until: Instant) -> Result<StatusCode, Trouble> {
        self.block_on(async { Ok(self.client.ask(ask, until.into()).await?.status) })
    }

    /// Reads a response in lines of at most `bytes_max` bytes, and calls `take` for each, until
    /// `take` returns false. It is an error if no bytes arrive for `silence`.
    ///
    /// # Errors
    /// [`Trouble`], also if the head has not arrived by `until`.
    pub fn follow(
        &self,
        ask: &Ask<'_>,
        until: Instant,
        silence: Duration,
        bytes_max: usize,
        mut take: impl FnMut(&str) -> bool,
    ) -> Result<Followed, Trouble> {
        self.block_on(async {
            let answer = self.client.ask(ask, until.into()).await?;
            if answer.status != StatusCode::OK {
                let status = answer.status;
                return Ok(Followed::Refused(status, answer.whole(bytes_max, until.into()).await?));
            }
            follow(answer, silence, bytes_max, &mut take).await
        })
    }

    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("it is taken in drop alone").block_on(work)
    }
}

impl Drop for BlockingClient {
    fn drop(&mut self) {
        // Do not wait for the runtime, because the resolution of a name may still take long.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn follow(
    mut answer: Answer,
    silence: Duration,
    bytes_max: usize,
    take: &mut impl FnMut(&str) -> bool,
) -> Result<Followed, Trouble> {
    let mut begun = Vec::new();
    while let Some(bytes) = answer.next(tokio::time::Instant::now() + silence).await? {
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| begun.len() + end + 1);
        begun.extend_from_slice(&bytes);
        let whole: Vec<u8> = begun.drain(..end).collect();
        for line in whole.split_inclusive(|byte| *byte == b'\n') {
            if !take(String::from_utf8_lossy(line).trim_end()) {
                return Ok(Followed::Enough);
            }
        }
        if bytes_max < begun.len() {
            return Err(Trouble::Lost(Cause::from("a line is too long")));
        }
    }
    Ok(Followed::Ended)
}
