// Files that the page makes itself.
import { element } from './dom.js';

/** Downloads `text` as a file. */
export function saveFile(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element('a', { href: url, download: name }).click();
  // Some browsers begin to read the file only in a later turn of the event loop.
  setTimeout(() => URL.revokeObjectURL(url), RELEASE_MS);
}

/**
 * Name of a file of measurements to `server`, made at `now`, with letters that every file system
 * accepts.
 */
export function fileName(server, ending, now = new Date()) {
  const place = String(server ?? '').replace(/[^\p{L}\p{N}.-]+/gu, '-').replace(/^[-.]+|[-.]+$/g, '').slice(0, PLACE_CHARS_MAX);
  const time = now.toISOString().slice(0, 19).replaceAll(':', '') + 'Z';
  return ['barograph', place, time].filter(Boolean).join('_') + `.${ending}`;
}

const RELEASE_MS = 10_000;
// File systems accept names of 255 bytes; a letter may need four of them.
const PLACE_CHARS_MAX = 40;
