// From forecasts to times to download, their order, and whether the first may be called. Pure.

/**
 * Ranks what was measured of mirrors, each `{url, rtt, goodput, failure, …}` with forecasts `{value, lower,
 * upper, …}` in seconds and bit/s, or `null`. Gives `{verdict, close, mirrors}`: those that can be ranked first, by forecast
 * time, with `{rank, time_s, lower_s, upper_s, close}`; then the failed, in their order. `verdict` is `first`,
 * `close`, `only` or `none`; `close` counts the mirrors that the first cannot be told from, itself included.
 */
export function rank(measured, size_bytes) {
  const timed = measured.map((one) => ({ ...one, ...(one.failure ? null : downloadTime(one, size_bytes)) }));
  const ranked = timed.filter((one) => Number.isFinite(one.time_s)).sort((a, b) => a.time_s - b.time_s);
  const failed = timed
    .filter((one) => !Number.isFinite(one.time_s))
    .map((one) => ({ ...one, rank: null, failure: one.failure ?? 'too few probes came through' }));
  const mirrors = ranked.map((one, index) => ({ ...one, rank: index + 1, close: isTooClose(ranked[0], one) }));
  const close = mirrors.filter((one) => one.close).length;
  const verdict = mirrors.length === 0 ? 'none' : mirrors.length === 1 ? 'only' : close < 2 ? 'first' : 'close';
  return { verdict, close, mirrors: [...mirrors, ...failed] };
}

/**
 * The forecast time in seconds to download `size_bytes`, and the interval that the goodput's interval makes of
 * it, with `null` where there is none. `null` without a forecast.
 */
export function downloadTime({ url, kind, rtt, goodput }, size_bytes) {
  if (!(0 < goodput?.value)) return null;
  const setup_s = setupTrips(url, kind) * Math.max(0, rtt?.value ?? 0);
  const at = (rate) => setup_s + (0 < rate ? (size_bytes * 8) / rate : Infinity);
  const time_s = at(goodput.value);
  const known = Number.isFinite(goodput.lower) && Number.isFinite(goodput.upper);
  // The interval is that of one more probe, the forecast the mean of many: it may lie beside it, but is shown inside.
  return {
    time_s,
    lower_s: known ? Math.min(time_s, at(goodput.upper)) : null,
    upper_s: known ? Math.max(time_s, at(goodput.lower)) : null,
  };
}

/**
 * Round trips before the first byte: TCP, the request, and TLS 1.3 in between (RFC 8446 §2). That of a download is already the
 * time to its first byte, with the server's own delay in it, which comes once.
 */
function setupTrips(url, kind) {
  if (kind === 'download') return 1;
  return url.startsWith('https:') ? 3 : 2;
}

/**
 * Whether two mirrors cannot be told apart: when either's forecast lies inside the other's interval.
 *
 * The interval is that of one more probe, and a long download is the mean of many, whose interval would be
 * narrower by the root of their number – if probes were independent. Network traffic is not: it is correlated
 * over all times (Leland, Taqqu, Willinger & Wilson 1994), so a mean of n scatters by n^(H-1), with H about 0.8,
 * and little is left of that gain after the dozen probes of a budget. So the interval of one probe stands for that of
 * the download. To require that it overlaps the other interval would be too strict (Schenker & Gentleman 2001);
 * to require *each* forecast inside the *other's* interval calls a steady mirror against a restless one of the
 * same mean every time, because nothing lies inside the steady one's. How often that goes wrong, and this does
 * not, is counted in test/mirrors.rank.test.mjs.
 */
function isTooClose(a, b) {
  if (a === b) return true;
  return isWithin(a.time_s, b) || isWithin(b.time_s, a);
}

function isWithin(time_s, { lower_s, upper_s }) {
  // Without an interval nothing can be told apart.
  return lower_s === null || (lower_s <= time_s && time_s <= upper_s);
}
