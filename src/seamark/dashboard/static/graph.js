// Sources, operators and sinks in layers, from left to right; on a narrow screen one below another.
//
// A node's layer is the longest way to it from a source; within a layer nodes stand by the mean
// place of what feeds them, which keeps most edges from crossing.
import { html } from "./html.js";
import { count, known, percent, rate } from "./format.js";
import { Guarantee } from "./components.js";

const NODE = { width: 230, height: 118 };
const STILL = { width: 230, height: 72 }; // without what flows
const GAP = { along: 64, across: 20 };
const NARROW_PX = 720;
const RAIL_PX = 34; // beside the nodes of a narrow screen, for edges that pass other nodes
const LAYERS = { source: 0, operator: 1, sink: 2 }; // where the edges are not known

export function Graph({ nodes, edges, live }) {
  const down = innerWidth < NARROW_PX;
  const layers = layered(nodes, edges);
  const size = live ? NODE : STILL;
  const { places, width, height, box } = down ? column(layers, size) : rows(layers, size);
  return html`
    <div class="graph" tabindex="0" role="group" aria-label="Sources, operators and sinks">
      <div class="graph-inner" style=${{ width: `${width}px`, height: `${height}px` }}>
        <svg width=${width} height=${height} aria-hidden="true">
          <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" /></marker></defs>
          ${edges.map(([from, to]) => places.has(from) && places.has(to) && html`<path class=${live ? "edge live" : "edge"} d=${(down ? beside : across)(places.get(from), places.get(to), box)} marker-end="url(#arrow)" />`)}
        </svg>
        ${nodes.map((node) => html`<${Node} key=${node.id} node=${node} at=${places.get(node.id)} box=${box} live=${live} inputs=${edges.filter(([, to]) => to === node.id).map(([from]) => from)} />`)}
      </div>
    </div>
    ${!edges.length && nodes.length > 1 && html`<p class="note">How they are connected is known while the driver answers.</p>`}
  `;
}

function Node({ node, at, box, live, inputs }) {
  const busy = typeof node.busy === "number" ? node.busy : null;
  return html`<article class=${`node ${node.kind} ${busy > 0.9 ? "hot" : ""}`} style=${{ left: `${at.x}px`, top: `${at.y}px`, width: `${box.width}px`, height: `${box.height}px` }}>
    <header>
      <span class="kind">${node.kind}</span>
      <${Guarantee} level=${node.guarantee} why=${node.why} />
    </header>
    <h3 title=${node.id}>${node.id}${node.nameless && html` <span class="tag" title="A restore in another program finds its state by its uid only: name it with job.uid(dataframe, uid)">no uid</span>`}</h3>
    <p class="what" title=${node.name}>${node.name}</p>
    ${live &&
    html`<p class="line">
        <span class="rate" title="Rows a second">${rate(node.rate)}</span>
        ${node.parallelism > 1 && html`<span class="note">${node.parallelism} subtasks</span>`}
        ${known(node.lag) && html`<span class="note" title="Rows that it holds and that are not read yet">lag ${count(node.lag)}</span>`}
      </p>
      <p class="busy" title="Share of the time in which it was at work">
        <span class="meter" aria-hidden="true"><span style=${{ width: `${Math.round((busy || 0) * 100)}%` }}></span></span>
        <span class="note">busy ${percent(busy)}</span>
      </p>`}
    ${!!inputs.length && html`<span class="unseen">fed by ${inputs.join(", ")}</span>`}
  </article>`;
}

// The ids of each layer, in order.
function layered(nodes, edges) {
  const depth = depths(nodes, edges);
  const layers = [];
  for (const node of nodes) (layers[depth.get(node.id)] ||= []).push(node.id);
  const found = layers.filter(Boolean);
  const place = new Map();
  for (const layer of found) {
    const weight = (id) => {
      const feeding = edges.filter(([, to]) => to === id).map(([from]) => place.get(from) ?? 0);
      return feeding.length ? feeding.reduce((a, b) => a + b, 0) / feeding.length : 0;
    };
    const weights = new Map(layer.map((id) => [id, weight(id)]));
    layer.sort((a, b) => weights.get(a) - weights.get(b));
    layer.forEach((id, i) => place.set(id, i - (layer.length - 1) / 2));
  }
  return found;
}

function rows(layers, box) {
  const widest = Math.max(...layers.map((layer) => layer.length));
  const height = widest * box.height + (widest - 1) * GAP.across;
  const places = new Map();
  layers.forEach((layer, number) =>
    layer.forEach((id, i) => {
      const y = height / 2 + (i - layer.length / 2) * (box.height + GAP.across) + GAP.across / 2;
      places.set(id, { x: number * (box.width + GAP.along), y });
    }),
  );
  const width = layers.length * box.width + (layers.length - 1) * GAP.along;
  return { places, width, height, box };
}

function column(layers, { height: tall }) {
  const width = Math.max(innerWidth - 2 * RAIL_PX, 240);
  const ids = layers.flat();
  const places = new Map(ids.map((id, i) => [id, { x: RAIL_PX, y: i * (tall + 26), i }]));
  const height = ids.length * (tall + 26) - 26;
  return { places, width, height, box: { width: width - RAIL_PX, height: tall } };
}

function depths(nodes, edges) {
  const depth = new Map(nodes.map((node) => [node.id, edges.length ? 0 : LAYERS[node.kind] ?? 1]));
  for (let round = 0; round < nodes.length; round++) {
    for (const [from, to] of edges) {
      if (depth.has(from) && depth.has(to)) depth.set(to, Math.max(depth.get(to), Math.min(depth.get(from) + 1, nodes.length)));
    }
  }
  return depth;
}

function across(from, to, box) {
  const [x1, y1, x2, y2] = [from.x + box.width, from.y + box.height / 2, to.x - 2, to.y + box.height / 2];
  const bend = (x2 - x1) / 2;
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

// Straight down to the next node; past others on the rail at their left.
function beside(from, to, box) {
  if (to.i === from.i + 1) {
    const x = from.x + box.width / 2;
    return `M${x} ${from.y + box.height}L${x} ${to.y - 2}`;
  }
  const [x, y1, y2] = [from.x, from.y + box.height / 2, to.y + box.height / 2];
  const rail = x - 12 - 6 * Math.min(Math.abs(to.i - from.i), 3);
  return `M${x} ${y1}C${rail} ${y1} ${rail} ${y1} ${rail} ${y1 + 24}L${rail} ${y2 - 24}C${rail} ${y2} ${rail} ${y2} ${x - 2} ${y2}`;
}
