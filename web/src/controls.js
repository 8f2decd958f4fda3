// Controls of the communicator, and its status.
import { element, setAttribute, setText } from './dom.js';
import { ABSENT, formatClock, formatCount, formatPeriod, formatValue } from './format.js';
import { formatSize } from './mirrors/size.js';
import { fileName, saveFile } from './save.js';
import { SIZES } from './measure/settings.js';
import { AUTO } from './measure/sizing.js';

/** The controls and facts above the console, bound to one `PageMeasurements`. */
export class Controls {
  constructor(here) {
    this.here = here;
    this.status = null;
    this.refusal = '';
    this.parts = Object.fromEntries(PARTS.map((id) => [id, document.getElementById(id)]));
    this.#fill();
    this.#listen();
    setInterval(() => this.#tick(), 1000);
  }

  /** Shows a status of the communicator. */
  show(status) {
    this.status = status;
    const { parts } = this;
    setText(parts.own_state, formatState(status));
    parts.own_limit.hidden = formatLimit(status) === '';
    setText(parts.own_limit, formatLimit(status));
    this.#choose(parts.period, status.period_s, formatPeriod);
    this.#choose(parts.size, status.bytes, (bytes) => (bytes === AUTO ? AUTO : formatSize(bytes)));
    this.#choose(parts.forecaster, status.kind, String);
    const bytes_max = status.transfer_bytes_max ?? Infinity;
    for (const option of parts.size.options) option.disabled = bytes_max < Number(option.value);
    if (document.activeElement !== parts.against) parts.against.value = status.station_url ?? '';
    setText(parts.suspend, status.state === 'suspended' ? 'Resume' : 'Suspend');
    this.#showTrouble(formatTrouble(status) || this.refusal);
    this.#showFacts(status);
    this.#tick();
  }

  #showTrouble(text) {
    this.parts.own_trouble.hidden = text === '';
    setText(this.parts.own_trouble, text);
  }

  /** Sends a request to the communicator. Shows an error until the next request succeeds. */
  async #ask(question) {
    try {
      await question();
      this.refusal = '';
      // The new setting comes with the next status; until then the controls keep the reader's
      // value.
      if (this.status) this.#showTrouble(formatTrouble(this.status));
    } catch (error) {
      this.refusal = sentence(String(error?.message ?? error));
      if (this.status) this.show(this.status);
    }
  }

  #showFacts({ client, server, station_url, clock, traffic, bytes, period_s, experiments, gaps, missed, cycles, keeps, sharing, bulk_bytes_per_hour_max }) {
    const { parts } = this;
    setText(parts.fact_client, client ?? ABSENT);
    setText(parts.fact_server, server ?? ABSENT);
    setAttribute(parts.fact_server, 'title', station_url ?? '');
    setText(parts.fact_bytes, formatValue(traffic?.bytes, 'bytes'));
    setText(parts.fact_hourly, formatHourly(traffic?.bytes_per_hour, expectedPerHour({ bytes, period_s, experiments }), bulk_bytes_per_hour_max));
    setText(parts.fact_clock, formatValue(clock?.resolution_s, 's'));
    const why = clock && !clock.isolated ? formatCoarseness(location.protocol) : '';
    setText(parts.fact_clock_why, why);
    setText(parts.fact_rounds, formatCount(cycles));
    setText(parts.fact_gaps, formatGaps(gaps, missed));
    parts.share_row.hidden = !keeps;
    setText(parts.share_text, `Store this page’s measurements on ${server}. Everyone with access to that station can see them.`);
    parts.share.checked = Boolean(sharing);
  }

  // Hours are local, and numbers change in place: a screen reader does not read them out.
  #tick() {
    const { status, parts } = this;
    if (document.hidden || !status) return;
    setText(parts.fact_time, formatClock(new Date(), true));
    setText(parts.fact_next, formatNext(status, Date.now() / 1000));
  }

  // A value set elsewhere, such as by a script, gets an entry of its own.
  #choose(select, value, words) {
    if (value === undefined || value === null || select === document.activeElement) return;
    const text = String(value);
    if (![...select.options].some((option) => option.value === text)) select.append(element('option', { value: text }, words(value)));
    select.value = text;
  }

  #fill() {
    const { parts } = this;
    for (const period_s of PERIODS_S) parts.period.append(element('option', { value: period_s }, formatPeriod(period_s)));
    parts.size.append(element('option', { value: AUTO }, 'automatic size'));
    for (const bytes of SIZES) parts.size.append(element('option', { value: bytes }, formatSize(bytes)));
    parts.https_only.hidden = location.protocol !== 'https:';
  }

  #listen() {
    const { here, parts } = this;
    parts.period.addEventListener('change', () => this.#ask(() => here.setPeriod(Number(parts.period.value))));
    parts.size.addEventListener('change', () => this.#ask(() => here.setSize(sizeOf(parts.size.value))));
    parts.forecaster.addEventListener('change', () => this.#ask(() => here.setForecaster(parts.forecaster.value)));
    parts.suspend.addEventListener('click', () => this.#ask(() => (this.status?.state === 'suspended' ? here.resume() : here.suspend())));
    // The result is shown like any other measurement.
    parts.measure_now.addEventListener('click', () => here.measureNow()?.catch(() => {}));
    parts.share.addEventListener('change', () => this.#share());
    parts.against.addEventListener('input', () => this.#judge());
    parts.controls.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#measureAgainst();
    });
    parts.save_csv.addEventListener('click', () => this.#ask(() => this.#save('csv', 'text/csv', () => here.csv())));
    parts.save_json.addEventListener('click', () => this.#ask(() => this.#save('json', 'application/json', () => here.json())));
  }

  /** Shows why the typed address may not work; returns whether it cannot work. */
  #judge() {
    const { against } = this.parts;
    const url = against.value.trim();
    const found = url === '' ? null : this.here.obstacle(url);
    this.#object(found ? sentence(found.reason) : '', found?.blocks === true);
    return found?.blocks === true;
  }

  #object(sentence, blocks) {
    setText(this.parts.obstacle, sentence);
    setAttribute(this.parts.obstacle, 'data-blocks', String(blocks));
    setAttribute(this.parts.against, 'aria-invalid', String(blocks));
  }

  async #measureAgainst() {
    const { against } = this.parts;
    if (this.#judge()) {
      against.focus();
      return;
    }
    const url = against.value.trim() || new URL('.', document.baseURI).href;
    // From here on the field shows the station that is measured.
    against.blur();
    try {
      await this.here.setStation(url);
    } catch (error) {
      this.#object(sentence(error.message), true);
    }
  }

  async #share() {
    const { share } = this.parts;
    // If the station no longer keeps reports, the next status clears the box.
    await this.#ask(() => this.here.share(share.checked));
  }

  async #save(ending, type, read) {
    const server = this.status?.server;
    const content = await read();
    saveFile(fileName(server, ending), type, typeof content === 'string' ? content : JSON.stringify(content));
  }
}

/**
 * State of the communicator as text. `measuring` and `waiting` alternate with each measurement, so
 * both have the same text.
 */
export function formatState({ state, period_s, server, message }) {
  if (state === 'measuring' || state === 'waiting') return `measuring every ${formatPeriod(period_s)}`;
  if (state === 'connecting') return `connecting to ${server ?? 'the station'}`;
  if (state === 'offline') return 'this browser is offline';
  if (state === 'unreachable') return formatUnreachable(server ?? 'the station', message);
  return state === 'suspended' ? 'suspended' : message ?? state;
}

/** Notice that the station is on this computer, so that no network is measured; otherwise empty. */
export function formatLimit({ on_this_computer }) {
  return on_this_computer ? 'You are measuring this computer itself: the browser, not a network, is the limit.' : '';
}

function sizeOf(text) {
  return text === AUTO ? AUTO : Number(text);
}

/** Time until the next measurement, as text. */
export function formatNext({ state, next_due_s }, now_s) {
  if (state === 'measuring') return 'now';
  if ((state !== 'waiting' && state !== 'unreachable') || !Number.isFinite(next_due_s)) return ABSENT;
  return `in ${formatPeriod(Math.max(0, Math.ceil(next_due_s - now_s)))}`;
}

/** Number of gaps, and of cycles that were skipped because the one before took too long. */
export function formatGaps(gaps, missed) {
  const in_gaps = 0 < gaps ? `${formatCount(gaps)} ${gaps === 1 ? 'gap' : 'gaps'}` : 'no gaps';
  return 0 < missed ? `${in_gaps}, ${formatCount(missed)} missed` : in_gaps;
}

/**
 * Expected cost of the settings, in bytes an hour: the transfers only, because exchanges are small.
 */
export function expectedPerHour({ bytes, period_s, experiments }) {
  const transfers = (experiments ?? []).filter((quantity) => quantity.startsWith('goodput')).length;
  return (transfers * bytes * 3600) / period_s;
}

/**
 * Cost of the last hour, or the expected cost if that differs, after a change of size or period.
 * Bulk tests of automatic size cost at most `bulk_max`.
 */
export function formatHourly(past, expected, bulk_max = null) {
  const hour = (bytes) => `${formatValue(bytes, 'bytes')} an hour`;
  if (Number.isFinite(bulk_max)) return `bulk tests at most ${hour(bulk_max)}`;
  if (!Number.isFinite(expected)) return Number.isFinite(past) ? hour(past) : '';
  const is_steady = Number.isFinite(past) && Math.abs(past - expected) <= expected * STEADY_SHARE;
  return is_steady ? hour(past) : `from now on about ${hour(expected)}`;
}

/** Distinguishes a station that declines from one that does not answer. */
function formatUnreachable(server, message) {
  return DECLINES.test(message ?? '') ? `${server} declines` : `${server} cannot be reached`;
}

/**
 * What is wrong, with the next step; also for one quantity that fails while others are measured.
 */
export function formatTrouble({ state, message, next_due_s }) {
  if (state === 'offline') return 'The browser is offline. This counts as a gap, not as a failure. Measurements resume when the network is back.';
  if (state === 'suspended' || state === 'connecting') return '';
  if (!message || PAUSES.test(message)) return '';
  return Number.isFinite(next_due_s) ? `${sentence(message)} Retrying automatically.` : sentence(message);
}

function sentence(text) {
  // Only an article gets a capital letter: a host name at the start keeps its case.
  const whole = text.replace(/^(an?|the) /, (word) => word.charAt(0).toUpperCase() + word.slice(1));
  return /[.!?…]$/.test(whole) ? whole : `${whole}.`;
}

/** Why the clock is coarse in a page that is not isolated. */
function formatCoarseness(protocol) {
  return protocol === 'https:' ? 'limited by this browser' : 'finer over https';
}

// JavaNws offered 1 s to 5 min; these are round values in that range.
const PERIODS_S = [1, 2, 5, 10, 20, 30, 60, 120, 300];
// Messages of stations that decline (measure/session.js).
const DECLINES = /\bdeclines\b|(ended|cut) the session/;
// Reasons for a pause, which the state or the gap shows already.
const PAUSES = /^(suspended|offline|stopped|another station was chosen)$/;
const PARTS = [
  'controls',
  'period',
  'size',
  'forecaster',
  'against',
  'obstacle',
  'https_only',
  'suspend',
  'measure_now',
  'save_csv',
  'save_json',
  'own_state',
  'own_trouble',
  'own_limit',
  'fact_client',
  'fact_server',
  'fact_time',
  'fact_next',
  'fact_bytes',
  'fact_hourly',
  'fact_clock',
  'fact_clock_why',
  'fact_rounds',
  'fact_gaps',
  'share_row',
  'share_text',
  'share',
];
// Frame headers, skipped cycles and the first seconds change the figure by less than this.
const STEADY_SHARE = 0.25;
