//! Which losses were the network's: the classifier beside the transfer.

/// Listens to what became of packets and tells the cause of losses.
#[derive(Debug, Default)]
pub struct Ear {}
