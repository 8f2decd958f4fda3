// Files that the page makes itself.
import { element } from './dom.js';

/** Gives the reader `text` as a file. */
export function saveFile(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element('a', { href: url, download: name }).click();
  // The browser has begun to read it by the next turn of its loop; some begin only then.
  setTimeout(() => URL.revokeObjectURL(url), RELEASE_MS);
}

/** The name of a file of measurements to `server`, taken at `now`: letters that every file system takes. */
export function fileName(server, ending, now = new Date()) {
  const place = String(server ?? '').replace(/[^\p{L}\p{N}.-]+/gu, '-').replace(/^[-.]+|[-.]+$/g, '').slice(0, PLACE_CHARS_MAX);
  const time = now.toISOString().slice(0, 19).replaceAll(':', '') + 'Z';
  return ['barograph', place, time].filter(Boolean).join('_') + `.${ending}`;
}

const RELEASE_MS = 10_000;
// File systems take names of 255 bytes; a letter may need four of them.
const PLACE_CHARS_MAX = 40;
