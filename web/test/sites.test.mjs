// Sentences of the page about proposed sites.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describe } from '../src/sites.js';

const NOW = { site: 'default', represents: false, from: 'default' };
const PAIR = {
  site: 'a',
  hosts: ['a', 'b'],
  representative: 'a',
  reason: 'a, b are within 0.3 ms of each other; the next host, c, is 20.0 ms away',
  next: { host: 'c', forecast: 0.02, lower: 0.018, upper: 0.022 },
  too_close_to_call: ['d'],
};
const ALONE = { site: 'd', hosts: ['d'], representative: 'd', reason: 'd has no near host', next: null, too_close_to_call: [] };

test('a site is described with its reason, its error and the hosts too close to call', () => {
  const told = describe({ host: 'a', now: NOW, proposed: { site: 'a', represents: true }, pending: null, sees: 'all', sites: [PAIR], unknown: [] });
  assert.equal(told.title, 'Sites by forecast round-trip time: 1 site');
  assert.equal(told.place, 'a is at site default (not configured). Proposed site: a, represented by this station. To accept it, run barograph sites --accept at every station of the site.');
  assert.equal(told.sites[0].text.replaceAll('\u202f', ' '), `${PAIR.reason} (90 % interval 18.0 to 22.0 ms). a would represent it. Too close to call: d.`);
});

test('unmeasured hosts form no site, and a pending change is shown', () => {
  const pending = { site: 'a', represents: true, in_s: 61 };
  const told = describe({ host: 'b', now: NOW, proposed: { site: 'a' }, pending, sees: 'own', sites: [PAIR, ALONE], unknown: ['d'] });
  assert.deepEqual(told.sites.map(({ name }) => name), ['a']);
  assert.match(told.place, /It moves to a in 2 min if the forecasts do not change\. No round-trip time is forecast yet for d\. This station sees only its own forecasts\./);
  const configured = describe({ host: 'b', now: { ...NOW, from: 'configured' }, proposed: { site: 'a' }, pending: null, sees: 'all', sites: [], unknown: [] });
  assert.equal(configured.place, 'b is at site default (configured).');
});

test('a proposal is shown if it changes the site or the representative', () => {
  const place = (proposed) => describe({ host: 'b', now: { site: 'a', represents: true, from: 'accepted' }, proposed, pending: null, sees: 'all', sites: [], unknown: [] }).place;
  assert.match(place({ site: 'a', represents: false }), /Proposed site: a, represented by another station\. To accept it, run barograph sites --accept/);
  assert.equal(place({ site: 'a', represents: true }), 'b is at site a and represents it (accepted).');
});
