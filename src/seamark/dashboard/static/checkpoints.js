// The checkpoint pages: counts and the latest of each kind, the history down to subtasks, the
// summary with percentiles, the configuration.
import { html } from "./html.js";
import { now, page } from "./pages.js";
import { UNKNOWN, bytes, coarse, count, duration, plural } from "./format.js";
import { Empty, Figure, State, Time, Waiting } from "./components.js";
import { Details } from "./checkpoint.js";

const ROWS = 50;
const PARTS = { history: "History", failed: "Failed", summary: "Summary", configuration: "Configuration" };

export function Checkpoints({ jid, part, item }) {
  const shown = PARTS[part] ? part : "history";
  if (shown === "history" && /^\d+$/.test(item || "")) return html`<${One} key=${item} jid=${jid} id=${Number(item)} />`;
  return html`
    <${Latest} jid=${jid} />
    <nav class="tabs small" aria-label="Parts of the checkpoint pages">
      ${Object.entries(PARTS).map(
        ([name, label]) => html`<a href=${`#/jobs/${jid}/checkpoints/${name}`} aria-current=${name === shown ? "page" : undefined}>${label}</a>`,
      )}
    </nav>
    ${shown === "summary" && html`<${Summary} jid=${jid} />`}
    ${shown === "configuration" && html`<${Configuration} jid=${jid} />`}
    ${(shown === "history" || shown === "failed") && html`<${History} key=${shown} jid=${jid} failed=${shown === "failed"} />`}
  `;
}

// One checkpoint by itself: what a link to it opens.
function One({ jid, id }) {
  const known = page(`/jobs/${jid}/checkpoints?limit=1`).data?.latest.completed?.id;
  return html`
    <div class="bar">
      <p class="note"><a href=${`#/jobs/${jid}/checkpoints`}>All checkpoints</a></p>
      <nav class="actions" aria-label="Checkpoints beside this one">
        ${id > 0 && html`<a href=${`#/jobs/${jid}/checkpoints/history/${id - 1}`}>‹ ${id - 1}</a>`}
        ${known > id && html`<a href=${`#/jobs/${jid}/checkpoints/history/${id + 1}`}>${id + 1} ›</a>`}
      </nav>
    </div>
    <section class="card"><h2>Checkpoint ${id}</h2><${Details} jid=${jid} id=${id} /></section>
  `;
}

function Latest({ jid }) {
  const entry = page(`/jobs/${jid}/checkpoints?limit=1`);
  if (!entry.data) return html`<${Waiting} of=${entry} what="checkpoints" />`;
  const { counts, latest, summary } = entry.data;
  const { completed, failed, restored, savepoint } = latest;
  return html`<dl class="figures">
    <${Figure} name="Triggered" value=${count(counts.total)} note="with savepoints" hint="Checkpoints and savepoints since the job's directory was made" />
    <${Figure} name="In progress" value=${count(counts.in_progress)} />
    <${Figure} name="Completed" value=${count(counts.completed)} note="with savepoints" />
    <${Figure} name="Failed" value=${count(counts.failed)} tone=${counts.failed ? "bad" : ""} />
    <${Figure} name="Restored" value=${count(counts.restored)} hint="How often a driver went on from a checkpoint" />
    <${Figure} name="Latest completed" value=${completed ? completed.id : "none"} note=${completed && html`<${Time} at=${completed.trigger_timestamp} />, ${duration(completed.end_to_end_duration)}`} />
    <${Figure} name="Latest failed" value=${failed ? failed.id : "none"} note=${failed && html`<${Time} at=${failed.trigger_timestamp} />`} hint=${failed?.failure_message} />
    <${Figure} name="Latest restored" value=${restored ? restored.id : "none"} note=${restored && html`<${Time} at=${restored.restore_timestamp} />`} hint=${restored?.external_path} />
    ${savepoint && html`<${Figure} name="Latest savepoint" value=${html`<a href=${`#/jobs/${jid}/savepoints`}>${savepoint.id}</a>`} note=${html`<${Time} at=${savepoint.trigger_timestamp} />`} hint=${savepoint.external_path} />`}
    <${Figure} name="Median duration" value=${duration(summary.end_to_end_duration.p50)} note=${`p99 ${duration(Number(summary.end_to_end_duration.p99))}`} />
  </dl>`;
}

// --- history

const open = new Set(); // which rows are expanded, by job, id and trigger
const before = new Map(); // which page is shown, by job: the trigger time that it ends before
const drawn = new Map(); // what was shown last, by job
const held = new Map(); // the same of the newest page while a row in it is open, so that it stays

function History({ jid, failed }) {
  const place = `${jid}${failed ? ":failed" : ""}`;
  const stack = before.get(place) || [];
  const until = stack.at(-1) ?? held.get(place);
  const status = failed ? "&status=FAILED" : "";
  const path = `/jobs/${jid}/checkpoints?limit=${ROWS}${status}${until ? `&before=${until}` : ""}`;
  const entry = page(path, stack.length ? 10_000 : 1000);
  if (entry.data) drawn.set(place, entry.data);
  const found = drawn.get(place); // until another part has come, what was there stays
  if (!found) return html`<${Waiting} of=${entry} what="history" />`;
  const { history, matching, older } = found;
  if (!matching) {
    return failed
      ? html`<${Empty} title="No checkpoint has failed"><p>Of those that are in the history: the last 1,000.</p><//>`
      : html`<${Empty} title="No checkpoint yet"><p>The first one is here as soon as the first epoch is committed.</p><//>`;
  }
  const go = (to) => {
    before.set(place, to);
    held.delete(place);
    dispatchEvent(new Event("draw"));
  };
  const toggle = (key) => {
    if (!open.delete(key)) open.add(key);
    if (!history.some((one) => open.has(keyOf(jid, one)))) held.delete(place);
    else if (!until) held.set(place, history[0].trigger_timestamp + 1);
    dispatchEvent(new Event("draw"));
  };
  const columns = FLOWS.filter(([, value]) => history.some((one) => value(one) > 0));
  const longest = Math.max(...history.map((one) => one.end_to_end_duration), 1);
  const first = matching - older - history.length + 1;
  const pager = html`<div class="pager">
    <span>${count(first)}–${count(first + history.length - 1)} of ${count(matching)}, newest first${stack.length ? "" : held.has(place) ? `; held while one is open${first > 1 ? `, ${plural(first - 1, "newer one")}` : ""}` : ", live"}</span>
    <span class="buttons">
      <button type="button" disabled=${!until} onClick=${() => go([])}>Newest</button>
      <button type="button" disabled=${!stack.length} onClick=${() => go(stack.slice(0, -1))}>Newer</button>
      <button type="button" disabled=${!older} onClick=${() => go([...stack, history.at(-1).trigger_timestamp])}>Older</button>
    </span>
  </div>`;
  return html`
    ${pager}
    <table class="list history">
      <thead>
        <tr>
          <th scope="col"><span class="unseen">Expand</span></th>
          <th scope="col" class="num">Id</th>
          <th scope="col">Status</th>
          <th scope="col" class="wide">Acknowledged</th>
          <th scope="col">Triggered</th>
          <th scope="col" class="num">Duration</th>
          <th scope="col" class="wide"><span class="unseen">Duration, as a bar</span></th>
          ${columns.map(([label]) => html`<th scope="col" class="num wide">${label}</th>`)}
        </tr>
      </thead>
      ${history.map((one) => html`<${Row} key=${keyOf(jid, one)} jid=${jid} one=${one} longest=${longest} columns=${columns} onToggle=${toggle} />`)}
    </table>
    ${history.length > 15 && pager}
  `;
}

// An epoch that failed runs again under its id.
const keyOf = (jid, one) => `${jid}:${one.id}:${one.trigger_timestamp}`;

// What flowed, and what is stored; a column without one figure is left out.
const FLOWS = [
  ["Added", (one) => one.checkpointed_size, bytes],
  ["Full size", (one) => one.state_size, bytes],
  ["Rows", (one) => one.rows, count],
  ["Processed", (one) => one.processed_data, bytes],
  ["In-flight", (one) => one.persisted_data, bytes],
];

function Row({ jid, one, longest, columns, onToggle }) {
  const expanded = open.has(keyOf(jid, one));
  const failed = one.status === "FAILED";
  const running = one.status === "IN_PROGRESS";
  return html`<tbody class=${expanded ? "expanded" : ""}>
    <tr>
      <td class="expander">
        <button type="button" class="toggle" aria-expanded=${expanded} aria-label=${`Details of checkpoint ${one.id}`} onClick=${() => onToggle(keyOf(jid, one))}>${expanded ? "▾" : "▸"}</button>
      </td>
      <th scope="row" class="num">${one.id}</th>
      <td><${State} of=${one.status} />${one.is_savepoint && html` <span class="tag">savepoint</span>`}${one.discarded && html` <span class="tag" title="Its files are deleted; newer ones are kept">discarded</span>`}</td>
      <td class="wide">${one.num_subtasks ? `${one.num_acknowledged_subtasks}/${one.num_subtasks}` : "–"}</td>
      <td><${Time} at=${one.trigger_timestamp} /></td>
      <td class="num">${running ? coarse(now() - one.trigger_timestamp) : duration(one.end_to_end_duration)}</td>
      <td class="wide"><span class="duration-bar" aria-hidden="true"><span class=${failed ? "bad" : ""} style=${{ width: `${(100 * Math.max(one.end_to_end_duration, 0)) / longest}%` }}></span></span></td>
      ${columns.map(([, value, unit]) => html`<td class="num wide">${running ? UNKNOWN : unit(value(one))}</td>`)}
    </tr>
    ${failed && html`<tr class="why"><td colspan=${7 + columns.length}><span class="reason">${one.failure_message}</span></td></tr>`}
    ${expanded && html`<tr class="details"><td colspan=${7 + columns.length}><${Details} jid=${jid} id=${one.id} triggered=${one.trigger_timestamp} status=${one.status} /></td></tr>`}
  </tbody>`;
}

// --- summary

const FIGURES = [
  ["end_to_end_duration", "End-to-end duration", duration, "From the trigger until every sink has committed"],
  ["sync_duration", "Trigger to flushed (sync)", duration, "From the trigger until every sink has flushed"],
  ["async_duration", "Decision to committed (async)", duration, "From the decision until every sink has committed"],
  ["alignment_duration", "Alignment", duration, "Between the first and the last end of a task"],
  ["start_delay", "Start delay", duration, "From the trigger until the last task started"],
  ["checkpointed_size", "Added to the storage", bytes, "Records, entries in Spark's logs and new state files"],
  ["state_size", "Full size", bytes, "What a restore reads"],
  ["processed_data", "Processed data", bytes, "What the sinks wrote, in Arrow's form"],
  ["persisted_data", "In-flight data", bytes, "Rows stored with the checkpoint, to be processed first in the next"],
];
const COLUMNS = [["min", "Min"], ["avg", "Average"], ["max", "Max"], ["p50", "p50"], ["p90", "p90"], ["p95", "p95"], ["p99", "p99"], ["p999", "p99.9"]];

function Summary({ jid }) {
  const entry = page(`/jobs/${jid}/checkpoints?limit=1`);
  if (!entry.data) return html`<${Waiting} of=${entry} what="summary" />`;
  const { summary, latest } = entry.data;
  if (!latest.completed) return html`<${Empty} title="Nothing to sum up yet"><p>No checkpoint has completed.</p><//>`;
  return html`
    <p class="note">Over the completed checkpoints that are in the history (the last 1,000 at most).</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Summary">
      <table class="list">
        <thead><tr><th scope="col">Figure</th>${COLUMNS.map(([, label]) => html`<th scope="col" class="num">${label}</th>`)}</tr></thead>
        <tbody>
          ${FIGURES.map(([name, label, unit, hint]) => html`<tr><th scope="row" title=${hint}>${label}</th>
            ${COLUMNS.map(([column]) => html`<td class="num">${unit(Number(summary[name]?.[column]))}</td>`)}</tr>`)}
        </tbody>
      </table>
    </div>
  `;
}

// --- configuration

function Configuration({ jid }) {
  const entry = page(`/jobs/${jid}/checkpoints/config`, 10_000);
  const found = entry.data;
  if (!found) return html`<${Waiting} of=${entry} what="checkpoint configuration" unknown="The job's last run, of an older version, has not stored it." />`;
  const forever = 2 ** 62;
  const rows = [
    ["Mode", found.mode.replaceAll("_", "-"), "exactly-once, at-least-once or at-most-once"],
    ["Interval", duration(found.interval), "Between two triggers"],
    ["Timeout", found.timeout > forever ? "none" : duration(found.timeout), "An epoch that is not decided by then is aborted"],
    ["Least pause", duration(found.min_pause), "Between the end of one epoch and the start of the next"],
    ["Most at once", found.max_concurrent, "Epochs that are stored and not committed yet"],
    ["Failures that are tolerated", found.tolerable_failed_checkpoints, "One after another, before the job fails"],
    ["At a cancel", found.externalization.delete_on_cancellation ? "checkpoints are deleted" : "checkpoints are kept", ""],
    ["Checkpoints kept", found.num_retained, "Complete ones, to restore from"],
    ["State backend", found.state_backend + (found.state_changelog_enabled ? " with changelog" : ""), ""],
    ["Storage", found.checkpoint_storage, ""],
    ["Unaligned checkpoints", found.unaligned_checkpoints ? `on, after ${duration(found.aligned_checkpoint_timeout ?? 0)}` : "off", ""],
    ["Final checkpoint at the sources' end", found.checkpoints_after_tasks_finish ? "on" : "off", ""],
  ];
  return html`<table class="list pairs"><tbody>
    ${rows.map(([name, value, hint]) => html`<tr><th scope="row">${name}</th><td>${value}${hint && html` <span class="note">${hint}</span>`}</td></tr>`)}
  </tbody></table>`;
}
