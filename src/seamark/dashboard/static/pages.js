// What the server has said, kept up to date: whoever draws a page asks for its paths by `page`, and
// the paths that were asked for in the last drawing are polled.
//
// The last answer is kept when the connection is lost, with the time since when.

const POLL_MS = 1000;
const PATIENCE_MS = 15_000;

const entries = new Map(); // path -> {data, etag, error, at, every, due, loading}
let wanted = new Set();
let asked = new Set();
let changed = () => {};
let skewMs = 0;

// The dashboard's token, of a tab that has it (requests.js): the server keeps places for its holder.
export const TOKEN = "seamark-token";
export const authorized = () => {
  const token = sessionStorage.getItem(TOKEN);
  return /^[\w.~+/=-]+$/.test(token || "") ? { Authorization: `Bearer ${token}` } : {};
};

export const connection = { lostSince: 0, lastAnswer: 0 };

// The server's clock: the dashboard may be looked at from another machine, through a tunnel.
export function now() {
  return Date.now() + skewMs;
}

export function start(onChange) {
  changed = onChange;
  setInterval(poll, POLL_MS);
  document.addEventListener("visibilitychange", poll);
}

// Called around each drawing: what is not asked for between the two is polled no more.
export function beginDrawing() {
  asked = new Set();
}

export function endDrawing() {
  wanted = asked;
  const unknown = [...wanted].filter((path) => !entries.get(path).tried);
  if (unknown.length) queueMicrotask(() => load(unknown));
}

// Returns {data, error, at}; data is undefined until it is there, null if nothing is known.
// `every` (ms): how often it is asked for again; 0 is never, once it is there.
export function page(path, every = POLL_MS) {
  asked.add(path);
  const entry = entries.get(path) || { data: undefined, etag: "", error: "", at: 0, tried: false, due: 0, loading: false };
  entries.delete(path); // the last asked for is the last to be forgotten
  entries.set(path, entry);
  while (entries.size > 200) entries.delete(entries.keys().next().value);
  entry.every = every;
  return entry;
}

// The counts, the latest checkpoints and the epoch under way, and in `series` the figures of all by
// column, oldest first: one answer, so of one moment. Of the series only what is new is asked for.
export function history(jid) {
  const entry = page(`/jobs/${jid}/checkpoints?limit=1`);
  entry.grows = true;
  return entry;
}

function grown(old, more) {
  if (!old?.id) return more;
  const joined = {};
  for (const name in old) joined[name] = [...old[name], ...(more[name] || [])].slice(-1000);
  return joined;
}

// What this tab may do: {"may-look", "may-change", user, "by-proxy"}; undefined until it is known.
export const login = () => page("/login", 10_000).data;

// After an action: do not wait for the next second.
export function refresh() {
  for (const path of wanted) entries.get(path).due = 0;
  poll();
}

function poll() {
  if (document.hidden) return;
  const time = Date.now();
  load([...wanted].filter((path) => entries.get(path).tried && time >= entries.get(path).due));
  changed(); // what ticks: "12 s ago"
}

// The answers of one round are taken over together, so that a drawing never mixes two rounds; one
// that takes long is waited for alone.
async function load(paths) {
  const asked = paths.filter((path) => entries.has(path) && !entries.get(path).loading);
  let open = true;
  const waiting = [];
  const takeOver = () => {
    waiting.splice(0).forEach((take) => take());
    changed();
  };
  const answers = asked.map(async (path) => {
    waiting.push(await ask(path, entries.get(path)));
    if (!open) takeOver();
  });
  if (!answers.length) return;
  await Promise.race([Promise.all(answers), new Promise((done) => setTimeout(done, POLL_MS))]);
  open = false;
  takeOver();
}

// Returns what takes the answer over.
async function ask(path, entry) {
  entry.loading = entry.tried = true;
  try {
    const last = entry.grows ? entry.data?.series?.trigger_timestamp?.at(-1) : undefined;
    const from = entry.grows ? `&series=${last === undefined ? 0 : last + 1}` : "";
    const headers = { ...authorized(), ...(entry.etag && last === undefined ? { "If-None-Match": entry.etag } : {}) };
    const signal = AbortSignal.timeout(PATIENCE_MS);
    const answer = await fetch(path + from, { headers, cache: "no-store", signal });
    const found = answer.status === 200 ? await answer.json() : answer.status >= 400 ? await problem(answer) : null;
    return () => answered(entry, answer, found);
  } catch (error) {
    return () => {
      connection.lostSince ||= connection.lastAnswer || Date.now();
      entry.due = Date.now() + 2 * POLL_MS;
      entry.loading = false;
    };
  }
}

function answered(entry, answer, found) {
  noteClock(answer);
  entry.loading = false;
  entry.error = "";
  if (answer.status === 200) {
    entry.data = found.series ? { ...found, series: grown(entry.data?.series, found.series) } : found;
    entry.etag = answer.headers.get("ETag") || "";
  } else if (answer.status === 204) {
    entry.data = entry.data ?? null;
  } else if (answer.status !== 304) {
    entry.error = found;
    entry.status = answer.status;
  }
  entry.at = Date.now();
  entry.due = entry.every ? entry.at + entry.every - POLL_MS / 2 : Infinity;
  if (entry.error || entry.data === null) entry.due = entry.at + 3 * POLL_MS;
  connection.lostSince = 0;
  connection.lastAnswer = entry.at;
}

function noteClock(answer) {
  const date = Date.parse(answer.headers.get("Date") || "");
  const skew = date + 500 - Date.now();
  skewMs = Math.abs(skew) > 5000 ? skew : 0;
}

export async function problem(answer) {
  try {
    const said = await answer.json();
    return said.errors.join("; ");
  } catch {
    return `the server answers ${answer.status}`;
  }
}
