// A real station for tests: the barograph binary with a state directory of its own.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** The binary: `cargo test` has built it; `BAROGRAPH` names another. */
export const BAROGRAPH = process.env.BAROGRAPH ?? fileURLToPath(new URL('../../target/debug/barograph', import.meta.url));

/** Whether there is a binary. One that was named must be there: its tests are not to be skipped by a slip of the name. */
export const hasStation = process.env.BAROGRAPH !== undefined || existsSync(BAROGRAPH);

/** Starts a station named `host` that measures nothing by itself; `settings` are those of `--set`. */
export async function startStation({ host = 'aneroid', settings = {} } = {}) {
  const state = await mkdtemp(join(tmpdir(), 'barograph-'));
  const station = new Station(state, host, settings);
  await station.start('127.0.0.1:0');
  return station;
}

class Station {
  #state;
  #host;
  #settings;
  #child = null;

  constructor(state, host, settings) {
    this.#state = state;
    this.#host = host;
    this.#settings = settings;
  }

  /** Starts it where it was before, or at `listen`. */
  async start(listen = new URL(this.url).host) {
    const sets = Object.entries(this.#settings).flatMap(([key, value]) => ['--set', `${key}=${value}`]);
    const args = ['up', '--listen', listen, '--no-default-targets', '--state', this.#state, '--host', this.#host, ...sets];
    // Neither the user's settings nor those of the person that runs the tests.
    const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('BAROGRAPH'));
    const env = { ...Object.fromEntries(kept), XDG_CONFIG_HOME: '/nonexistent' };
    this.#child = spawn(BAROGRAPH, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
    const lines = createInterface({ input: this.#child.stdout });
    const line = await Promise.race([
      once(lines, 'line', { signal: AbortSignal.timeout(START_MS_MAX) }).then(([line]) => line),
      once(this.#child, 'exit').then(([code]) => `exit code ${code}`),
    ]);
    this.url = /^listening on (http:\S+)$/.exec(line)?.[1];
    if (this.url === undefined) throw new Error(`the station did not start: ${line}`);
  }

  /** Kills it as a power cut does. */
  async kill() {
    if (this.#child === null) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await ended;
    this.#child = null;
  }

  /** Kills it and removes its state. */
  async end() {
    await this.kill();
    await rm(this.#state, { recursive: true, force: true });
  }
}

const START_MS_MAX = 30_000;
