// The front end's beginning: routes, the frame around each page, and one drawing after each change.
//
// Routes are behind the #: #/ is all jobs, #/jobs/<id>/<tab>[/<part>[/<item>]] is one. `pages.js` keeps what
// the server said; each page is a module that draws it. There is no build: the browser loads these
// files as they are.
import { html, render } from "./html.js";
import { beginDrawing, connection, endDrawing, login, now, start } from "./pages.js";
import { clock, coarse } from "./format.js";
import { times, toggleTimes } from "./components.js";
import { Jobs } from "./jobs.js";
import { Job } from "./job.js";
import { Actions, takeToken } from "./actions.js";
import { Login } from "./login.js";

let route = [];
let announced = "";

function readRoute() {
  takeToken();
  route = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
}

function App() {
  const [room, jid, tab, part, item] = route;
  const found = room === "jobs" && jid;
  const who = login();
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="top">
      <a class="brand" href="#/"><img src="/static/icon.svg" alt="" width="22" height="22" /> Seamark</a>
      <div class="tools">
        ${!!who?.user && html`<span class="note">${who.user}</span>`}
        <button type="button" class="quiet" onClick=${onTimes} aria-pressed=${times.exact} title="Show exact times, or how long ago">
          times: ${times.exact ? "exact" : "relative"}
        </button>
        <button type="button" class="quiet" onClick=${onTheme} title="Colours: as the system, light, or dark">colours: ${theme()}</button>
      </div>
    </header>
    <${Connection} />
    <main id="main" tabindex="-1">
      ${who && !who["may-look"] && html`<${Login} byProxy=${who["by-proxy"]} />`}
      ${who?.["may-look"] && (found ? html`<${Job} key=${jid} jid=${jid} tab=${tab || "overview"} part=${part} item=${item} />` : html`<${Jobs} />`)}
    </main>
    <${Actions} />
  `;
}

// What screen readers are told: that the connection is lost or back, not each second of it.
function Connection() {
  const { lostSince } = connection;
  const said = lostSince ? "The connection to the dashboard is lost." : announced && "The connection is back.";
  if (lostSince) announced = "lost";
  return html`
    <p class="unseen" role="status" aria-live="polite">${said}</p>
    ${!!lostSince &&
    html`<div class="banner bad lost">
      <span class="sign" aria-hidden="true">✕</span>
      <div>
        <strong>No connection to the dashboard</strong> since ${clock(lostSince)} (${coarse(Date.now() - lostSince)}).
        What is shown is of that time. Does <code>seamark dashboard</code> still run? Trying again…
      </div>
    </div>`}
  `;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function onTimes() {
  toggleTimes();
  draw();
}

// --- colours: as the system says, unless told otherwise

function theme() {
  return document.documentElement.dataset.theme || "system";
}

function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  localStorage.setItem("theme", name);
}

function onTheme() {
  const names = ["system", "light", "dark"];
  setTheme(names[(names.indexOf(theme()) + 1) % names.length]);
  dispatchEvent(new Event("themechange"));
  draw();
}

// --- drawing

let due = false;

export function draw() {
  if (due) return;
  due = true;
  queueMicrotask(() => {
    due = false;
    beginDrawing();
    render(html`<${App} />`, root);
    endDrawing();
  });
}

function navigated() {
  const before = route.join("/");
  readRoute();
  draw();
  if (before !== route.join("/")) {
    queueMicrotask(() => {
      const tabsOnly = before.split("/")[1] === route[1] && route[1];
      if (!tabsOnly) {
        window.scrollTo(0, 0);
        document.getElementById("main")?.focus({ preventScroll: true });
      }
    });
  }
}

setTheme(localStorage.getItem("theme") || "system");
const root = document.getElementById("app");
root.replaceChildren();
readRoute();
addEventListener("hashchange", navigated);
addEventListener("draw", draw);
addEventListener("resize", draw);
start(draw);
draw();
