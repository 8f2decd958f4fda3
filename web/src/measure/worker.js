// Worker of a page: timers and probes run here, so that drawing never delays a measurement.
import { runWorker } from './port.js';
import { EchoSession } from './session.js';

runWorker(self, {
  now_ms: () => performance.now(),
  wall_ms: () => Date.now(),
  random: () => Math.random(),
  setTimeout: (...args) => setTimeout(...args),
  clearTimeout: (timer) => clearTimeout(timer),
  fetch: (...args) => fetch(...args),
  openSession: (station_url, options) => EchoSession.open(station_url, options),
});
