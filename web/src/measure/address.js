// Addresses of stations, and which of them a page can measure. Pure.

/**
 * Normalises the address of a station: `http` or `https`, ending in `/`. Removes a file name; adds
 * `scheme` if there is none. Throws a `TypeError`.
 */
export function stationUrl(text, scheme = 'http:') {
  if (typeof text !== 'string') throw new TypeError('the address of a station must be text');
  let url;
  try {
    url = new URL(/^[a-z]+:\/\//i.test(text) ? text : `${scheme}//${text}`);
  } catch {
    throw new TypeError(`${text} is not an address such as https://station.example:10132/`);
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw new TypeError(`a station is reached by http or https, not ${url.protocol}`);
  if (url.username !== '' || url.password !== '') throw new TypeError('the address of a station must not contain a user name or password');
  url.search = '';
  url.hash = '';
  // The last segment is a file of the station, or the folder under which it is served.
  if (/[^/]*\.[^/]*$/.test(url.pathname)) url.pathname = url.pathname.replace(/[^/]*$/, '');
  else if (!url.pathname.endsWith('/')) url.pathname += '/';
  return url.href;
}

/**
 * Why a page at `location` (a `URL` or `Location`) may not measure `text`: `null`, or `{blocks,
 * reason}` with a sentence for the reader. If `blocks` is false, the reason is only a hint.
 */
export function obstacle(text, location) {
  if (typeof text !== 'string') throw new TypeError('the address of a station must be text');
  let url;
  try {
    url = new URL(stationUrl(text, location.protocol));
  } catch (error) {
    return { blocks: true, reason: error.message };
  }
  const page_is_near = isLoopback(location.hostname) || isPrivate(location.hostname);
  // Mixed content: browsers let a secure page open plain connections only to its own computer.
  if (location.protocol === 'https:' && url.protocol === 'http:') {
    if (isLoopback(url.hostname)) return hint('Some browsers do not let an https page measure a station on this computer over http. If this fails, open that station’s own page.');
    return {
      blocks: true,
      reason: `An https page cannot open plain http connections. Open that station’s own page instead: ${url.href}`,
    };
  }
  if (url.origin === location.origin || page_is_near) return null;
  // Local Network Access: public pages need the reader's permission for addresses of the local
  // network.
  if (isLoopback(url.hostname) || isPrivate(url.hostname)) {
    return hint('That station is in a local network: the browser may ask for your permission or refuse. If it refuses, open that station’s own page.');
  }
  return null;
}

function hint(reason) {
  return { blocks: false, reason };
}

/** Whether a `hostname` of a `URL` is this computer (W3C Secure Contexts §3.1). */
export function isLoopback(hostname) {
  return /^(.*\.)?localhost$/.test(hostname) || /^127(\.\d+){3}$/.test(hostname) || hostname === '[::1]';
}

// RFC 1918, RFC 3927, RFC 4193, RFC 4291 §2.5.6, RFC 6762.
function isPrivate(hostname) {
  return (
    // A whole address, because a name may begin like one.
    /^(10\.\d+|192\.168|169\.254|172\.(1[6-9]|2\d|3[01]))(\.\d+){2}$/.test(hostname) ||
    /^\[(f[cd]|fe[89ab])/i.test(hostname) ||
    hostname.endsWith('.local')
  );
}
