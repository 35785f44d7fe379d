// Where the job comes from, and each run of its program.
import { html } from "./html.js";
import { page } from "./pages.js";
import { coarse, plural } from "./format.js";
import { now } from "./pages.js";
import { State, Time, Waiting } from "./components.js";

export function Executions({ jid }) {
  const entry = page(`/jobs/${jid}/lineage`);
  if (!entry.data) return html`<${Waiting} of=${entry} what="executions" />`;
  const { executions, restored, generation } = entry.data;
  return html`
    <section class="card">
      <h2>Lineage</h2>
      ${restored
        ? html`<p>Began from epoch <b>${restored.epoch}</b> of <code>${restored.path}</code>${restored.jid ? html`, job <code>${restored.jid}</code>` : ""}.</p>`
        : html`<p>Began anew: it was not restored from another job's checkpoint.</p>`}
      <p class="note" title="Each start and each restart of the job takes the next one; older ones are fenced">Generation ${generation}: so often it was started or restarted.</p>
    </section>
    <h2>Executions</h2>
    <p class="note">Each run of the job's program. The last 100 are kept.</p>
    <table class="list cards">
      <thead><tr><th scope="col" class="num">No.</th><th scope="col">State</th><th scope="col">Started</th><th scope="col">Ended</th><th scope="col">For</th><th scope="col">Driver</th><th scope="col" class="num">Restarts</th><th scope="col">Reason</th></tr></thead>
      <tbody>
        ${executions.map((one) => {
          const live = one["end-time"] < 0;
          const killed = one.state === "UNREACHABLE";
          return html`<tr key=${one.number}>
            <th scope="row" class="num">${one.number}</th>
            <td data-name="State">${killed ? html`<span class="state bad" title="It has not said that it ended, and does not answer"><span class="sign" aria-hidden="true">?</span>no end recorded</span>` : html`<${State} of=${one.state} />`}</td>
            <td data-name="Started"><${Time} at=${one["start-time"]} /></td>
            <td data-name="Ended"><${Time} at=${one["end-time"]} /></td>
            <td data-name="For">${killed ? "–" : coarse((live ? now() : one["end-time"]) - one["start-time"])}</td>
            <td data-name="Driver">pid ${one.pid} on ${one.host}</td>
            <td data-name="Restarts" class="num">${one.restarts}</td>
            <td data-name="Reason"><span class=${one.reason ? "reason" : ""}>${one.reason || "–"}</span></td>
          </tr>`;
        })}
      </tbody>
    </table>
    <p class="note">${plural(executions.length, "execution")}. One without a recorded end was killed, or runs where this machine cannot reach it.</p>
  `;
}
