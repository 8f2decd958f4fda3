// Sizes of files as people write them. Pure.

/**
 * Bytes of a text such as `700 MB`, `4.5 GiB` or `123456`; throws a `RangeError` with the reason.
 */
export function parseSize(text) {
  const match = /^([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)$/.exec(String(text ?? '').trim().slice(0, TEXT_CHARS_MAX));
  if (!match) throw new RangeError('Write a size as a number and a unit, such as 700 MB or 4.5 GiB.');
  const [, number, unit] = match;
  const factor = FACTORS.get(unit.toLowerCase());
  if (factor === undefined) {
    const hint = /^[kmgt]$/i.test(unit) ? `${unit.toUpperCase()}B or ${unit.toUpperCase()}iB` : 'B, kB, MB, GB, TB, KiB, MiB, GiB or TiB';
    throw new RangeError(`“${unit}” is not a unit of size: write ${hint}.`);
  }
  const bytes = Math.round(Number(number) * factor);
  if (bytes < 1) throw new RangeError('A size must be at least 1 byte.');
  if (SIZE_BYTES_MAX < bytes) throw new RangeError('A size must be at most 1000 TB.');
  return bytes;
}

/** Bytes in the unit in which they are shortest: `700 MB`, `4.5 GiB`; `parseSize` reads it back. */
export function formatSize(bytes) {
  const whole = UNITS.filter(([, factor]) => factor <= bytes && (bytes * 10) % factor === 0);
  // The largest unit in which it is a round number; otherwise about three digits of a decimal unit.
  const [unit, factor] = whole.reduce((best, one) => (best[1] < one[1] ? one : best), ['B', 1]);
  if (bytes / factor < 10_000) return `${bytes / factor} ${unit}`;
  const [decimal, size] = UNITS.filter(([name, size]) => !name.includes('i') && size <= bytes).at(-1);
  return `${Number((bytes / size).toPrecision(3))} ${decimal}`;
}

// SI prefixes are decimal (SI Brochure §3.1), those with an i are binary (IEC 80000-13).
const UNITS = [
  ['B', 1],
  ['kB', 1e3],
  ['KiB', 2 ** 10],
  ['MB', 1e6],
  ['MiB', 2 ** 20],
  ['GB', 1e9],
  ['GiB', 2 ** 30],
  ['TB', 1e12],
  ['TiB', 2 ** 40],
];

const FACTORS = new Map([['', 1], ['byte', 1], ['bytes', 1], ...UNITS.map(([unit, factor]) => [unit.toLowerCase(), factor])]);

// A petabyte: its bits are still exact in a double.
const SIZE_BYTES_MAX = 1e15;
// No size is longer; a longer text is cut and then refused.
const TEXT_CHARS_MAX = 40;
