// Small parts that several pages share.
import { html, Component } from "./html.js";
import { UNKNOWN, ago, coarse, exact, known } from "./format.js";
import { now } from "./pages.js";

const SIGNS = {
  RUNNING: ["●", "good"],
  FINISHED: ["✓", "done"],
  COMPLETED: ["✓", "good"],
  IN_PROGRESS: ["◐", "busy"],
  INITIALIZING: ["◔", "busy"],
  RESTARTING: ["↻", "warn"],
  CANCELLING: ["◌", "warn"],
  CANCELED: ["■", "done"],
  FAILED: ["✕", "bad"],
  SUPERSEDED: ["⇥", "done"],
  UNREACHABLE: ["?", "bad"],
  UNOBSERVED: ["○", "done"],
};

const MEANINGS = {
  SUPERSEDED: "A restore has begun the job's next lineage; this one is kept, and never runs again",
  UNREACHABLE: "Its driver has not said that it ended, and does not answer: it was killed, or the network is in between",
  UNOBSERVED: 'A query of format("seamark"): Spark runs it, and tells nobody when it ends',
  RESTARTING: "A failure is being waited out, by the restart strategy",
  INITIALIZING: "What an earlier driver left is being settled; no row is read yet",
};

// A state: a sign, a word and a colour.
export function State({ of: state }) {
  const [sign, tone] = SIGNS[state] || ["·", "done"];
  return html`<span class=${`state ${tone}`} title=${MEANINGS[state] || ""}
    ><span class="sign" aria-hidden="true">${sign}</span>${state.replace("_", " ").toLowerCase()}</span
  >`;
}

export const isLive = (state) => ["RUNNING", "INITIALIZING", "RESTARTING", "CANCELLING"].includes(state);

// How a time is shown: relative with the exact one behind it, or the other way round.
export const times = { exact: localStorage.getItem("times") === "exact" };

export function toggleTimes() {
  times.exact = !times.exact;
  localStorage.setItem("times", times.exact ? "exact" : "relative");
}

export function Time({ at }) {
  if (!known(at) || at <= 0) return html`<span>${UNKNOWN}</span>`;
  const [shown, behind] = times.exact ? [exact(at), ago(at, now())] : [ago(at, now()), exact(at)];
  return html`<time datetime=${new Date(at).toISOString()} title=${behind}>${shown}</time>`;
}

export function Since({ at }) {
  if (!known(at) || at <= 0) return html`<span>${UNKNOWN}</span>`;
  if (times.exact) return html`<${Time} at=${at} />`;
  return html`<time datetime=${new Date(at).toISOString()} title=${exact(at)}>${coarse(now() - at)}</time>`;
}

const GUARANTEES = { "exactly-once": "good", "at-least-once": "warn", "at-most-once": "bad", none: "bad" };

export function Guarantee({ level, why }) {
  if (!level) return null;
  return html`<span class=${`guarantee ${GUARANTEES[level] || ""}`} title=${why || ""}>${level}</span>`;
}

// A figure with its name below a heading: `value` big, `note` small.
export function Figure({ name, value, note, tone, hint }) {
  return html`<div class=${`figure ${tone || ""}`} title=${hint || ""}>
    <dt>${name}</dt>
    <dd><span class="value">${value}</span>${note && html` <span class="note">${note}</span>`}</dd>
  </div>`;
}

export function Loading({ what }) {
  return html`<p class="loading" role="status"><span class="spinner" aria-hidden="true"></span>Loading ${what}…</p>`;
}

export function Problem({ children }) {
  return html`<div class="banner bad" role="alert"><span class="sign" aria-hidden="true">✕</span><div>${children}</div></div>`;
}

export function Banner({ tone, sign, children }) {
  return html`<div class=${`banner ${tone}`} role="status"><span class="sign" aria-hidden="true">${sign}</span><div>${children}</div></div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><h2>${title}</h2>${children}</div>`;
}

// What a page shows before it has data: loading, an error, or that nothing is known.
export function Waiting({ of: entry, what, unknown }) {
  if (entry.error && !entry.data) return html`<${Problem}>${entry.error}<//>`;
  if (entry.data === null) return html`<${Empty} title=${`No ${what} known`}><p>${unknown}</p><//>`;
  return html`<${Loading} what=${what} />`;
}

// Puts `text` on the clipboard; `what` it is, for those who cannot see it.
export class Copy extends Component {
  render({ text, what }, { copied }) {
    const copy = async () => {
      await navigator.clipboard.writeText(text);
      this.setState({ copied: true });
      setTimeout(() => this.setState({ copied: false }), 1500);
    };
    return html`<button type="button" class="copy" aria-label=${`Copy ${what}`} onClick=${copy}>${copied ? "copied" : "copy"}</button>`;
  }
}

// A modal dialog that opens when it is drawn. Esc closes it.
export class Dialog extends Component {
  componentDidMount() {
    this.element.showModal();
  }
  componentWillUnmount() {
    this.element.close();
  }
  render({ title, wide, onClose, children }) {
    const cancelled = (event) => {
      event.preventDefault();
      onClose();
    };
    return html`<dialog ref=${(element) => element && (this.element = element)} class=${wide ? "wide-dialog" : ""} aria-labelledby="dialog-title" onCancel=${cancelled}>
      <h2 id="dialog-title">${title}</h2>
      ${children}
    </dialog>`;
  }
}
