/** Light and dark: as the system says, until the user chooses. */

const CHOICES = ["system", "light", "dark"];

export class Theme extends EventTarget {
  #preferences;
  #system;

  /** @param {import("./store.js").Store} preferences */
  constructor(preferences) {
    super();
    this.#preferences = preferences;
    this.#system = matchMedia("(prefers-color-scheme: dark)");
    this.#system.addEventListener("change", () => this.#apply());
    this.#apply();
  }

  get choice() {
    const choice = this.#preferences.get("theme");
    return CHOICES.includes(choice) ? choice : "system";
  }

  get isDark() {
    return this.choice === "system" ? this.#system.matches : this.choice === "dark";
  }

  /** Choose the other appearance; the system's again if that is the same. */
  toggle() {
    const dark = !this.isDark;
    const choice = dark === this.#system.matches ? "system" : dark ? "dark" : "light";
    this.#preferences.set("theme", choice);
    this.#apply();
  }

  #apply() {
    document.documentElement.dataset.theme = this.isDark ? "dark" : "light";
    this.dispatchEvent(new Event("change"));
  }
}
