// One line of time: the runs of the program, its epochs by phase, what failed, and the savepoints.
// Each thing is a link to its own page.
import { html } from "./html.js";
import { history, now, page } from "./pages.js";
import { clock, coarse, count, duration, exact, known, plural } from "./format.js";
import { Empty, Problem, Waiting } from "./components.js";
import { PHASES, PhaseKey, phasesOf } from "./phases.js";

const SPANS = [["last minute", 60e3], ["5 minutes", 300e3], ["1 hour", 3600e3], ["6 hours", 6 * 3600e3], ["all", Infinity]];
const WIDTH = 1000;
const LEFT = 96;
const LANES = { run: 22, epoch: 62, failure: 118, savepoint: 152 };
const BAR = 40;
const HEIGHT = 196;
const view = { span: 300e3 };

export function Timeline({ jid, job }) {
  const entry = history(jid);
  const points = entry.data?.series;
  const lineage = page(`/jobs/${jid}/lineage`, 2000);
  const failures = page(`/jobs/${jid}/exceptions`, 2000).data?.exceptionHistory.entries || [];
  const savepoints = page(`/jobs/${jid}/savepoints`, 2000).data?.savepoints || [];
  if (!points || !lineage.data) return html`<${Waiting} of=${points ? lineage : entry} what="timeline" />`;
  const ids = points.id || [];
  if (!ids.length) return html`<${Empty} title="Nothing has happened yet"><p>The line begins with the first checkpoint.</p><//>`;
  const runs = lineage.data.executions;
  const last = job["end-time"] > 0 ? job["end-time"] : now();
  const first = Math.min(points.trigger_timestamp[0], ...runs.map((run) => run["start-time"]));
  const from = Math.max(first, last - view.span);
  const shared = { jid, from, to: last, x: (ms) => LEFT + ((WIDTH - LEFT) * (Math.min(Math.max(ms, from), last) - from)) / Math.max(last - from, 1) };
  const epochs = ids.map((_, i) => i).filter((i) => endOf(points, i) >= from);
  const failed = failures.filter((one) => one.timestamp >= from);
  const taken = savepoints.filter((one) => endAt(one) >= from);
  return html`
    <div class="plot-tools">
      <span role="group" aria-label="How much of the time">
        ${SPANS.map(([label, span]) => html`<button type="button" aria-pressed=${view.span === span} onClick=${() => show(span)}>${label}</button>`)}
      </span>
      <span class="note">${plural(epochs.length, "epoch")}, ${plural(failed.length, "failure")}, ${plural(taken.length, "savepoint")}</span>
    </div>
    ${!!entry.error && html`<${Problem}>${entry.error}<//>`}
    <section class="card">
      <div class="scroll" tabindex="0" role="region" aria-label="Timeline">
        <svg class="timeline" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-label=${`From ${exact(from)} to ${exact(last)}`}>
          ${[["Runs", "run"], ["Epochs", "epoch"], ["Failures", "failure"], ["Savepoints", "savepoint"]].map(([label, lane]) => html`<text class="lane" x="0" y=${LANES[lane] + 5}>${label}</text>`)}
          <${Ticks} ...${shared} />
          ${runs.filter((run) => (run["end-time"] < 0 ? last : run["end-time"]) >= from).map((run) => html`<${Run} key=${run.number} ...${shared} run=${run} next=${runs.find((one) => one.number === run.number + 1)} />`)}
          ${epochs.map((i) => html`<${Epoch} key=${`${ids[i]}:${points.trigger_timestamp[i]}`} ...${shared} points=${points} i=${i} />`)}
          ${failed.map((one) => html`<${Failure} key=${`${one.timestamp}:${one.epoch}`} ...${shared} one=${one} />`)}
          ${taken.map((one) => html`<${Savepoint} key=${`${one.id}:${one.trigger_timestamp}`} ...${shared} one=${one} />`)}
        </svg>
      </div>
      <div class="under"><${PhaseKey} /><span class="note">✕ failed · ↻ restarted · ◆ savepoint</span></div>
    </section>
  `;
}

function show(span) {
  view.span = span;
  dispatchEvent(new Event("draw"));
}

const endAt = (one) => one.trigger_timestamp + Math.max(one.end_to_end_duration, 0);
const endOf = (points, i) => points.trigger_timestamp[i] + Math.max(points.end_to_end_duration[i] ?? 0, 0);

function Ticks({ from, to, x }) {
  const steps = [1e3, 5e3, 15e3, 60e3, 300e3, 900e3, 3600e3, 6 * 3600e3, 24 * 3600e3];
  const step = steps.find((each) => (to - from) / each <= 8) || 7 * 24 * 3600e3;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
  return ticks.map((at) => html`<g class="tick"><line x1=${x(at)} x2=${x(at)} y1="8" y2=${HEIGHT - 22} /><text x=${x(at)} y=${HEIGHT - 6}>${clock(at)}</text></g>`);
}

// One run of the program; without a recorded end it was killed, or goes on.
function Run({ jid, run, next, from, to, x }) {
  const killed = run["end-time"] < 0 && run.state !== "UNOBSERVED" && (next || run.state === "UNREACHABLE");
  const end = run["end-time"] > 0 ? run["end-time"] : Math.min(next?.["start-time"] ?? to, to);
  const said = `Run ${run.number}: ${killed ? "no end recorded" : run.state.toLowerCase()}, from ${exact(run["start-time"])}, ${coarse(end - run["start-time"])}`;
  return html`<a href=${`#/jobs/${jid}/executions`} aria-label=${said}><title>${said}</title>
    <rect class=${`run ${killed ? "killed" : ""}`} x=${x(run["start-time"])} y=${LANES.run - 7} width=${Math.max(x(end) - x(run["start-time"]), 2)} height="14" rx="3" />
    ${run["start-time"] >= from && html`<text class="sign" x=${x(run["start-time"]) + 2} y=${LANES.run + 4}>▶</text>`}
  </a>`;
}

function Epoch({ jid, points, i, x }) {
  const [id, at, took] = [points.id[i], points.trigger_timestamp[i], points.end_to_end_duration[i]];
  const failed = points.status[i] === "FAILED";
  const said = `Epoch ${id}: ${failed ? "failed after " : ""}${duration(took)}, at ${exact(at)}${known(points.records_in?.[i]) ? `, ${count(points.records_in[i])} rows` : ""}`;
  let begin = at;
  const parts = failed ? [] : phasesOf(points, i).map((ms, p) => {
    const start = begin;
    begin += known(ms) ? ms : 0;
    return known(ms) && ms > 0 && html`<rect class=${PHASES[p].css} x=${x(start)} y=${LANES.epoch - BAR / 2} width=${Math.max(x(begin) - x(start), 0.4)} height=${BAR} />`;
  });
  return html`<a href=${`#/jobs/${jid}/checkpoints/history/${id}`} aria-label=${said}><title>${said}</title>
    ${failed ? html`<rect class="failed" x=${x(at)} y=${LANES.epoch - BAR / 2} width=${Math.max(x(endOf(points, i)) - x(at), 2)} height=${BAR} />` : parts}
  </a>`;
}

function Failure({ jid, one, x }) {
  const said = `${one.exceptionName}${one.epoch >= 0 ? ` in epoch ${one.epoch}` : ""}, at ${exact(one.timestamp)}: ${one.restarted ? "restarted" : "the job ended"}`;
  return html`<a href=${`#/jobs/${jid}/exceptions`} aria-label=${said}><title>${said}</title>
    <text class=${`sign ${one.restarted ? "warn" : "bad"}`} x=${x(one.timestamp)} y=${LANES.failure + 5}>${one.restarted ? "↻" : "✕"}</text>
  </a>`;
}

function Savepoint({ jid, one, x }) {
  const said = `Savepoint of epoch ${one.id}: ${one.status.toLowerCase().replace("_", " ")}, at ${exact(one.trigger_timestamp)}`;
  return html`<a href=${`#/jobs/${jid}/savepoints/${one.id}`} aria-label=${said}><title>${said}</title>
    <line class="took" x1=${x(one.trigger_timestamp)} x2=${x(endAt(one))} y1=${LANES.savepoint} y2=${LANES.savepoint} />
    <text class=${`sign ${one.status === "FAILED" ? "bad" : "good"}`} x=${x(one.trigger_timestamp)} y=${LANES.savepoint + 5}>${one.status === "FAILED" ? "✕" : "◆"}</text>
  </a>`;
}
