// Addresses of stations: which can be asked from this page at all. Pure.

/**
 * The address of a station as the rest here needs it: `http` or `https`, ending in `/`. A file is left out. What has no scheme gets
 * `scheme`. Throws a `TypeError`.
 */
export function stationUrl(text, scheme = 'http:') {
  if (typeof text !== 'string') throw new TypeError('the address of a station is a text');
  let url;
  try {
    url = new URL(/^[a-z]+:\/\//i.test(text) ? text : `${scheme}//${text}`);
  } catch {
    throw new TypeError(`${text} is not an address such as https://station.example:10132/`);
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw new TypeError(`a station is reached by http or https, not ${url.protocol}`);
  if (url.username !== '' || url.password !== '') throw new TypeError('the address of a station holds no name and no password');
  url.search = '';
  url.hash = '';
  // The last word is a file that a station serves, or the folder that it is served under.
  if (/[^/]*\.[^/]*$/.test(url.pathname)) url.pathname = url.pathname.replace(/[^/]*$/, '');
  else if (!url.pathname.endsWith('/')) url.pathname += '/';
  return url.href;
}

/**
 * What stands in the way of measuring `text` from a page at `location` (a `URL` or `Location`): `null`, or
 * `{blocks, reason}` with a sentence for the reader. What blocks cannot work; anything else is a hint.
 */
export function obstacle(text, location) {
  if (typeof text !== 'string') throw new TypeError('the address of a station is a text');
  let url;
  try {
    url = new URL(stationUrl(text, location.protocol));
  } catch (error) {
    return { blocks: true, reason: error.message };
  }
  const page_is_near = isLoopback(location.hostname) || isPrivate(location.hostname);
  // Mixed content: browsers let a secure page open plain connections to its own computer at most.
  if (location.protocol === 'https:' && url.protocol === 'http:') {
    if (isLoopback(url.hostname)) return hint('Not every browser lets a page that came by https measure a station on this computer by http.');
    return {
      blocks: true,
      reason: `A page that came by https cannot open plain connections. Open the page of that station itself: ${url.href}`,
    };
  }
  if (url.origin === location.origin || page_is_near) return null;
  // Local Network Access: public pages need the reader's permission for addresses of the local network.
  if (isLoopback(url.hostname) || isPrivate(url.hostname)) {
    return hint('That station is in a local network: the browser may ask for your permission, or refuse. Its own page always can.');
  }
  return null;
}

function hint(reason) {
  return { blocks: false, reason };
}

/** Whether a `hostname` as a `URL` gives it is this computer (W3C Secure Contexts §3.1). */
export function isLoopback(hostname) {
  return /^(.*\.)?localhost$/.test(hostname) || /^127(\.\d+){3}$/.test(hostname) || hostname === '[::1]';
}

// RFC 1918, RFC 3927, RFC 4193, RFC 4291 §2.5.6, RFC 6762.
function isPrivate(hostname) {
  return (
    // A whole address: a name may begin like one.
    /^(10\.\d+|192\.168|169\.254|172\.(1[6-9]|2\d|3[01]))(\.\d+){2}$/.test(hostname) ||
    /^\[(f[cd]|fe[89ab])/i.test(hostname) ||
    hostname.endsWith('.local')
  );
}
