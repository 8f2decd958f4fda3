// Which stations form a site by their forecasts, in sentences: what `/v1/sites` answers (docs/spec/mesh.md §6).
import { element, setText } from './dom.js';
import { formatIn, scaleFor } from './format.js';

/** A list that tells which sites are proposed, and why; it is not there where there is nothing to tell. */
export class Sites {
  constructor() {
    this.parts = Object.fromEntries(['mesh_sites', 'mesh_sites_title', 'mesh_place', 'mesh_site_list'].map((id) => [id, document.getElementById(id)]));
  }

  /** Takes the answer of `/v1/sites`; `null` where the station knows none. */
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

/** An answer as `{title, place, sites: [{name, text}]}`; hosts of which nothing is known are in one sentence. */
export function describe({ host, now, proposed, pending, sees, sites, unknown }) {
  const known = sites.filter(({ hosts }) => !hosts.every((one) => unknown.includes(one)));
  const told = known.map(({ site, hosts, representative, reason, next, too_close_to_call: close }) => ({
    name: site,
    text: [
      `${reason}${next ? ` (${interval(next)})` : ''}.`,
      1 < hosts.length && (representative ? ` ${representative} would represent it.` : ' No representative is proposed while that is unknown.'),
      0 < close.length && ` Too close to call: ${close.join(', ')}.`,
    ]
      .filter(Boolean)
      .join(''),
  }));
  const count = told.length === 1 ? '1 site' : `${told.length} sites`;
  const missing = unknown.length === 0 ? '' : ` No round trip is forecast yet of ${unknown.join(', ')}.`;
  const own = sees === 'own' ? ' These are this station’s own forecasts alone.' : '';
  return { title: `Sites by their forecasts: ${count}`, place: `${placeOf({ host, now, proposed, pending })}${missing}${own}`, sites: told };
}

function placeOf({ host, now, proposed, pending }) {
  const is = `${host} is at ${now.site}${now.represents ? ', which it represents' : ''} (${WHO[now.from] ?? now.from}).`;
  if (pending) {
    const within = pending.represents ? 'will represent it' : 'leaves that to another';
    const what = pending.site === now.site ? within : `goes to ${pending.site}`;
    return `${is} It ${what} in ${Math.ceil(pending.in_s / 60)} min if the forecasts stay so.`;
  }
  const is_same = proposed?.site === now.site && proposed.represents === now.represents;
  if (!proposed || is_same || now.from === 'configured') return is;
  const role = proposed.represents ? 'which it would represent' : 'which another represents';
  return `${is} Proposed for it is ${proposed.site}, ${role}: barograph sites --accept, at every station of the site.`;
}

function interval({ lower, upper }) {
  const scale = scaleFor('s', upper);
  return `90\u202f% interval ${formatIn(lower, scale)} to ${formatIn(upper, scale)}\u202f${scale.label}`;
}

const WHO = { default: 'nobody said', configured: 'as configured', accepted: 'accepted', auto: 'by itself' };
