// How far a long action is: its steps one below another, with what is known of the one under way.
import { html } from "./html.js";
import { now, page } from "./pages.js";
import { bytes, coarse, duration, known } from "./format.js";
import { PHASES } from "./phases.js";

const LABELS = {
  epoch: "An epoch is committed",
  state: "Its state is written",
  abort: "The epoch under way is aborted",
  end: "What is open is settled, and the job ends",
  plan: "The savepoint is compared with the program",
  files: "Its files are deleted",
  sinks: "The sinks' systems answer",
  start: "The program starts, and its job runs",
};

// `names` are those of LABELS, in order; `progress` is what the server said last of the operation.
export function Steps({ job, names, since, progress }) {
  const epoch = job.jid && page(`/jobs/${job.jid}/epoch`).data;
  const state = job.jid ? page(`/jobs/${job.jid}`).data?.state : "";
  const at = place(names, epoch, state, progress, since);
  return html`<ol class="steps">
      ${names.map((name, i) => {
        const css = i < at ? "over" : i === at ? "now" : "";
        return html`<li class=${css} aria-current=${i === at ? "step" : undefined}>
          <span class="sign" aria-hidden="true">${i < at ? "✓" : i === at ? html`<span class="spinner"></span>` : "·"}</span>
          <span>${LABELS[name]}${i === at && html` <span class="note">${note(name, epoch, progress)}</span>${name === "state" && html`<${Share} of=${progress?.progress} />`}`}</span>
        </li>`;
      })}
    </ol>
    <p class="unseen" role="status">${LABELS[names[at]]}</p>
    <p class="note">Asked for ${coarse(now() - since)} ago.</p>`;
}

// How much of the state is written, as a bar; nothing where it is not known how much there is.
function Share({ of }) {
  if (!(of?.total > 0)) return null;
  return html`<progress max=${Math.max(of.total, of.bytes)} value=${of.bytes} aria-label="State that is written"></progress>`;
}

// A savepoint that was begun after this was asked for; who asks twice sees the older one.
function written(epoch, since) {
  return epoch?.savepoints?.find((one) => one["trigger-timestamp"] >= since - 5000);
}

function place(names, epoch, state, progress, since) {
  const end = names.indexOf("end");
  if (end >= 0 && (state === undefined || ["FINISHED", "CANCELED", "CANCELLING"].includes(state))) return end;
  const writing = names.indexOf("state");
  if (writing >= 0 && (progress?.progress || written(epoch, since))) return writing;
  return 0;
}

function note(name, epoch, progress) {
  if (name === "epoch" || name === "abort") {
    const phase = PHASES.find(({ state }) => state === epoch?.phase);
    if (!phase) return "waiting for one to begin";
    return `epoch ${epoch.id}: ${phase.label.toLowerCase()}, for ${duration(Math.max(now() - epoch["phase-since"], 0))}`;
  }
  if (name === "state") {
    const { bytes: done, total } = progress?.progress || {};
    return known(done) ? `${bytes(done)}${total > 0 ? ` of about ${bytes(Math.max(total, done))}` : ""}` : "";
  }
  return "";
}
