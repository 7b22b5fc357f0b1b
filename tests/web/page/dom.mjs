/** As much of a document as the page's elements need, in memory. */

class Text {
  constructor(text) {
    this.textContent = String(text);
  }

  get isConnected() {
    return Boolean(this.parent);
  }

  isEqualNode(other) {
    return this.text === other.text;
  }

  replaceWith(other) {
    const { parent, nextSibling } = this;
    this.remove();
    parent.insertBefore(other, nextSibling);
  }

  remove() {
    this.parent?.detach(this);
  }
}

class Element extends Text {
  children = [];
  style = { setProperty: () => {} };
  value = "";
  #listeners = new Map();

  constructor(tag) {
    super("");
    this.tag = tag;
    this.classList = { add: () => {}, toggle: (name, isThere) => (this.class = this.class.split(" ").filter((each) => each !== name).concat(isThere ? [name] : []).join(" ")) };
  }

  get firstChild() {
    return this.children[0] ?? null;
  }

  get lastChild() {
    return this.children.at(-1) ?? null;
  }

  get nextSibling() {
    const siblings = this.parent?.children ?? [];
    return siblings[siblings.indexOf(this) + 1] ?? null;
  }

  append(...children) {
    for (const child of children) this.insertBefore(child, null);
  }

  insertBefore(child, place) {
    child.remove();
    child.parent = this;
    this.children.splice(place ? this.children.indexOf(place) : this.children.length, 0, child);
  }

  replaceChildren(...children) {
    for (const child of [...this.children]) child.remove();
    this.append(...children);
  }

  detach(child) {
    this.children.splice(this.children.indexOf(child), 1);
    child.parent = null;
  }

  setAttribute(name, value) {
    if (name === "hidden") this.hidden = true;
    else this[name] = value;
  }

  addEventListener(type, listener) {
    this.#listeners.set(type, listener);
  }

  /** Send an event of a type to the listener. */
  send(type, more = {}) {
    this.#listeners.get(type)({ target: this, ...more });
  }

  click() {
    this.send("click");
  }

  submit() {
    this.#listeners.get("submit")({ target: this, preventDefault: () => {} });
  }

  showModal() {
    this.open = true;
  }

  close() {
    this.open = false;
    this.#listeners.get("close")?.({ target: this });
  }

  focus() {}

  select() {}

  scrollIntoView() {}

  contains() {
    return false;
  }

  querySelector() {
    return null;
  }

  /** All elements with a tag below this one. */
  all(tag) {
    const below = this.children.flatMap((child) => (child instanceof Element ? child.all(tag) : []));
    return this.tag === tag ? [this, ...below] : below;
  }

  /** The text of this element and of all below. */
  get text() {
    return this.textContent + this.children.map((child) => child.text ?? child.textContent).join("");
  }
}

/** Let modules of the page make elements. */
export function install() {
  globalThis.Node = Text;
  globalThis.addEventListener = () => {};
  globalThis.location = { hash: "" };
  globalThis.history = { replaceState: (state, title, hash) => (globalThis.location.hash = hash) };
  globalThis.document = {
    activeElement: null,
    body: new Element("body"),
    head: new Element("head"),
    createElement: (tag) => new Element(tag),
    createTextNode: (text) => new Text(text),
  };
}
