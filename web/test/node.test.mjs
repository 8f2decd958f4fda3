// The script that decides whether a Node is new enough to test the page.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

test('the page is tested with Node 20.11 and newer', () => {
  const script = fileURLToPath(new URL('../../scripts/node-is-new-enough.js', import.meta.url));
  const isNew = (...version) => spawnSync(process.execPath, [script, ...version]).status === 0;
  const versions = ['18.19.0', '20.10.0', '20.11.0', '20.20.2', '22.0.0'];
  assert.deepEqual(versions.map((version) => isNew(version)), [false, false, true, true, true]);
  assert.ok(isNew(), 'this one');
});
