// The plan of a comparison: budgets, rounds and sizes, for any results of probes.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ASKING_BYTES, BUDGET_BYTES, Plan } from '../src/mirrors/plan.js';
import { seeded } from '../testkit/mirrors.mjs';

describe('the plan of a comparison', () => {
  test('stays within the budget, ends, and has enough counted probes', () => {
    const random = seeded(1);
    for (let run = 0; run < 400; run += 1) {
      const mirrors = 1 + Math.floor(random() * 32);
      const budget_bytes = Math.floor(BUDGET_BYTES.least * (BUDGET_BYTES.most / BUDGET_BYTES.least) ** random());
      const plan = new Plan({ mirrors, budget_bytes, seed: run });
      const speeds = Array.from({ length: mirrors }, () => 10 ** (3 + 6 * random()));
      const failing = random() < 0.5 ? 0.3 : 0;
      const spent = Array(mirrors).fill(0);
      const counted = Array(mirrors).fill(0);
      const failed = Array(mirrors).fill(0);
      let rounds = 0;
      for (let order = plan.round(); order.length !== 0; order = plan.round()) {
        assert.ok((rounds += 1) < 20_000, 'it ends');
        assert.equal(new Set(order).size, order.length, 'one turn each');
        for (const mirror of order) {
          const bytes = plan.bytes(mirror);
          spent[mirror] += bytes + ASKING_BYTES;
          assert.ok(0 < bytes && spent[mirror] <= budget_bytes, `${spent[mirror]} of ${budget_bytes}`);
          if (random() < failing) {
            failed[mirror] += 1;
            plan.recordFailure(mirror, bytes);
          } else if (plan.record(mirror, bytes, (bytes / speeds[mirror]) * (0.5 + random()))) {
            counted[mirror] += 1;
          }
        }
        assert.ok(0 <= plan.progress() && plan.progress() <= 1);
      }
      assert.equal(plan.progress(), 1);
      for (let mirror = 0; mirror < mirrors; mirror += 1) {
        assert.equal(plan.spentBytes(mirror), spent[mirror]);
        const quick = 1e6 < speeds[mirror] && failed[mirror] === 0;
        if (quick) assert.ok((budget_bytes < 2 ** 19 ? 6 : 8) <= counted[mirror], `${counted[mirror]} of ${budget_bytes}`);
        assert.ok(counted[mirror] <= 24);
      }
    }
  });

  test('sizes grow, and only probes of the largest size count', () => {
    const plan = new Plan({ mirrors: 1, budget_bytes: BUDGET_BYTES.usual, seed: 1 });
    const sizes = [];
    for (let bytes = plan.bytes(0); bytes !== 0; bytes = plan.bytes(0)) sizes.push([bytes / 1024, plan.record(0, bytes, 0.1)]);
    assert.deepEqual(sizes.slice(0, 4), [[64, false], [128, false], [256, false], [512, true]]);
    assert.ok(sizes.slice(3).every(([size, counts]) => size === 512 && counts));
  });

  test('a probe in a hidden page costs its bytes and is not counted', () => {
    const plan = new Plan({ mirrors: 1, budget_bytes: BUDGET_BYTES.most, seed: 1 });
    for (let i = 0; i < 10; i += 1) plan.record(0, plan.bytes(0), 0.6);
    assert.ok(!plan.record(0, 1000, 0.6, false));
    let counted = 9;
    while (plan.bytes(0) !== 0) counted += plan.record(0, plan.bytes(0), 0.6);
    assert.equal(counted, 24);
  });

  test('a slow mirror keeps the first size that takes long', () => {
    const plan = new Plan({ mirrors: 1, budget_bytes: BUDGET_BYTES.usual, seed: 1 });
    assert.ok(!plan.record(0, plan.bytes(0), 1.5), 'the first probe of a connection never counts');
    assert.equal(plan.bytes(0), 65_536);
    assert.ok(plan.record(0, plan.bytes(0), 1.5));
    let probes = 2;
    while (plan.bytes(0) !== 0) {
      plan.record(0, plan.bytes(0), 1.5);
      probes += 1;
    }
    assert.ok(probes <= 25, `${probes} probes of 1.5 s`);
  });

  test('orders are random, fair, and the same for a seed', () => {
    const orders = (seed) => {
      const plan = new Plan({ mirrors: 4, budget_bytes: BUDGET_BYTES.usual, seed });
      return Array.from({ length: 12 }, () => plan.round());
    };
    assert.deepEqual(orders(7), orders(7));
    assert.notDeepEqual(orders(7), orders(8));
    const firsts = [0, 0, 0, 0];
    for (let seed = 0; seed < 400; seed += 1) for (const [first] of orders(seed)) firsts[first] += 1;
    for (const count of firsts) assert.ok(Math.abs(count / 1200 - 1) < 0.15, `${firsts}`);
  });

  test('rejects invalid budgets', () => {
    for (const budget_bytes of [0, 1000, BUDGET_BYTES.least - 1, BUDGET_BYTES.most + 1, NaN, undefined]) {
      assert.throws(() => new Plan({ mirrors: 1, budget_bytes, seed: 1 }), RangeError);
    }
    assert.deepEqual(new Plan({ mirrors: 0, budget_bytes: BUDGET_BYTES.least, seed: 1 }).round(), []);
  });
});
