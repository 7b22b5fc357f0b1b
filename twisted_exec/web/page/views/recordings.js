/** Recordings of consoles: the list, and one recording in a player. */

import { endRecordingConfirmed } from "../dialogs.js";
import { button, fill, h, nameLink, notice, printable } from "../dom.js";
import { qualifiedName } from "../machines.js";
import { itemPath, listPath } from "../objects.js";
import { age, dateTime, duration, size, zone, zonedTime } from "../times.js";
import { ListView } from "./list_view.js";
import { badge, countOf, emptyState, listHead, Table, toolbar } from "./parts.js";
import { recordingLink, showRecording } from "./recording.js";
import { inputText, isEndable, isOf, rowOf, textsOf } from "./recording_model.js";

const OPTIONS = {
  plural: "consolerecordings",
  role: "console-session-reader",
  missing: "This server has no recordings: it is not an exec-apiserver.",
  rights: { mayRead: ["get", "content"], mayEnd: ["patch", ""], mayUpdatePolicies: ["update", "", "consolepolicies"] },
};

/**
 * The recordings of all machines, of a machine (`part` is set), or one recording.
 *
 * @param {HTMLElement} container
 * @param {any} context
 * @param {{namespace?: string, name?: string, part?: string, query: URLSearchParams}} parameters
 * @returns {{stop(): void}}
 */
export function show(container, context, parameters) {
  const { namespace, name, part, query } = parameters;
  const at = Math.max(0, Number(query.get("at")) || 0);
  if (namespace && name && !part) return showRecording(container, context, { namespace, name, at });
  const view = new Recordings(container, context, parameters);
  view.start();
  return view;
}

class Recordings extends ListView {
  /** @type {any[] | null} */
  #rows = null;
  #unreadable = ""; // namespaces in the hint

  constructor(container, context, parameters) {
    super(context, parameters, OPTIONS);
    const machine = parameters.part ? context.machines.parse(parameters.name) : null;
    this.place = parameters;
    this.machine = machine && { name: machine.name, resource: qualifiedName(machine.kind) };
    this.count = h("span", { class: "dim" });
    this.hint = h("div");
    this.table = new Table("Console recordings", this.#columns());
    fill(
      container,
      machine ? toolbar(this.filter, []) : listHead(this.toolbar, "Recordings", this.count),
      this.problem, this.hint, this.table.element,
    );
  }

  begin() {
    this.#rows = null;
    if (!this.isServed) return;
    const { machine } = this;
    this.list((namespace) => listPath(this.plural, namespace), {
      select: (recording) => !machine || isOf(recording, machine),
      onChange: (objects) => {
        this.#rows = objects && objects.map((each) => rowOf(each)).sort((first, second) => (first.begin < second.begin ? 1 : -1));
      },
    });
    this.draw();
  }

  draw() {
    const now = Date.now();
    const all = this.#rows ?? [];
    const rows = this.matching(all, textsOf).map((row) => ({
      ...row,
      ...this.rightsIn(row.namespace),
      age: age(row.begin, now),
      length: duration((row.end ? Date.parse(row.end) : now) - Date.parse(row.begin)),
    }));
    this.table.update(rows, this.emptyOf(this.#rows, this.#rows && this.noRows("recording", all.length, all.length ? "" : this.#noRecordings())));
    this.count.textContent = this.#rows ? countOf(rows.length, all.length, "recording") : "";
    this.#showHint(new Set(all.map((row) => row.namespace)));
  }

  #noRecordings() {
    const { machine, place } = this;
    const namespace = machine && place.namespace !== this.home ? ` -n ${printable(place.namespace)}` : "";
    const command = h("code", {}, `kubectl console ${printable(machine?.name ?? "NAME")}${namespace} --record`);
    const none = ["There are no recordings: ", command, " makes one, and so does “Record” in Commands of a console."];
    return machine ? this.noneOf(emptyState(none), place, "recordings") : emptyState(none, "Choose a machine", "#/machines");
  }

  #showHint(namespaces) {
    const unreadable = [...namespaces].filter((each) => this.rightsIn(each).mayRead === false).map(printable).join(", ");
    if (unreadable === this.#unreadable) return; // a screen reader would read it again
    this.#unreadable = unreadable;
    fill(this.hint, unreadable && notice("", `You may see but not play recordings in ${unreadable}: ask your administrator for the role “console-recording-reader” there.`));
  }

  #columns() {
    const columns = [
      { title: "Recording", cell: (row) => nameLink(recordingLink(row), row.name), class: "name" },
      { title: "Namespace", cell: (row) => row.namespace, class: "rare" },
      { title: "Machine", cell: (row) => nameLink(this.machineLink(row), row.machine, { title: `${printable(row.namespace)} / ${printable(row.machine)}` }), class: "name" },
      { title: "State", cell: (row) => [h("span", { title: row.until || null }, badge(row.state, row.kind)), row.message && h("div", { class: `problem ${row.severity}` }, printable(row.message))], class: "wide" },
      { title: `Begin (${zone(-new Date().getTimezoneOffset())})`, class: "time", cell: (row) => h("span", { title: `${zonedTime(row.begin)}, ${row.age} ago` }, dateTime(row.begin)) },
      { title: "Length", cell: (row) => row.length },
      { title: "Content", cell: (row) => [size(row.bytes), inputText(row.input)].filter(Boolean).join(", "), class: "short" },
      { title: "Users", cell: (row) => row.users.join(", ") },
      { title: "Reason", cell: (row) => [row.policies.length && `policy ${row.policies.join(", ")}`, row.reason].filter(Boolean).join("; "), class: "wide" },
      {
        title: "",
        cell: (row) => isEndable(row) && button("End", () => this.#end(row), { "data-action": "end", "aria-label": `End the recording ${printable(row.name)}` }),
      },
    ];
    return this.machine ? columns.filter(({ title }) => !["Machine", "Namespace"].includes(title)) : columns;
  }

  async #end(row) {
    const { api, announce } = this.context;
    if (!(await endRecordingConfirmed(row))) return;
    const name = printable(row.name);
    try {
      await this.acknowledged(`The end of the recording ${name}`, api.patch(itemPath("consolerecordings", row.namespace, row.name), { spec: { ended: true } }));
      announce(`The recording ${name} ends.`);
    } catch (error) {
      this.say("error", `Could not end ${name}: ${printable(error.message)}`);
    }
  }
}
