// One checkpoint, opened in the history: its figures, its operators, and their subtasks.
import { html } from "./html.js";
import { page } from "./pages.js";
import { bytes, count, duration, exact, known, plainName } from "./format.js";
import { Copy, Time, Waiting } from "./components.js";
import { PHASES, PhaseBar } from "./phases.js";

const open = new Set(); // operators whose subtasks are shown

export function Details({ jid, id, triggered, status }) {
  const every = status === "IN_PROGRESS" ? 1000 : 0;
  const entry = page(`/jobs/${jid}/checkpoints/details/${id}${triggered ? `?triggered=${triggered}` : ""}`, every);
  const one = entry.data;
  if (!one) return html`<${Waiting} of=${entry} what="details" />`;
  const tasks = Object.entries(one.tasks);
  const columns = TASK_COLUMNS.filter(([, value]) => tasks.some(([, task]) => known(value(task))));
  const link = `${location.origin}${location.pathname}#/jobs/${jid}/checkpoints/history/${id}`;
  const parts = page(`/jobs/${jid}/guarantees`, 10_000).data?.parts || [];
  const described = (uid, task) => parts.find((part) => part.uid === uid)?.description || plainName(task.name);
  return html`
    ${one.phases && html`<${PhaseBar} values=${PHASES.map(({ key }) => one.phases[key])} />`}
    <dl class="pairs">
      <${Pair} name="Triggered" value=${exact(one.trigger_timestamp)} />
      <${Pair} name="Last acknowledged" value=${exact(one.latest_ack_timestamp)} />
      ${one.phases && PHASES.map(({ key, label, css, hint }) => html`<${Pair} hint=${hint} name=${html`<span class=${`swatch ${css}`} aria-hidden="true"></span>${label}`} value=${duration(one.phases[key])} />`)}
      ${!one.is_savepoint && html`<${Pair} name="Start delay" value=${duration(one.start_delay)} />
      <${Pair} name="Alignment" value=${`${duration(one.alignment.duration)}${one.unaligned_checkpoint ? ", unaligned" : ""}`} />`}
      <${Pair} name="Added / full size" value=${`${bytes(one.checkpointed_size)} / ${bytes(one.state_size)}`} />
      ${!one.is_savepoint && html`<${Pair} name="Processed / in-flight" value=${`${bytes(one.processed_data)} / ${bytes(one.persisted_data)}`} />`}
      <${Pair} name="Link" value=${html`<a href=${link}>checkpoint ${id}</a> <${Copy} text=${link} what="the link" />`} />
      <${Pair} name="Type" value=${`${one.savepointFormat ? `${one.savepointFormat.toLowerCase()} ` : ""}${one.checkpoint_type.toLowerCase()}`} />
      ${one.external_path && html`<${Pair} name="Lies in" wide value=${html`<code>${one.external_path}</code>${one.discarded ? " (deleted)" : ""}`} />`}
      ${one.failure_message && html`<${Pair} name="Failed" wide value=${html`<${Time} at=${one.failure_timestamp} />: <span class="reason">${one.failure_message}</span>`} />`}
      ${!!Object.keys(one.spark_durations || {}).length && html`<${Pair} name="Spark's own times" wide value=${sparkTimes(one.spark_durations)} />`}
    </dl>
    ${tasks.length
      ? html`<div class="scroll" tabindex="0" role="region" aria-label=${`Operators of checkpoint ${id}`}>
          <table class="list operators">
            <thead><tr>
              <th scope="col"><span class="unseen">Expand</span></th><th scope="col">Operator</th><th scope="col">Acknowledged</th>
              ${columns.map(([label, , , hint]) => html`<th scope="col" class="num" title=${hint}>${label}</th>`)}
            </tr></thead>
            ${tasks.map(([uid, task]) => html`<${Operator} key=${uid} place=${`${jid}:${id}:${triggered}:${uid}`} uid=${uid} task=${task} columns=${columns} name=${described(uid, task)} />`)}
          </table>
        </div>`
      : html`<p class="none">Nothing is known of its operators${status === "IN_PROGRESS" ? " yet" : ""}.</p>`}
  `;
}

function Pair({ name, value, wide, hint }) {
  return html`<div class=${wide ? "full" : ""} title=${hint}><dt>${name}</dt><dd>${value}</dd></div>`;
}

function sparkTimes(durations) {
  return Object.entries(durations).map(([name, ms]) => `${name} ${duration(ms)}`).join(", ");
}

// Of a whole operator. What none of them tells is left out.
const TASK_COLUMNS = [
  ["Duration", (task) => task.end_to_end_duration, duration],
  ["Sync", (task) => task.checkpoint.sync, duration],
  ["Async", (task) => task.checkpoint.async, duration],
  ["Alignment", (task) => Math.max(-1, ...(task.subtasks || []).map((one) => one.alignment.duration)), duration, "The longest wait of a subtask for the last one"],
  ["Added", (task) => task.checkpointed_size, bytes],
  ["Full size", (task) => task.state_size, bytes],
  ["Rows", (task) => task.rows, count],
  ["Processed", (task) => task.processed_data, bytes],
  ["In-flight", (task) => task.persisted_data || -1, bytes],
  ["Skew", (task) => task.skew ?? -1, (skew) => (known(skew) ? `${skew.toFixed(1)} ×` : "–"), "What the busiest subtask had, as a multiple of the mean"],
];

function Operator({ place, uid, task, columns, name }) {
  const expanded = open.has(place);
  const toggle = () => {
    if (!open.delete(place)) open.add(place);
    dispatchEvent(new Event("draw"));
  };
  return html`<tbody>
    <tr>
      <td class="expander"><button type="button" class="toggle" aria-expanded=${expanded} aria-label=${`Subtasks of ${uid}`} onClick=${toggle}>${expanded ? "▾" : "▸"}</button></td>
      <th scope="row"><span class=${`kind ${task.kind}`}>${task.kind}</span> ${uid} <span class="note">${name}</span>${task.unaligned_checkpoint && html` <span class="tag" title="Rows in flight are stored with the checkpoint">unaligned</span>`}</th>
      <td>${task.num_acknowledged_subtasks}/${task.num_subtasks}</td>
      ${columns.map(([, value, unit]) => html`<td class="num">${unit(value(task))}</td>`)}
    </tr>
    ${expanded && html`<tr class="details"><td colspan=${3 + columns.length}><${Subtasks} uid=${uid} task=${task} /></td></tr>`}
  </tbody>`;
}

const COLUMNS = [
  ["Duration", (s) => s.end_to_end_duration, duration, (s) => s.end_to_end_duration],
  ["Sync", (s) => s.checkpoint.sync, duration, (s) => s.checkpoint_duration.sync],
  ["Async", (s) => s.checkpoint.async, duration, (s) => s.checkpoint_duration.async],
  ["Start delay", (s) => s.start_delay, duration, (s) => s.start_delay],
  ["Alignment", (s) => s.alignment.duration, duration, (s) => s.alignment.duration],
  ["Added", (s) => s.checkpointed_size, bytes, (s) => s.checkpointed_size],
  ["Full size", (s) => s.state_size, bytes, (s) => s.state_size],
  ["Processed", (s) => s.alignment.processed, bytes, (s) => s.alignment.processed],
  ["In-flight", (s) => s.alignment.persisted || -1, bytes, (s) => s.alignment.persisted],
];

function noSubtasks({ kind, num_subtasks }) {
  if (kind === "source") return "A source has one entry in the offset log, and no figures of subtasks.";
  return num_subtasks ? "There are no figures of its subtasks." : "No subtask had rows for it.";
}

function Subtasks({ uid, task }) {
  const subtasks = task.subtasks || [];
  if (!subtasks.length) return html`<p class="none">${noSubtasks(task)}</p>`;
  // Spark does not tell every time of every kind: a column without one figure is left out.
  const columns = COLUMNS.filter(([, value]) => subtasks.some((one) => known(value(one))));
  const acknowledged = subtasks.some((one) => known(one.ack_timestamp));
  const rows = subtasks.map((one) => one.rows);
  const ofRows = { min: Math.min(...rows), avg: rows.reduce((a, b) => a + b, 0) / rows.length, max: Math.max(...rows) };
  return html`<table class="list subtasks" aria-label=${`Subtasks of ${uid}`}>
    <thead><tr><th scope="col" class="num">Subtask</th>${columns.map(([label]) => html`<th scope="col" class="num">${label}</th>`)}<th scope="col" class="num">Rows</th>${acknowledged && html`<th scope="col">Acknowledged</th>`}</tr></thead>
    <tbody>
      ${subtasks.length > 1 &&
      ["min", "avg", "max"].map((which) => html`<tr class="sum"><th scope="row" class="num">${which}</th>${columns.map(([, , unit, summary]) => html`<td class="num">${unit(Number(summary(task.summary)[which]))}</td>`)}<td class="num" colspan=${acknowledged ? 2 : 1}>${count(ofRows[which])}</td></tr>`)}
      ${subtasks.map((one) => html`<tr><th scope="row" class="num">${one.index}${one.unaligned_checkpoint && html` <span class="tag" title="Its rows in flight are stored with the checkpoint">unaligned</span>`}</th>${columns.map(([, value, unit]) => html`<td class="num">${unit(value(one))}</td>`)}<td class="num">${count(one.rows)}</td>${acknowledged && html`<td>${known(one.ack_timestamp) ? exact(one.ack_timestamp).slice(11) : "–"}</td>`}</tr>`)}
    </tbody>
  </table>`;
}
