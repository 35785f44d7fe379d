// Sources, operators and sinks from left to right, laid out by dagre (vendor/); on a narrow screen
// one below another. What a reader is guaranteed stands where rows pass: on the edges.
import * as dagre from "./vendor/dagre.esm.js";
import { html } from "./html.js";
import { clock, count, known, percent, rate } from "./format.js";
import { Guarantee } from "./components.js";

const NODE = { width: 230, height: 118 };
const STILL = { width: 230, height: 72 }; // without what flows
const SMALL = { width: 190, height: 66 }; // of a graph with many nodes
const MANY = 14;
const LABEL = { width: 96, height: 20 };
const LEAST_SCALE = 0.55; // smaller than this nobody can read: then it scrolls
const NARROW_PX = 720;
const RAIL_PX = 34; // beside the nodes of a narrow screen, for edges that pass other nodes
const LEVELS = ["none", "at-most-once", "at-least-once", "exactly-once"];

// `edges`: [from, to]. `sinks`: what each sink's reader is guaranteed, by uid: {guarantee, note}.
export function Graph({ nodes, edges, sinks, live }) {
  const down = innerWidth < NARROW_PX;
  const many = nodes.length > MANY;
  const box = many ? SMALL : live ? NODE : STILL;
  const drawn = guaranteed(nodes, edges, sinks);
  const across = laidOut(nodes, drawn, box);
  const { places, paths, width, height, size } = down ? column(across, drawn, box) : { ...across, size: box };
  const scale = down ? 1 : Math.min(1, Math.max(LEAST_SCALE, (Math.min(innerWidth, 1440) - 80) / width));
  return html`
    <div class="graph" tabindex="0" role="group" aria-label="Sources, operators and sinks">
      <div class="graph-place" style=${{ width: `${width * scale}px`, height: `${height * scale}px` }}>
        <div class="graph-inner" style=${{ width: `${width}px`, height: `${height}px`, transform: `scale(${scale})` }}>
          <svg width=${width} height=${height} aria-hidden="true">
            <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" /></marker></defs>
            ${drawn.map((edge, i) => html`<path key=${`${edge.from} ${edge.to}`} class=${`edge ${edge.level || ""} ${live ? "live" : ""}`} d=${paths[i]} marker-end="url(#arrow)" />`)}
          </svg>
          ${nodes.map((node) => html`<${Node} key=${node.id} node=${node} at=${places.get(node.id)} box=${size} live=${live} many=${many} alone=${!edges.length} inputs=${drawn.filter(({ to }) => to === node.id)} />`)}
          ${!down && drawn.map((edge, i) => edge.said && html`<span class="on-edge" key=${`${edge.from} ${edge.to}`} style=${{ left: `${across.labels[i].x}px`, top: `${across.labels[i].y}px` }}><${Guarantee} level=${edge.said} why=${edge.why} /></span>`)}
        </div>
      </div>
    </div>
    ${!edges.length && nodes.length > 1 && html`<p class="note">How they are connected is known while the driver answers.</p>`}
  `;
}

function Node({ node, at, box, live, many, alone, inputs }) {
  const busy = typeof node.busy === "number" ? node.busy : null;
  const said = alone ? { said: node.guarantee, why: node.why } : inputs.find((edge) => edge.said);
  return html`<article class=${`node ${node.kind} ${many ? "small" : ""} ${busy > 0.9 ? "hot" : ""}`} style=${{ left: `${at.x}px`, top: `${at.y}px`, width: `${box.width}px`, height: `${box.height}px` }}>
    <header>
      <span class="kind">${node.kind}</span>
      ${(alone || innerWidth < NARROW_PX) && said ? html`<${Guarantee} level=${said.said} why=${said.why} />` : many && live && html`<span class="rate" title="Rows a second">${rate(node.rate)}</span>`}
    </header>
    <h3 title=${[node.id, node.why].filter(Boolean).join(": ")}>${node.id}${node.nameless && html` <span class="tag" title="A restore in another program finds its state by its uid only: name it with job.uid(dataframe, uid)">no uid</span>`}</h3>
    <p class="what" title=${node.name}>${node.name}</p>
    ${live &&
    !many &&
    html`<p class="line">
        <span class="rate" title="Rows a second">${rate(node.rate)}</span>
        ${node.parallelism > 1 && html`<span class="note">${node.parallelism} subtasks</span>`}
        ${known(node.lag) && html`<span class="note" title="Rows that it holds and that are not read yet">lag ${count(node.lag)}</span>`}
        ${known(node.watermark) && html`<span class="note" title=${`Watermark: rows with an earlier event time are late (${new Date(node.watermark).toISOString()})`}>▽ ${clock(node.watermark)}</span>`}
      </p>
      ${known(busy) &&
      html`<p class="busy" title="Share of the time in which it was at work">
        <span class="meter" aria-hidden="true"><span style=${{ width: `${Math.round(busy * 100)}%` }}></span></span>
        <span class="note">busy ${percent(busy)}</span>
      </p>`}`}
    ${!!inputs.length && html`<span class="unseen">fed by ${inputs.map(({ from, level }) => `${from}${level ? `, ${level}` : ""}`).join("; ")}</span>`}
  </article>`;
}

// The edges with their level: as far as there, no more than the weakest part on the way is
// guaranteed. It is `said` in words where rows leave for a sink.
function guaranteed(nodes, edges, sinks) {
  const of = new Map(nodes.map((node) => [node.id, node]));
  const known = edges.filter(([from, to]) => of.has(from) && of.has(to));
  const levels = new Map();
  const level = (id, seen = new Set()) => {
    if (levels.has(id) || seen.has(id)) return levels.get(id);
    seen.add(id);
    const own = [of.get(id).guarantee, ...known.filter(([, to]) => to === id).map(([from]) => level(from, seen))];
    const places = own.filter(Boolean).map((each) => LEVELS.indexOf(each));
    levels.set(id, places.length ? LEVELS[Math.min(...places)] : undefined);
    return levels.get(id);
  };
  return known.map(([from, to]) => {
    const into = sinks?.get(to);
    const leaves = of.get(to).kind === "sink";
    const found = into?.guarantee || level(leaves ? to : from);
    return { from, to, level: found, said: leaves && found, why: into?.note || of.get(to).why };
  });
}

function laidOut(nodes, edges, box) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 22, ranksep: edges.length ? 46 : 30, marginx: 2, marginy: 2 });
  for (const node of nodes) graph.setNode(node.id, { ...box });
  for (const { from, to, said } of edges) graph.setEdge(from, to, said ? { ...LABEL, labelpos: "c" } : { width: 12, height: 2 });
  dagre.layout(graph);
  const { width, height } = graph.graph();
  const places = new Map(nodes.map(({ id }) => [id, { x: graph.node(id).x - box.width / 2, y: graph.node(id).y - box.height / 2 }]));
  const laid = edges.map(({ from, to }) => graph.edge(from, to));
  const ends = ({ from, to }) => [places.get(from), places.get(to)].map(({ x, y }, end) => ({ x: end ? x - 2 : x + box.width, y: y + box.height / 2 }));
  const paths = edges.map((edge, i) => smooth([ends(edge)[0], ...laid[i].points.slice(1, -1), ends(edge)[1]]));
  return { places, paths, labels: laid, width, height };
}

// A curve through the points, level at both ends.
function smooth(points) {
  let path = `M${points[0].x} ${points[0].y}`;
  for (let i = 1; i < points.length; i++) {
    const [a, b] = [points[i - 1], points[i]];
    const bend = (b.x - a.x) / 2;
    path += `C${a.x + bend} ${a.y} ${b.x - bend} ${b.y} ${b.x} ${b.y}`;
  }
  return path;
}

// One below another, in the order in which they stand from left to right.
function column({ places: across }, edges, { height: tall }) {
  const width = Math.max(innerWidth - 2 * RAIL_PX, 240);
  const ids = [...across.keys()].sort((a, b) => across.get(a).x - across.get(b).x || across.get(a).y - across.get(b).y);
  const places = new Map(ids.map((id, i) => [id, { x: RAIL_PX, y: i * (tall + 26), i }]));
  const size = { width: width - RAIL_PX, height: tall };
  const paths = edges.map(({ from, to }) => beside(places.get(from), places.get(to), size));
  return { places, paths, width, height: ids.length * (tall + 26) - 26, size };
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
