// Why a browser may not be able to measure. Pure.

/** Why this browser cannot measure against this station, as a sentence; `null` when it can. */
export function whyNot(station, browser = globalThis) {
  const lacking = ['Worker', 'WebSocket', 'WebAssembly'].filter((name) => typeof browser[name] === 'undefined');
  if (lacking.length !== 0) return `This browser cannot measure: it lacks ${lacking.join(' and ')}.`;
  if (station && !station.echo) return `${station.host} does not offer measurements to browsers (echo is not enabled there).`;
  return null;
}
