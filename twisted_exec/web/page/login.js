/** Login with a token that the user pastes. */

import { button, h, notice } from "./dom.js";

/**
 * Resolve when the store has a token.
 *
 * @param {object} config of the page
 * @param {object} context
 * @param {{reason: string}} options `reason`: why the user has to log in again; empty at the start
 */
export async function login(config, context, { reason }) {
  if (!reason && context.store.get("token")) return;
  await new Promise((resolve) => {
    const input = h("input", { type: "password", id: "token", autocomplete: "off", required: true });
    const dialog = h(
      "dialog",
      { "aria-labelledby": "login-title", oncancel: (event) => event.preventDefault() },
      h("h2", { id: "login-title" }, "Log in"),
      h(
        "form",
        {
          onsubmit: (event) => {
            event.preventDefault();
            context.store.set("token", input.value.trim());
            dialog.close();
            dialog.remove();
            resolve();
          },
        },
        reason ? notice("warning", reason) : null,
        h("label", { class: "field" }, h("span", {}, "Token"), input),
        h("div", { class: "actions" }, button("Log in", null, { type: "submit", class: "primary" })),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
