// A ranking in words. Pure.
import { formatDuration, formatValue } from '../format.js';
import { mirrorName } from './list.js';

/** The verdict of a ranking, as one or two sentences. */
export function describeVerdict({ verdict, close, mirrors }) {
  const [first, second] = mirrors;
  if (verdict === 'none') return 'No mirror could be measured.';
  const time = formatSeconds(first.time_s);
  if (verdict === 'only') return `${mirrorName(first.url)}: about ${time}. No other could be measured.`;
  if (verdict === 'first') return `${mirrorName(first.url)} is fastest: about ${time}, against ${formatSeconds(second.time_s)} for the next.`;
  const names = mirrors.slice(0, close).map((mirror) => mirrorName(mirror.url));
  const shown = close <= 3 ? `${names.slice(0, -1).join(', ')} and ${names.at(-1)}` : `${names[0]} and ${close - 1} others`;
  return `Too close to call: ${shown}, about ${time}.`;
}

/** A time to download: `12.3 s`, `1 min 5 s`. */
export function formatSeconds(time_s) {
  if (!Number.isFinite(time_s)) return formatValue(time_s, 's');
  return time_s < 59.95 ? formatValue(time_s, 's') : formatDuration(Math.round(time_s));
}

/** The interval of a time to download, also where its end is not known. */
export function formatTimes({ lower_s, upper_s }) {
  if (lower_s === null) return 'interval not known yet';
  if (upper_s === Infinity) return `${formatSeconds(lower_s)} or longer`;
  return `${formatSeconds(lower_s)} to ${formatSeconds(upper_s)}`;
}
