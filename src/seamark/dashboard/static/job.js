// One job: its head, its tabs, and the page of the tab.
import { html } from "./html.js";
import { page } from "./pages.js";
import { count, known, plural } from "./format.js";
import { Banner, Guarantee, Problem, Since, State, Time, Waiting, isLive } from "./components.js";
import { ActionButtons } from "./actions.js";
import { Overview } from "./overview.js";
import { Checkpoints } from "./checkpoints.js";
import { Savepoints } from "./savepoints.js";
import { Plots } from "./plots.js";
import { Timeline } from "./timeline.js";
import { Exceptions } from "./exceptions.js";
import { Executions } from "./executions.js";
import { Transactions } from "./transactions.js";
import { Configuration } from "./configuration.js";

const TABS = {
  overview: ["Overview", Overview],
  checkpoints: ["Checkpoints", Checkpoints],
  savepoints: ["Savepoints", Savepoints],
  timeline: ["Timeline", Timeline],
  plots: ["Plots", Plots],
  exceptions: ["Exceptions", Exceptions],
  executions: ["Executions", Executions],
  transactions: ["Transactions", Transactions],
  configuration: ["Configuration", Configuration],
};

export function Job({ jid, tab, part, item }) {
  const entry = page(`/jobs/${jid}`);
  const job = entry.data;
  if (!job) {
    return html`<${Crumbs} name=${jid.slice(0, 8)} /><h1>Job</h1><${Waiting} of=${entry} what="job" />`;
  }
  const [title, Page] = TABS[tab] || TABS.overview;
  document.title = `${job.name}: ${title} – Seamark`;
  return html`
    <${Crumbs} name=${job.name} />
    <div class="title">
      <h1>${job.name} <${State} of=${job.state} /></h1>
      <${ActionButtons} job=${job} />
    </div>
    <${Head} job=${job} />
    ${!!entry.error && html`<${Problem}>${entry.error}<//>`}
    <${Notice} job=${job} />
    <nav class="tabs" aria-label="Pages of this job">
      ${Object.entries(TABS).map(
        ([name, [label]]) =>
          html`<a href=${`#/jobs/${jid}/${name}`} aria-current=${TABS[tab] && name === tab ? "page" : undefined} ref=${name === tab ? seen : null}>${label}</a>`,
      )}
    </nav>
    <${Page} jid=${jid} job=${job} part=${part} item=${item} />
  `;
}

// On a narrow screen the tabs scroll: the one that is open is brought into sight.
function seen(tab) {
  if (tab) tab.parentNode.scrollLeft = Math.max(0, tab.offsetLeft - tab.parentNode.offsetLeft - 40);
}

function Crumbs({ name }) {
  return html`<nav class="crumbs" aria-label="Where you are"><a href="#/">Jobs</a><span aria-hidden="true">›</span><span aria-current="page">${name}</span></nav>`;
}

function Head({ job }) {
  const guarantees = page(`/jobs/${job.jid}/guarantees`, 10_000).data;
  const ended = job["end-time"] > 0;
  const lags = (job.vertices || []).map((one) => one.metrics["lag-records"]).filter(known);
  return html`<p class="head">
    <span>id <code>${job.jid}</code></span>
    ${guarantees && html`<span>end to end <${Guarantee} level=${guarantees.guarantee} why=${guarantees.weakest && `set by ${guarantees.weakest}. ${guarantees.remedy}`} /></span>`}
    ${ended
      ? html`<span>ran from <${Time} at=${job["start-time"]} /> to <${Time} at=${job["end-time"]} /></span>`
      : html`<span>${isLive(job.state) ? "running for" : "started"} ${isLive(job.state) ? html`<${Since} at=${job["start-time"]} />` : html`<${Time} at=${job["start-time"]} />`}</span>`}
    <span class=${job.restarts ? "warn-text" : ""}>${plural(job.restarts, "restart")}</span>
    ${!!lags.length && html`<span>lag ${count(lags.reduce((a, b) => a + b, 0))} rows</span>`}
  </p>`;
}

function Notice({ job }) {
  if (job.state === "UNREACHABLE") {
    return html`<${Banner} tone="bad" sign="?">
      <strong>The driver of this job does not answer.</strong> It was killed, or the network is in between. Nothing that was decided is lost: start its
      program again, and it settles what is open and goes on after the last decided epoch. What is shown is what the checkpoint
      storage has.${job["last-seen"] ? html` The driver answered last <${Time} at=${job["last-seen"]} />.` : ""}
    <//>`;
  }
  if (job.state === "UNOBSERVED") {
    return html`<${Banner} tone="done" sign="○">
      <strong>A query of <code>format("seamark")</code>.</strong> Spark runs it, and tells nobody when it ends. What is shown is what its
      location has: each batch that was decided, as a checkpoint.
    <//>`;
  }
  if (job.state === "FAILED") {
    return html`<${Banner} tone="bad" sign="✕"><strong>This job has failed.</strong> <span class="reason">${job.reason}</span><//>`;
  }
  if (job.state === "RESTARTING") {
    return html`<${Banner} tone="warn" sign="↻">A failure is being waited out, by the restart strategy. <a href=${`#/jobs/${job.jid}/exceptions`}>What failed</a><//>`;
  }
  return null;
}
