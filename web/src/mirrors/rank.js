// Times to download from forecasts, their order, and whether the first is clearly first. Pure.

/**
 * Ranks measured mirrors, each `{url, rtt, goodput, failure, …}` with forecasts `{value, lower,
 * upper, …}` in s and bit/s, or `null`. Returns `{verdict, close, mirrors}`: ranked mirrors by
 * forecast time, with `{rank, time_s, lower_s, upper_s, close}`; then the failed ones, in their
 * order. `verdict` is `first`, `close`, `only` or `none`. `close` counts the mirrors that are too
 * close to call with the first, which is included.
 */
export function rank(measured, size_bytes) {
  const timed = measured.map((one) => ({ ...one, ...(one.failure ? null : downloadTime(one, size_bytes)) }));
  const ranked = timed.filter((one) => Number.isFinite(one.time_s)).sort((a, b) => a.time_s - b.time_s);
  const failed = timed
    .filter((one) => !Number.isFinite(one.time_s))
    .map((one) => ({ ...one, rank: null, failure: one.failure ?? 'too few probes succeeded' }));
  const mirrors = ranked.map((one, index) => ({ ...one, rank: index + 1, close: isTooClose(ranked[0], one) }));
  const close = mirrors.filter((one) => one.close).length;
  const verdict = mirrors.length === 0 ? 'none' : mirrors.length === 1 ? 'only' : close < 2 ? 'first' : 'close';
  return { verdict, close, mirrors: [...mirrors, ...failed] };
}

/**
 * Forecast time to download `size_bytes` (s), with the interval that follows from the goodput's
 * interval; `null` for unknown ends. `null` without a forecast.
 */
export function downloadTime({ url, kind, rtt, goodput }, size_bytes) {
  if (!(0 < goodput?.value)) return null;
  const setup_s = setupTrips(url, kind) * Math.max(0, rtt?.value ?? 0);
  const at = (rate) => setup_s + (0 < rate ? (size_bytes * 8) / rate : Infinity);
  const time_s = at(goodput.value);
  const known = Number.isFinite(goodput.lower) && Number.isFinite(goodput.upper);
  // The interval is around another forecast than the mean of times: the mean may lie outside, but is
  // shown inside.
  return {
    time_s,
    lower_s: known ? Math.min(time_s, at(goodput.upper)) : null,
    upper_s: known ? Math.max(time_s, at(goodput.lower)) : null,
  };
}

/**
 * Round trips before the first byte: TCP, the request, and TLS 1.3 in between (RFC 8446 §2). For a
 * download, the round-trip time is already the time to its first byte, with the server's own delay,
 * which occurs once.
 */
function setupTrips(url, kind) {
  if (kind === 'download') return 1;
  return url.startsWith('https:') ? 3 : 2;
}

/**
 * Whether two mirrors are too close to call: the forecast of either lies inside the interval of the
 * other.
 *
 * The interval is that of one more probe. A long download is the mean of many probes, and its
 * interval would be narrower by the root of their number – if probes were independent. Network
 * traffic is correlated over all times (Leland, Taqqu, Willinger & Wilson 1994), so a mean of n
 * varies by n^(H-1), with H about 0.8, and little of that gain remains after the dozen probes of a
 * budget. So the interval of one probe stands for that of the download, unless the probes show that
 * the rate wanders: then it is wider (goodput.js).
 *
 * Two other rules are worse. Close while the intervals overlap is too strict (Schenker & Gentleman
 * 2001). Close only while *each* forecast is inside the *other's* interval always finds a lead
 * between a steady mirror and a variable one with the same mean, because nothing lies inside the
 * steady one's interval. test/mirrors.rank.test.mjs counts how often that rule and this one are
 * wrong.
 */
function isTooClose(a, b) {
  if (a === b) return true;
  return isWithin(a.time_s, b) || isWithin(b.time_s, a);
}

function isWithin(time_s, { lower_s, upper_s }) {
  // Without an interval no difference is certain.
  return lower_s === null || (lower_s <= time_s && time_s <= upper_s);
}
