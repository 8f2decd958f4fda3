//! The client for callers without an asynchronous runtime.

use std::time::{Duration, Instant};

use http::StatusCode;
use tokio::runtime::{Builder, Runtime};

use super::{ApiRequest, ApiResponse, Client, ClientConfig, ClientError, ErrorChain};

/// Sends requests to one server, and blocks until the response arrives.
pub struct BlockingClient {
    client: Client,
    /// `None` only during drop.
    runtime: Option<Runtime>,
}

/// How the reading of a stream ended.
#[derive(Debug)]
pub enum FollowEnd {
    /// The caller's function returned false.
    StoppedByCaller,
    /// The stream ended, because the server closed the connection.
    Ended,
    /// The server rejected the request. The fields are the status and the body of the response.
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
    /// [`ClientError`] if the request fails; the call returns at `until` at the latest.
    pub fn send(
        &self,
        request: &ApiRequest<'_>,
        bytes_max: usize,
        until: Instant,
    ) -> Result<(StatusCode, Vec<u8>), ClientError> {
        self.block_on(async {
            let response = self.client.send(request, until.into()).await?;
            let status = response.status;
            Ok((status, response.body(bytes_max, until.into()).await?))
        })
    }

    /// Sends a request once, and returns the status without reading the body.
    ///
    /// # Errors
    /// [`ClientError`] if the request fails; the call returns at `until` at the latest.
    pub fn status(&self, request: &ApiRequest<'_>, until: Instant) -> Result<StatusCode, ClientError> {
        self.block_on(async { Ok(self.client.send(request, until.into()).await?.status) })
    }

    /// Reads a response in lines of at most `bytes_max` bytes, and calls `take` for each line,
    /// until `take` returns false. The call fails if no bytes arrive for the time `silence`.
    ///
    /// # Errors
    /// [`ClientError`], also if the head has not arrived by `until`.
    pub fn follow(
        &self,
        request: &ApiRequest<'_>,
        until: Instant,
        silence: Duration,
        bytes_max: usize,
        mut take: impl FnMut(&str) -> bool,
    ) -> Result<FollowEnd, ClientError> {
        self.block_on(async {
            let response = self.client.send(request, until.into()).await?;
            if response.status != StatusCode::OK {
                let status = response.status;
                return Ok(FollowEnd::Refused(status, response.body(bytes_max, until.into()).await?));
            }
            follow(response, silence, bytes_max, &mut take).await
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
    mut response: ApiResponse,
    silence: Duration,
    bytes_max: usize,
    take: &mut impl FnMut(&str) -> bool,
) -> Result<FollowEnd, ClientError> {
    let mut incomplete = Vec::new();
    while let Some(bytes) = response.next_chunk(tokio::time::Instant::now() + silence).await? {
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| incomplete.len() + end + 1);
        incomplete.extend_from_slice(&bytes);
        let whole: Vec<u8> = incomplete.drain(..end).collect();
        for line in whole.split_inclusive(|byte| *byte == b'\n') {
            if !take(String::from_utf8_lossy(line).trim_end()) {
                return Ok(FollowEnd::StoppedByCaller);
            }
        }
        if incomplete.len() > bytes_max {
            return Err(ClientError::Interrupted(ErrorChain::from(
                "a line of the response is longer than the client accepts",
            )));
        }
    }
    Ok(FollowEnd::Ended)
}
