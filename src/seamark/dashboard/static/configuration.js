// The job's settings and where each came from; what it guarantees, and what sets that.
import { html } from "./html.js";
import { page } from "./pages.js";
import { Guarantee, Waiting } from "./components.js";

let all = false;

export function Configuration({ jid }) {
  const entry = page(`/jobs/${jid}/config`, 4000);
  const guarantees = page(`/jobs/${jid}/guarantees`, 10_000);
  return html`
    <${Guarantees} entry=${guarantees} />
    <h2>Settings</h2>
    ${entry.data ? html`<${Settings} entry=${entry} />` : html`<${Waiting} of=${entry} what="settings" unknown="The job's last run, of an older version, has not stored them." />`}
  `;
}

function Settings({ entry }) {
  const settings = Object.entries(entry.data["execution-config"]["user-config"]);
  const given = settings.filter(([, { origin }]) => origin !== "default");
  const shown = all ? settings : given;
  const toggle = () => {
    all = !all;
    dispatchEvent(new Event("draw"));
  };
  return html`
    <p>Restart strategy: <b>${entry.data["execution-config"]["restart-strategy"]}</b></p>
    <p><label><input type="checkbox" checked=${all} onChange=${toggle} /> also the ${settings.length - given.length} that nobody has set</label></p>
    <table class="list pairs cards"><thead><tr><th scope="col">Setting</th><th scope="col">Value</th><th scope="col">From</th></tr></thead>
      <tbody>${shown.map(([key, { value, origin }]) => html`<tr key=${key}><th scope="row"><code>${key}</code></th><td data-name="Value"><code>${value}</code></td><td data-name="From">${origin}</td></tr>`)}</tbody>
    </table>
  `;
}

function Guarantees({ entry }) {
  const found = entry.data;
  if (!found) return null;
  return html`<section>
    <h2>What is guaranteed</h2>
    <p>End to end <${Guarantee} level=${found.guarantee} />${found.weakest ? html`, set by <b>${found.weakest}</b>. ${found.remedy}` : "."}</p>
    <table class="list cards"><thead><tr><th scope="col">Part</th><th scope="col">What</th><th scope="col">At best</th><th scope="col">Why</th></tr></thead>
      <tbody>${found.parts.map((part) => html`<tr key=${part.uid}><th scope="row"><span class=${`kind ${part.kind}`}>${part.kind}</span> ${part.uid}</th><td data-name="What">${part.description}</td><td data-name="At best"><${Guarantee} level=${part.guarantee} why=${part.why} /></td><td data-name="Why">${part.why}</td></tr>`)}</tbody>
    </table>
  </section>`;
}
