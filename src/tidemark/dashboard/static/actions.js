// What changes a job: a checkpoint now, stop, cancel. Each is confirmed first, and its result shown.
//
// Changing needs the dashboard's token. It comes with the address that `tidemark dashboard` prints,
// behind the #, which no browser sends anywhere; the page keeps it until the tab is closed.
import { html } from "./html.js";
import { problem, refresh } from "./pages.js";
import { duration } from "./format.js";
import { Dialog, isLive } from "./components.js";

const TOKEN = "tidemark-token";
const POLL_MS = 500;

const ACTIONS = {
  checkpoint: {
    label: "Checkpoint now",
    title: (job) => `Take a checkpoint of ${job.name} now?`,
    text: "An epoch is begun at once instead of at the next interval. The job goes on as before.",
    confirm: "Take it",
    doing: "Waiting until the epoch is committed…",
  },
  stop: {
    label: "Stop",
    title: (job) => `Stop ${job.name}?`,
    text: "The epoch under way is committed, everything is kept, and the job ends. Start its program again, and it goes on from there.",
    confirm: "Stop the job",
    doing: "Waiting until everything is committed…",
  },
  cancel: {
    label: "Cancel",
    title: (job) => `Cancel ${job.name}?`,
    text: "The job ends at once: the epoch under way is aborted; what is decided is committed. With DELETE_ON_CANCELLATION its checkpoints are deleted, and it cannot go on.",
    confirm: "Cancel the job",
    doing: "Waiting until what is open is settled…",
    danger: true,
  },
};

let shown = null; // {action, job, step: "confirm" | "doing" | "done" | "failed", said}
let opener = null;

const redraw = () => dispatchEvent(new Event("draw"));

// Called at each change of the address: moves a token from it to where this tab keeps it.
export function takeToken() {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(TOKEN, found[1]);
  history.replaceState(null, "", "#/");
}

export function ActionButtons({ job }) {
  if (!isLive(job.state)) return null;
  return html`<div class="actions" role="group" aria-label="Change this job">
    ${Object.entries(ACTIONS).map(
      ([name, { label, danger }]) =>
        html`<button type="button" class=${danger ? "danger" : ""} disabled=${job.state === "CANCELLING"} onClick=${(event) => ask(name, job, event)}>${label}…</button>`,
    )}
  </div>`;
}

function ask(action, job, event) {
  opener = event.currentTarget;
  shown = { action, job, step: sessionStorage.getItem(TOKEN) ? "confirm" : "token", said: "" };
  redraw();
}

function close() {
  shown = null;
  redraw();
  setTimeout(() => opener?.isConnected && opener.focus());
}

export function Actions() {
  if (!shown) return null;
  const { action, job, step, said } = shown;
  const { label, title, text, confirm, doing, danger } = ACTIONS[action];
  return html`<${Dialog} title=${step === "confirm" ? title(job) : `${label}: ${job.name}`} onClose=${close}>
    ${step === "token" && html`<${AskToken} />`}
    ${step === "confirm" &&
    html`<p>${text}</p>
      <div class="buttons">
        <button type="button" onClick=${close}>No, leave it</button>
        <button type="button" class=${danger ? "danger primary" : "primary"} autofocus onClick=${() => perform(shown)}>${confirm}</button>
      </div>`}
    ${step !== "token" &&
    step !== "confirm" &&
    html`<p role="status" aria-live="polite" class=${`result ${step}`}>
        ${step === "doing" && html`<span class="spinner" aria-hidden="true"></span>`}
        ${step === "done" && html`<span class="sign good-text" aria-hidden="true">✓ </span>`}
        ${step === "failed" && html`<span class="sign bad-text" aria-hidden="true">✕ </span>`}
        ${step === "doing" ? doing : said}
      </p>
      <div class="buttons"><button type="button" class="primary" autofocus onClick=${close}>${step === "doing" ? "Close; it goes on" : "Close"}</button></div>`}
  <//>`;
}

function AskToken() {
  const keep = (event) => {
    event.preventDefault();
    const given = new FormData(event.target).get("token").trim().replace(/^.*#token=/, "");
    sessionStorage.setItem(TOKEN, given);
    shown = { ...shown, step: "confirm" };
    redraw();
  };
  return html`<form onSubmit=${keep}>
    <p>This needs the dashboard's token. <code>tidemark dashboard</code> has printed an address with it; open that, or paste it here:</p>
    <p><label>Address or token <input name="token" type="password" autocomplete="off" required autofocus /></label></p>
    <div class="buttons"><button type="button" onClick=${close}>Leave it</button><button class="primary">Go on</button></div>
  </form>`;
}

// --- what is sent

async function perform(dialog) {
  const { action, job } = dialog;
  const show = (step, said = "") => {
    Object.assign(dialog, { step, said }); // nothing is seen of it if the dialog is closed
    redraw();
  };
  show("doing");
  try {
    show("done", await { checkpoint, stop, cancel }[action](job));
  } catch (error) {
    show("failed", error.message);
  }
  refresh();
}

async function checkpoint(job) {
  const begun = Date.now();
  const operation = await operate(`/jobs/${job.jid}/checkpoints`);
  return `Checkpoint ${operation?.checkpointId ?? ""} is complete, after ${duration(Date.now() - begun)}.`;
}

async function stop(job) {
  await operate(`/jobs/${job.jid}/stop`, () => ended(job));
  return `The job has stopped: ${await ended(job, true)}.`;
}

async function cancel(job) {
  await send("PATCH", `/jobs/${job.jid}?mode=cancel`);
  return `The job has ended: ${await ended(job, true)}.`;
}

async function send(method, path, body) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(TOKEN)}` };
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  if (answer.status === 401) sessionStorage.removeItem(TOKEN);
  if (!answer.ok) throw new Error(await problem(answer));
  return answer.json();
}

// One of Flink's asynchronous operations: ask, and poll until it is done. `gone` is asked when the
// driver no longer answers: whether that is what was wanted.
async function operate(path, gone = async () => "") {
  const triggerId = crypto.randomUUID().replaceAll("-", "");
  const { "request-id": id } = await send("POST", path, { triggerId });
  for (;;) {
    const answer = await fetch(`${path}/${id || triggerId}`, { cache: "no-store" });
    if (!answer.ok) {
      if (await gone()) return null;
      if (answer.status !== 502) throw new Error(await problem(answer));
    } else {
      const { status, operation } = await answer.json();
      const cause = operation?.["failure-cause"];
      if (cause) throw new Error(cause["stack-trace"] || cause.class);
      if (status.id === "COMPLETED") return operation;
    }
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}

// The job's end state in words; "" while it runs. `wait` waits for it.
async function ended(job, wait = false) {
  for (;;) {
    const answer = await fetch(`/jobs/${job.jid}`, { cache: "no-store" });
    if (answer.status === 404) return "its checkpoints are deleted";
    const { state, reason } = answer.ok ? await answer.json() : {};
    if (["FINISHED", "CANCELED", "FAILED"].includes(state)) return reason ? `${state.toLowerCase()}: ${reason}` : state.toLowerCase();
    if (!wait) return "";
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}
