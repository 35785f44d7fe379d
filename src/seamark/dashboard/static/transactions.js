// The transactions that the driver has open at this moment in the sinks' systems.
import { html } from "./html.js";
import { page } from "./pages.js";
import { Empty, Since, Waiting, isLive } from "./components.js";

export function Transactions({ jid, job }) {
  if (!isLive(job.state)) {
    return html`<${Empty} title="Only a driver knows its open transactions">
      <p>${job.state === "UNREACHABLE"
        ? "This one does not answer. What it left open is settled by the job's next start: committed if its epoch was decided, aborted if not."
        : "This job has ended, and settled all of its transactions first, unless the reason of its end says otherwise."}</p>
    <//>`;
  }
  const entry = page(`/jobs/${jid}/transactions`);
  if (!entry.data) return html`<${Waiting} of=${entry} what="transactions" unknown="The driver does not say." />`;
  const { transactions: found, truncated } = entry.data;
  return html`
    <p class="note">Open in the sinks' systems at this moment: flushed and invisible until their epoch is decided.</p>
    ${found.length
      ? html`<table class="list cards" aria-label="Open transactions">
          <thead><tr><th scope="col">Sink</th><th scope="col" class="num">Epoch</th><th scope="col" class="num">Generation</th><th scope="col">State</th><th scope="col">Open for</th><th scope="col">Transaction</th></tr></thead>
          <tbody>${found.map((one) => html`<tr key=${`${one.sink}:${one.epoch}:${one.transaction}`}><th scope="row">${one.sink}</th><td data-name="Epoch" class="num">${one.epoch}</td><td data-name="Generation" class="num">${one.generation}</td><td data-name="State">${String(one.state).toLowerCase()}</td><td data-name="Open for"><${Since} at=${one.since} /></td><td data-name="Transaction"><code>${one.transaction}</code></td></tr>`)}</tbody>
        </table>
        ${truncated && html`<p class="note">There are more.</p>`}`
      : html`<${Empty} title="None open at this moment"><p>An epoch's transactions are open from its pre-commit to its commit, which is often a fraction of a second.</p><//>`}
  `;
}
