// What a restore of a savepoint into this job's program would do, part by part.
import { html } from "./html.js";
import { bytes, count } from "./format.js";
import { Copy } from "./components.js";

export function PlanFields({ subject, values }) {
  return html`
    <p><label>Savepoint, or retained checkpoint <input name="path" defaultValue=${values.path ?? subject?.external_path ?? ""} placeholder="file:///savepoints/savepoint-…" required autofocus=${!subject} spellcheck=${false} /></label></p>
    <p><label>State partitions <input name="parallelism" type="number" min="1" step="1" defaultValue=${values.parallelism ?? ""} placeholder="as many as it has" /></label></p>
    <label class="choice"><input type="checkbox" name="drop" defaultChecked=${values.drop === "on"} /> <span><b>Allow non-restored state</b><span class="note">Drop what no part of the program takes (-n).</span></span></label>
  `;
}

const WORDS = {
  mapped: ["✓", "good", "mapped"],
  new: ["＋", "", "new, begins empty"],
  dropped: ["✕", "warn", "dropped"],
};

function Verdict({ action, more = [] }) {
  const [sign, tone, word] = WORDS[action] || ["·", "", "not said"];
  const title = WORDS[action] ? "" : "It does not say which sinks its job had";
  return html`<span class="verdict"><span class=${`state ${tone}`} title=${title}><span class="sign" aria-hidden="true">${sign}</span>${word}</span>${more.map((one) => html` <span class="tag">${one}</span>`)}</span>`;
}

export function RestorePlan({ plan, asked }) {
  const { from, to } = plan;
  const drop = asked.allowNonRestoredState ? " -n" : "";
  const partitions = asked.parallelism ? ` -p ${asked.parallelism}` : "";
  const command = `seamark run -s ${plan.path}${drop}${partitions} APP.PY`;
  return html`
    ${plan.restorable
      ? html`<p class="result"><span class="sign good-text" aria-hidden="true">✓ </span>It can be restored.</p>`
      : html`<div class="banner bad" role="status"><span class="sign" aria-hidden="true">✕</span><div><strong>It cannot be restored so:</strong>${plan.problems.map((one) => html`<p>${one}</p>`)}</div></div>`}
    ${plan.warnings.map((one) => html`<div class="banner warn"><span class="sign" aria-hidden="true">!</span><div>${one}</div></div>`)}
    <p><code class="path">${plan.path}</code></p>
    <dl class="pairs">
      <div><dt>What it is</dt><dd>${plan.format ? `${plan.format} ` : ""}${plan.kind}</dd></div>
      <div><dt>Of</dt><dd>epoch ${from.epoch} of ${from.name}</dd></div>
      <div><dt>State backend</dt><dd>${change(from["state-backend"], to["state-backend"])}</dd></div>
      <div><dt>State partitions</dt><dd>${change(from.partitions, to.partitions)}</dd></div>
    </dl>
    <${Part} name="Operators" found=${plan.operators} columns=${["Operator", "Type", "Rows", "Bytes", "What becomes of it"]}
      row=${(one) => html`<td data-name="Type">${one.type}</td><td data-name="Rows" class="num">${count(one.rows)}</td><td data-name="Bytes" class="num">${bytes(one.bytes)}</td><td data-name="Becomes"><${Verdict} action=${one.action} more=${extras(one)} /></td>`} />
    <${Part} name="Sources" found=${plan.sources} columns=${["Source", "Goes on at", "What becomes of it"]}
      row=${(one) => html`<td data-name="Goes on at"><code>${one.offset === null ? "–" : JSON.stringify(one.offset)}</code></td><td data-name="Becomes"><${Verdict} action=${one.action} more=${extras(one)} /></td>`} />
    <${Part} name="Sinks" found=${plan.sinks} columns=${["Sink", "Transactions to commit", "to abort", "What becomes of it"]}
      row=${(one) => html`<td data-name="Transactions to commit" class="num">${count(one.commit)}</td><td data-name="to abort" class="num">${count(one.abort)}</td><td data-name="Becomes"><${Verdict} action=${one.action} more=${extras(one)} /></td>`} />
    ${plan.restorable && html`<p>Under another job name or storage:</p><p class="command"><code>${command}</code> <${Copy} text=${command} what="the command" /></p>`}
  `;
}

const change = (old, made) => (old === made || made === null ? String(old) : `${old} → ${made}`);

function extras(one) {
  return [
    one.repartitioned && "repartitioned",
    one.converted && "converted",
    one.evolved && "schema evolves",
    one.named === false && "no uid",
  ].filter(Boolean);
}

function Part({ name, found, columns, row }) {
  if (!found.length) return null;
  const numeric = ["Rows", "Bytes", "Transactions to commit", "to abort"];
  return html`<h3>${name}</h3>
    <table class="list cards plan"><thead><tr>${columns.map((label) => html`<th scope="col" class=${numeric.includes(label) ? "num" : ""}>${label}</th>`)}</tr></thead>
      <tbody>${found.map((one) => html`<tr key=${one.uid}><th scope="row">${one.uid}</th>${row(one)}</tr>`)}</tbody>
    </table>`;
}
