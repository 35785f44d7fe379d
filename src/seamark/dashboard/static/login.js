// What a dashboard shows that is not open to everybody: a field for its token, or the way to its proxy.
import { html } from "./html.js";
import { authorized, refresh } from "./pages.js";
import { keepToken } from "./requests.js";

export function Login({ byProxy }) {
  document.title = "Log in – Seamark";
  const go = (event) => {
    event.preventDefault();
    keepToken(new FormData(event.target).get("token"));
    refresh();
  };
  return html`
    <div class="title"><h1>Log in</h1></div>
    ${byProxy && html`<p>This dashboard is used through a proxy that logs you in. You came without it, or your login has ended: load its address again.</p>`}
    ${!!authorized().Authorization && html`<p role="alert" class="result failed"><span class="sign bad-text" aria-hidden="true">✕ </span>This is not the dashboard's token.</p>`}
    <form onSubmit=${go}>
      <p><label>Address or token <input name="token" type="password" autocomplete="off" required autofocus /></label></p>
      <p class="note"><code>seamark dashboard</code> has printed an address with the token, or was given it with <code>--token-file</code>.</p>
      <div class="buttons"><button class="primary">Log in</button></div>
    </form>
  `;
}
