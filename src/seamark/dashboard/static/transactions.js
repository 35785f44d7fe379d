// The transactions that a job holds open in the sinks' systems, and the losses that were accepted.
import { html } from "./html.js";
import { now, page } from "./pages.js";
import { coarse, count } from "./format.js";
import { Copy, Empty, Since, Waiting, isLive } from "./components.js";
import { ActionButton } from "./actions.js";

const asked = new Map(); // what the sinks' systems have told, by job id: {at, found}

export function Transactions({ jid, job }) {
  const entry = page(`/jobs/${jid}/transactions`);
  const losses = page(`/jobs/${jid}/losses`);
  return html`
    ${entry.data
      ? html`<${Open} live=${isLive(job.state)} found=${entry.data.transactions} truncated=${entry.data.truncated} />`
      : html`<${Waiting} of=${entry} what="transactions" unknown="The driver does not say." />`}
    ${isLive(job.state) ? html`<${AtTheSinks} jid=${jid} job=${job} />` : html`<${Commands} />`}
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

function AtTheSinks({ jid, job }) {
  const keep = (found) => asked.set(jid, { at: now(), found });
  const told = asked.get(jid);
  return html`
    <div class="bar">
      <h2>At the sinks' systems</h2>
      <div class="actions"><${ActionButton} action="ask" job=${job} subject=${{ keep }} /></div>
    </div>
    ${told
      ? html`<p class="note">Told <${Since} at=${told.at} /> ago.</p>${told.found.length > 0 && html`<${Told} job=${job} found=${told.found} keep=${keep} />`}`
      : html`<p class="note">The systems know the age of each transaction, its time-out, and which readers wait.</p>`}`;
}

function groupsBefore(one) {
  const groups = new Set(one["held-up"].flatMap((held) => Object.keys(held.groups ?? {})));
  return groups.size > 0 && html` <span class="note">groups: ${[...groups].sort().join(", ")}</span>`;
}

const length = (ms) => (ms >= 0 ? coarse(ms) : "–");

function Told({ job, found, keep }) {
  return html`<table class="list cards" aria-label="Transactions at the sinks' systems">
      <thead><tr><th scope="col">Sink</th><th scope="col" class="num">Epoch</th><th scope="col" class="num">Generation</th><th scope="col">Verdict</th><th scope="col" class="num">Age</th><th scope="col" class="num">Times out in</th><th scope="col" class="num">Rows held up</th><th scope="col">Transaction</th><th scope="col"><span class="unseen">What can be done</span></th></tr></thead>
      <tbody>${found.map((one) => html`<tr key=${`${one.sink}:${one.transaction}`}><th scope="row">${one.sink}</th><td data-name="Epoch" class="num">${one.epoch >= 0 ? one.epoch : "?"}</td><td data-name="Generation" class="num">${one.generation}</td><td data-name="Verdict">${one.verdict}</td><td data-name="Age" class="num">${length(one.age)}</td><td data-name="Times out in" class="num">${length(one["time-left"])}</td><td data-name="Rows held up" class="num">${count(one["held-up"].reduce((sum, held) => sum + held.rows, 0))}${groupsBefore(one)}</td><td data-name="Transaction"><code>${one.transaction}</code></td><td class="do">${one.verdict !== "in use" && html`<span class="actions">${["commit", "abort"].map((verb) => html`<${ActionButton} key=${verb} action=${verb} job=${job} subject=${{ one, keep }} />`)}</span>`}</td></tr>`)}</tbody>
    </table>`;
}

// Without a driver only the program knows the sinks' addresses.
function Commands() {
  const commands = ["list", "commit --all-lingering", "abort --all-lingering"].map((verb) => `seamark txn ${verb} APP.PY`);
  return html`<section class="card">
    <h2>This job does not run</h2>
    <p>Its program knows the sinks: these verbs ask them, and do what the next start would.</p>
    ${commands.map((command) => html`<p class="command" key=${command}><code>${command}</code> <${Copy} text=${command} what="the command" /></p>`)}
  </section>`;
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
