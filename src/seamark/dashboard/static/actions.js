// What changes a job, or asks something of it that takes its time: each is confirmed first, in a
// dialog that then shows how far it is and what came of it. `requests.js` sends it.
import { html } from "./html.js";
import { now, page, refresh } from "./pages.js";
import { bytes, duration } from "./format.js";
import { Copy, Dialog, isLive } from "./components.js";
import { ended, hasToken, keepToken, operate, send } from "./requests.js";
import { Steps } from "./steps.js";
import { PlanFields, RestorePlan } from "./restore_plan.js";

export { takeToken } from "./requests.js";

// `Fields` are what the user is asked for, by the names that `run` gets as `values`; `steps` names
// what is waited for (`steps.js`). `run` returns {said, shown}: a line, and what is drawn below it.
const ACTIONS = {
  checkpoint: {
    label: "Checkpoint now",
    title: (job) => `Take a checkpoint of ${job.name} now?`,
    text: "An epoch is begun at once instead of at the next interval. The job goes on as before.",
    confirm: "Take it",
    steps: ["epoch"],
    async run({ job, since }) {
      const operation = await operate(`/jobs/${job.jid}/checkpoints`);
      return { said: `Checkpoint ${operation?.checkpointId ?? ""} is complete, after ${duration(now() - since)}.` };
    },
  },
  savepoint: {
    label: "Savepoint",
    title: (job) => `Take a savepoint of ${job.name}?`,
    text: "A checkpoint is taken now, and written as a directory that a changed program can go on from. The job goes on as before.",
    confirm: "Take it",
    Fields: SavepointFields,
    steps: ["epoch", "state"],
    async run({ job, values, since, onProgress }) {
      const body = { "target-directory": values.directory || null, formatType: values.format };
      const { location } = await operate(`/jobs/${job.jid}/savepoints`, { body, onProgress });
      return { said: `The savepoint is whole, after ${duration(now() - since)}.`, shown: html`<${Whole} path=${location} />` };
    },
  },
  stop: {
    label: "Stop",
    title: (job) => `Stop ${job.name}?`,
    text: "The epoch under way is committed, everything is kept, and the job ends.",
    confirm: "Stop the job",
    Fields: StopFields,
    steps: (values) => (values.with === "savepoint" ? ["epoch", "state", "end"] : ["epoch", "end"]),
    async run({ job, values, onProgress }) {
      const path = `/jobs/${job.jid}/stop`;
      const gone = () => ended(job);
      if (values.with !== "savepoint") {
        await operate(path, { body: { savepoint: false }, gone });
        return { said: `The job has stopped: ${await ended(job, true)}.` };
      }
      const body = { targetDirectory: values.directory, formatType: values.format, drain: values.drain === "on" };
      const done = await operate(path, { body, gone, onProgress, answersAt: `/jobs/${job.jid}/savepoints` });
      const said = `The job has stopped with a savepoint: ${await ended(job, true)}.`;
      return { said, shown: done && html`<${Whole} path=${done.location} />` };
    },
  },
  cancel: {
    label: "Cancel",
    title: (job) => `Cancel ${job.name}?`,
    text: "The job ends at once: the epoch under way is aborted; what is decided is committed. With DELETE_ON_CANCELLATION its checkpoints are deleted, and it cannot go on.",
    confirm: "Cancel the job",
    steps: ["abort", "end"],
    danger: true,
    async run({ job }) {
      await send("PATCH", `/jobs/${job.jid}?mode=cancel`);
      return { said: `The job has ended: ${await ended(job, true)}.` };
    },
  },
  plan: {
    label: "Restore plan",
    title: () => "What would this job make of a savepoint?",
    text: "The job's driver compares the savepoint with the program that it runs. Nothing is touched.",
    confirm: "Show the plan",
    Fields: PlanFields,
    steps: ["plan"],
    async run({ job, values }) {
      const asked = {
        savepointPath: values.path.trim(),
        parallelism: values.parallelism ? Number(values.parallelism) : null,
        allowNonRestoredState: values.drop === "on",
      };
      const plan = await operate(`/jobs/${job.jid}/restore-plan`, { body: asked });
      return { said: "", shown: html`<${RestorePlan} plan=${plan} asked=${asked} />` };
    },
  },
  ask: {
    label: "Ask the sinks",
    title: (job) => `Which transactions of ${job.name} are open?`,
    text: "The driver asks each sink's system, as seamark txn list does. Nothing is changed.",
    confirm: "Ask them",
    steps: ["sinks"],
    async run({ job, subject }) {
      const { transactions } = await operate(`/jobs/${job.jid}/transactions`);
      subject.keep(transactions);
      return { said: `${transactions.length} open.` };
    },
  },
  commit: {
    label: "Commit",
    title: () => "Commit this transaction?",
    text: "Its rows become visible. The driver refuses it unless the job's records say that it must be committed.",
    confirm: "Commit it",
    danger: true,
    Fields: EndFields,
    steps: ["sinks"],
    run: (dialog) => endTransaction("commit", dialog),
  },
  abort: {
    label: "Abort",
    title: () => "Abort this transaction?",
    text: "Its rows are gone for good. The driver refuses it unless the job's records say that it is safe to abort.",
    confirm: "Abort it",
    danger: true,
    Fields: EndFields,
    steps: ["sinks"],
    run: (dialog) => endTransaction("abort", dialog),
  },
  start: {
    label: "Start a program",
    title: () => "Start a program?",
    text: "It runs on the dashboard's machine, as its user, in the background. A job with checkpoints goes on after its last decided epoch.",
    confirm: "Start it",
    Fields: StartFields,
    steps: ["start"],
    async run({ values }) {
      const asked = {
        program: values.program,
        programArgsList: values.arguments.split(/\s+/).filter(Boolean),
        savepointPath: values.path.trim(),
        parallelism: values.parallelism ? Number(values.parallelism) : null,
        allowNonRestoredState: values.drop === "on",
      };
      const { jobid } = await operate("/programs/run", { body: asked });
      return { said: "Its job runs.", shown: html`<p><a href=${`#/jobs/${jobid}`} onClick=${close}>Look at it</a></p>` };
    },
  },
  dispose: {
    label: "Dispose of the savepoint",
    title: () => "Dispose of this savepoint?",
    text: "Its directory is deleted, and nothing can be restored from it any more:",
    confirm: "Delete it",
    danger: true,
    Fields: ({ subject }) => html`<p><code class="path">${subject.external_path}</code></p>
      <p class="note">Epoch ${subject.id} of the job, ${bytes(subject.state_size)}. A job that was restored from it does not need it.</p>`,
    steps: ["files"],
    async run({ job, subject }) {
      await operate(`/jobs/${job.jid}/savepoint-disposal`, { body: { "savepoint-path": subject.external_path } });
      return { said: "The savepoint is deleted." };
    },
  },
};
const IN_THE_HEAD = ["checkpoint", "savepoint", "stop", "cancel"];

// {action, job, subject, values, step: "token" | "confirm" | "doing" | "done" | "failed", said, shown, since, progress}
let open = null;
let opener = null;

const redraw = () => dispatchEvent(new Event("draw"));

export function ActionButtons({ job }) {
  if (!isLive(job.state)) return null;
  return html`<div class="actions" role="group" aria-label="Change this job">
    ${IN_THE_HEAD.map((name) => html`<${ActionButton} key=${name} action=${name} job=${job} disabled=${job.state === "CANCELLING"} />`)}
  </div>`;
}

// Offered where the dashboard was started with --allow-run; `path` is a savepoint to start from.
export function StartButton({ path, children }) {
  const programs = page("/programs", 10_000).data?.programs || [];
  if (!programs.length) return null;
  return html`<${ActionButton} action="start" job=${{ jid: "", name: "a program" }} subject=${{ programs, path }}>${children}<//>`;
}

// Opens an action's dialog; `subject` is what it is about, beside the job, `values` what its fields hold at first.
export function ActionButton({ action, job, subject, values = {}, disabled, children, title }) {
  const { label, danger } = ACTIONS[action];
  const ask = (event) => {
    opener = event.currentTarget;
    open = { action, job, subject, values, step: hasToken() ? "confirm" : "token", said: "" };
    redraw();
  };
  return html`<button type="button" class=${danger ? "danger" : ""} disabled=${disabled} title=${title} onClick=${ask}>${children || label}…</button>`;
}

function close() {
  open = null;
  redraw();
  setTimeout(() => opener?.isConnected && opener.focus());
}

export function Actions() {
  if (!open) return null;
  const { action, job, subject, step, said, shown, values, since, progress } = open;
  const { label, title, text, confirm, danger, Fields, steps } = ACTIONS[action];
  const dialog = open;
  const go = (event) => {
    event.preventDefault();
    dialog.values = Object.fromEntries(new FormData(event.target));
    perform(dialog);
  };
  const back = () => {
    Object.assign(dialog, { step: hasToken() ? "confirm" : "token", said: "" });
    redraw();
  };
  return html`<${Dialog} title=${step === "confirm" ? title(job) : `${label}: ${job.name}`} wide=${step === "done" && action === "plan"} onClose=${close}>
    ${step === "token" && html`<${AskToken} />`}
    ${step === "confirm" &&
    html`<form onSubmit=${go}>
      <p>${text}</p>
      ${Fields && html`<${Fields} job=${job} subject=${subject} values=${values} />`}
      <div class="buttons">
        <button type="button" onClick=${close}>No, leave it</button>
        <button class=${danger ? "danger primary" : "primary"} autofocus=${!Fields}>${confirm}</button>
      </div>
    </form>`}
    ${step === "doing" && html`<${Steps} job=${job} names=${typeof steps === "function" ? steps(values) : steps} since=${since} progress=${progress} />`}
    ${(step === "done" || step === "failed") &&
    html`${said &&
      html`<p role="status" aria-live="polite" class=${`result ${step}`}>
        <span class=${`sign ${step === "done" ? "good" : "bad"}-text`} aria-hidden="true">${step === "done" ? "✓ " : "✕ "}</span>${said}
      </p>`}
      ${shown}`}
    ${!["token", "confirm"].includes(step) &&
    html`<div class="buttons">
      ${(step === "failed" || (step === "done" && action === "plan")) && html`<button type="button" onClick=${back}>${step === "failed" ? "Try again" : "Another one"}</button>`}
      <button type="button" class="primary" autofocus onClick=${close}>${step === "doing" ? "Close; it goes on" : "Close"}</button>
    </div>`}
  <//>`;
}

async function perform(dialog) {
  const show = (change) => {
    Object.assign(dialog, change); // nothing is seen of it if the dialog is closed
    redraw();
  };
  show({ step: "doing", said: "", shown: null, since: now(), progress: null });
  try {
    const done = await ACTIONS[dialog.action].run({ ...dialog, onProgress: (progress) => show({ progress }) });
    show({ step: "done", ...done });
  } catch (error) {
    show({ step: "failed", said: error.message });
  }
  refresh();
}

// --- what is asked for
//
// Fields have a defaultValue, not a value: every drawing would put a value back over what is typed.

function AskToken() {
  const keep = (event) => {
    event.preventDefault();
    keepToken(new FormData(event.target).get("token"));
    Object.assign(open, { step: "confirm" });
    redraw();
  };
  return html`<form onSubmit=${keep}>
    <p>This needs the dashboard's token. <code>seamark dashboard</code> has printed an address with it; open that, or paste it here:</p>
    <p><label>Address or token <input name="token" type="password" autocomplete="off" required autofocus /></label></p>
    <div class="buttons"><button type="button" onClick=${close}>Leave it</button><button class="primary">Go on</button></div>
  </form>`;
}

const NO_DIRECTORY = ["", "None"];

// The directory that the job's settings name for savepoints; "" if none.
export function savepointDirectory(jid) {
  const settings = page(`/jobs/${jid}/config`, 10_000).data?.["execution-config"]["user-config"];
  const found = settings?.["checkpoint.savepoint_dir"]?.value ?? "";
  return NO_DIRECTORY.includes(found) ? "" : found;
}

function SavepointFields({ job, values }) {
  const configured = savepointDirectory(job.jid);
  return html`
    <p><label>Directory <input name="directory" defaultValue=${values.directory ?? configured} placeholder="file:///savepoints or s3a://bucket/savepoints" required=${!configured} autofocus spellcheck=${false} /></label>
      <span class="note">It gets a directory of its own below this one.</span></p>
    <fieldset><legend>Form</legend>
      <label class="choice"><input type="radio" name="format" value="CANONICAL" defaultChecked=${values.format !== "NATIVE"} /> <span><b>Canonical</b><span class="note">Fits another state backend and another number of partitions.</span></span></label>
      <label class="choice"><input type="radio" name="format" value="NATIVE" defaultChecked=${values.format === "NATIVE"} /> <span><b>Native</b><span class="note">A copy of the state's files: quicker; fits the same backend and number of partitions only.</span></span></label>
    </fieldset>
  `;
}

function StopFields({ job, values }) {
  const choose = (event) => {
    values.with = event.target.value;
    redraw();
  };
  const chosen = values.with || "checkpoint";
  return html`
    <fieldset><legend>It ends</legend>
      <label class="choice"><input type="radio" name="with" value="checkpoint" checked=${chosen === "checkpoint"} onChange=${choose} /> <span><b>After its current epoch</b><span class="note">Start its program again, and it goes on from there.</span></span></label>
      <label class="choice"><input type="radio" name="with" value="savepoint" checked=${chosen === "savepoint"} onChange=${choose} /> <span><b>With a savepoint</b><span class="note">A changed program, or one with another number of partitions, can go on exactly there. Nothing is written after it.</span></span></label>
    </fieldset>
    ${chosen === "savepoint" &&
    html`<${SavepointFields} job=${job} values=${values} />
      <label class="choice"><input type="checkbox" name="drain" defaultChecked=${values.drain === "on"} /> <span><b>Drain</b><span class="note">For a job that ends for good: every window is closed and its result written. The same program does not start again under its name.</span></span></label>`}
  `;
}

function StartFields({ subject, values }) {
  return html`
    <p><label>Program <select name="program">${subject.programs.map((path) => html`<option value=${path} selected=${values.program === path}>${path}</option>`)}</select></label></p>
    <p><label>Its arguments <input name="arguments" defaultValue=${values.arguments ?? ""} placeholder="none" spellcheck=${false} /></label></p>
    <p><label>Savepoint, or retained checkpoint <input name="path" defaultValue=${values.path ?? subject.path ?? ""} placeholder="none: go on after the last decided epoch" spellcheck=${false} /></label></p>
    <p><label>State partitions <input name="parallelism" type="number" min="1" step="1" defaultValue=${values.parallelism ?? ""} placeholder="as many as it has" /></label></p>
    <label class="choice"><input type="checkbox" name="drop" defaultChecked=${values.drop === "on"} /> <span><b>Allow non-restored state</b><span class="note">Drop what no part of the program takes (-n).</span></span></label>
  `;
}

function EndFields({ subject }) {
  const { sink, epoch, generation, transaction, verdict } = subject.one;
  return html`<p><code class="path">${transaction}</code></p>
    <p class="note">Sink ${sink}, ${epoch >= 0 ? `epoch ${epoch}` : "of an epoch not told"}, generation ${generation}: ${verdict}.</p>
    <label class="choice"><input type="checkbox" name="force" /> <span><b>Against the verdict</b><span class="note">May lose rows, or show them twice. A transaction in use is never ended.</span></span></label>`;
}

async function endTransaction(verb, { job, subject, values }) {
  const path = `/jobs/${job.jid}/transactions`;
  await operate(path, { body: { verb, transactions: [subject.one.transaction], force: values.force === "on" } });
  subject.keep((await operate(path)).transactions);
  return { said: `The transaction is ${verb === "commit" ? "committed" : "aborted"}.` };
}

function Whole({ path }) {
  const command = `seamark run -s ${path} APP.PY`;
  return html`<p><code class="path">${path}</code> <${Copy} text=${path} what="the path" /></p>
    <p>The stopped job's program, changed or not, goes on from it:</p>
    <pre>${command}</pre>`;
}
