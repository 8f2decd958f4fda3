// Frames of docs/spec/probe.md §2, as a page writes and reads them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WireError, decodeDone, decodeReply, encodeRequest } from '../src/measure/wire.js';

test('frames equal the examples of the specification', () => {
  assert.equal(hex(encodeRequest({ kind: 'goodput', bytes: 65_536 })), 'b1030000000000000000000000010000');
  assert.equal(hex(encodeRequest({ kind: 'rtt', count: 11 })), 'b1010000' + '0000000b' + '0000000000000000');
  assert.deepEqual(decodeReply(bytes('b20200000000000000000000000003e8')), { status: 'too large', limit: 1000 });
  assert.deepEqual(decodeReply(bytes('b2'.padEnd(32, '0'))), { status: 'ready' });
});

test('requests outside their bounds are not encoded', () => {
  for (const request of [
    { kind: 'loss', count: 1 },
    { kind: 'rtt', count: 0 },
    { kind: 'rtt', count: 100_001 },
    { kind: 'rtt_nagle', count: 1.5 },
    { kind: 'goodput', bytes: 0 },
    { kind: 'goodput_down', bytes: 2 ** 53 },
    { kind: 'goodput', bytes: '1' },
  ]) {
    assert.throws(() => encodeRequest(request), RangeError, JSON.stringify(request));
  }
});

test('a done frame decodes with and without kernel counters', () => {
  assert.deepEqual(decodeDone(bytes('b3'.padEnd(16, '0') + '0000000000010000' + '0'.repeat(64))), { bytes: 65_536, tcp: null });
  const tcp = 'b30103' + '0000000000' + '0000000000000009' + '000003e8' + '00000002' + '0000000005f5e100';
  assert.deepEqual(decodeDone(bytes(tcp + '637562696300'.padEnd(32, '0'))), {
    bytes: 9,
    tcp: { limited_by: 'network', min_rtt_s: 0.001, total_retrans: 2, delivery_rate_bit_s: 1e8, congestion: 'cubic' },
  });
  const unknown = 'b30100' + '0000000000' + '0000000000000009' + 'ffffffff' + '00000000' + '0'.repeat(16) + '0'.repeat(32);
  assert.deepEqual(decodeDone(bytes(unknown)).tcp, {
    limited_by: null, min_rtt_s: null, total_retrans: 0, delivery_rate_bit_s: null, congestion: null,
  });
});

test('every reserved byte must be zero, and every field defined', () => {
  const ready = new Uint8Array(bytes('b2'.padEnd(32, '0')));
  for (let i = 0; i < 16; i += 1) {
    if (i === 1) continue;
    assert.throws(() => decodeReply(ready.with(i, 0xff).buffer), WireError, `byte ${i} of a reply`);
  }
  assert.throws(() => decodeReply(ready.with(1, 8).buffer), WireError);
  const done = new Uint8Array(bytes('b3'.padEnd(96, '0')));
  for (let i = 0; i < 48; i += 1) {
    if (8 < i && i < 16) continue;
    assert.throws(() => decodeDone(done.with(i, 0xff).buffer), WireError, `byte ${i} of a done`);
  }
  const seen = done.with(1, 1);
  for (const [at, value] of [[2, 5], [3, 1], [32, 0x2f], [24, 0xff]]) {
    assert.throws(() => decodeDone(seen.with(at, value).buffer), WireError, `byte ${at}`);
  }
});

test('data that is not a frame is rejected', () => {
  for (const data of ['text', new ArrayBuffer(0), new ArrayBuffer(15), new ArrayBuffer(49), null, new Uint8Array(16)]) {
    assert.throws(() => decodeReply(data), WireError);
    assert.throws(() => decodeDone(data), WireError);
  }
});

function bytes(text) {
  return Uint8Array.from(text.match(/../g), (two) => parseInt(two, 16)).buffer;
}

function hex(array) {
  return [...array].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
