// The phases of an epoch: their names, colours (by class) and figures.
import { html } from "./html.js";
import { duration, known } from "./format.js";

export const PHASES = [
  { key: "read_and_process", state: "PROCESSING", label: "Read and process", css: "p1", hint: "From the trigger: tasks read, compute and hand rows to the sinks" },
  { key: "pre_commit", state: "PRE_COMMIT", label: "Pre-commit", css: "p2", hint: "Sinks write and flush: durable, still invisible. What the task took that took longest over it" },
  { key: "decision", state: "DECISION", label: "Decision", css: "p3", hint: "The attempt is stored, and Spark commits the batch: from here the epoch is final" },
  { key: "commit", state: "COMMIT", label: "Commit", css: "p4", hint: "Every sink makes the epoch's rows visible" },
];

// How long each phase of one checkpoint took; null where it is not known.
export function phasesOf(series, index) {
  return PHASES.map(({ key }) => series[key]?.[index] ?? null);
}

// One checkpoint's phases as a bar.
export function PhaseBar({ values }) {
  const total = values.reduce((sum, value) => sum + (known(value) ? value : 0), 0);
  if (!total) return null;
  const title = PHASES.map(({ label }, i) => `${label} ${duration(values[i])}`).join(", ");
  return html`<span class="phasebar" role="img" aria-label=${title} title=${title}>
    ${PHASES.map(({ css }, i) => known(values[i]) && values[i] > 0 && html`<span class=${css} style=${{ flexGrow: values[i] }}></span>`)}
  </span>`;
}

export function PhaseKey() {
  return html`<ul class="key">${PHASES.map(({ label, css, hint }) => html`<li title=${hint}><span class=${`swatch ${css}`} aria-hidden="true"></span>${label}</li>`)}</ul>`;
}
