// Sites proposed by forecasts, as sentences: the response of `/v1/sites` (docs/spec/mesh.md §6).
import { element, setText } from './dom.js';
import { formatIn, scaleFor } from './format.js';

/** A list of proposed sites with reasons; hidden if there are none. */
export class Sites {
  constructor() {
    this.parts = Object.fromEntries(['mesh_sites', 'mesh_sites_title', 'mesh_place', 'mesh_site_list'].map((id) => [id, document.getElementById(id)]));
  }

  /** Shows the response of `/v1/sites`; `null` if the station knows none. */
  show(answer) {
    const told = answer && describe(answer);
    this.parts.mesh_sites.hidden = !told || (told.sites.length === 0 && !answer.pending);
    if (this.parts.mesh_sites.hidden) return;
    setText(this.parts.mesh_sites_title, told.title);
    setText(this.parts.mesh_place, told.place);
    const shape = JSON.stringify(told.sites);
    if (shape === this.shape) return;
    this.shape = shape;
    const items = told.sites.map(({ name, text }) => element('li', {}, element('strong', {}, name), `: ${text}`));
    this.parts.mesh_site_list.replaceChildren(...items);
  }
}

/**
 * A response as `{title, place, sites: [{name, text}]}`. Hosts without any forecast share one
 * sentence.
 */
export function describe({ host, now, proposed, pending, sees, sites, unknown }) {
  const known = sites.filter(({ hosts }) => !hosts.every((one) => unknown.includes(one)));
  const told = known.map(({ site, hosts, representative, reason, next, too_close_to_call: close }) => ({
    name: site,
    text: [
      `${reason}${next ? ` (${interval(next)})` : ''}.`,
      1 < hosts.length && (representative ? ` ${representative} would represent it.` : ' No representative is proposed until its pairs are measured.'),
      0 < close.length && ` Too close to call: ${close.join(', ')}.`,
    ]
      .filter(Boolean)
      .join(''),
  }));
  const count = told.length === 1 ? '1 site' : `${told.length} sites`;
  const missing = unknown.length === 0 ? '' : ` No round-trip time is forecast yet for ${unknown.join(', ')}.`;
  const own = sees === 'own' ? ' This station sees only its own forecasts.' : '';
  return { title: `Sites by forecast round-trip time: ${count}`, place: `${placeOf({ host, now, proposed, pending })}${missing}${own}`, sites: told };
}

function placeOf({ host, now, proposed, pending }) {
  const is = `${host} is at site ${now.site}${now.represents ? ' and represents it' : ''} (${FROM[now.from] ?? now.from}).`;
  if (pending) {
    const within = pending.represents ? 'starts to represent it' : 'stops representing it';
    const what = pending.site === now.site ? within : `moves to ${pending.site}`;
    return `${is} It ${what} in ${Math.ceil(pending.in_s / 60)} min if the forecasts do not change.`;
  }
  const is_same = proposed?.site === now.site && proposed.represents === now.represents;
  if (!proposed || is_same || now.from === 'configured') return is;
  const role = proposed.represents ? 'represented by this station' : 'represented by another station';
  return `${is} Proposed site: ${proposed.site}, ${role}. To accept it, run barograph sites --accept at every station of the site.`;
}

function interval({ lower, upper }) {
  const scale = scaleFor('s', upper);
  return `90\u202f% interval ${formatIn(lower, scale)} to ${formatIn(upper, scale)}\u202f${scale.label}`;
}

const FROM = { default: 'not configured', configured: 'configured', accepted: 'accepted', auto: 'automatic' };
