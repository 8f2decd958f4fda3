// Points of a series: bounded, decimated, and as files.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { describe, test } from 'node:test';
import { History, toCsv, toJson, toValuesCsv } from '../src/measure/history.js';
import { BAROGRAPH, hasStation } from '../testkit/station.mjs';

const RTT = { source: 'this browser', target: 'aneroid', quantity: 'rtt', unit: 's' };
if (!hasStation) console.log(`SKIPPED: whether barograph reads the files of a page, because ${BAROGRAPH} is absent`);

describe('a history', () => {
  test('returns points in order of arrival', () => {
    const history = new History(RTT, 8);
    history.add({ time_s: 1, value: 0.5, detail: { n: 11 } });
    history.add({ time_s: 2, error: 'timed_out', forecast: 0.5, method: 'Last Value', detail: { gap: true } });
    history.add({ time_s: 3, value: 0, forecast: 0.5, lower: 0, upper: 1, method: 'mean, all', detail: { raw: 4 } });
    assert.deepEqual([...history], [
      { time_s: 1, value: 0.5 },
      { time_s: 2, error: 'timed_out', forecast: 0.5, method: 'Last Value', gap: true },
      { time_s: 3, value: 0, forecast: 0.5, lower: 0, upper: 1, raw: 4, method: 'mean, all' },
    ]);
  });

  test('keeps the newest points and counts dropped points', () => {
    const history = filled(100, 16);
    assert.deepEqual([history.length, history.dropped], [16, 84]);
    assert.deepEqual([history.point(0).time_s, history.point(15).time_s], [84, 99]);
  });

  test('thinning keeps extremes, failures and gaps', () => {
    const history = new History(RTT, 1000);
    for (let i = 0; i < 1500; i += 1) {
      const outcome = i === 777 ? { error: 'reset' } : { value: i === 900 ? 99 : i === 901 ? -99 : 1 + (i % 2) };
      history.add({ time_s: i, ...outcome, detail: { gap: i === 1203 } });
    }
    const thin = history.decimate(50);
    assert.ok(thin.length <= 150, `${thin.length} points`);
    assert.deepEqual(thin.map((point) => point.time_s), thin.map((point) => point.time_s).toSorted((a, b) => a - b));
    assert.equal(thin.find((point) => point.error)?.time_s, 777);
    assert.equal(thin.filter((point) => point.gap).length, 1);
    const values = thin.map((point) => point.value ?? 0);
    assert.deepEqual([Math.min(...values), Math.max(...values)], [-99, 99]);
    assert.deepEqual(history.decimate(1000), [...history], 'few enough stay as they are');
  });
});

describe('the files', () => {
  test('CSV has every point in the order of time, quoted where needed', () => {
    const rtt = new History({ ...RTT, target: 'a "b", c' }, 4);
    rtt.add({ time_s: 1.25, value: 0.5 });
    rtt.add({ time_s: 3, error: 'reset', forecast: 0.5, lower: 0.25, upper: 1, method: 'Last Value' });
    const rate = new History({ ...RTT, quantity: 'goodput', unit: 'bit/s' }, 4);
    rate.add({ time_s: 2, value: 1e9, detail: { raw: 9e8 } });
    assert.deepEqual(toCsv([rtt, rate]).split('\r\n'), [
      'time_s,source,target,quantity,unit,value,error,forecast,lower,upper,method,raw,at_least',
      '1.25,this browser,"a ""b"", c",rtt,s,0.5,,,,,,,',
      '2,this browser,aneroid,goodput,bit/s,1000000000,,,,,,900000000,',
      '3,this browser,"a ""b"", c",rtt,s,,reset,0.5,0.25,1,Last Value,,',
      '',
    ]);
  });

  test('CSV states how many points were dropped', () => {
    const lines = toCsv([filled(16, 16), filled(20, 16)]).split('\r\n');
    assert.deepEqual([lines.length, lines.at(-2)], [1 + 32 + 1 + 1, '# rtt: 4 older points were dropped']);
  });

  test('JSON states how many points were dropped', () => {
    const { series } = toJson([filled(20, 16)]);
    assert.deepEqual([series[0].dropped, series[0].points.length, series[0].quantity], [4, 16, 'rtt']);
  });

  test('barograph forecast reads the values of a quantity', { skip: !hasStation }, () => {
    const history = filled(40, 32);
    history.add({ time_s: 40, error: 'reset' });
    history.add({ time_s: 30.5, value: 7 }); // The clock was set back.
    const text = toValuesCsv(history);
    assert.match(text, /# left out: 1 failures, 0 rates that had not settled, 9 points before a clock was set back, 10 older points\ntime_s,rtt\n/);
    const json = execFileSync(BAROGRAPH, ['forecast', '-', '--steps', '--json'], { input: text, encoding: 'utf8' });
    const rows = json.trimEnd().split('\n').map((line) => JSON.parse(line));
    assert.deepEqual([rows.length, rows.at(-1).time_s, rows.at(-1).value], [21, 30.5, 7], 'all but the first have a forecast');
  });
});

function filled(count, points_max) {
  const history = new History(RTT, points_max);
  for (let i = 0; i < count; i += 1) history.add({ time_s: i, value: i % 5 });
  return history;
}
