// What failed, over all executions: the newest first, with the epoch it hit and what became of it.
import { html } from "./html.js";
import { page } from "./pages.js";
import { Empty, Time, Waiting } from "./components.js";

export function Exceptions({ jid, job }) {
  const entry = page(`/jobs/${jid}/exceptions`);
  if (!entry.data) return html`<${Waiting} of=${entry} what="exceptions" />`;
  const { entries, truncated } = entry.data.exceptionHistory;
  if (!entries.length) {
    return html`<${Empty} title="Nothing has failed">
      <p>Failures of the job are listed here: each with its epoch, its reason and whether the job was restarted.</p>
      ${job.state === "UNREACHABLE" && html`<p>A driver that was killed has had no time to say why: look at its log, and at <a href=${`#/jobs/${jid}/executions`}>Executions</a>.</p>`}
    <//>`;
  }
  return html`
    <ol class="exceptions">
      ${entries.map((one) => html`<li key=${`${one.timestamp}:${one.epoch}`} class="card">
        <header>
          <h2>${one.exceptionName}</h2>
          <${Time} at=${one.timestamp} />
          <span>${one.epoch >= 0 ? html`epoch <b>${one.epoch}</b>` : "before any epoch"}</span>
          ${one.restarted ? html`<span class="state warn"><span class="sign" aria-hidden="true">↻</span>restarted</span>` : html`<span class="state bad"><span class="sign" aria-hidden="true">✕</span>the job ended</span>`}
          ${one.execution > 0 && html`<span class="note">execution ${one.execution}</span>`}
        </header>
        <pre class="trace">${one.stacktrace}</pre>
      </li>`)}
    </ol>
    ${truncated && html`<p class="note">Older failures are no longer kept.</p>`}
  `;
}
