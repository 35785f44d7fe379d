// The transactions that a job holds open in the sinks' systems, and the losses that were accepted.
import { html } from "./html.js";
import { page } from "./pages.js";
import { Empty, Since, Waiting, isLive } from "./components.js";

export function Transactions({ jid, job }) {
  const entry = page(`/jobs/${jid}/transactions`);
  const losses = page(`/jobs/${jid}/losses`);
  return html`
    ${entry.data
      ? html`<${Open} live=${isLive(job.state)} found=${entry.data.transactions} truncated=${entry.data.truncated} />`
      : html`<${Waiting} of=${entry} what="transactions" unknown="The driver does not say." />`}
    ${losses.data?.losses.length > 0 && html`<${Losses} losses=${losses.data.losses} />`}
  `;
}

function Open({ live, found, truncated }) {
  if (!found.length) {
    return live
      ? html`<${Empty} title="None open at this moment"><p>An epoch's transactions are open from its pre-commit to its commit, which is often a fraction of a second.</p><//>`
      : html`<${Empty} title="No stored transaction is left"><p>What tasks had open without being stored is aborted by the job's next start. <code>seamark txn list APP.PY</code> asks the sinks.</p><//>`;
  }
  return html`
    <p class="note">${live
      ? "Open in the sinks' systems at this moment: flushed and invisible until their epoch is decided."
      : "Left by a driver in its stored attempts, as the records tell. The job's next start settles them, or seamark txn."}</p>
    <table class="list cards" aria-label="Open transactions">
      <thead><tr><th scope="col">Sink</th><th scope="col" class="num">Epoch</th><th scope="col" class="num">Generation</th><th scope="col">Verdict</th><th scope="col">State</th><th scope="col">Open for</th><th scope="col">Transaction</th></tr></thead>
      <tbody>${found.map((one) => html`<tr key=${`${one.sink}:${one.epoch}:${one.generation}:${one.transaction}`}><th scope="row">${one.sink}</th><td data-name="Epoch" class="num">${one.epoch}</td><td data-name="Generation" class="num">${one.generation}</td><td data-name="Verdict">${one.verdict ?? "in use"}</td><td data-name="State">${String(one.state).toLowerCase()}</td><td data-name="Open for">${one.since >= 0 && html`<${Since} at=${one.since} />`}</td><td data-name="Transaction">${one.transaction ? html`<code>${one.transaction}</code>` : `${one.count} transactions`}</td></tr>`)}</tbody>
    </table>
    ${truncated && html`<p class="note">There are more.</p>`}`;
}

function Losses({ losses }) {
  return html`
    <h2>Accepted losses</h2>
    <p class="note">The guarantee does not hold for these epochs: an operator has accepted that transactions are lost.</p>
    <table class="list cards" aria-label="Accepted losses">
      <thead><tr><th scope="col">Sink</th><th scope="col" class="num">Epoch</th><th scope="col" class="num">Transactions</th><th scope="col">Accepted</th><th scope="col">By</th><th scope="col">Reason</th></tr></thead>
      <tbody>${losses.map((one) => html`<tr key=${`${one.sink}:${one.epoch}`}><th scope="row">${one.sink}</th><td data-name="Epoch" class="num">${one.epoch}</td><td data-name="Transactions" class="num">${one.transactions.length}</td><td data-name="Accepted"><${Since} at=${one.accepted_at} /> ago</td><td data-name="By">${one.accepted_by}</td><td data-name="Reason">${one.reason}</td></tr>`)}</tbody>
    </table>`;
}
