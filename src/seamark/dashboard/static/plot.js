// One plot over time, by uPlot (vendor/): lines, or phases stacked on each other, with marks.
import uPlot from "./vendor/uPlot.esm.js";
import { html, Component } from "./html.js";
import { exact } from "./format.js";

const SIGNS = { failed: "✕", failure: "↻", start: "▶" };
const ROWS = { failed: 0, failure: 1, start: 2 }; // below each other: they often come together

// Times of day; at the first one and at each midnight the date too.
function dated(ticks) {
  let day = "";
  return ticks.map((s) => {
    const [date, time] = exact(s * 1000).slice(0, 19).split(" ");
    const shown = date === day ? time : `${time}\n${date}`;
    day = date;
    return shown;
  });
}

// `lines`: [{label, css (a custom property's name), values, fill}]; `times` in seconds.
export class Plot extends Component {
  componentDidMount() {
    this.remake = () => this.make();
    addEventListener("themechange", this.remake);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this.remake);
    this.watcher = new ResizeObserver(() => this.plot?.setSize(this.size()));
    this.watcher.observe(this.element);
    this.make();
  }

  componentWillUnmount() {
    removeEventListener("themechange", this.remake);
    matchMedia("(prefers-color-scheme: dark)").removeEventListener("change", this.remake);
    this.watcher.disconnect();
    this.plot?.destroy();
  }

  componentDidUpdate(before) {
    const { times, zoom } = this.props;
    const same = before.times.length === times.length && before.times.at(-1) === times.at(-1) && before.times[0] === times[0];
    if (!same) this.plot.setData(this.ordered(), false);
    if (!same || before.zoom !== zoom || before.clip !== this.props.clip) this.setRange();
    else this.plot.redraw(false);
  }

  // A custom property as the canvas takes it: rgb(…), light or dark as it is now.
  colour(name) {
    this.element.style.color = `var(--${name})`;
    const found = getComputedStyle(this.element).color;
    this.element.style.color = "";
    return found;
  }

  size() {
    return { width: Math.max(this.element.clientWidth, 100), height: this.props.height || 180 };
  }

  // A stacked line is the sum of those below it; a checkpoint that lacks a phase is left out.
  data() {
    const { times, lines, stacked } = this.props;
    if (!stacked) return [times, ...lines.map(({ values }) => values)];
    const sums = lines.map(() => []);
    times.forEach((_, i) => {
      let sum = 0;
      const whole = lines.some(({ values }) => values[i] !== null);
      lines.forEach(({ values }, l) => sums[l].push(whole ? (sum += values[i] ?? 0) : null));
    });
    return [times, ...sums];
  }

  // The top of the y axis: with `clip`, twice what 95 of 100 points stay below.
  top(plot, max) {
    if (!this.props.clip || !plot.data) return max;
    const highest = plot.data[0].map((_, i) => Math.max(...plot.data.slice(1).map((column) => column[i] ?? 0)));
    const usual = highest.sort((a, b) => a - b)[Math.floor(highest.length * 0.95)];
    return Math.min(max, 2 * usual) || max;
  }

  setRange() {
    const { times, zoom } = this.props;
    const [min, max] = zoom || [times[0], times.at(-1)];
    this.plot.setScale("x", { min, max: Math.max(max, min + 1) });
  }

  make() {
    this.plot?.destroy();
    const colour = (name) => this.colour(name);
    const { lines, stacked, unit, onZoom } = this.props;
    const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, font: "11px system-ui, sans-serif" };
    const shown = lines.map(({ label, css, fill }, l) => ({
      label,
      stroke: colour(css),
      width: stacked ? 0.5 : 1.5,
      fill: stacked ? colour(css) : fill ? colour(css).replace(/^rgb\((.*)\)$/, "rgba($1, 0.15)") : undefined,
      points: { show: false },
      value: (_, __, ___, i) => unit(i == null ? null : this.props.lines[l].values[i]),
    }));
    // Stacked: the highest sum is drawn first, and what lies below it over it.
    const order = stacked ? [...shown.keys()].reverse() : [...shown.keys()];
    this.order = order;
    this.plot = new uPlot(
      {
        ...this.size(),
        cursor: { sync: { key: "plots" }, drag: { x: true, y: false, setScale: false }, y: false },
        scales: { x: { time: true }, y: { range: (plot, __, max) => [0, 1.08 * this.top(plot, max) || 1] } },
        series: [{ label: "Triggered", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" }, ...order.map((l) => shown[l])],
        axes: [{ ...axis, space: 80, values: (_, ticks) => dated(ticks) }, { ...axis, size: 64, values: (_, ticks) => ticks.map(unit) }],
        hooks: {
          draw: [(plot) => this.drawMarks(plot, colour)],
          setSelect: [
            (plot) => {
              const { left, width } = plot.select;
              if (width > 4) onZoom([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
              plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
      },
      this.ordered(),
      this.element,
    );
    this.setRange();
  }

  ordered() {
    const data = this.data();
    return [data[0], ...this.order.map((l) => data[l + 1])];
  }

  drawMarks(plot, colour) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    for (const { time, kind } of this.props.marks) {
      const x = plot.valToPos(time, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = colour(kind === "start" ? "muted" : "bad");
      ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top + 12 * devicePixelRatio);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(SIGNS[kind], x, bbox.top + (9 + 12 * ROWS[kind]) * devicePixelRatio);
    }
    ctx.restore();
  }

  render({ label }) {
    return html`<div class="plot" role="img" aria-label=${label} ref=${(element) => element && (this.element = element)}></div>`;
  }
}
