// Between a page and the communicator in its worker: messages in, points, statuses and answers out.
import { measureClock } from './clock.js';
import { Communicator } from './communicator.js';
import { loadForecaster } from './forecaster.js';

/**
 * Runs a communicator in the worker whose global scope is `scope`, in `world` (communicator.js).
 *
 * Messages in are `{do, id?, …}`. Every one with an `id` is answered with `{is: 'answer', id, result}` or
 * `{is: 'answer', id, error: {name, message, failure?}}`. Points and statuses come unasked.
 */
export function runWorker(scope, world) {
  const post = (message) => scope.postMessage(message);
  let communicator = null;
  const start = async ({ station_url, forecaster_url, settings, online }) => {
    if (communicator !== null) throw new TypeError('it was started already');
    const makeBattery = await loadForecaster(await fetchForecaster(world, forecaster_url));
    communicator = new Communicator({ world, makeBattery, post, clock: measureClock() });
    communicator.start(station_url, settings, online);
  };
  // What comes before the forecaster has loaded waits for it, in order.
  let started = null;
  scope.onmessage = async ({ data }) => {
    const { id } = data;
    try {
      if (data.do === 'start') started = start(data);
      await started;
      if (communicator === null) throw new TypeError('it was not started');
      const result = await ACTIONS[data.do](communicator, data);
      if (id !== undefined) post({ is: 'answer', id, result });
    } catch (error) {
      if (id !== undefined) post({ is: 'answer', id, error: describe(error) });
      else throw error;
    }
  };
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
  const response = await world.fetch(url);
  if (!response.ok) throw new Error(`the forecaster could not be loaded: ${response.status}`);
  return response.arrayBuffer();
}

function describe(error) {
  return { name: error?.name ?? 'Error', message: String(error?.message ?? error), failure: error?.failure };
}
