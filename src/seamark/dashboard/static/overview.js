// The first page of a job: is it well, where is it now, and how do its rows flow.
import { html } from "./html.js";
import { history, now, page } from "./pages.js";
import { bytes, coarse, count, duration, known, plainName, rate } from "./format.js";
import { Figure, Time, isLive } from "./components.js";
import { PHASES, PhaseKey, phasesOf } from "./phases.js";
import { Graph } from "./graph.js";

const RECENT = 40;

export function Overview({ jid, job }) {
  const checkpoints = history(jid).data;
  const points = checkpoints?.series;
  return html`
    <${Figures} jid=${jid} job=${job} found=${checkpoints} points=${points} />
    <div class="columns">
      <section class="card" aria-labelledby="epoch-title">
        ${isLive(job.state) ? html`<${Epoch} found=${checkpoints} points=${points} />` : html`<${LastEpoch} jid=${jid} found=${checkpoints} />`}
      </section>
      <section class="card" aria-labelledby="recent-title">
        <h2 id="recent-title">Last checkpoints</h2>
        <${Recent} jid=${jid} points=${points} />
      </section>
    </div>
    <section class="card" aria-labelledby="graph-title">
      <h2 id="graph-title">The way of the data</h2>
      <${Flow} jid=${jid} job=${job} />
    </section>
  `;
}

function Figures({ jid, job, found, points }) {
  if (!found) return null;
  const { counts, summary, latest } = found;
  const last = latest.completed;
  const failed = latest.failed;
  const lag = points?.lag?.at(-1);
  return html`<dl class="figures">
    <${Figure} name="Last checkpoint" value=${last ? last.id : "none yet"} note=${last && html`<${Time} at=${last.trigger_timestamp} />`} />
    <${Figure} name="Its duration" value=${duration(last?.end_to_end_duration)} note=${last && `median ${duration(summary.end_to_end_duration.p50)}`} />
    <${Figure} name="Completed" value=${count(counts.completed)} note="with savepoints" hint="Checkpoints and savepoints since the job's directory was made" />
    <${Figure} name="Failed" value=${count(counts.failed)} tone=${counts.failed ? "bad" : ""} note=${failed && html`last <a href=${`#/jobs/${jid}/checkpoints/failed`}><${Time} at=${failed.trigger_timestamp} /></a>`} />
    <${Figure} name="Full size" value=${bytes(last?.state_size)} note=${last && `+${bytes(last.checkpointed_size)}`} hint="What a restore of the last checkpoint reads, and what it added to the storage" />
    ${isLive(job.state) && html`<${Figure} name="Rows in" value=${rate(together(job, "source"))} hint="Rows a second that the sources gave, over the last minute, ten checkpoints at least" />`}
    ${isLive(job.state) && html`<${Figure} name="Rows out" value=${rate(together(job, "sink"))} hint="Rows a second that the sinks took, over the last minute, ten checkpoints at least" />`}
    ${known(lag) && html`<${Figure} name="Lag" value=${count(lag)} note="rows" hint="Rows that the sources held when the last checkpoint was planned and that it left to later ones" />`}
  </dl>`;
}

// The rates of all sources, or of all sinks, together; null where one does not know its own.
function together(job, kind) {
  const rates = (job.vertices || []).filter((one) => one.kind === kind).map((one) => one.metrics["records-per-second"]);
  return rates.length && rates.every(known) ? rates.reduce((a, b) => a + b, 0) : null;
}

// --- the epoch under way

const WORDS = { IDLE: "Waiting for the next trigger", WAITING: "Waiting until earlier epochs are committed" };

// Of the same answer as the figures above: two answers are of two moments.
function Epoch({ found, points }) {
  const epoch = found?.epoch;
  if (!epoch) return html`<h2 id="epoch-title">The epoch under way</h2><p class="none">The driver does not say.</p>`;
  const place = PHASES.findIndex(({ state }) => state === epoch.phase);
  const usual = PHASES.map(({ key }) => median(points?.[key]?.slice(-RECENT)));
  const there = now() - epoch["phase-since"];
  const waiting = WORDS[epoch.phase];
  const uncommitted = (epoch.uncommitted || []).filter((one) => one.id !== epoch.id);
  return html`
    <h2 id="epoch-title">The epoch under way${epoch.id >= 0 ? html` <span class="note">${epoch.id}</span>` : ""}</h2>
    <ol class="phases">
      ${PHASES.map(({ label, css, hint }, i) => {
        const state = i === place ? "now" : i < place ? "over" : "";
        return html`<li class=${`${css} ${state}`} aria-current=${i === place ? "step" : undefined} title=${hint}>
          <span class="bar" aria-hidden="true"></span>
          <span class="label">${i === place ? "▸ " : i < place ? "✓ " : ""}${label}</span>
          <span class="note">${i === place ? html`<b>${live(there)}</b>` : ""}${known(usual[i]) ? html` <span class="usual">usually ${duration(usual[i])}</span>` : ""}</span>
        </li>`;
      })}
    </ol>
    <p class="epoch-line">
      ${waiting ? html`${waiting}${epoch["phase-since"] > 0 ? `, for ${live(there)}` : ""}.` : epoch["trigger-timestamp"] > 0 ? html`Triggered <${Time} at=${epoch["trigger-timestamp"]} />.` : ""}
      ${" "}Last completed: <b>${epoch["last-completed"] >= 0 ? epoch["last-completed"] : "none yet"}</b>.
    </p>
    ${!!uncommitted.length &&
    html`<p class="epoch-line">Stored, not committed yet: ${uncommitted.map((one, i) => html`${i ? ", " : ""}<b>${one.id}</b> (${one.phase.toLowerCase().replace("_", " ")} for ${live(now() - one["phase-since"])})`)}.</p>`}
  `;
}

const live = (ms) => (ms < 10_000 ? duration(Math.max(ms, 0)) : coarse(ms));

function median(values) {
  const sorted = (values || []).filter(known).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
}

function LastEpoch({ jid, found }) {
  const last = found?.latest.completed;
  return html`
    <h2 id="epoch-title">The last epoch</h2>
    ${last
      ? html`<p class="big"><a href=${`#/jobs/${jid}/checkpoints`}>${last.id}</a></p>
          <p>Completed <${Time} at=${last.trigger_timestamp + Math.max(last.end_to_end_duration, 0)} />. The job's program goes on after it:</p>
          <pre>seamark run app.py</pre>
          ${!last.discarded && html`<p>Another job can begin from it:</p><pre>seamark run -s ${last.external_path} app.py</pre>`}`
      : html`<p class="none">No epoch was completed.</p>`}
  `;
}

// --- the last checkpoints, one thin column each

function Recent({ jid, points }) {
  const length = points?.id?.length || 0;
  if (!length) return html`<p class="none">${points ? "No checkpoint has ended yet." : "Loading…"}</p>`;
  const from = Math.max(0, length - RECENT);
  const indexes = Array.from({ length: length - from }, (_, i) => from + i);
  const durations = indexes.map((i) => (points.status[i] === "COMPLETED" && points.end_to_end_duration[i]) || 0);
  // One spike, a driver's first epoch say, would make all others flat: it is cut off.
  const most = Math.max(Math.min(Math.max(...durations), 5 * median(durations.filter(Boolean))), 1);
  const taller = durations.filter((ms) => ms > most).length;
  const height = 96;
  const bars = indexes.map((index, i) => {
    let top = height;
    const failed = points.status[index] === "FAILED";
    const title = `${points.id[index]}: ${failed ? "failed after " : ""}${duration(points.end_to_end_duration[index])}`;
    const values = failed ? [] : phasesOf(points, index);
    const parts = values.map((value, p) => {
      const size = Math.min((height * (known(value) ? value : 0)) / most, top);
      top -= size;
      return html`<rect class=${PHASES[p].css} x=${i * 10} y=${top} width="8" height=${size} />`;
    });
    return html`<g><title>${title}</title>
      ${failed ? html`<rect class="failed" x=${i * 10} y="0" width="8" height=${height} /><text x=${i * 10 + 4} y=${height - 4}>✕</text>` : parts}
      ${durations[i] > most && html`<path class="cut" d=${`M${i * 10 - 1} 7l5 -4l5 4`} />`}
    </g>`;
  });
  const failures = indexes.filter((i) => points.status[i] === "FAILED").length;
  return html`
    <svg class="recent" viewBox=${`0 0 ${RECENT * 10} ${height}`} preserveAspectRatio="none" role="img"
      aria-label=${`Durations of the last ${indexes.length} checkpoints; the longest took ${duration(Math.max(...durations))}; ${failures} failed`}>
      ${bars}
    </svg>
    <div class="under"><${PhaseKey} /><span class="note">full height: ${duration(most)}${taller ? `; ${taller} longer, cut off` : ""}</span></div>
    <p><a href=${`#/jobs/${jid}/checkpoints`}>All checkpoints</a> · <a href=${`#/jobs/${jid}/plots`}>Plots over time</a></p>
  `;
}

// --- the graph

// Spark's name of a source may be no more than its class: what the program says of it is better.
function describe(name, part) {
  return plainName(name) !== name && part ? part.description : plainName(name);
}

function Flow({ jid, job }) {
  const guarantees = page(`/jobs/${jid}/guarantees`, 10_000);
  const parts = new Map((guarantees.data?.parts || []).map((part) => [part.uid, part]));
  let nodes = (job.vertices || []).map((vertex) => ({
    id: vertex.id,
    kind: vertex.kind,
    name: describe(vertex.description || "", parts.get(vertex.id)),
    nameless: vertex["has-uid"] === false,
    parallelism: vertex.parallelism,
    guarantee: vertex.guarantee || parts.get(vertex.id)?.guarantee,
    why: parts.get(vertex.id)?.why,
    rate: vertex.metrics["records-per-second"],
    busy: vertex.metrics["busy-share"],
    lag: vertex.metrics["lag-records"],
    watermark: vertex.metrics.watermark,
    rows: vertex.kind === "source" ? vertex.metrics["write-records"] : vertex.metrics["read-records"],
  }));
  if (!nodes.length) {
    nodes = [...parts.values()]
      .filter((part) => ["source", "operator", "sink"].includes(part.kind))
      .map((part) => ({ id: part.uid, kind: part.kind, name: part.description, guarantee: part.guarantee, why: part.why }));
  }
  if (!nodes.length) return html`<p class="none">Nothing is known of its sources, operators and sinks.</p>`;
  const sinks = new Map((guarantees.data?.sinks || []).map((sink) => [sink.uid, { guarantee: sink.guarantee, note: [sink.note, sink.weakest && `Set by ${sink.weakest}.`, sink.remedy].filter(Boolean).join(" ") }]));
  const edges = (job.plan?.nodes || []).flatMap((node) => (node.inputs || []).map((input) => [input.id, node.id]));
  return html`<${Graph} nodes=${nodes} edges=${edges} sinks=${sinks} live=${isLive(job.state)} />`;
}
