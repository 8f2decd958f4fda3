// Ranking: times from forecasts, order, and when the first may be called.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Goodput } from '../src/mirrors/goodput.js';
import { downloadTime, rank } from '../src/mirrors/rank.js';
import { describeVerdict } from '../src/mirrors/words.js';
import { batteries, seeded } from '../testkit/mirrors.mjs';

const battery = await batteries();

const forecast = (value, lower = null, upper = null) => ({ value, lower, upper });
const mirror = (url, rate, lower, upper, rtt_s = 0) => ({ url, rtt: forecast(rtt_s), goodput: forecast(rate, lower, upper), failure: null });

describe('ranking', () => {
  test('a download takes its round trips and its bytes', () => {
    const { time_s, lower_s, upper_s } = downloadTime(mirror('https://a/', 8e6, 4e6, 16e6, 0.1), 1e6);
    assert.deepEqual([time_s, lower_s, upper_s].map((s) => Number(s.toFixed(9))), [1.3, 0.8, 2.3]);
    assert.equal(downloadTime(mirror('http://a/', 8e6, 4e6, 16e6, 0.1), 1e6).time_s, 1.2, 'two round trips without TLS');
    assert.equal(downloadTime({ url: 'https://a/', rtt: null, goodput: forecast(8e6) }, 1e6).time_s, 1);
    assert.equal(downloadTime(mirror('https://a/', 8e6, 0, 16e6), 1e6).upper_s, Infinity);
    assert.equal(downloadTime(mirror('https://a/', 8e6), 1e6).lower_s, null);
    for (const rate of [0, -1, null, NaN]) assert.equal(downloadTime(mirror('https://a/', rate), 1e6), null);
    const beside = downloadTime({ url: 'https://a/', rtt: null, goodput: { ...forecast(10, 20, 30) } }, 10);
    assert.ok(beside.lower_s <= beside.time_s && beside.time_s <= beside.upper_s);
  });

  test('orders by time, and puts failures last with their reason', () => {
    const failed = { url: 'https://f/', rtt: null, goodput: null, failure: 'refused' };
    const few = { url: 'https://g/', rtt: null, goodput: null, failure: null };
    const { verdict, mirrors } = rank([failed, mirror('https://slow/', 1e6, 0.9e6, 1.1e6), few, mirror('https://fast/', 9e6, 8e6, 10e6)], 1e6);
    assert.equal(verdict, 'first');
    assert.deepEqual(mirrors.map(({ url, rank }) => [url, rank]), [['https://fast/', 1], ['https://slow/', 2], ['https://f/', null], ['https://g/', null]]);
    assert.match(mirrors[2].failure, /refused/);
    assert.match(mirrors[3].failure, /too few/);
    assert.deepEqual([rank([failed], 1).verdict, rank([], 1).verdict, rank([mirror('https://a/', 1, 1, 1), failed], 1).verdict], ['none', 'none', 'only']);
  });

  test('setup decides for small files and goodput for large ones', () => {
    const near = mirror('https://near/', 1e6, 0.99e6, 1.01e6, 0.01);
    const wide = mirror('https://wide/', 9e6, 8.9e6, 9.1e6, 0.5);
    assert.equal(rank([near, wide], 1e4).mirrors[0].url, 'https://near/');
    assert.equal(rank([near, wide], 1e7).mirrors[0].url, 'https://wide/');
  });

  test('is too close when either forecast lies in the other interval, or there is none', () => {
    const verdict = (...list) => rank(list, 1e6).verdict;
    assert.equal(verdict(mirror('https://a/', 10, 8, 12), mirror('https://b/', 9, 7, 11)), 'close');
    assert.equal(verdict(mirror('https://a/', 10, 9.9, 10.1), mirror('https://b/', 9, 5, 13)), 'close', 'the steady one lies in the restless one');
    assert.equal(verdict(mirror('https://a/', 10, 9.4, 10.6), mirror('https://b/', 9, 8.4, 9.6)), 'first', 'overlap alone does not tie');
    assert.equal(verdict(mirror('https://a/', 10), mirror('https://b/', 1)), 'close');
    const three = rank([mirror('https://a/', 10, 8, 12), mirror('https://b/', 9, 7, 11), mirror('https://c/', 1, 0.9, 1.1)], 1e6);
    assert.deepEqual([three.close, three.mirrors.map((one) => one.close)], [2, [true, true, false]]);
  });

  test('says it in words', () => {
    const first = rank([mirror('https://a.example/', 8e6, 7.9e6, 8.1e6), mirror('https://b.example/f', 4e6, 3.9e6, 4.1e6)], 1e7);
    assert.match(describeVerdict(first), /^a\.example is fastest: about 10\.0\u202fs, against 20\.0\u202fs for the next\.$/);
    const close = rank([mirror('https://a.example/', 8e6, 7e6, 9e6), mirror('https://b.example/f', 7.9e6, 7e6, 9e6)], 1e9);
    assert.match(describeVerdict(close), /^Too close to call: a\.example and b\.example, about 16\u202fmin 40\u202fs to 16\u202fmin 53\u202fs\.$/);
    assert.match(describeVerdict(rank([], 1)), /^No mirror/);
  });

  // What the rule of rank.js is chosen by. Truth is the time that the next 400 probes take together.
  test('a lead is called for good reason', () => {
    const rules = { ours: null, each: (a, b) => within(a.time_s, b) && within(b.time_s, a), overlap: (a, b) => a.lower_s <= b.upper_s && b.lower_s <= a.upper_s };
    const report = [];
    const wrong = {};
    const called = {};
    for (const [name, spreads] of Object.entries({ alike: [0.15, 0.15], 'steady and restless': [0.005, 0.15] })) {
      const random = seeded(5);
      const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
      const tally = Object.fromEntries(Object.keys(rules).map((rule) => [rule, { called: 0, wrong: 0 }]));
      const runs = 1000;
      for (let run = 0; run < runs; run += 1) {
        // The second is slower by nothing, a little, or much, in turn.
        const slower = [1, 1.05, 1.2, 1.5][run % 4];
        const rates = spreads.map((spread, index) => () => (1e8 / (index === 0 ? 1 : slower)) * Math.exp(spread * normal()));
        const measured = rates.map((rate, index) => probed(`https://${index}/`, rate));
        const truth = rates.map((rate) => Array.from({ length: 400 }, () => 1 / rate()).reduce((sum, time) => sum + time, 0));
        const { verdict, mirrors } = rank(measured, 1e9);
        const [a, b] = mirrors;
        const mistaken = (a.url === 'https://0/' ? 0 : 1) !== (truth[0] < truth[1] ? 0 : 1);
        for (const [rule, isClose] of Object.entries(rules)) {
          const calls = rule === 'ours' ? verdict === 'first' : !isClose(a, b);
          tally[rule].called += calls;
          tally[rule].wrong += calls && mistaken;
        }
      }
      const shares = Object.entries(tally).map(([rule, one]) => `${rule}: called ${percent(one.called / runs)}, wrongly ${percent(one.wrong / runs)}`);
      report.push(`${name}: ${shares.join('; ')}`);
      wrong[name] = tally.ours.wrong / runs;
      called[name] = tally.ours.called / runs;
      if (name !== 'alike') assert.ok(5 * tally.ours.wrong < tally.each.wrong, 'each in the other is mistaken about steady mirrors');
    }
    console.log(report.join('\n'));
    for (const name of Object.keys(wrong)) {
      assert.ok(wrong[name] <= 0.02, `${name}: ${wrong[name]} called wrongly`);
      assert.ok(0.125 <= called[name], `${name}: ${called[name]} called, though a quarter of the leads is a half`);
    }
  });
});

/** What fifteen probes make of a mirror: as many as the usual budget gives. */
function probed(url, rate) {
  const one = new Goodput(battery());
  for (let probe = 0; probe < 15; probe += 1) one.update(rate());
  const goodput = one.forecast();
  one.free();
  return { url, rtt: null, goodput, failure: null };
}

function within(time_s, { lower_s, upper_s }) {
  return lower_s <= time_s && time_s <= upper_s;
}

function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}
