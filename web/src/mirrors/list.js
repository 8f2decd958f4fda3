// Parses a list of mirrors into addresses, with reasons why this page cannot measure one. Pure.
import { isLoopback } from '../measure/address.js';

/**
 * Mirrors of a list of addresses, separated by white space or commas: `{url, kind, refusal}`. An
 * address with a path that ends in `/` is a station, any other a file to download. `refusal` says
 * why an address cannot work. `secure` is whether the page was loaded over https. Throws a
 * `RangeError` for none or too many.
 */
export function parseMirrors(list, { secure = false } = {}) {
  const words = Array.isArray(list) ? list.map(String) : String(list ?? '').split(/[\s,]+/);
  const mirrors = new Map();
  for (const word of words.map((word) => word.trim()).filter(Boolean)) {
    const mirror = parseMirror(word, secure);
    mirrors.set(mirror.url, mirror);
    if (MIRRORS_MAX < mirrors.size) throw new RangeError(`At most ${MIRRORS_MAX} mirrors can be compared. Remove some.`);
  }
  if (mirrors.size === 0) throw new RangeError('Enter the address of at least one mirror.');
  return [...mirrors.values()];
}

/** An address without scheme, and a station's without its last slash. */
export function mirrorName(url) {
  return url.replace(/^[a-z]+:\/\//, '').replace(/\/$/, '');
}

/**
 * The shortest name that distinguishes a mirror in a ranking: its host, unless others have it, too.
 */
export function shortName(url, urls) {
  const host = (address) => mirrorName(address).split('/')[0];
  return urls.filter((other) => host(other) === host(url)).length < 2 ? host(url) : mirrorName(url);
}

function parseMirror(word, secure) {
  let url;
  try {
    url = new URL(/^[a-z][a-z0-9+.-]*:\/\//i.test(word) ? word : `https://${word}`);
  } catch {
    return { url: word.slice(0, URL_CHARS_MAX), kind: 'download', refusal: 'is not an address' };
  }
  // Stations use WebSocket, but people may write either scheme.
  const socket = /^wss?:$/.test(url.protocol);
  if (socket) url = new URL(url.href.replace(/^ws/, 'http'));
  url.hash = '';
  const kind = socket || url.pathname.endsWith('/') ? 'station' : 'download';
  return { url: url.href, kind, refusal: refusalOf(url, secure) };
}

function refusalOf(url, secure) {
  if (!/^https?:$/.test(url.protocol)) return `${url.protocol} cannot be measured, only http: and https:`;
  if (url.username || url.password) return 'remove the user name and password from the address';
  if (URL_CHARS_MAX < url.href.length) return 'the address is too long';
  // Mixed content (W3C Mixed Content §4.3). Addresses of this computer are potentially trustworthy
  // (W3C Secure Contexts §3.1).
  if (secure && url.protocol === 'http:' && !isLoopback(url.hostname)) {
    return 'an https page cannot measure http addresses; use an https address';
  }
  return null;
}

/** More would take minutes, and no reader chooses among more. */
export const MIRRORS_MAX = 32;

const URL_CHARS_MAX = 2000;
