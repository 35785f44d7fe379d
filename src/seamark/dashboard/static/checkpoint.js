// One checkpoint, opened in the history: its figures, its operators, and their subtasks.
import { html } from "./html.js";
import { page } from "./pages.js";
import { bytes, count, duration, exact, known, plainName } from "./format.js";
import { Time, Waiting } from "./components.js";
import { PHASES, PhaseBar } from "./phases.js";

const open = new Set(); // operators whose subtasks are shown

export function Details({ jid, id, triggered, status }) {
  const every = status === "IN_PROGRESS" ? 1000 : 0;
  const entry = page(`/jobs/${jid}/checkpoints/details/${id}?triggered=${triggered}`, every);
  const one = entry.data;
  if (!one) return html`<${Waiting} of=${entry} what="details" />`;
  const tasks = Object.entries(one.tasks);
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
              <th scope="col" class="num">Duration</th><th scope="col" class="num">Sync</th><th scope="col" class="num">Async</th>
              <th scope="col" class="num">Added</th><th scope="col" class="num">Full size</th><th scope="col" class="num">Rows</th><th scope="col" class="num">Processed</th>
            </tr></thead>
            ${tasks.map(([uid, task]) => html`<${Operator} key=${uid} place=${`${jid}:${id}:${triggered}:${uid}`} uid=${uid} task=${task} name=${described(uid, task)} />`)}
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

function Operator({ place, uid, task, name }) {
  const expanded = open.has(place);
  const toggle = () => {
    if (!open.delete(place)) open.add(place);
    dispatchEvent(new Event("draw"));
  };
  return html`<tbody>
    <tr>
      <td class="expander"><button type="button" class="toggle" aria-expanded=${expanded} aria-label=${`Subtasks of ${uid}`} onClick=${toggle}>${expanded ? "▾" : "▸"}</button></td>
      <th scope="row"><span class=${`kind ${task.kind}`}>${task.kind}</span> ${uid} <span class="note">${name}</span></th>
      <td>${task.num_acknowledged_subtasks}/${task.num_subtasks}</td>
      <td class="num">${duration(task.end_to_end_duration)}</td>
      <td class="num">${duration(task.checkpoint.sync)}</td>
      <td class="num">${duration(task.checkpoint.async)}</td>
      <td class="num">${bytes(task.checkpointed_size)}</td>
      <td class="num">${bytes(task.state_size)}</td>
      <td class="num">${count(task.rows)}</td>
      <td class="num">${bytes(task.processed_data)}</td>
    </tr>
    ${expanded && html`<tr class="details"><td colspan="10"><${Subtasks} uid=${uid} task=${task} /></td></tr>`}
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
  ["In-flight", (s) => s.alignment.persisted, bytes, (s) => s.alignment.persisted],
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
  return html`<table class="list subtasks" aria-label=${`Subtasks of ${uid}`}>
    <thead><tr><th scope="col" class="num">Subtask</th>${columns.map(([label]) => html`<th scope="col" class="num">${label}</th>`)}<th scope="col" class="num">Rows</th><th scope="col">Acknowledged</th></tr></thead>
    <tbody>
      ${subtasks.length > 1 &&
      ["min", "avg", "max"].map((which) => html`<tr class="sum"><th scope="row" class="num">${which}</th>${columns.map(([, , unit, summary]) => html`<td class="num">${unit(Number(summary(task.summary)[which]))}</td>`)}<td></td><td></td></tr>`)}
      ${subtasks.map((one) => html`<tr><th scope="row" class="num">${one.index}</th>${columns.map(([, value, unit]) => html`<td class="num">${unit(value(one))}</td>`)}<td class="num">${count(one.rows)}</td><td>${known(one.ack_timestamp) ? exact(one.ack_timestamp).slice(11) : "–"}</td></tr>`)}
    </tbody>
  </table>`;
}
