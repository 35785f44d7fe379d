// How checkpoints went over time: durations by phase, sizes, in-flight data, rates, lag; failures
// and restarts as marks. Drag over a plot to look closer at a time; all plots follow.
import { html } from "./html.js";
import { history as checkpoints, page } from "./pages.js";
import { bytes, count, duration, rate } from "./format.js";
import { Empty, Loading, Problem, Time } from "./components.js";
import { PHASES, phasesOf } from "./phases.js";
import { Plot } from "./plot.js";

const LAST = [50, 200, 1000];
const view = { last: 200, zoom: null, clip: false };

function show(change) {
  Object.assign(view, change);
  dispatchEvent(new Event("draw"));
}

// A link to a time: #/jobs/<id>/plots/<first>-<last>, in seconds since 1970.
function zoomed(jid, part, zoom) {
  if (zoom === undefined) {
    const found = /^(\d+)-(\d+)$/.exec(part || "");
    return found ? [Number(found[1]), Number(found[2])] : null;
  }
  const at = zoom ? `/${Math.floor(zoom[0])}-${Math.ceil(zoom[1])}` : "";
  history.replaceState(null, "", `#/jobs/${jid}/plots${at}`);
  return zoom;
}

export function Plots({ jid, part }) {
  if (view.jid !== jid) Object.assign(view, { jid, zoom: zoomed(jid, part) });
  const entry = checkpoints(jid);
  const found = entry.data?.series;
  const exceptions = page(`/jobs/${jid}/exceptions`, 2000).data;
  const lineage = page(`/jobs/${jid}/lineage`, 2000).data;
  if (!found) return entry.error ? html`<${Problem}>${entry.error}<//>` : html`<${Loading} what="plots" />`;
  const length = found.id?.length || 0;
  if (length < 2) return html`<${Empty} title="Not enough to plot yet"><p>Plots begin with the second checkpoint.</p><//>`;
  const points = completed(found, Math.max(0, length - view.last), lineage);
  const times = points.trigger_timestamp.map((ms) => ms / 1000);
  const marks = marksOf(found, exceptions, lineage, times[0]);
  const shared = { times, marks, zoom: view.zoom, clip: view.clip, onZoom: (zoom) => show({ zoom: zoomed(jid, part, zoom) }) };
  const gaps = times.map((time, i) => (i + 1 < times.length ? times[i + 1] - time : null));
  const perSecond = (rows) => rows.map((value, i) => (value === null || !gaps[i] ? null : value / gaps[i]));
  const some = (name) => points[name]?.some((value) => value !== null);
  return html`
    <div class="plot-tools">
      <span role="group" aria-label="How many checkpoints">
        ${LAST.map((last) => html`<button type="button" aria-pressed=${view.last === last} onClick=${() => show({ last, zoom: zoomed(jid, part, null) })}>last ${count(last)}</button>`)}
      </span>
      <label title="Let single spikes be cut off at the top"><input type="checkbox" checked=${view.clip} onChange=${() => show({ clip: !view.clip })} /> cut off spikes</label>
      <button type="button" disabled=${!view.zoom} onClick=${() => show({ zoom: zoomed(jid, part, null) })}>Whole range</button>
      <span class="note">Drag over a plot to look closer.</span>
    </div>
    <${Marks} marks=${marks} />
    <div class="plots">
      <${Card} title="End-to-end duration by phase" tall>
        <${Plot} ...${shared} stacked unit=${duration} height=${240}
          lines=${PHASES.map(({ label, key, css }) => ({ label, css, values: points[key] }))} label="End-to-end duration of each checkpoint, by phase" />
      <//>
      <${Card} title="Sizes">
        <${Plot} ...${shared} unit=${bytes} label="Sizes of each checkpoint"
          lines=${[{ label: "Full size", css: "c1", values: points.state_size, fill: true }, { label: "Added", css: "c2", values: points.checkpointed_size }]} />
      <//>
      <${Card} title="Rows in and out">
        <${Plot} ...${shared} unit=${rate} label="Rows a second in and out"
          lines=${[{ label: "In", css: "c1", values: perSecond(points.records_in) }, { label: "Out", css: "c2", values: perSecond(points.records_out) }]} />
      <//>
      <${Card} title="Data of each checkpoint">
        <${Plot} ...${shared} unit=${bytes} label="Processed and in-flight data"
          lines=${[{ label: "Processed", css: "c1", values: points.processed_data }, { label: "In-flight, stored", css: "c3", values: points.persisted_data }]} />
      <//>
      <${Card} title="Lag">
        ${some("lag")
          ? html`<${Plot} ...${shared} unit=${count} label="Rows that the sources held back" lines=${[{ label: "Rows not read yet", css: "c3", values: points.lag, fill: true }]} />`
          : html`<p class="none">None of this job's sources tells how far behind it is. Kafka does.</p>`}
      <//>
    </div>
    <details class="as-table"><summary>The last 20 as a table</summary><${Table} points=${points} /></details>
  `;
}

// The completed points from `from` on. Where a driver was started there is a hole: nothing ran before it.
function completed(data, from, lineage) {
  const starts = (lineage?.executions || []).map((one) => one["start-time"]);
  const { trigger_timestamp: at } = data;
  const points = {};
  for (const name in data) points[name] = [];
  for (let i = from; i < at.length; i++) {
    if (i > from && starts.some((start) => start > at[i - 1] && start <= at[i])) {
      for (const name in data) points[name].push(null);
      points.trigger_timestamp.splice(-1, 1, at[i] - 1);
    }
    // A failed one has no phases and no sizes: it is a mark.
    if (data.status[i] === "COMPLETED") for (const name in data) points[name].push(data[name][i]);
  }
  return points;
}

function Card({ title, tall, children }) {
  return html`<section class=${tall ? "card tall" : "card"}><h2>${title}</h2>${children}</section>`;
}

// What happened beside the checkpoints: {time (s), kind}.
function marksOf(points, exceptions, lineage, first) {
  const marks = [];
  points.status.forEach((status, i) => {
    if (status === "FAILED") marks.push({ time: points.trigger_timestamp[i] / 1000, kind: "failed" });
  });
  for (const one of exceptions?.exceptionHistory.entries || []) {
    marks.push({ time: one.timestamp / 1000, kind: "failure" });
  }
  for (const one of lineage?.executions || []) {
    marks.push({ time: one["start-time"] / 1000, kind: "start" });
  }
  return marks.filter(({ time }) => time >= first).sort((a, b) => a.time - b.time);
}

const MARKS = { failed: ["✕", "failed checkpoint"], failure: ["↻", "failure of the job"], start: ["▶", "start of a driver"] };

function Marks({ marks }) {
  const kinds = Object.keys(MARKS).filter((kind) => marks.some((mark) => mark.kind === kind));
  if (!kinds.length) return null;
  return html`<ul class="key">${kinds.map((kind) => html`<li><span class=${`mark ${kind}`} aria-hidden="true">${MARKS[kind][0]}</span>${MARKS[kind][1]} (${marks.filter((mark) => mark.kind === kind).length})</li>`)}</ul>`;
}

function Table({ points }) {
  const last = points.id.map((_, i) => i).filter((i) => points.id[i] !== null).slice(-20).reverse();
  return html`<div class="scroll" tabindex="0" role="region" aria-label="The last 20 checkpoints"><table class="list">
    <thead><tr><th scope="col" class="num">Id</th><th scope="col">Status</th><th scope="col">Triggered</th><th scope="col" class="num">Duration</th>${PHASES.map(({ label }) => html`<th scope="col" class="num">${label}</th>`)}<th scope="col" class="num">Full size</th><th scope="col" class="num">Rows in</th><th scope="col" class="num">Rows out</th><th scope="col" class="num">Lag</th></tr></thead>
    <tbody>${last.map((i) => html`<tr><th scope="row" class="num">${points.id[i]}</th><td>${points.status[i].toLowerCase()}</td><td><${Time} at=${points.trigger_timestamp[i]} /></td><td class="num">${duration(points.end_to_end_duration[i])}</td>${phasesOf(points, i).map((ms) => html`<td class="num">${duration(ms)}</td>`)}<td class="num">${bytes(points.state_size[i])}</td><td class="num">${count(points.records_in[i])}</td><td class="num">${count(points.records_out[i])}</td><td class="num">${count(points.lag[i])}</td></tr>`)}</tbody>
  </table></div>`;
}
