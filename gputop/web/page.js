// The token stands behind the # of the address, which is sent to no server: it goes from there into this tab's own
// storage, and to the server when the page connects. Without it nothing connects.
"use strict";
(() => {
  const told = new URLSearchParams(location.hash.slice(1)).get("token");
  if (told !== null) sessionStorage.setItem("gputop", told);
  history.replaceState(null, "", "/");
  const token = sessionStorage.getItem("gputop");
  if (token === null) {
    document.documentElement.classList.add("-unknown");
    return;
  }
  const focus = () => document.querySelector(".xterm-helper-textarea")?.focus(); // keys work without a click
  window.WebSocket = class extends WebSocket {
    constructor(path) {
      super(`ws://${location.host}${path}`, ["gputop", token]);
      this.addEventListener("message", () => { focus(); addEventListener("focus", focus); }, { once: true });
      this.addEventListener("open", () => { this.refused = false; }, { once: true });
      // a browser does not learn why: another token, a restarted server, or too many browsers
      this.addEventListener("close", () => document.documentElement.classList.toggle("-refused", this.refused));
      this.refused = true;
    }
    send(data) { // a window that is resized while it connects would keep the size from before
      if (this.readyState !== WebSocket.CONNECTING) super.send(data);
      else this.addEventListener("open", () => super.send(data), { once: true });
    }
  };
  document.addEventListener("DOMContentLoaded", () => {
    // a phone of 390 px has 48 columns so, of which the screen needs 40
    if (innerWidth < 600) document.getElementById("terminal").dataset.fontSize = "13";
  });
  const screen = document.createElement("script");
  screen.src = "/static/js/textual.js";
  document.head.append(screen);
})();
