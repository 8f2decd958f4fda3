// Frames of the probe protocol (docs/spec/probe.md §2) that a page needs. Pure.

/** Kinds of experiments that a page can request. */
export const KINDS = Object.freeze({ rtt: 1, rtt_nagle: 2, goodput: 3, goodput_down: 4 });

/** Bytes that are not the expected frame. */
export class WireError extends Error {
  name = 'WireError';
}

/** A request of 16 bytes: `count` exchanges for the first two kinds, `bytes` for the others. */
export function encodeRequest({ kind, count = 0, bytes = 0 }) {
  const number = KINDS[kind];
  if (number === undefined) throw new RangeError(`there is no experiment ${kind}`);
  const transfers = number === KINDS.goodput || number === KINDS.goodput_down;
  if (transfers) integer('bytes', bytes, 1, Number.MAX_SAFE_INTEGER);
  else integer('count', count, 1, COUNT_MAX);
  const frame = new DataView(new ArrayBuffer(REQUEST_BYTES));
  frame.setUint8(0, MARK_REQUEST);
  frame.setUint8(1, number);
  frame.setUint32(4, transfers ? 0 : count);
  frame.setBigUint64(8, transfers ? BigInt(bytes) : 0n);
  return new Uint8Array(frame.buffer);
}

/**
 * A reply: `{status: 'ready'}`, or `{status, limit}` if the station declines; `limit` in bytes or
 * exchanges.
 */
export function decodeReply(buffer) {
  const frame = frameOf(buffer, REPLY_BYTES, MARK_REPLY, 'reply');
  const status = STATUS[frame.getUint8(1)];
  if (status === undefined) throw new WireError(`the reply has the undefined status ${frame.getUint8(1)}`);
  zeros(frame, 2, 8);
  // Only a reply to a request for datagrams, which a page cannot make, has a nonce here.
  if (status !== 'too large') zeros(frame, 8, REPLY_BYTES);
  return status === 'too large' ? { status, limit: whole(frame, 8) } : { status };
}

/**
 * End of a transfer: the bytes that the responder counted, and its kernel's data about the
 * connection (`null` if absent), with times in s and rates in bit/s.
 */
export function decodeDone(buffer) {
  const frame = frameOf(buffer, DONE_BYTES, MARK_DONE, 'done');
  const flags = frame.getUint8(1);
  if (1 < flags) throw new WireError(`the done has the undefined flags ${flags}`);
  zeros(frame, 3, 8);
  const bytes = whole(frame, 8);
  if (flags === 0) {
    zeros(frame, 2, 3);
    zeros(frame, 16, DONE_BYTES);
    return { bytes, tcp: null };
  }
  const limit = frame.getUint8(2);
  if (LIMITS.length <= limit) throw new WireError(`the done has the undefined limit ${limit}`);
  const min_rtt_us = frame.getUint32(16);
  const rate = whole(frame, 24);
  const tcp = {
    limited_by: LIMITS[limit],
    min_rtt_s: min_rtt_us === UNKNOWN ? null : min_rtt_us / 1e6,
    total_retrans: frame.getUint32(20),
    delivery_rate_bit_s: rate === 0 ? null : rate,
    congestion: congestionOf(new Uint8Array(frame.buffer, frame.byteOffset + 32, 16)),
  };
  return { bytes, tcp };
}

function frameOf(buffer, length, mark, name) {
  if (!(buffer instanceof ArrayBuffer)) throw new WireError(`the ${name} is text, not bytes`);
  if (buffer.byteLength !== length) throw new WireError(`the ${name} has ${buffer.byteLength} bytes, expected ${length}`);
  const frame = new DataView(buffer);
  if (frame.getUint8(0) !== mark) throw new WireError(`the ${name} does not begin with its mark`);
  return frame;
}

function zeros(frame, from, to) {
  for (let i = from; i < to; i += 1) {
    if (frame.getUint8(i) !== 0) throw new WireError(`byte ${i}, which is reserved, is not zero`);
  }
}

function whole(frame, at) {
  const number = Number(frame.getBigUint64(at));
  if (!Number.isSafeInteger(number)) throw new WireError(`the number at byte ${at} is too large`);
  return number;
}

function congestionOf(bytes) {
  const text = String.fromCharCode(...bytes).replace(/\0+$/, '');
  if (!/^[A-Za-z0-9_.-]*$/.test(text)) throw new WireError('the name of the congestion control is invalid');
  return text === '' ? null : text;
}

function integer(name, value, least, most) {
  if (!Number.isSafeInteger(value) || value < least || most < value) {
    throw new RangeError(`${name} is ${value}, expected a whole number from ${least} to ${most}`);
  }
}

// Marks and sizes of frames (probe.md §2).
const MARK_REQUEST = 0xb1;
const MARK_REPLY = 0xb2;
const MARK_DONE = 0xb3;
const REQUEST_BYTES = 16;
const REPLY_BYTES = 16;
const DONE_BYTES = 48;
const COUNT_MAX = 100_000;
const UNKNOWN = 0xffff_ffff;
const STATUS = ['ready', 'busy', 'too large', 'spent', 'not served', 'full', 'malformed', 'stopping'];
const LIMITS = [null, 'receive window', 'send buffer', 'network', 'application'];
