// What speaks with stations, in a file of its own: `mirrors.js` loads it only where a station is to be compared,
// so that pages of downloads alone stay light.
import { Station } from './station.js';

window.barographMirrors.Station = Station;
