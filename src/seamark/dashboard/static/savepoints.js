// The job's savepoints: those that its drivers have recorded, and what can be done with each.
import { html } from "./html.js";
import { now, page } from "./pages.js";
import { bytes, coarse, count, duration, plural } from "./format.js";
import { Copy, Empty, State, Time, Waiting, isLive } from "./components.js";
import { ActionButton, StartButton, savepointDirectory } from "./actions.js";

const open = new Set(); // which are expanded, by path
const followed = new Set(); // links that have opened theirs: it can be closed again

export function Savepoints({ jid, job, part, item }) {
  const entry = page(`/jobs/${jid}/savepoints`);
  const directory = savepointDirectory(jid);
  if (!entry.data) return html`<${Waiting} of=${entry} what="savepoints" unknown="" />`;
  const found = entry.data.savepoints;
  const live = isLive(job.state);
  const linked = found.find((one) => String(one.id) === part);
  if (linked && !followed.has(location.hash)) {
    followed.add(location.hash);
    open.add(`${jid}:${linked.id}:${linked.trigger_timestamp}`);
  }
  return html`
    <div class="bar">
      <p class="note">A savepoint is one epoch of this job in a directory of its own, from which a changed program, on another state backend or number of partitions, goes on.
        ${directory ? html` They go to <code>${directory}</code> unless you say otherwise.` : ""}</p>
      ${live &&
      html`<div class="actions">
        <${ActionButton} action="savepoint" job=${job}>Take a savepoint<//>
        <${ActionButton} action="stop" job=${job} values=${{ with: "savepoint" }}>Stop with a savepoint<//>
        <${ActionButton} action="plan" job=${job}>Restore plan<//>
      </div>`}
    </div>
    <${Comparison} jid=${jid} found=${found.filter((one) => one.status === "COMPLETED")} part=${part} item=${item} />
    ${found.length ? html`<${List} job=${job} found=${found} live=${live} />` : html`<${None} job=${job} live=${live} />`}
    ${!live && html`<${NotRunning} job=${job} found=${found} />`}
  `;
}

function List({ job, found, live }) {
  return html`<table class="list cards savepoints">
      <thead><tr>
        <th scope="col"><span class="unseen">Expand</span></th><th scope="col" class="num">Epoch</th><th scope="col">State</th><th scope="col">Form</th><th scope="col">Asked for</th>
        <th scope="col" class="num">Took</th><th scope="col" class="num">Size</th><th scope="col" class="num">Rows of state</th><th scope="col"><span class="unseen">What can be done</span></th>
      </tr></thead>
      ${found.map((one) => html`<${Row} key=${`${one.id}:${one.trigger_timestamp}`} job=${job} one=${one} live=${live} />`)}
    </table>
    <p class="note">The last 100 that this job's drivers have taken. One that was moved or deleted elsewhere is shown as not there.</p>`;
}

// Two savepoints beside each other, by #/jobs/<id>/savepoints/<epoch>/<epoch>.
function Comparison({ jid, found, part, item }) {
  if (found.length < 2) return null;
  const pick = (id, other) => found.find((one) => String(one.id) === id) || found.find((one) => one !== other);
  const later = item ? pick(item) : undefined;
  const earlier = later && pick(part, later);
  const choose = (a, b) => (location.hash = `#/jobs/${jid}/savepoints/${a}/${b}`);
  if (!later) {
    return html`<p><button type="button" onClick=${() => choose(found[1].id, found[0].id)}>Compare two savepoints</button></p>`;
  }
  const select = (label, chosen, onChoice) => html`<label>${label} <select onChange=${(event) => onChoice(event.target.value)}>
    ${found.map((one) => html`<option value=${one.id} selected=${one === chosen}>epoch ${one.id}</option>`)}
  </select></label>`;
  const uids = [...new Set([...Object.keys(earlier.tasks), ...Object.keys(later.tasks)])];
  return html`<section class="card" aria-labelledby="comparison-title">
    <h2 id="comparison-title">Two savepoints compared</h2>
    <p class="choice">${select("From", earlier, (id) => choose(id, later.id))} ${select("to", later, (id) => choose(earlier.id, id))} <a href=${`#/jobs/${jid}/savepoints`}>Close</a></p>
    <p>Between their triggers: ${coarse(later.trigger_timestamp - earlier.trigger_timestamp)}, ${plural(later.id - earlier.id, "epoch")}. Size ${bytes(earlier.state_size)} → ${bytes(later.state_size)}.</p>
    ${uids.length
      ? html`<div class="scroll" tabindex="0" role="region" aria-label="Operators of both savepoints"><table class="list">
          <thead><tr><th scope="col">Operator</th><th scope="col">Type</th><th scope="col" class="num">Rows</th><th scope="col" class="num">Change</th><th scope="col" class="num">State</th><th scope="col" class="num">Partitions</th></tr></thead>
          <tbody>${uids.map((uid) => html`<${Compared} key=${uid} uid=${uid} a=${earlier.tasks[uid]} b=${later.tasks[uid]} />`)}</tbody>
        </table></div>`
      : html`<p class="none">Both hold the offsets of the sources alone.</p>`}
  </section>`;
}

function Compared({ uid, a, b }) {
  const both = (value, unit) => (a && b && value(a) === value(b) ? unit(value(a)) : `${a ? unit(value(a)) : "none"} → ${b ? unit(value(b)) : "none"}`);
  const change = (b?.rows || 0) - (a?.rows || 0);
  return html`<tr><th scope="row">${uid}${!a && html` <span class="tag">new</span>`}${!b && html` <span class="tag">gone</span>`}</th>
    <td>${both((task) => task.name, String)}</td>
    <td class="num">${both((task) => task.rows, count)}</td><td class="num">${change > 0 ? "+" : ""}${change.toLocaleString("en-US")}</td>
    <td class="num">${both((task) => task.state_size, bytes)}</td><td class="num">${both((task) => task.num_subtasks, count)}</td>
  </tr>`;
}

function Row({ job, one, live }) {
  const key = `${job.jid}:${one.id}:${one.trigger_timestamp}`;
  const whole = one.status === "COMPLETED";
  const running = one.status === "IN_PROGRESS";
  const expanded = open.has(key);
  const toggle = () => {
    if (!open.delete(key)) open.add(key);
    dispatchEvent(new Event("draw"));
  };
  const there = whole && one.there !== false;
  return html`<tbody class=${expanded ? "expanded" : ""}>
    <tr>
      <td class="expander">${whole && html`<button type="button" class="toggle" aria-expanded=${expanded} aria-label=${`What the savepoint of epoch ${one.id} holds`} onClick=${toggle}>${expanded ? "▾" : "▸"}</button>`}</td>
      <th scope="row" class="num">${one.id}</th>
      <td data-name="State"><span>${there || !whole ? html`<${State} of=${one.status} />` : html`<span class="state" title="No savepoint lies in its path any more"><span class="sign" aria-hidden="true">∅</span>not there</span>`}</span></td>
      <td data-name="Form">${(one.savepointFormat || "").toLowerCase()}</td>
      <td data-name="Asked for"><${Time} at=${one.trigger_timestamp} /></td>
      <td data-name="Took" class="num">${running ? coarse(now() - one.trigger_timestamp) : duration(one.end_to_end_duration)}</td>
      <td data-name="Size" class="num">${whole ? bytes(one.state_size) : "–"}</td>
      <td data-name="Rows of state" class="num">${whole ? count(one.rows) : "–"}</td>
      <td class="do">${there &&
      html`<span class="actions">
        ${live && html`<${ActionButton} action="plan" job=${job} subject=${one}>Restore plan<//>`}
        ${!live && html`<${StartButton} path=${one.external_path}>Start from it<//>`}
        <${ActionButton} action="dispose" job=${job} subject=${one}>Dispose<//>
      </span>`}</td>
    </tr>
    ${whole && html`<tr class="where"><td></td><td colspan="8"><code class="path">${one.external_path}</code> ${there && html`<${Copy} text=${one.external_path} what="the path" />`}</td></tr>`}
    ${one.status === "FAILED" && html`<tr class="where"><td></td><td colspan="8"><span class="reason">${one.failure_message}</span></td></tr>`}
    ${expanded && html`<tr class="details"><td colspan="9"><${Contents} one=${one} there=${there} /></td></tr>`}
  </tbody>`;
}

function Contents({ one, there }) {
  const tasks = Object.entries(one.tasks);
  const command = `seamark run -s ${one.external_path} APP.PY`;
  return html`
    ${tasks.length
      ? html`<table class="list operators-of" aria-label=${`Operators of the savepoint of epoch ${one.id}`}>
          <thead><tr><th scope="col">Operator</th><th scope="col">Type</th><th scope="col" class="num">Rows</th><th scope="col" class="num" title="Keys and values, before they are packed">State</th><th scope="col" class="num">Partitions</th></tr></thead>
          <tbody>${tasks.map(([uid, task]) => html`<tr key=${uid}><th scope="row">${uid}</th><td data-name="Type">${task.name}</td><td data-name="Rows" class="num">${count(task.rows)}</td><td data-name="State" class="num">${bytes(task.state_size)}</td><td data-name="Partitions" class="num">${count(task.num_subtasks)}</td></tr>`)}</tbody>
        </table>`
      : html`<p class="none">It holds no state of operators: the offsets of the sources alone.</p>`}
    ${there && html`<p>The stopped job's program, changed or not, goes on from it:</p><p class="command"><code>${command}</code> <${Copy} text=${command} what="the command" /></p>`}
  `;
}

function None({ live }) {
  return html`<${Empty} title="No savepoint yet">
    <p>${live ? "Take one before you change the program: it goes on exactly where this one was." : "This job's drivers have recorded none."}</p>
  <//>`;
}

function NotRunning({ job, found }) {
  const there = found.find((one) => one.status === "COMPLETED" && one.there !== false);
  const command = `seamark run -s ${there ? there.external_path : "SAVEPOINT"} --plan APP.PY`;
  return html`<section class="card">
    <h2>This job does not run</h2>
    <p>Only a driver can take a savepoint, or say what its program would make of one. The program itself says that too, without running:</p>
    <p class="command"><code>${command}</code>${there && html` <${Copy} text=${command} what="the command" />`}</p>
  </section>`;
}
