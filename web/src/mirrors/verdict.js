// Puts a ranking into words. Pure.
import { formatDuration, formatValue } from '../format.js';
import { shortName } from './list.js';

/** The verdict of a ranking, in a sentence or two. */
export function describeVerdict({ verdict, close, mirrors }) {
  if (verdict === 'none') return 'No mirror could be measured. The table shows why.';
  const urls = mirrors.map((mirror) => mirror.url);
  const name = (index) => shortName(urls[index], urls);
  const time = (index) => formatSeconds(mirrors[index].time_s);
  if (verdict === 'only') return `${name(0)}: about ${time(0)}.${mirrors.length === 1 ? '' : ' No other mirror could be measured.'}`;
  if (verdict === 'first') return `${name(0)} is fastest: about ${time(0)}, against ${time(1)} for the next.`;
  const names = close === 2 ? `${name(0)} and ${name(1)}` : `${name(0)} and ${close - 1} others`;
  const times = time(0) === time(close - 1) ? time(0) : `${time(0)} to ${time(close - 1)}`;
  return `Too close to call: ${names}, about ${times}.`;
}

/** A time to download: `12.3 s`, `1 min 5 s`. */
export function formatSeconds(time_s) {
  if (!Number.isFinite(time_s)) return formatValue(time_s, 's');
  return time_s < 59.95 ? formatValue(time_s, 's') : formatDuration(Math.round(time_s));
}

/** The interval of a time to download, also if its end is unknown. */
export function formatTimes({ lower_s, upper_s }) {
  if (lower_s === null) return 'calibrating';
  if (upper_s === Infinity) return `${formatSeconds(lower_s)} or longer`;
  return `${formatSeconds(lower_s)} to ${formatSeconds(upper_s)}`;
}
