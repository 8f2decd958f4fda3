// The page of a station: measures against it, reads what it has measured, then follows its stream.
import './page.css';
import { Connection, fetchAhead, fetchLatest, fetchMesh, fetchPeers, fetchRecent, fetchSeries, fetchSites, fetchStation, pollDelay, watchPeers } from './api.js';
import { Grid } from './grid.js';
import { PageMeasurements } from './here.js';
import { Mesh } from './mesh.js';
import { Own } from './own.js';
import { Sites } from './sites.js';
import { AHEAD_MS_MIN, Store } from './store.js';
import { followTheme } from './theme.js';
import { View } from './view.js';
import { unsupportedReason } from './support.js';

let peer_events = null;
let others_read = null;
let gives_ahead = true;
const store = new Store();
const view = new View(store, { seen: readSeries, retry: () => connection.connect() });
const own = new Own();
const mesh = new Mesh();
const sites = new Sites();
store.isOtherStation = (source) => mesh.hosts.has(source);
const grid = new Grid(mesh, (pair) => {
  store.pin(pair, pair ? mesh.seriesOf(pair.source, pair.target) : []);
  view.choose(pair);
});
const connection = new Connection({
  async open() {
    gives_ahead = true;
    await readAll();
    view.setConnection('live');
  },
  point(event) {
    const key = store.addPoint(event);
    if (key !== null) view.redraw(key);
    grid.redraw(mesh.addPoint(event));
  },
  // The heartbeat finds out whether the station is gone.
  lag: () => readAll().catch(() => {}),
  alive(station) {
    view.setStation(station);
    if (peer_events?.readyState !== EventSource.OPEN) readPeers();
  },
  async lost(retry_ms, failures) {
    if (view.connection !== 'polling') view.setConnection('reconnecting', retry_ms);
    if (failures < POLL_FAILURES_MIN) return;
    try {
      const station = await readAll();
      const poll_ms = pollDelay(station);
      if (connection.retryAfter(poll_ms)) view.setConnection('polling', poll_ms);
    } catch {
      if (connection.stream === null) view.setConnection('reconnecting', retry_ms);
    }
  },
});

/** Reads station and series; histories follow when their cards are drawn. */
async function readAll() {
  const [station, series] = await Promise.all([fetchStation(), fetchSeries()]);
  view.setStation(station);
  store.host = station.host;
  store.replaceSeries(series);
  mesh.replaceSeries(series);
  view.arrange();
  grid.arrange();
  others_read = readPart().then(readOthers).then(readPeers);
  return station;
}

/** Reads the station's part in a mesh, once for each connection. A failure changes nothing. */
async function readPart() {
  const part = await fetchMesh().catch(() => undefined);
  if (part === undefined) return;
  mesh.setPart(part);
  grid.arrange();
}

/**
 * On a member, reads the newest records of other stations, which its stream does not have. A
 * failure changes nothing.
 */
async function readOthers() {
  if (mesh.part?.role !== 'member') return;
  for (const quantity of ['rtt', 'loss', 'goodput']) {
    const { found, whole } = await fetchLatest(quantity);
    mesh.takeLatest(quantity, found, whole);
  }
  grid.arrange();
}

/** Reads the peers, and follows their changes. A failure changes nothing. */
async function readPeers() {
  // There is no mesh, or nothing to compare.
  if (mesh.part === null || !mesh.has_sources) return;
  const peers = await fetchPeers().catch(() => undefined);
  if (peers === undefined) return;
  mesh.setPeers(peers);
  store.reapplyList();
  view.arrange();
  grid.arrange();
  readSites();
  if (peers === null) peer_events?.close();
  else if (peer_events === null || peer_events.readyState === EventSource.CLOSED) peer_events = watchPeers(readChanged);
}

/**
 * Reads what changed with the peers. A station that was removed from the mesh took its series
 * along.
 */
async function readChanged(is_removed) {
  if (!is_removed) return readPeers();
  await readAll();
  await others_read;
}

/** Reads the proposed sites. A failure changes nothing. */
async function readSites() {
  const answer = await fetchSites().catch(() => undefined);
  if (answer !== undefined) sites.show(answer);
}

/**
 * Reads a series' history unless it is there or on its way, and then its forecasts further ahead; a
 * few at a time, the oldest request first.
 */
function readSeries(key) {
  if (store.series.get(key)?.history === 'absent') {
    store.startHistory(key);
    pending_reads.push([readHistory, key]);
  } else if (gives_ahead && store.startAhead(key, performance.now())) {
    pending_reads.push([readAhead, key]);
  }
  pump();
}

async function pump() {
  if (READS_MAX <= reading || pending_reads.length === 0) return;
  reading += 1;
  const [read, key] = pending_reads.shift();
  await read(key);
  reading -= 1;
  pump();
}

async function readHistory(key) {
  try {
    store.putHistory(key, await fetchRecent(store.series.get(key)));
    view.redraw(key);
  } catch {
    store.failHistory(key);
  }
}

/** Reads forecasts further ahead. Without them a graph has no fan; the next value tries again. */
async function readAhead(key) {
  const series = store.series.get(key);
  if (!series || !gives_ahead) return;
  // For a value that arrives too early for another read: the one after it may be an hour away.
  setTimeout(() => view.redraw(key), AHEAD_MS_MIN);
  const forecasts = await fetchAhead(series).catch(() => undefined);
  if (forecasts === undefined) return;
  gives_ahead = forecasts !== null;
  store.putAhead(key, forecasts);
  view.redraw(key);
}

// As often as a member's figures change with a few peers. A hidden page reads nothing.
setInterval(() => document.hidden || readOthers(), 30_000);
// The directory can become read-only while the stream lasts. A station without peers has nothing to
// read.
setInterval(() => document.hidden || mesh.part === null || mesh.peers.size === 0 || readPart(), 10_000);
// Sites are proposed from forecasts, which change slowly. A hidden page reads nothing.
setInterval(() => document.hidden || mesh.part === null || mesh.peers.size === 0 || readSites(), 60_000);
// One lost stream may be chance. After a second in a row the station may have too many streams; it
// still answers requests.
const POLL_FAILURES_MIN = 2;
// A browser keeps six connections to a host, and the stream holds one of them.
const READS_MAX = 3;
const pending_reads = [];
let reading = 0;

/** Shows what this browser measures, or why it does not measure. */
async function startOwn() {
  const reason = await reasonAgainst;
  if (reason === null) own.start(window.barograph);
  else own.showReason(reason);
}

// Only this response is waited for. The communicator finds out if the station does not answer at
// all.
const reasonAgainst = fetchStation().catch(() => null).then((station) => unsupportedReason(station));
// Set at once, for scripts that automate the page. An existing value is kept: tests replace the
// communicator.
window.barograph ??= new PageMeasurements({ unsupported: reasonAgainst });

followTheme(document.getElementById('theme'), () => {
  view.recolour();
  own.recolour();
});
connection.connect();
startOwn();
