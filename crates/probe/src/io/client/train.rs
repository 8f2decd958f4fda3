//! Sends a packet train to a station and times the answers.

use super::context::ProbeContext;
use super::datagrams::{Burst, DatagramBurst};
use super::{connect, exchange};
use crate::io::deadline::Deadline;
use crate::train::{TRAIN_PACKET_BYTES, TRAIN_PACKETS, train_rate_bit_s};
use crate::wire::Request;
use crate::{ProbeError, Target};

/// Sends a packet train to a station and returns its rate in bit/s; see
/// [`train_rate_bit_s`]. Blocks for at most the deadline of `context`.
///
/// Returns `None` if too few packets were answered within a second, or if the station ran a bulk
/// transfer before or after the train: the train then shows what the transfer left of the path.
///
/// # Errors
/// [`ProbeError`] if the target cannot be reached, is not a station or declines; or if the caller
/// cancelled the train.
pub fn train(target: &Target, context: &ProbeContext) -> Result<Option<f64>, ProbeError> {
    let deadline = Deadline::start(context.deadline, &context.cancel);
    let mut session = connect::open_plain(target, context, &deadline)?;
    if exchange::check_alive(&mut session, &deadline)? {
        return Ok(None);
    }
    let nonce = session.request(Request::Datagrams { n: TRAIN_PACKETS }, &deadline)?;
    let train = Burst { n: TRAIN_PACKETS, bytes: TRAIN_PACKET_BYTES, ..Burst::default() };
    let answered = DatagramBurst::send_all(&session, nonce, train, &deadline)
        .map_err(|error| deadline.io("sending a packet train", &error))?;
    let is_loaded = exchange::check_alive(&mut session, &deadline)?;
    Ok(train_rate_bit_s(&answered.arrivals()).filter(|_| !is_loaded))
}
