//! Entry points for fuzzers: plain functions with assertions that must hold for any bytes.

use std::vec::Vec;

use super::wire::{Acknowledgement, Assembler, CHUNK_BYTES, HEADER_BYTES, Header, Hello, Welcome};

/// Decodes `data` as every frame, and as a stream of messages in pieces of any size. A decoded
/// frame or message must encode to the same bytes, and no memory must be allocated for bytes that
/// have not arrived.
///
/// # Panics
/// If an assertion fails, which is a defect.
pub fn fuzz_wire(data: &[u8]) {
    if let Some(frame) = data.first_chunk()
        && let Ok(hello) = Hello::decode(frame)
    {
        assert_eq!(hello.encode(), *frame);
    }
    if let Some(frame) = data.first_chunk() {
        if let Ok(welcome) = Welcome::decode(frame) {
            assert_eq!(welcome.encode(), *frame);
        }
        if let Ok(acknowledgement) = Acknowledgement::decode(frame) {
            assert_eq!(acknowledgement.encode(), *frame);
        }
        if let Ok(header) = Header::decode(frame, u32::MAX) {
            assert_eq!(header.encode(), *frame);
        }
    }
    if let Some((&piece, stream)) = data.split_first() {
        let whole = assemble(stream, usize::from(piece) + 1);
        assert_eq!(assemble(stream, 1), whole, "the size of the pieces changes the messages");
    }
}

/// Decodes the messages of `stream`, in pieces of at most `piece` bytes, and encodes them again.
fn assemble(stream: &[u8], piece: usize) -> Vec<u8> {
    let mut assembler = Assembler::new(MESSAGE_MAX);
    let (mut again, mut rest) = (Vec::new(), stream);
    while !rest.is_empty() {
        let wanted = assembler.bytes_wanted();
        assert!((1..=CHUNK_BYTES).contains(&wanted));
        let mut input = &rest[..wanted.min(piece).min(rest.len())];
        rest = &rest[input.len()..];
        match assembler.push(&mut input) {
            Err(_) => return again,
            Ok(None) => assert!(assembler.is_partial()),
            Ok(Some((header, message))) => {
                assert_eq!(message.len(), header.length as usize);
                assert!(message.capacity() <= 2 * message.len() + HEADER_BYTES);
                again.extend(header.encode());
                again.extend(message);
                assert_eq!(again, stream[..again.len()]);
            }
        }
        assert!(input.is_empty(), "it takes as many bytes as it wants");
    }
    again
}

/// Largest message: smaller than some inputs, and larger than one chunk.
const MESSAGE_MAX: u32 = 64 * 1024;
