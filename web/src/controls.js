// What the reader tells the communicator, and what it tells the reader about itself.
import { element, setAttribute, setText } from './dom.js';
import { ABSENT, formatClock, formatCount, formatPeriod, formatValue } from './format.js';
import { formatSize } from './mirrors/size.js';
import { fileName, saveFile } from './save.js';
import { SIZES } from './weather/settings.js';
import { AUTO } from './weather/sizing.js';

/** The controls and facts above the console, bound to one `Here`. */
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
    setText(parts.own_state, stateWords(status));
    parts.own_limit.hidden = limitWords(status) === '';
    setText(parts.own_limit, limitWords(status));
    this.#choose(parts.period, status.period_s, formatPeriod);
    this.#choose(parts.size, status.bytes, (bytes) => (bytes === AUTO ? AUTO : formatSize(bytes)));
    this.#choose(parts.forecaster, status.kind, String);
    const bytes_max = status.transfer_bytes_max ?? Infinity;
    for (const option of parts.size.options) option.disabled = bytes_max < Number(option.value);
    if (document.activeElement !== parts.against) parts.against.value = status.station_url ?? '';
    setText(parts.suspend, status.state === 'suspended' ? 'Resume' : 'Suspend');
    this.#say(troubleWords(status) || this.refusal);
    this.#showFacts(status);
    this.#tick();
  }

  #say(words) {
    this.parts.own_trouble.hidden = words === '';
    setText(this.parts.own_trouble, words);
  }

  /** Asks `question()` of the communicator; says it where that was refused, until another is taken. */
  async #ask(question) {
    try {
      await question();
      this.refusal = '';
      // What was taken comes with the next status: until then the controls stand as they were set.
      if (this.status) this.#say(troubleWords(this.status));
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
    setText(parts.fact_hourly, hourlyWords(traffic?.bytes_per_hour, expectedPerHour({ bytes, period_s, experiments }), bulk_bytes_per_hour_max));
    setText(parts.fact_clock, formatValue(clock?.resolution_s, 's'));
    const why = clock && !clock.isolated ? coarseWhy(location.protocol) : '';
    setText(parts.fact_clock_why, why);
    setText(parts.fact_rounds, formatCount(cycles));
    setText(parts.fact_gaps, gapWords(gaps, missed));
    parts.keep.hidden = !keeps;
    setText(parts.keep_text, `Let ${server} keep what this page measures. Whoever reads that station can see it.`);
    parts.share.checked = Boolean(sharing);
  }

  // Hours are local, and numbers change in place: nobody is told of them aloud.
  #tick() {
    const { status, parts } = this;
    if (document.hidden || !status) return;
    setText(parts.fact_time, formatClock(new Date(), true));
    setText(parts.fact_next, nextWords(status, Date.now() / 1000));
  }

  // A value from elsewhere, such as from automation, gets an entry of its own.
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
    // What comes of it is shown as of any other measurement.
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

  /** Says what stands in the way of the address that is being written; returns whether that makes it impossible. */
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
    against.blur(); // From here on it shows the station that is measured.
    try {
      await this.here.setStation(url);
    } catch (error) {
      this.#object(sentence(error.message), true);
    }
  }

  async #share() {
    const { share } = this.parts;
    // Where the station stopped keeping meanwhile, the status has the box unchecked again.
    await this.#ask(() => this.here.share(share.checked));
  }

  async #save(ending, type, read) {
    const server = this.status?.server;
    const content = await read();
    saveFile(fileName(server, ending), type, typeof content === 'string' ? content : JSON.stringify(content));
  }
}

/** A state of the communicator in words. One that comes and goes with each measurement is not told apart. */
export function stateWords({ state, period_s, server, message }) {
  if (state === 'measuring' || state === 'waiting') return `measuring every ${formatPeriod(period_s)}`;
  if (state === 'connecting') return `connecting to ${server ?? 'the station'}`;
  if (state === 'offline') return 'this browser is offline';
  if (state === 'unreachable') return unreachableWords(server ?? 'the station', message);
  return state === 'suspended' ? 'suspended' : message ?? state;
}

/** That no network is measured, where the station is on this computer, whatever address of it was asked. */
export function limitWords({ on_this_computer }) {
  return on_this_computer ? 'You are measuring this computer itself: the browser, not a network, is the limit.' : '';
}

function sizeOf(text) {
  return text === AUTO ? AUTO : Number(text);
}

/** How long until the next measurement, in words that keep their place. */
export function nextWords({ state, next_due_s }, now_s) {
  if (state === 'measuring') return 'now';
  if ((state !== 'waiting' && state !== 'unreachable') || !Number.isFinite(next_due_s)) return ABSENT;
  return `in ${formatPeriod(Math.max(0, Math.ceil(next_due_s - now_s)))}`;
}

/** Gaps, and the rounds that were left out because the one before took too long. */
export function gapWords(gaps, missed) {
  const in_gaps = 0 < gaps ? `${formatCount(gaps)} ${gaps === 1 ? 'gap' : 'gaps'}` : 'no gaps';
  return 0 < missed ? `${in_gaps}, ${formatCount(missed)} missed` : in_gaps;
}

/** What the settings will cost, in bytes an hour: the transfers; exchanges are next to nothing. */
export function expectedPerHour({ bytes, period_s, experiments }) {
  const transfers = (experiments ?? []).filter((quantity) => quantity.startsWith('goodput')).length;
  return (transfers * bytes * 3600) / period_s;
}

/**
 * What an hour has cost, and what it will where that is another figure: after a change of size or period. Bulk tests of automatic
 * size cost at most `bulk_max`.
 */
export function hourlyWords(past, expected, bulk_max = null) {
  const hour = (bytes) => `${formatValue(bytes, 'bytes')} an hour`;
  if (Number.isFinite(bulk_max)) return `bulk tests at most ${hour(bulk_max)}`;
  if (!Number.isFinite(expected)) return Number.isFinite(past) ? hour(past) : '';
  const is_steady = Number.isFinite(past) && Math.abs(past - expected) <= expected * STEADY_SHARE;
  return is_steady ? hour(past) : `from now on about ${hour(expected)}`;
}

/** That nothing comes of a station that answers to say no is another thing than silence. */
function unreachableWords(server, message) {
  return DECLINES.test(message ?? '') ? `${server} declines` : `${server} cannot be reached`;
}

/** What is wrong, and that nobody need do anything about it; also of one quantity that fails while others are measured. */
export function troubleWords({ state, message, next_due_s }) {
  if (state === 'offline') return 'The browser has no network. This is a gap, not a failure; measuring goes on when the network is back.';
  if (state === 'suspended' || state === 'connecting') return '';
  if (!message || PAUSES.test(message)) return '';
  return Number.isFinite(next_due_s) ? `${sentence(message)} The next attempt comes by itself.` : sentence(message);
}

function sentence(text) {
  // Only an article: a name of a host that begins a sentence keeps its small letter.
  const whole = text.replace(/^(an?|the) /, (word) => word.charAt(0).toUpperCase() + word.slice(1));
  return /[.!?…]$/.test(whole) ? whole : `${whole}.`;
}

/** Why the clock is coarse in a page that is not isolated. */
function coarseWhy(protocol) {
  return protocol === 'https:' ? 'this browser keeps it coarse here' : 'served over https it is finer';
}

// JavaNws let people choose from 1 s to 5 min; these are the steps that they would call round.
const PERIODS_S = [1, 2, 5, 10, 20, 30, 60, 120, 300];
// What the communicator says of stations that answer no (weather/session.js).
const DECLINES = /\bdeclines\b|(ended|cut) the session/;
// Why nothing was measured for a while, which the state or the gap says already.
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
  'keep',
  'keep_text',
  'share',
];
// Heads of frames, cycles left out and the first seconds make no other figure of it.
const STEADY_SHARE = 0.25;
