// Reasons why a browser cannot measure. Pure.

/** Why this browser cannot measure against this station, as a sentence; `null` if it can. */
export function unsupportedReason(station, browser = globalThis) {
  const lacking = ['Worker', 'WebSocket', 'WebAssembly'].filter((name) => typeof browser[name] === 'undefined');
  if (lacking.length !== 0) return `This browser cannot measure, because it lacks ${lacking.join(' and ')}. Use a current browser.`;
  if (station && !station.echo) return `${station.host} does not allow browser measurements. To allow them, set echo.enabled = true in its barograph.toml.`;
  return null;
}
