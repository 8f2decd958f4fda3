// State of the mesh: the newest record of each pair of stations, and the order of rows and columns.
// Pure.
import { hasFailed, keyOf } from './store.js';

/** All known pairs of stations, one quantity at a time. */
export class Mesh {
  constructor() {
    /** Pairs by the key of their series. */
    this.pairs = new Map();
    /** Peers by host, as the station reports them; empty if it has none. */
    this.peers = new Map();
    /** Hosts of all reported peers, ignored ones included. */
    this.hosts = new Set();
    /** The station's own part, as in `/v1/mesh`; `null` if it has none. */
    this.part = null;
    /** Changes whenever rows or columns may have changed. */
    this.revision = 0;
  }

  /** Applies the response of `/v1/series`. */
  replaceSeries(list) {
    const before = this.pairs;
    this.pairs = new Map();
    for (const summary of list) this.#put(keyOf(summary), summary, before.get(keyOf(summary)));
    for (const [key, pair] of before) if (pair.is_remote && !this.pairs.has(key)) this.pairs.set(key, pair);
    this.revision += 1;
  }

  /**
   * Applies the newest records of `quantity` in the mesh. Ignores pairs that this station forecasts
   * itself. Pairs that are not among the records stay, unless the records are complete (`whole`).
   */
  takeLatest(quantity, records, whole) {
    const named = new Set();
    for (const record of records) {
      const key = keyOf(record);
      named.add(key);
      const known = this.pairs.get(key);
      if (known && !known.is_remote) continue;
      const pair = this.#put(key, { ...record, last: record, count: known?.count ?? 0, failures: known?.failures ?? 0 }, known);
      if (pair) pair.is_remote = true;
    }
    if (whole) for (const [key, pair] of this.pairs) if (pair.is_remote && pair.quantity === quantity && !named.has(key)) this.pairs.delete(key);
    this.revision += 1;
  }

  /** Applies a `point` event. Returns its pair, or `null` if it is not of two stations. */
  addPoint(event) {
    const key = keyOf(event);
    const known = this.pairs.get(key);
    const pair = this.#put(key, { ...event, last: event }, known);
    if (pair && !known) this.revision += 1;
    return pair;
  }

  /** Applies the response of `/v1/peers`; `null` if the station is in no mesh. */
  setPeers(list) {
    this.hosts = new Set((list ?? []).map(({ host }) => host));
    this.peers = new Map((list ?? []).filter(({ state }) => state !== 'ignored').map((peer) => [peer.host, peer]));
    this.revision += 1;
  }

  /** Applies the response of `/v1/mesh`; `null` if the station knows no meshes. */
  setPart(part) {
    this.part = part;
    this.revision += 1;
  }

  /** Quantities of pairs, the most frequent first; none unless two stations measure others. */
  quantities() {
    const stations = this.#stations();
    const counts = new Map();
    const sources = new Set();
    for (const { source, target, quantity } of this.pairs.values()) {
      if (!stations.has(target)) continue;
      sources.add(source);
      counts.set(quantity, (counts.get(quantity) ?? 0) + 1);
    }
    if (sources.size < 2) return [];
    return [...counts].sort(([a, m], [b, n]) => n - m || rank(a) - rank(b) || a.localeCompare(b)).map(([quantity]) => quantity);
  }

  /** Whether there are measurements of more than one station. */
  get has_sources() {
    const [first, ...others] = this.pairs.values();
    return others.some((pair) => pair.source !== first.source);
  }

  /**
   * Rows and columns for `quantity`: sources and targets that match every word of `from` and `to`,
   * sorted by `sort` (`name` or `site`), lost ones last. At most `CELLS_MAX` cells; the others are
   * on further pages. Without `shows_lost`, some lost stations are left out (`#hidden`); `lost` is
   * their number.
   */
  arrange({ quantity, from = '', to = '', sort = 'name', page = 0, shows_lost = true, now_s = Date.now() / 1000 }) {
    const stations = this.#stations();
    const sources = new Set();
    const targets = new Set(this.peers.keys());
    for (const pair of this.pairs.values()) {
      if (!stations.has(pair.target)) continue;
      sources.add(pair.source);
      targets.add(pair.target);
    }
    const hidden = this.#hidden(now_s);
    const lost = new Set();
    const order = (names, query) => {
      const found = [...names].filter((name) => hasWords(`${name} ${this.siteOf(name)}`, query));
      for (const name of found) if (hidden.has(name)) lost.add(name);
      return found
        .filter((name) => shows_lost || !hidden.has(name))
        .sort(
          (a, b) =>
            this.isLost(a) - this.isLost(b) ||
            (sort === 'site' && this.siteOf(a).localeCompare(this.siteOf(b))) ||
            a.localeCompare(b, undefined, { numeric: true }),
        );
    };
    const all_rows = order(sources, from);
    const all_columns = order(targets, to);
    const columns = all_columns.slice(0, COLUMNS_MAX);
    const page_rows = Math.max(1, Math.floor(CELLS_MAX / Math.max(1, columns.length)));
    const pages = Math.max(1, Math.ceil(all_rows.length / page_rows));
    const at = Math.min(page, pages - 1);
    const rows = all_rows.slice(at * page_rows, (at + 1) * page_rows);
    const totals = { rows_total: all_rows.length, columns_total: all_columns.length, lost: lost.size };
    return { quantity, rows, columns, first: at * page_rows, ...totals, page: at, pages };
  }

  /** The pair of a cell, if it is measured. */
  pair(source, target, quantity) {
    return this.pairs.get(keyOf({ source, target, quantity }));
  }

  /**
   * All series of a pair, as in `/v1/series`; none for a pair that only other stations forecast.
   */
  seriesOf(source, target) {
    return [...this.pairs.values()].filter((pair) => !pair.is_remote && pair.source === source && pair.target === target);
  }

  /** Site that a station reports; empty if it reports none. */
  siteOf(host) {
    if (host === this.part?.host) return this.part.site ?? '';
    const groups = this.peers.get(host)?.groups ?? [];
    return groups.find((group) => group.startsWith(SITE))?.slice(SITE.length) ?? '';
  }

  /** Whether the stations report more than one site. */
  hasSites() {
    const [first, ...others] = [...this.#stations()].map((host) => this.siteOf(host)).filter((site) => site !== '');
    return others.some((site) => site !== first);
  }

  /** Whether a station no longer renews its lease. */
  isLost(host) {
    return this.peers.get(host)?.state === 'lost';
  }

  /** Stations that were lost long ago, or with many others; they are shown only on request. */
  #hidden(now_s) {
    const lost = [...this.peers.keys()].filter((host) => this.isLost(host));
    // This station is one of them.
    const up = 1 + this.peers.size - lost.length;
    const are_many = LOST_MAX < lost.length && up < lost.length;
    return new Set(lost.filter((host) => are_many || LOST_S < now_s - this.peers.get(host).since_s));
  }

  #put(key, { source, target, quantity, unit, count, failures, last, next }, known) {
    // Reports of pages are of a browser, not of a station.
    if (source === target || source.startsWith('web:')) return null;
    if (PAIRS_MAX <= this.pairs.size && !this.pairs.has(key)) return null;
    const pair = known ?? { source, target, quantity, unit, key, gap_s: 0 };
    if (known?.last && last && known.last.time_s < last.time_s) pair.gap_s = last.time_s - known.last.time_s;
    pair.last = last ?? null;
    pair.next = next ?? null;
    pair.count = count ?? (pair.count ?? 0) + (hasFailed(last) ? 0 : 1);
    pair.failures = failures ?? (pair.failures ?? 0) + (hasFailed(last) ? 1 : 0);
    this.pairs.set(key, pair);
    return pair;
  }

  #stations() {
    const names = new Set(this.peers.keys());
    for (const { source } of this.pairs.values()) names.add(source);
    return names;
  }
}

/** Whether a pair's newest measurement is too old for the usual time between its measurements. */
export function isStale({ unit, last, gap_s }, now_s) {
  if (!last) return false;
  const usual_s = unit === 'bit/s' ? STALE_BULK_S : STALE_S;
  return Math.max(usual_s, GAPS_MISSED * gap_s) < now_s - last.time_s;
}

/**
 * For a member's page: the station with the forecasts of all pairs, as `{text, url}`. `null` for a
 * station that has not joined a mesh, or keeps the mesh's archive itself. `url` is `null` if a page
 * may not link to it.
 */
export function whereItIs(part) {
  if (part?.role !== 'member') return null;
  const url = URL.canParse(part.joined ?? '') ? new URL(part.joined) : null;
  if (url && /^https?:$/.test(url.protocol)) return { text: url.host, url: url.href };
  return { text: 'a station that keeps the mesh’s archive', url: null };
}

/** Message that the mesh's directory is read-only; `null` if it accepts writes. */
export function formatReadOnly(part) {
  const { read_only_s, error } = part?.directory ?? {};
  if (!Number.isFinite(read_only_s)) return null;
  const why = error ? ` (${error})` : '';
  return `The mesh’s directory has been read-only for ${formatAge(read_only_s)}${why}. Measurements continue, and no station is marked as lost, but none can join. Check the directory’s server.`;
}

/** Age in steps that are worth redrawing: `<10 s`, `20 s`, `3 min`, `2 h`, `5 d`. */
export function formatAge(age_s) {
  const narrow = '\u202f';
  if (!Number.isFinite(age_s)) return '';
  if (age_s < 10) return `<10${narrow}s`;
  if (age_s < 60) return `${Math.floor(age_s / 10) * 10}${narrow}s`;
  if (age_s < 3600) return `${Math.floor(age_s / 60)}${narrow}min`;
  if (age_s < 86_400) return `${Math.floor(age_s / 3600)}${narrow}h`;
  return `${Math.floor(age_s / 86_400)}${narrow}d`;
}

function hasWords(text, query) {
  const low = text.toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => low.includes(word));
}

function rank(quantity) {
  const at = FIRST.indexOf(quantity);
  return at < 0 ? FIRST.length : at;
}

// Three quantities of every pair of a hundred stations.
const PAIRS_MAX = 30_000;
/**
 * Cells drawn at once: pairs of thirty stations, or ten rows of a hundred columns. Their layout
 * takes about 0.2 s.
 */
export const CELLS_MAX = 1_000;
/** Columns at once: with more of them, few rows would be left to compare. */
export const COLUMNS_MAX = 100;
// Thirty periods of ten seconds, and six of ten minutes: the default periods of probes and bulk
// tests.
const STALE_S = 300;
const STALE_BULK_S = 3_600;
// One measurement may be late and one may be lost, but not five in a row.
const GAPS_MISSED = 5;
// A station that is away for a day was probably taken down.
const LOST_S = 86_400;
// So few leave room for the others, even if they are the majority; an outage should be visible.
const LOST_MAX = 10;
// Order of quantities that equally many pairs have.
const FIRST = ['rtt', 'rtt_udp', 'loss', 'goodput', 'goodput_down', 'transfer'];
const SITE = 'local:';
