// The code that measures stations, in a file of its own: `mirrors.js` loads it only to compare a
// station, so that pages with downloads only stay light.
import { Station } from './station.js';

window.barographMirrors.Station = Station;
