// Messages between a page and the communicator in its worker.
import { measureClock } from './clock.js';
import { Communicator } from './communicator.js';
import { loadForecaster } from './forecaster.js';
import { retryDelay } from './schedule.js';

/**
 * Runs a communicator in a worker with the global scope `scope`, in `world` (communicator.js).
 *
 * Requests are `{do, id?, …}`. Each request with an `id` is answered with `{is: 'answer', id,
 * result}` or `{is: 'answer', id, error: {name, message, failure?}}`. Points and statuses are sent
 * without a request. So are `{is: 'trouble', message, next_due_s}` while the forecaster cannot be
 * loaded, and `{is: 'alive'}` at the start and after `{do: 'ping'}`.
 */
export function runWorker(scope, world) {
  const post = (message) => scope.postMessage(message);
  let communicator = null;
  const start = async ({ station_url, forecaster_url, settings, online }) => {
    if (communicator !== null) throw new TypeError('the worker was started already');
    const makeBattery = await persist(world, post, () => fetchForecaster(world, forecaster_url).then(loadForecaster));
    communicator = new Communicator({ world, makeBattery, post, clock: measureClock() });
    communicator.start(station_url, settings, online);
  };
  // Requests before the forecaster has loaded wait for it, in order.
  let started = null;
  scope.onmessage = async ({ data }) => {
    const { id } = data;
    if (data.do === 'ping') return post({ is: 'alive' });
    try {
      if (data.do === 'start') started = start(data);
      await started;
      if (communicator === null) throw new TypeError('the worker was not started');
      const result = await ACTIONS[data.do](communicator, data);
      if (id !== undefined) post({ is: 'answer', id, result });
    } catch (error) {
      if (id !== undefined) post({ is: 'answer', id, error: describe(error) });
      else throw error;
    }
    return undefined;
  };
  post({ is: 'alive' });
}

/**
 * Result of `attempt`. After each failure it posts a message and tries again, after longer and
 * longer waits.
 */
async function persist(world, post, attempt) {
  for (let failures = 1; ; failures += 1) {
    try {
      return await attempt();
    } catch (error) {
      const wait_s = retryDelay(failures + 1, world.random());
      post({ is: 'trouble', message: describe(error).message, next_due_s: world.wall_ms() / 1000 + wait_s });
      await new Promise((resolve) => world.setTimeout(resolve, wait_s * 1000));
    }
  }
}

const ACTIONS = {
  start: () => {},
  set: (communicator, { settings }) => communicator.set(settings),
  suspend: (communicator) => communicator.suspend(),
  resume: (communicator) => communicator.resume(),
  online: (communicator, { online }) => communicator.online(online),
  cycle: (communicator) => communicator.measureNow(),
  measure: (communicator, { experiment }) => communicator.measure(experiment),
  history: (communicator, { quantity, buckets }) => communicator.history(quantity, buckets),
  csv: (communicator, { quantity }) => communicator.csv(quantity),
  json: (communicator) => communicator.json(),
  share: (communicator, { name }) => communicator.share(name),
  stop: (communicator) => communicator.stop(),
};

async function fetchForecaster(world, url) {
  const gone = new AbortController();
  const timer = world.setTimeout(() => gone.abort(new Error('the forecaster did not load in time')), LOAD_MS_MAX);
  try {
    const response = await world.fetch(url, { signal: gone.signal });
    if (!response.ok) throw new Error(`the forecaster could not be loaded: ${response.status}`);
    return await response.arrayBuffer();
  } finally {
    world.clearTimeout(timer);
  }
}

function describe(error) {
  return { name: error?.name ?? 'Error', message: String(error?.message ?? error), failure: error?.failure };
}

// Some tens of kilobytes: on a slow phone link they take some seconds.
const LOAD_MS_MAX = 30_000;
