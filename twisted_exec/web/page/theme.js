/** Light and dark: as the system says, until the user chooses. */

const CHOICES = ["system", "light", "dark"];

export class Theme extends EventTarget {
  /** @param {import("./store.js").Store} preferences */
  constructor(preferences) {
    super();
    this._preferences = preferences;
    this._system = matchMedia("(prefers-color-scheme: dark)");
    this._system.addEventListener("change", () => this._apply());
    this._apply();
  }

  get choice() {
    const choice = this._preferences.get("theme");
    return CHOICES.includes(choice) ? choice : "system";
  }

  get isDark() {
    return this.choice === "system" ? this._system.matches : this.choice === "dark";
  }

  /** Choose the other appearance; the system's again if that is the same. */
  toggle() {
    const dark = !this.isDark;
    const choice = dark === this._system.matches ? "system" : dark ? "dark" : "light";
    this._preferences.set("theme", choice);
    this._apply();
  }

  _apply() {
    document.documentElement.dataset.theme = this.isDark ? "dark" : "light";
    this.dispatchEvent(new Event("change"));
  }
}
