// What is sent to change a job: with the dashboard's token, or as the proxy's user, and polled until
// it is done.
//
// The token comes with the address that `seamark dashboard` prints, behind the #, which no browser
// sends anywhere; the page keeps it until the tab is closed.
import { TOKEN, authorized, login, problem } from "./pages.js";

const POLL_MS = 500;

export const hasToken = () => !!sessionStorage.getItem(TOKEN) || !!login()?.user;

export function keepToken(given) {
  sessionStorage.setItem(TOKEN, given.trim().replace(/^.*#token=/, ""));
}

// Called at each change of the address: moves a token from it to where this tab keeps it.
export function takeToken() {
  const found = /^#token=([\w.~+/=-]+)$/.exec(location.hash);
  if (!found) return;
  keepToken(found[1]);
  history.replaceState(null, "", "#/");
}

export async function send(method, path, body) {
  const headers = { "X-Requested-With": "seamark", ...authorized() }; // no foreign page may set it
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  if (answer.status === 401) sessionStorage.removeItem(TOKEN);
  if (!answer.ok) throw new Error(await problem(answer));
  return answer.json();
}

// One of Flink's asynchronous operations: ask, and poll until it is done, at `answersAt` where that
// is another path. `gone` is asked when the driver no longer answers: whether that is what was
// wanted. `onProgress` gets each answer until the last.
export async function operate(path, { body = {}, answersAt = path, gone = async () => "", onProgress = () => {} } = {}) {
  const triggerId = crypto.randomUUID().replaceAll("-", "");
  const { "request-id": id } = await send("POST", path, { ...body, triggerId });
  for (;;) {
    const answer = await fetch(`${answersAt}/${id || triggerId}`, { headers: authorized(), cache: "no-store" });
    if (!answer.ok) {
      if (await gone()) return null;
      if (answer.status !== 502) throw new Error(await problem(answer));
    } else {
      const said = await answer.json();
      const cause = said.operation?.["failure-cause"];
      if (cause) throw new Error(cause["stack-trace"] || cause.class);
      if (said.status.id === "COMPLETED") return said.operation;
      onProgress(said);
    }
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}

// The job's end state in words; "" while it runs. `wait` waits for it.
export async function ended(job, wait = false) {
  for (;;) {
    const answer = await fetch(`/jobs/${job.jid}`, { headers: authorized(), cache: "no-store" });
    if (answer.status === 404) return "its checkpoints are deleted";
    const { state, reason } = answer.ok ? await answer.json() : {};
    if (["FINISHED", "CANCELED", "FAILED"].includes(state)) return reason ? `${state.toLowerCase()}: ${reason}` : state.toLowerCase();
    if (!wait) return "";
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}
