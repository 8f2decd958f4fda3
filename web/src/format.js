// Formats values, times and failures for readers. Pure.
import { hasFailed, standingForecast } from './store.js';

/**
 * The scale for `magnitude` in a unit of the API: multiply by `factor`, and append `label`. Sizes
 * are binary (GiB) and rates decimal (Mbit/s), as is usual for each.
 */
export function scaleFor(unit, magnitude) {
  const steps = SCALES[unit];
  if (!steps) return { factor: 1, label: unit };
  const size = Math.abs(magnitude);
  return steps.find((step) => step.from <= size) ?? steps[steps.length - 1];
}

/** `value` in its best scale, for example `52.1 µs`; an absent value is a dash, never a zero. */
export function formatValue(value, unit) {
  if (!Number.isFinite(value)) return ABSENT;
  const scale = scaleFor(unit, value);
  return withLabel(formatIn(value, scale), scale.label);
}

/** A measured or forecast `value`; a lower bound (`at_least`) is marked: `at least 49 Mbit/s`. */
export function formatBound(value, unit, at_least) {
  const text = formatValue(value, unit);
  return at_least && text !== ABSENT ? `at least ${text}` : text;
}

/** A squared `value`, such as a mean squared error, in a squared unit: `2.71 ms²`. */
export function formatSquared(value, unit) {
  if (!Number.isFinite(value)) return ABSENT;
  // Ten times the root: the square is then from 0.01 to 10 000; the root's own scale would give up
  // to a million.
  const { factor, label } = scaleFor(unit, 10 * Math.sqrt(Math.abs(value)));
  const squared = label.includes('/') ? `(${label})²` : label && `${label}²`;
  return withLabel(formatNumber(value * factor * factor), squared);
}

/** `value` in a given scale, without its label. */
export function formatIn(value, scale) {
  return Number.isFinite(value) ? formatNumber(value * scale.factor, scale.extra) : ABSENT;
}

/**
 * What made a forecast: a method, or `blend, mostly Running Mean 71 %`; empty without a forecast.
 */
export function formatMethod(forecast) {
  if (!forecast) return '';
  const { method, weight } = forecast;
  if (!Number.isFinite(weight)) return method;
  return `blend, ${weight < 0.5 ? 'led by' : 'mostly'} ${method} ${Math.round(100 * weight)}\u202f%`;
}

/** Why there is no interval after `count` values: `calibrating (3 of 10)`. */
export function formatCalibrating(count) {
  return `calibrating (${Math.max(0, Math.min(SCORED_MIN, count - 1))} of ${SCORED_MIN})`;
}

/** Forecasts that are scored before there is an interval, as in crates/forecast/src/interval.rs. */
const SCORED_MIN = 10;

/** An interval in one scale: `40.1 – 90 µs`; empty if an end is absent. */
export function formatInterval(lower, upper, unit, between = ' – ') {
  if (!Number.isFinite(lower) || !Number.isFinite(upper)) return '';
  const scale = scaleFor(unit, Math.max(Math.abs(lower), Math.abs(upper)));
  return withLabel(`${formatIn(lower, scale)}${between}${formatIn(upper, scale)}`, scale.label);
}

/**
 * A number with about three significant digits, plus `extra`, and all digits of its integer part.
 */
export function formatNumber(value, extra = 0) {
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size < 0.001 || 1e9 <= size) return value.toExponential(2).replace('-', MINUS);
  const decimals = size < 0.01 ? 5 : size < 0.1 ? 4 : size < 1 ? 3 : size < 10 ? 2 : size < 100 ? 1 : 0;
  return groupDigits(value.toFixed(decimals + extra));
}

/** A count with its thousands apart: `12 345`. */
export function formatCount(count) {
  return Number.isFinite(count) ? groupDigits(String(Math.trunc(count))) : ABSENT;
}

/** Labels of an axis, with no more decimals than its step needs. */
export function formatTicks(values) {
  const step = values.length < 2 ? 1 : Math.abs(values[1] - values[0]);
  let decimals = 0;
  while (decimals < 9 && 1e-6 < Math.abs(Number(step.toFixed(decimals)) / step - 1)) decimals += 1;
  return values.map((value) => (value === null ? '' : groupDigits(value.toFixed(decimals))));
}

/** Unix seconds as a local time of day, with the date if it is not the day of `now_ms`. */
export function formatTime(time_s, now_ms = Date.now()) {
  if (!Number.isFinite(time_s)) return ABSENT;
  const date = new Date(time_s * 1000);
  const clock = formatClock(date, true);
  if (date.toDateString() === new Date(now_ms).toDateString()) return clock;
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clock}`;
}

/** Hours and minutes of a date, and its seconds if requested. */
export function formatClock(date, seconds) {
  const minutes = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
  return seconds ? `${minutes}:${pad(date.getSeconds())}` : minutes;
}

/** A duration in its two largest units: `2 h 3 min`. */
export function formatDuration(duration_s) {
  if (!Number.isFinite(duration_s)) return ABSENT;
  const s = Math.max(0, Math.floor(duration_s));
  if (s < 60) return `${s}${NARROW}s`;
  if (s < 3600) return `${Math.floor(s / 60)}${NARROW}min ${s % 60}${NARROW}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}${NARROW}h ${Math.floor((s % 3600) / 60)}${NARROW}min`;
  return `${Math.floor(s / 86400)}${NARROW}d ${Math.floor((s % 86400) / 3600)}${NARROW}h`;
}

/** Text for a refused connection, which shows that the host responds; empty for any other point. */
export function formatRefused(point) {
  return point?.refused ?? point?.detail?.refused ? 'answers (port refuses connections)' : '';
}

/** A failure as text: the station's own words spelled out, other text shortened. */
export function formatFailure(error) {
  if (typeof error !== 'string' || error === '') return 'failed';
  if (Object.hasOwn(FAILURES, error)) return FAILURES[error];
  const text = error.replaceAll('_', ' ');
  return text.length <= FAILURE_CHARS_MAX ? text : `${text.slice(0, FAILURE_CHARS_MAX - 1)}…`;
}

/** Usual name of a quantity; a quantity of an application is shown by its own name. */
export function quantityTitle(quantity) {
  if (quantity.endsWith('_loaded')) return `${quantityTitle(quantity.slice(0, -'_loaded'.length))} under load`;
  return Object.hasOwn(TITLES, quantity) ? TITLES[quantity] : quantity.replaceAll('_', ' ');
}

/** Share of values that an interval should contain: `90 %`. */
export function formatLevel(level) {
  return Number.isFinite(level) ? `${Math.round(level * 1000) / 10}${NARROW}%` : '';
}

/** What a graph shows, as one sentence for screen readers. */
export function describeSeries(series) {
  const place = series.source === series.target ? `of ${series.target}` : `to ${series.target}`;
  const parts = [`${series.quantity} ${place}: ${describeLast(series)}`];
  const next = standingForecast(series);
  const median = next?.median;
  if (median && Number.isFinite(median.value)) {
    const interval = formatInterval(next.lower, next.upper, series.unit, ' to ');
    const level = formatLevel(next.level);
    const ends = interval ? `${level} interval ${interval}` : `interval ${formatCalibrating(next.count)}`;
    parts.push(`next ${formatBound(median.value, series.unit, next.at_least)}, ${ends}`);
    parts.push(`mean absolute error ${formatValue(median.mae, series.unit)}, method ${formatMethod(median)}`);
  } else {
    parts.push(formatWithdrawn(series) || 'no forecast yet');
  }
  if (0 < series.failures) parts.push(`${formatCount(series.failures)} failed`);
  return parts.join('; ');
}

/** Text for a value that does not exist. */
export const ABSENT = '–';

/** A period or another short time: `5 s`, `2 min`, `1 h`. */
export function formatPeriod(period_s) {
  if (!Number.isFinite(period_s)) return ABSENT;
  const [unit_s, unit] = [[3600, 'h'], [60, 'min']].find(([unit_s]) => 0 < period_s && period_s % unit_s === 0) ?? [1, 's'];
  return `${period_s / unit_s}${NARROW}${unit}`;
}

/** Why the last forecast no longer holds, with its value and time; empty if it holds. */
export function formatWithdrawn(series, now_ms = Date.now()) {
  const { next, unit } = series;
  if (!Number.isFinite(next?.median?.value) || standingForecast(series) !== null) return '';
  return `no answer since ${formatTime(next.time_s, now_ms)}; last forecast ${formatBound(next.median.value, unit, next.at_least)}`;
}

function describeLast(series) {
  if (!series.last) return 'no measurement yet';
  if (hasFailed(series.last)) return `last attempt failed, ${formatFailure(series.last.error)}`;
  const refused = formatRefused(series.last);
  return `last ${formatBound(series.last.value, series.unit, series.last.detail?.at_least)}${refused && `, ${refused}`}`;
}

function withLabel(text, label) {
  return label ? `${text}${NARROW}${label}` : text;
}

function groupDigits(text) {
  const [whole, fraction] = text.replace('-', MINUS).split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, NARROW);
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}

function pad(number) {
  return String(number).padStart(2, '0');
}

// A narrow no-break space keeps number and unit on one line (SI Brochure §5.4.3).
const NARROW = '\u202f';
const MINUS = '\u2212';

// Longer texts come from applications, not from probes; the table has no room for them.
const FAILURE_CHARS_MAX = 160;

// Memory changes by small parts of a large total, so its large units show one digit more.
const SCALES = {
  s: [
    { from: 120, factor: 1 / 60, label: 'min' },
    { from: 1, factor: 1, label: 's' },
    { from: 1e-3, factor: 1e3, label: 'ms' },
    { from: 0, factor: 1e6, label: 'µs' },
  ],
  'bit/s': [
    { from: 1e9, factor: 1e-9, label: 'Gbit/s' },
    { from: 1e6, factor: 1e-6, label: 'Mbit/s' },
    { from: 1e3, factor: 1e-3, label: 'kbit/s' },
    { from: 0, factor: 1, label: 'bit/s' },
  ],
  bytes: [
    { from: 2 ** 40, factor: 2 ** -40, label: 'TiB', extra: 1 },
    { from: 2 ** 30, factor: 2 ** -30, label: 'GiB', extra: 1 },
    { from: 2 ** 20, factor: 2 ** -20, label: 'MiB' },
    { from: 2 ** 10, factor: 2 ** -10, label: 'KiB' },
    { from: 0, factor: 1, label: 'B' },
  ],
  ratio: [{ from: 0, factor: 100, label: '%' }],
};

const TITLES = {
  rtt: 'Round-trip time',
  rtt_tls: 'Round-trip time through TLS',
  rtt_nagle: 'Round-trip time with Nagle',
  rtt_udp: 'Round-trip time over UDP',
  loss: 'Datagrams lost',
  connect: 'Time to connect',
  first_byte: 'Time to first byte',
  response_time: 'Response time',
  goodput: 'Goodput',
  goodput_down: 'Goodput down',
  transfer: 'Transfer',
  cpu_available: 'CPU available',
  memory_free: 'Memory free',
};

const FAILURES = {
  unresolved: 'name not found',
  refused: 'connection refused',
  unreachable: 'could not be reached',
  reset: 'connection reset',
  timed_out: 'timed out',
  garbage: 'answered with something else',
  declined: 'declined',
  untrusted: 'certificate not trusted',
  local: 'this host could not run it',
};
