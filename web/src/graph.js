// One graph: the measured values, the forecasts issued for them, the next forecast, and those
// further ahead.
import uPlot from 'uplot';
import { formatClock, formatTicks } from './format.js';

/**
 * A graph inside `place`, as wide as it and `height` CSS pixels high.
 *
 * The forecast of the next measurement is in a margin to the right of the plot: it has no time yet,
 * and its distance from the last point is one step, whatever the step. The forecasts further ahead
 * follow as a fan, each one step after the other: on the scale of the plot an hour may be wider
 * than the graph, or narrower than a pixel.
 */
export class Graph {
  /**
   * Calls `hovered(index, ahead)` with the row under the pointer or `null`, and the position in the
   * fan or `null`.
   */
  constructor(place, hovered, height = GRAPH_HEIGHT) {
    this.place = place;
    this.height = height;
    this.trace = null;
    this.over_ahead = null;
    this.ink = readInk(place);
    this.hovered = hovered;
    this.plot = new uPlot(this.#options(), [[], [], [], [], []], place);
    this.plot.root.addEventListener('mousemove', (event) => this.#hover(event.clientX));
    this.plot.root.addEventListener('mouseleave', () => this.#hover(-Infinity));
    this.resizer = new ResizeObserver(() => this.#fit());
    this.resizer.observe(place);
  }

  /** Draws a trace (see `traceOf`). */
  draw(trace) {
    const before = this.trace?.fan.length;
    this.trace = trace;
    this.plot.setData(trace.columns);
    // Otherwise uPlot computes the margin again only when a scale changes.
    if (trace.fan.length !== before) this.plot.redraw(false, true);
  }

  /** Reads the colours again, after the theme changed. */
  recolour() {
    this.ink = readInk(this.place);
    this.plot.redraw(false, true);
  }

  /** Releases the plot and its observer. */
  destroy() {
    this.resizer.disconnect();
    this.plot.destroy();
  }

  #fit() {
    const width = this.place.clientWidth;
    if (0 < width && width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }

  #options() {
    const ink = (name) => () => this.ink[name];
    const axis = (more) => ({
      stroke: ink('label'),
      font: FONT,
      grid: { stroke: ink('major'), width: 1 },
      ticks: { show: false },
      ...more,
    });
    const hidden = { stroke: 'transparent', width: 0, points: { show: false } };
    return {
      width: this.place.clientWidth || 320,
      height: this.height,
      padding: [6, () => this.#marginWidth(), 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: {
        // uPlot gives a single time a range of years, so the trace sets the range.
        x: { time: true, range: () => this.#timeRange() },
        y: { range: () => this.trace?.range ?? [0, 1] },
      },
      axes: [
        axis({
          size: 22,
          gap: 5,
          space: 62,
          values: (u, splits, i, space, step_s) => {
            if (!this.#hasRows()) return splits.map(() => '');
            this.minor_x = between(splits, 6);
            // The label "next" is there.
            const end = u.bbox.width / uPlot.pxRatio - LABEL_WIDTH / 2;
            return splits.map((time_s) => {
              const at = u.valToPos(time_s, 'x');
              return at < UNIT_WIDTH || end < at ? '' : formatClock(new Date(time_s * 1000), step_s < 60);
            });
          },
        }),
        axis({
          size: AXIS_WIDTH,
          gap: 6,
          space: 30,
          values: (u, splits) => {
            if (!this.trace?.has_values) {
              this.minor_y = [];
              // Failures have no height to read off.
              return splits.map(() => '');
            }
            this.minor_y = between(splits, 5);
            return formatTicks(splits);
          },
        }),
      ],
      series: [
        {},
        { ...hidden },
        { ...hidden },
        { stroke: ink('forecast'), width: 1.25, points: { show: false } },
        {
          stroke: ink('measured'),
          width: 1,
          points: { show: true, size: 3.2, width: 0, fill: ink('measured') },
        },
      ],
      bands: [{ series: [1, 2], fill: ink('band') }],
      hooks: {
        drawClear: [(u) => this.#drawPaper(u)],
        draw: [(u) => this.#drawMarks(u)],
        setCursor: [(u) => this.#report(u)],
      },
    };
  }

  // The fan is outside of what uPlot's cursor covers.
  #hover(client_x) {
    const x = client_x - this.plot.over.getBoundingClientRect().right - AHEAD_WIDTH / 2;
    const before = this.over_ahead;
    const step = this.trace ? this.#fanStep() : Infinity;
    this.over_ahead = step / 2 < x ? Math.round(x / step) - 1 : null;
    if (this.over_ahead !== before) this.#report(this.plot);
  }

  #report({ cursor: { left, idx } }) {
    this.hovered(left < 0 ? null : (idx ?? null), this.over_ahead);
  }

  // Position of forecast `i` ahead, 0 for the next value, in pixels of the canvas.
  #xAhead({ left, width }, i) {
    return left + width + (AHEAD_WIDTH / 2 + i * this.#fanStep()) * uPlot.pxRatio;
  }

  // Width of the margin for what is ahead, in CSS pixels.
  #marginWidth() {
    const steps = this.trace?.fan.length ?? 0;
    return steps === 0 ? AHEAD_WIDTH : AHEAD_WIDTH + steps * this.#fanStep();
  }

  // Distance of two forecasts further ahead, in CSS pixels: less on a narrow graph, so that most of
  // it stays for what was measured.
  #fanStep() {
    const room = MARGIN_SHARE_MAX * (this.plot.width - AXIS_WIDTH) - AHEAD_WIDTH;
    return clamp(room / this.trace.fan.length, FAN_STEP_MIN, FAN_STEP);
  }

  #timeRange() {
    if (!this.#hasRows()) return [0, 1];
    const [times] = this.trace.columns;
    const [first_s, last_s] = [times[0], times.at(-1)];
    return [Math.min(first_s, last_s - TIME_S_MIN), last_s];
  }

  #hasRows() {
    return this.trace !== null && 0 < this.trace.columns[0].length;
  }

  // Background under the axes: the plot area, the fine grid, and the tinted margin for what is
  // ahead.
  #drawPaper(u) {
    const { ctx } = u;
    const { left, top, width, height } = u.bbox;
    const ratio = uPlot.pxRatio;
    const margin = this.#marginWidth() * ratio;
    ctx.save();
    ctx.fillStyle = this.ink.sheet;
    ctx.fillRect(left, top, width, height);
    ctx.fillStyle = this.ink.ahead;
    ctx.fillRect(left + width, top, margin, height);

    ctx.strokeStyle = this.ink.minor;
    ctx.lineWidth = Math.max(1, Math.round(ratio));
    const offset = (ctx.lineWidth % 2) / 2;
    ctx.beginPath();
    for (const value of this.minor_y ?? []) {
      const y = Math.round(u.valToPos(value, 'y', true)) + offset;
      if (y < top || top + height < y) continue;
      ctx.moveTo(left, y);
      ctx.lineTo(left + width + margin, y);
    }
    for (const value of this.minor_x ?? []) {
      const x = Math.round(u.valToPos(value, 'x', true)) + offset;
      if (x < left || left + width < x) continue;
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + height);
    }
    this.trace?.fan.forEach((_, i) => {
      const x = Math.round(this.#xAhead(u.bbox, i + 1)) + offset;
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + height);
    });
    ctx.stroke();
    ctx.restore();
  }

  // Marks that are not lines: failures, values off the axis, the newest value, and the next
  // forecast.
  #drawMarks(u) {
    if (!this.#hasRows()) return;
    const { ctx } = u;
    ctx.save();
    this.#drawFailures(u, ctx);
    this.#drawOffPaper(u, ctx);
    this.#drawAhead(u, ctx);
    ctx.restore();
  }

  // A failure is a cross at the upper edge with a hair line down: it has no height, because it has
  // no value.
  #drawFailures(u, ctx) {
    const { top, height } = u.bbox;
    const arm = 3 * uPlot.pxRatio;
    ctx.strokeStyle = this.ink.failure;
    for (const time_s of this.trace.failures) {
      const x = u.valToPos(time_s, 'x', true);
      const y = top + arm + uPlot.pxRatio;
      ctx.globalAlpha = 1;
      ctx.lineWidth = 1.5 * uPlot.pxRatio;
      ctx.beginPath();
      ctx.moveTo(x - arm, y - arm);
      ctx.lineTo(x + arm, y + arm);
      ctx.moveTo(x - arm, y + arm);
      ctx.lineTo(x + arm, y - arm);
      ctx.stroke();
      ctx.globalAlpha = 0.35;
      ctx.lineWidth = uPlot.pxRatio;
      ctx.beginPath();
      ctx.moveTo(x, y + arm);
      ctx.lineTo(x, top + height);
      ctx.stroke();
    }
    ctx.globalAlpha = 1;
  }

  // A value beyond the range is an arrow head at the edge that it passed.
  #drawOffPaper(u, ctx) {
    const [times, , , , measured] = this.trace.columns;
    const [low, high] = this.trace.range;
    const { top, height } = u.bbox;
    const size = 4 * uPlot.pxRatio;
    ctx.fillStyle = this.ink.measured;
    measured.forEach((value, i) => {
      if (value === null || (low <= value && value <= high)) return;
      const x = u.valToPos(times[i], 'x', true);
      const [edge, inward] = high < value ? [top, size * 1.5] : [top + height, -size * 1.5];
      ctx.beginPath();
      ctx.moveTo(x, edge);
      ctx.lineTo(x - size, edge + inward);
      ctx.lineTo(x + size, edge + inward);
      ctx.fill();
    });
  }

  #drawAhead(u, ctx) {
    const ratio = uPlot.pxRatio;
    const { left, top, width, height } = u.bbox;
    const now = left + width;
    const x = this.#xAhead(u.bbox, 0);

    ctx.fillStyle = this.ink.label;
    ctx.font = scaleFont(FONT, ratio);
    ctx.textAlign = 'center';
    ctx.textBaseline = 'top';
    const { ahead, fan, has_ahead } = this.trace;
    if (has_ahead) this.#labelAhead(u, ctx, top + height + 5 * ratio);

    // A dot marks the newest value.
    const [times, , , , measured] = this.trace.columns;
    const last = measured.at(-1);
    if (last !== null) {
      ctx.fillStyle = this.ink.measured;
      ctx.beginPath();
      ctx.arc(u.valToPos(times.at(-1), 'x', true), clamp(u.valToPos(last, 'y', true), top, top + height), 3.2 * ratio, 0, 7);
      ctx.fill();
    }
    ctx.strokeStyle = this.ink.edge;
    ctx.lineWidth = ratio;
    ctx.beginPath();
    ctx.moveTo(now, top);
    ctx.lineTo(now, top + height);
    ctx.stroke();

    if (!ahead || ahead.value === null) return;
    const position = (value) => clamp(u.valToPos(value, 'y', true), top, top + height);
    this.#drawFan(u, ctx, position);
    if (ahead.lower !== null && ahead.upper !== null) {
      const [upper, lower] = [position(ahead.upper), position(ahead.lower)];
      const half = 6 * ratio;
      ctx.fillStyle = this.ink.band;
      if (fan.length === 0) ctx.fillRect(x - half, upper, 2 * half, lower - upper);
      ctx.strokeStyle = this.ink.forecast;
      ctx.lineWidth = ratio;
      ctx.beginPath();
      ctx.moveTo(x - half, upper);
      ctx.lineTo(x + half, upper);
      ctx.moveTo(x - half, lower);
      ctx.lineTo(x + half, lower);
      ctx.stroke();
    }
    const y = position(ahead.value);
    const arm = 5 * ratio;
    ctx.fillStyle = this.ink.forecast;
    ctx.beginPath();
    ctx.moveTo(x, y - arm);
    ctx.lineTo(x + arm, y);
    ctx.lineTo(x, y + arm);
    ctx.lineTo(x - arm, y);
    ctx.fill();
  }

  // Labels of what is ahead. If there is no room for all, every second one, with the last.
  #labelAhead(u, ctx, y) {
    const labels = ['next', ...this.trace.fan.map(({ seconds }) => (seconds < 3600 ? `${seconds / 60}m` : `${seconds / 3600}h`))];
    const every = this.#fanStep() < FAN_STEP ? 2 : 1;
    for (let i = labels.length - 1; 0 <= i; i -= every) ctx.fillText(labels[i], this.#xAhead(u.bbox, i), y);
  }

  // The fan ahead, from the next value on: the band of the intervals and the line of the forecasts.
  #drawFan(u, ctx, position) {
    const { ahead, fan } = this.trace;
    const steps = [ahead, ...fan].map((one, i) => ({ ...one, x: this.#xAhead(u.bbox, i) }));
    const known = steps.filter(({ lower }) => lower !== null);
    ctx.fillStyle = this.ink.band;
    ctx.beginPath();
    for (const { x, upper } of known) ctx.lineTo(x, position(upper));
    for (const { x, lower } of known.reverse()) ctx.lineTo(x, position(lower));
    ctx.fill();
    ctx.strokeStyle = this.ink.forecast;
    ctx.lineWidth = 1.25 * uPlot.pxRatio;
    ctx.beginPath();
    for (const { x, value } of steps) ctx.lineTo(x, position(value));
    ctx.stroke();
  }
}

/** Height of a graph with its time axis, in CSS pixels; the style sheet reserves the same. */
export const GRAPH_HEIGHT = 176;

/**
 * Height of a graph of this browser's measurements, in CSS pixels: five fit on a screen below the
 * console.
 */
export const OWN_HEIGHT = 156;

/**
 * Height of each of two graphs instead of one, in CSS pixels; the style sheet reserves twice that.
 */
export const PART_HEIGHT = 144;

// Width of one mark and its label, in CSS pixels.
const AHEAD_WIDTH = 34;
// Distance of two forecasts further ahead, in CSS pixels: the label `15m` and some space.
const FAN_STEP = 24;
// The same in a narrow graph: twice this has room for the labels `next` and `15m`.
const FAN_STEP_MIN = 14;
// Largest share of a graph, without its axis, that the margin for what is ahead takes.
const MARGIN_SHARE_MAX = 0.4;
// Width of the value axis, in CSS pixels.
const AXIS_WIDTH = 46;
// Half a time label and some space, in CSS pixels.
const LABEL_WIDTH = 64;
// The shortest range of time (s): labels are whole seconds, and there are up to a dozen.
const TIME_S_MIN = 12;
// Part of the widest unit for which the axis has no room, beside half a label, in CSS pixels.
const UNIT_WIDTH = 16;
const FONT = '11px system-ui, sans-serif';

/** Lines of the fine grid: `parts` between two lines of the axis, also beyond the outer lines. */
function between(splits, parts) {
  if (splits.length < 2) return [];
  const field = splits[1] - splits[0];
  const lines = [];
  for (let i = -1; i < splits.length; i += 1) {
    for (let part = 1; part < parts; part += 1) lines.push(splits[0] + field * (i + part / parts));
  }
  return lines;
}

function readInk(place) {
  const style = getComputedStyle(place);
  return Object.fromEntries(INKS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function scaleFont(font, ratio) {
  return font.replace(/^\d+/, (size) => String(Number(size) * ratio));
}

function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

// Colours that the style sheet defines.
const INKS = ['sheet', 'ahead', 'minor', 'major', 'edge', 'label', 'measured', 'forecast', 'band', 'failure'];
