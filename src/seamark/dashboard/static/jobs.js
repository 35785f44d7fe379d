// All jobs of the storage.
import { html } from "./html.js";
import { page } from "./pages.js";
import { StartButton } from "./actions.js";
import { bytes, count, duration } from "./format.js";
import { Empty, Figure, Problem, Since, State, Time, Waiting, isLive } from "./components.js";

let search = "";

export function Jobs() {
  const entry = page("/jobs/overview");
  document.title = "Jobs – Seamark";
  const { jobs, storage } = entry.data || {};
  return html`
    <div class="title"><h1>Jobs</h1>${storage && html`<p class="sub">of <code>${storage}</code></p>`}<${StartButton} /></div>
    ${!!entry.error && entry.data && html`<${Problem}>${entry.error}<//>`}
    ${!jobs ? html`<${Waiting} of=${entry} what="jobs" />` : jobs.length ? html`<${List} jobs=${jobs} />` : html`<${None} storage=${storage} />`}
  `;
}

function List({ jobs }) {
  const live = jobs.filter((job) => isLive(job.state)).length;
  const bad = jobs.filter((job) => ["FAILED", "UNREACHABLE"].includes(job.state)).length;
  const unobserved = jobs.filter((job) => job.state === "UNOBSERVED").length;
  const shown = jobs.filter((job) => job.name.includes(search) || job.jid.startsWith(search));
  const onSearch = (event) => {
    search = event.target.value.trim();
    dispatchEvent(new Event("draw"));
  };
  return html`
    <dl class="figures">
      <${Figure} name="Running" value=${live} tone=${live ? "good" : ""} />
      <${Figure} name="Failed or unreachable" value=${bad} tone=${bad ? "bad" : ""} />
      <${Figure} name="Ended" value=${jobs.length - live - bad - unobserved} />
      ${!!unobserved && html`<${Figure} name="Unobserved" value=${unobserved} />`}
    </dl>
    ${jobs.length > 8 && html`<p><label>Name or id <input type="search" value=${search} onInput=${onSearch} /></label></p>`}
    <table class="list jobs cards">
      <thead>
        <tr>
          <th scope="col">Job</th>
          <th scope="col">State</th>
          <th scope="col">Since</th>
          <th scope="col">Last checkpoint</th>
          <th scope="col" class="num">Duration</th>
          <th scope="col" class="num">Full size</th>
          <th scope="col" class="num" title="Checkpoints and savepoints">Completed</th>
          <th scope="col" class="num">Failed</th>
          <th scope="col" class="num">Restarts</th>
        </tr>
      </thead>
      <tbody>
        ${shown.map((job) => html`<${Row} key=${job.jid} job=${job} />`)}
      </tbody>
    </table>
    ${!shown.length && html`<p class="none">No job's name has “${search}” in it.</p>`}
  `;
}

function Row({ job }) {
  const last = job["last-checkpoint"];
  const ended = job["end-time"];
  return html`<tr>
    <th scope="row">
      <a href=${`#/jobs/${job.jid}`}>${job.name}</a>
      ${job.reason && html`<div class="reason">${job.reason}</div>`}
      ${job.state === "UNREACHABLE" && html`<div class="reason">Its driver does not answer. Start its program again, and it goes on.</div>`}
    </th>
    <td data-name="State"><${State} of=${job.state} /></td>
    <td data-name=${ended > 0 ? "Ended" : "Since"}>${ended > 0 ? html`<${Time} at=${ended} />` : html`<${Since} at=${job["start-time"]} />`}</td>
    <td data-name="Last checkpoint"><span>${last ? html`<b>${last.id}</b>, <${Time} at=${last.trigger_timestamp} />` : "none yet"}</span></td>
    <td data-name="Duration" class="num">${duration(last?.end_to_end_duration)}</td>
    <td data-name="Full size" class="num">${bytes(last?.state_size)}</td>
    <td data-name="Completed" class="num">${count(job.checkpoints.completed)}</td>
    <td data-name="Failed" class=${job.checkpoints.failed ? "num bad-text" : "num"}>${count(job.checkpoints.failed)}</td>
    <td data-name="Restarts" class="num">${count(job.restarts)}</td>
  </tr>`;
}

function None({ storage }) {
  return html`<${Empty} title="No jobs here yet">
    <p>A job appears as soon as its program runs with its checkpoints in this storage:</p>
    <pre>seamark run -D checkpoint.storage=${storage} app.py</pre>
    <p>Looking for another storage? Start the dashboard with <code>--storage</code>.</p>
  <//>`;
}
