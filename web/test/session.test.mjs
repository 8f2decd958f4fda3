// One session against a station that behaves, and against stations that do not; in virtual time.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { EchoSession, echoUrl } from '../src/measure/session.js';
import { FakeWorld, done, reply } from '../testkit/world.mjs';

const URL_ = 'http://[2001:db8::1]:10132/';

describe('a session', () => {
  test('has a WebSocket address with the scheme of the station', () => {
    assert.equal(echoUrl(URL_), 'ws://[2001:db8::1]:10132/v1/echo');
    assert.equal(echoUrl('https://a.example/behind/'), 'wss://a.example/behind/v1/echo');
  });

  test('times exchanges, transfers both ways, and counts bytes', async () => {
    const counted = [0, 0];
    const world = new FakeWorld({ rtt_ms: 10, bit_s: 8e6 });
    const session = await opened(world, { count: (sent, received) => ((counted[0] += sent), (counted[1] += received)) });
    const rtt = await during(world, session.rtt(3));
    assert.equal(rtt.n, 3);
    near(rtt.value, 0.010, 1e-5);
    // A request of 16 bytes in a frame with a header of 6; three messages of two bytes.
    assert.deepEqual(counted, [22 + 3 * 8, 18 + 3 * 4]);
    const nagle = await during(world, session.rttNagle(2));
    assert.equal(nagle.n, 2, 'the first exchange does not count');
    near(nagle.value, 0.050, 1e-4);
    const up = await during(world, session.goodput(100_000, { message_bytes: 32_768 }));
    near(up.value, 800_000 / 0.110, 1);
    assert.deepEqual(up.tcp, null);
    const down = await during(world, session.goodputDown(100_000));
    near(down.elapsed_s, 0.110, 1e-4);
    assert.equal(world.sockets.length, 1, 'all of it on one connection');
  });

  test('keeps the send buffer of the browser within a bound', async () => {
    const world = new FakeWorld({ bit_s: 1e7 });
    const session = await opened(world);
    await during(world, session.goodput(16 << 20), 60_000);
    assert.ok(world.sockets[0].buffered_max <= (4 << 20) + 65_536 + 16, `${world.sockets[0].buffered_max} bytes waited`);
    assert.ok(4 << 20 < world.sockets[0].buffered_max);
  });

  test('fails with reset when the connection is lost during a transfer', async () => {
    const world = new FakeWorld({ bit_s: 1e6 });
    const session = await opened(world);
    const transfer = session.goodput(1 << 20);
    await world.advance(1000);
    world.sockets[0].drop(1006);
    await fails(transfer, 'reset', /lost \(1006\)/);
    assert.equal(session.is_open, false);
    await fails(session.rtt(1), 'reset');
  });

  test('treats invalid frames as garbage, and closes', async () => {
    const scripts = {
      'a short reply': (socket) => socket.deliver([0xb2]),
      'a reply with a reserved byte': (socket) => socket.deliver(reply(0).with(5, 1)),
      'text': (socket) => socket.deliver('hello'),
      'a reply with an undefined status': (socket) => socket.deliver(reply(9)),
    };
    for (const [name, answer] of Object.entries(scripts)) {
      const world = new FakeWorld({ answer: (socket) => (answer(socket), true) });
      const session = await opened(world);
      await fails(during(world, session.rtt(1)), 'garbage');
      assert.equal(world.sockets[0].readyState, 3, name);
    }
  });

  test('accepts only an identical answer for an exchange', async () => {
    for (const wrong of [[0, 1], [0], [0, 0, 0]]) {
      const world = new FakeWorld({ answer: (socket, bytes) => bytes.length === 2 && (socket.deliver(wrong), true) });
      const session = await opened(world);
      await fails(during(world, session.rtt(1)), 'garbage', /did not return the bytes of an exchange/);
    }
  });

  test('rejects a transfer with a different byte count', async () => {
    const world = new FakeWorld({ count: 5 });
    await fails(during(world, (await opened(world)).goodput(1000)), 'garbage', /counted 5 of 1000/);
    await fails(during(world, (await opened(world)).goodputDown(1000)), 'garbage', /counted 5 of 1000/);
    const more = new FakeWorld({
      answer: (socket, bytes) => bytes.length === 2 && (socket.deliver(new Uint8Array(1001)), socket.deliver(done(1001)), true),
    });
    await fails(during(more, (await opened(more)).goodputDown(1000)), 'garbage', /more bytes/);
  });

  test('continues after a decline, except for malformed requests', async () => {
    let status = 1;
    const world = new FakeWorld({ decline: () => status });
    const session = await opened(world);
    await fails(during(world, session.goodput(1000)), 'declined', /busy/);
    status = 3;
    await fails(during(world, session.rtt(1)), 'declined', /share of bytes/);
    status = 0;
    assert.equal((await during(world, session.rtt(1))).n, 1);
    status = 6;
    await fails(during(world, session.rtt(1)), 'declined');
    assert.equal(session.is_open, false);
  });

  test('runs one experiment at a time', async () => {
    const world = new FakeWorld();
    const session = await opened(world);
    const first = session.rtt(1);
    await fails(session.rtt(1), 'local', /under way/);
    assert.equal((await during(world, first)).n, 1);
  });

  test('ends an experiment at its deadline or on cancel, and ignores late answers', async () => {
    const world = new FakeWorld({ hang: true });
    const session = await opened(world);
    await fails(during(world, session.rtt(1), 11_000), 'timed_out', /within 10 s/);
    world.sockets[0].readyState = 1; // A browser may still deliver queued messages.
    world.sockets[0].deliver(reply(0));
    await world.advance(100);
    const control = new AbortController();
    const other = await opened(world);
    const given_up = other.rtt(1, { signal: control.signal });
    control.abort(new Error('enough'));
    await assert.rejects(given_up, /enough/);
    assert.equal(other.is_open, false);
    await world.advance(100); // Messages that were on their way are dropped.
    assert.equal(world.timers, 0, 'no timer is left');
  });

  test('a cancelled upload leaves no unhandled rejection', async () => {
    const world = new FakeWorld({ bit_s: 1e6 });
    const session = await opened(world);
    const control = new AbortController();
    const upload = session.goodput(16 << 20, { signal: control.signal });
    upload.catch(() => {});
    await world.advance(1000);
    control.abort(new Error('enough'));
    await assert.rejects(upload, /enough/);
    // The test runner fails on unhandled rejections, which are known a turn later.
    await new Promise((resolve) => setImmediate(resolve));
  });

  test('allows time for many exchanges, but not for a silent station', async () => {
    const world = new FakeWorld({ rtt_ms: 200 });
    const session = await opened(world, {}, 500);
    assert.equal((await during(world, session.rtt(999), 210_000)).n, 999);
    assert.equal((await during(world, session.rttNagle(200), 60_000)).n, 200);
    const silenced = session.rtt(999);
    silenced.catch(() => {});
    await world.advance(50_000);
    world.station.hang = true;
    await fails(during(world, silenced, 10_500), 'timed_out', /within 10 s/);
    assert.equal(world.timers, 0);
  });

  test('records no round trip of 0 s with a clock that is too coarse', async () => {
    const world = new FakeWorld({ rtt_ms: 0.25 });
    let step_ms = 1e-6;
    const coarse_world = { ...world, now_ms: () => Math.floor(world.now_ms() / step_ms) * step_ms };
    const session = await during(world, EchoSession.open(URL_, { world: coarse_world }), 100);
    const before = await during(world, session.rtt(11));
    step_ms = 1;
    const coarse = await during(world, session.rtt(101));
    assert.equal([...coarse.samples].sort((a, b) => a - b)[50], 0);
    near(coarse.value, before.value, before.value / 10);
    step_ms = 1e6;
    await fails(during(world, session.rtt(3)), 'local', /too coarse/);
    assert.equal(session.is_open, true);
  });

  test('a request above a bound is declined, also by a station that stops', async () => {
    for (const code of [1001, 1008]) {
      const world = new FakeWorld({ hang: true });
      const session = await opened(world);
      const experiment = session.rtt(1);
      await world.advance(20);
      world.sockets[0].drop(code, 'too fast');
      await fails(experiment, 'declined', /too fast/);
    }
  });

  test('sends no unrequested bytes, and cuts a station that does', async () => {
    const world = new FakeWorld();
    const session = await opened(world);
    world.sockets[0].deliver([1, 2, 3]);
    await world.advance(20);
    assert.equal(session.is_open, false);
  });
});

describe('a session that is refused', () => {
  const cases = [
    [{ refuse: 'gone' }, 'unreachable', /does not answer/],
    [{ refuse: 'origin' }, 'declined', /declines measurements from pages of http:\/\/page\.example; .* echo\.origins = \["http:\/\/page\.example"\] and echo\.enabled = true in its barograph\.toml$/],
    [{ refuse: 'handshake', echo_status: 403 }, 'declined', /no place here/],
    [{ refuse: 'handshake', echo_status: 503 }, 'declined', /no place here/],
    [{ refuse: 'handshake', echo_status: 404 }, 'garbage', /answered 404/],
    [{ refuse: 'handshake', echo_status: 426 }, 'reset', /proxy/],
    [{ refuse: 'silence' }, 'timed_out', /within 10 s/],
    [{ protocol: '' }, 'garbage', /does not support/],
  ];
  for (const [station, failure, sentence] of cases) {
    test(`reports ${failure} when ${JSON.stringify(station)}`, async () => {
      const world = new FakeWorld(station);
      await fails(during(world, EchoSession.open(URL_, { world }), 25_000), failure, sentence);
      assert.equal(world.timers, 0);
    });
  }
});

test('a page without an http or https origin gets no hint about origins', async () => {
  for (const origin of ['null', undefined, 'chrome-extension://abc']) {
    const world = Object.assign(new FakeWorld({ refuse: 'origin' }), { origin });
    const opening = during(world, EchoSession.open(URL_, { world }), 25_000);
    await assert.rejects(opening, ({ failure, message }) => {
      assert.equal(failure, 'declined');
      assert.match(message, /declines measurements from this page, .* echo\.enabled is not false in its barograph\.toml$/);
      assert.doesNotMatch(message, /origins|null|undefined/);
      return true;
    });
  }
});

describe('a station that does not answer', () => {
  const messageOf = async (url, origin) => {
    const world = Object.assign(new FakeWorld({ refuse: 'gone' }), { origin });
    let message;
    await assert.rejects(during(world, EchoSession.open(url, { world })), (error) => {
      ({ message } = error);
      return error.failure === 'unreachable';
    });
    return message;
  };

  test('gives a hint about allowed_hosts for a name, but not for an IP address', async () => {
    const named = await messageOf('http://foehn.lan:10132/', 'http://page.example');
    assert.match(named, /^foehn\.lan:10132 does not answer, .* allowed_hosts = \["foehn\.lan"\] in its barograph\.toml$/);
    for (const url of ['http://192.0.2.7:10132/', URL_]) assert.doesNotMatch(await messageOf(url, 'http://page.example'), /allowed_hosts|10132$/);
  });

  test('without a port in its address gives a hint about the usual port', async () => {
    assert.match(await messageOf('http://foehn/', 'http://page.example'), /usually use port 10132$/);
  });

  test('gives no hint about settings when it serves the page', async () => {
    assert.equal(await messageOf('http://foehn.lan:10132/', 'http://foehn.lan:10132'), 'foehn.lan:10132 does not answer');
  });
});

function opened(world, options = {}, ms = 100) {
  return during(world, EchoSession.open(URL_, { world, ...options }), ms);
}

/** Result of `promise` while `ms` pass. */
async function during(world, promise, ms = 2000) {
  promise.catch(() => {});
  await world.advance(ms);
  return Promise.race([promise, Promise.reject(new Error(`not within ${ms} ms`))]);
}

function fails(promise, failure, sentence = /./) {
  return assert.rejects(promise, (error) => {
    assert.equal(error.failure, failure, String(error));
    assert.match(error.message, sentence);
    return true;
  });
}

function near(value, expected, within) {
  assert.ok(Math.abs(value - expected) <= within, `${value} is not ${expected}`);
}
