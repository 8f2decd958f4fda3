// Sizes and lists of mirrors, as people write them.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { MIRRORS_MAX, mirrorName, parseMirrors } from '../src/mirrors/list.js';
import { formatSize, parseSize } from '../src/mirrors/size.js';

describe('sizes', () => {
  test('are read in decimal and binary units', () => {
    const sizes = { '700 MB': 7e8, '4.5 GiB': 4.5 * 2 ** 30, '1': 1, '64KiB': 65536, '.5 kB': 500, ' 2 tb ': 2e12, '1000 bytes': 1000, '3 B': 3 };
    for (const [text, bytes] of Object.entries(sizes)) assert.equal(parseSize(text), bytes, text);
  });

  test('that are invalid are rejected with a sentence', () => {
    const wrong = {
      '': /number and a unit/,
      'big': /number and a unit/,
      '-1 MB': /number and a unit/,
      '1e9': /number and a unit|not a unit/,
      '1,5 GB': /number and a unit/,
      '700 M': /“M” is not a unit of size: write MB or MiB/,
      '700 Mbit': /not a unit of size/,
      '0': /at least 1 byte/,
      '0.1 B': /at least 1 byte/,
      '1001 TB': /at most/,
      [`${'9'.repeat(300)} GB`]: /./,
    };
    for (const [text, message] of Object.entries(wrong)) assert.throws(() => parseSize(text), { name: 'RangeError', message }, text);
    assert.throws(() => parseSize(undefined), RangeError);
    assert.throws(() => parseSize(null), RangeError);
  });

  test('are written so that they are read back', () => {
    const texts = { 7e8: '700 MB', [4.5 * 2 ** 30]: '4.5 GiB', 8388608: '8 MiB', 1: '1 B', 1500: '1.5 kB', 262144: '256 KiB', 733372416: '733 MB' };
    for (const [bytes, text] of Object.entries(texts)) assert.equal(formatSize(Number(bytes)), text);
    for (let bytes = 1; bytes < 1e15; bytes = bytes * 3 + 1) {
      assert.ok(Math.abs(parseSize(formatSize(bytes)) / bytes - 1) < 0.005, `${bytes} as ${formatSize(bytes)}`);
    }
  });
});

describe('lists of mirrors', () => {
  const kinds = (list, options) => parseMirrors(list, options).map(({ url, kind, refusal }) => [url, kind, refusal]);

  test('an address that ends in a slash is a station, any other a download', () => {
    assert.deepEqual(kinds('https://a.example/ https://b.example/f.iso\nhttps://c.example\twss://d.example,ws://e.example:7/x'), [
      ['https://a.example/', 'station', null],
      ['https://b.example/f.iso', 'download', null],
      ['https://c.example/', 'station', null],
      ['https://d.example/', 'station', null],
      ['http://e.example:7/x', 'station', null],
    ]);
    assert.deepEqual(kinds(['a.example', 'https://a.example/#x', 'https://a.example/f?x=1']), [
      ['https://a.example/', 'station', null],
      ['https://a.example/f?x=1', 'download', null],
    ]);
  });

  test('addresses that cannot work are rejected before a request', () => {
    const refusal = (url, secure) => parseMirrors([url], { secure })[0].refusal;
    assert.match(refusal('http://a.example/', true), /https page cannot measure http/);
    assert.match(refusal('ws://a.example/', true), /https page cannot measure http/);
    for (const own of ['http://localhost:1/', 'http://127.0.0.1:1/', 'http://[::1]:1/f']) assert.equal(refusal(own, true), null);
    assert.equal(refusal('http://a.example/', false), null);
    assert.match(refusal('ftp://a.example/f', false), /only http/);
    assert.match(refusal('javascript://a/%0aalert(1)', false), /only http/);
    assert.match(refusal('https://me:secret@a.example/', false), /password/);
    assert.match(refusal('http://[', false), /not an address/);
    assert.match(refusal(`https://a.example/${'x'.repeat(3000)}`, false), /too long/);
  });

  test('an empty or too long list is rejected', () => {
    assert.throws(() => parseMirrors(' \n '), /at least one/);
    assert.throws(() => parseMirrors(undefined), /at least one/);
    const many = Array.from({ length: MIRRORS_MAX }, (_, i) => `https://m${i}.example/`);
    assert.equal(parseMirrors(many).length, MIRRORS_MAX);
    assert.throws(() => parseMirrors([...many, 'https://x.example/']), /At most 32/);
  });

  test('are named without scheme and final slash', () => {
    assert.equal(mirrorName('https://a.example/'), 'a.example');
    assert.equal(mirrorName('https://a.example:7/pub/f.iso'), 'a.example:7/pub/f.iso');
  });
});
