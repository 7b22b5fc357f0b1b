/** What the user of one console changes of its machine: its power, and recordings of it. */

import { acknowledged } from "../acts.js";
import { confirmed, endRecordingConfirmed, powerOffConfirmed, recordedAlready, resetConfirmed } from "../dialogs.js";
import { fill, h, printable } from "../dom.js";
import { qualifiedName } from "../machines.js";
import { itemPath, listPath, may } from "../objects.js";
import { PLAYS, isEndable, isOf, rowOf } from "../views/recording_model.js";
import { reset } from "./reset.js";
import { isRequired, notBegunText, recordedFor, recordingRefusal, requiredText } from "./texts.js";

export class MachineActs {
  /**
   * How the user has switched the machine here the last time; empty if never, or if somebody else has switched it since.
   *
   * @type {"" | "On" | "Off"}
   */
  switched = "";
  /** Whether the user has reset the machine, and its power is not on again. */
  isResetting = false;
  /** @type {"" | "On" | "Off"} */
  #power = ""; // of the machine, as the page has seen it last
  #leaving = new AbortController();
  #context;
  #place;
  #on;

  /**
   * @param {any} context of the page
   * @param {{namespace: string, name: string, reason: string}} place
   * @param {object} on `known()` returns what the page knows: `{machine, recordings, rights, others}`, as of MachineWatch, of the marks of the
   *     server, of rights.js, and of othersText(); the first two are null if unknown. `tell(text, kind)` shows a message, and returns it for `takeBack(message)`; `focus()`: the user goes
   *     on at the console; `poweredOn()`; `notReset()`: a reset has failed
   */
  constructor(context, place, on) {
    this.#context = context;
    this.#place = place;
    this.#on = on;
  }

  /** The console is closed. */
  stop() {
    this.#leaving.abort();
  }

  /**
   * The machine is so now.
   *
   * @param {{isOff: boolean} | null} machine null: unknown, unless `isGone`
   */
  follow(machine, isGone = false) {
    if (!machine && !isGone) return;
    const power = !machine ? "" : machine.isOff ? "Off" : "On";
    if (power !== this.#power && power !== this.switched) this.switched = "";
    this.#power = power;
  }

  /** Whether the user may power the machine on and off. */
  get maySwitch() {
    const { machine, rights } = this.#on.known();
    return rights.switches && machine !== null;
  }

  /** Whether the user may begin a recording. */
  get mayRecord() {
    return this.#hasRecordings && this.#on.known().rights.records;
  }

  /** Whether there is a recording that the user may end: users of a policy cannot end what it requires. */
  get mayEndRecording() {
    const { recordings, rights } = this.#on.known();
    return this.#hasRecordings && rights.endsRecordings && recordings?.some((each) => !isRequired(each)) === true;
  }

  get #hasRecordings() {
    const { machines } = this.#context;
    return machines.has(machines.parse(this.#place.name).kind, "recordings");
  }

  /** @param {"On" | "Off"} power */
  async setPower(power) {
    const { api, machines } = this.#context;
    await api.patch(machines.path(this.#place.namespace, this.#place.name), { spec: { power } });
    this.switched = power;
    if (power === "On") this.#on.poweredOn();
  }

  /** Return the answer to what the user changes; a message says that the server is silent, until it answers. */
  #acknowledged(act, answer) {
    let told = null;
    return acknowledged(`${act} of ${this.#place.name}`, answer, (text, kind) => {
      this.#on.takeBack(told);
      told = this.#on.tell(text, kind);
    });
  }

  /** Power the machine off after a question, or on. */
  async switch() {
    const name = printable(this.#place.name);
    const power = this.#on.known().machine?.isOff ? "On" : "Off";
    try {
      if (power === "On" || (await powerOffConfirmed(name, this.#on.known().others))) {
        this.#on.tell(`${name} is being powered ${power === "On" ? "on" : "off"}.`, ""); // until the server says what follows
        await this.#acknowledged(`Power ${power.toLowerCase()}`, this.setPower(power));
      }
    } catch (problem) {
      this.#on.tell(`The power of ${name} was not changed: ${problem.message}`, "error");
    }
    this.#on.focus();
  }

  /** Power the machine off, and on again when it has stopped, after a question. */
  async reset() {
    const name = printable(this.#place.name);
    const isSure = await resetConfirmed(name, this.#on.known().others);
    this.#on.focus();
    if (!isSure) return;
    this.#on.tell(`${name} is being reset.`, "");
    this.isResetting = true;
    try {
      await reset(this.#context, this.#place, { acknowledged: (answer) => this.#acknowledged("Reset", answer) });
      this.isResetting = false; // the page learns in a moment that the power is on
    } catch (problem) {
      this.isResetting = false;
      this.#on.notReset();
      this.#on.tell(`${name} was not reset: ${problem.message}`, "error");
    }
  }

  /**
   * Begin a recording of the machine after a question; a message says then that it is recorded. If it is recorded already,
   * that can end instead.
   */
  async record() {
    const { api, machines } = this.#context;
    const { namespace, name, reason } = this.#place;
    const { recordings } = this.#on.known();
    const wanted = recordings?.length ? await this.#askBeside(recordings) : "begin";
    if (wanted === "end") return this.endRecording();
    if (wanted === null) return this.#on.focus();
    const { kind, name: machine } = machines.parse(name);
    const consequences = "What the machine prints is kept, and of what is typed only what the machine echoes. The recording goes on until a user ends it.";
    const limits = h("span"); // the question does not wait for the answer: its user goes on typing
    may(api, "get", "consolerecordings", "content", namespace).then((plays) => plays || fill(limits, ` You may not play it: users with the role “${PLAYS}” in the namespace ${printable(namespace)} may.`));
    const isSure = await confirmed(`Record ${printable(name)}?`, [consequences, limits], "Record", "primary");
    this.#on.focus();
    if (!isSure) return;
    const body = {
      apiVersion: "console.twisted-exec.dev/v1alpha1",
      kind: "ConsoleRecording",
      metadata: { generateName: `${machine.slice(0, 200)}-` },
      spec: { machine, machineResource: qualifiedName(kind), input: "masked", ...(reason && { reason }) },
    };
    try {
      const made = await this.#acknowledged("Recording", api.request(listPath("consolerecordings", namespace), { method: "POST", body }));
      this.#followBegin(made.metadata);
    } catch (problem) {
      this.#on.tell(recordingRefusal(problem, namespace), "error");
    }
  }

  /** Tell why a recording does not begin, until it has begun or is to end. */
  #followBegin({ namespace, name }) {
    const begun = new AbortController();
    let told = { text: "", message: null };
    const tell = (text) => {
      if (text === told.text) return;
      this.#on.takeBack(told.message);
      told = { text, message: text ? this.#on.tell(text, "warning") : null };
    };
    const follow = ({ type, items = [], object }) => {
      const recording = type === "RESET" ? items[0] : type === "DELETED" ? undefined : object;
      tell(recording ? notBegunText(recording) : "");
      if (!recording || recording.status?.phase || recording.spec.ended) begun.abort();
    };
    this.#context.api.watch(listPath("consolerecordings", namespace), follow, {
      query: { fieldSelector: `metadata.name=${name}` },
      signal: AbortSignal.any([this.#leaving.signal, begun.signal]),
      onProblem: (error) => error?.code === 403 && begun.abort(), // a user may begin some, and not list them
    });
  }

  /** Return what the user wants beside recordings that go on: "begin", "end" or null. */
  #askBeside(recordings) {
    const required = printable(requiredText(recordings));
    return recordedAlready(printable(this.#place.name), printable(recordedFor(recordings)), { mayEnd: this.mayEndRecording, required });
  }

  /** End the only recording that the user may end, after a question; leave the choice among others to their list. */
  async endRecording() {
    const { api, link, machines, navigate } = this.#context;
    const { namespace, name } = this.#place;
    try {
      const { items } = await api.request(listPath("consolerecordings", namespace));
      const mayEnd = await may(api, "patch", "consolerecordings", "", namespace);
      const mayUpdatePolicies = await may(api, "update", "consolepolicies", "", namespace);
      const { kind, name: machine } = machines.parse(name);
      const found = items
        .filter((each) => isOf(each, { name: machine, resource: qualifiedName(kind) }))
        .map((each) => ({ ...rowOf(each), mayEnd, mayUpdatePolicies }))
        .filter(isEndable);
      if (found.length > 1) return navigate(link(namespace, name, "recordings"));
      if (found.length === 0) this.#on.tell(requiredText(this.#on.known().recordings ?? []) || "There is no recording here that you may end.", "warning");
      else if (await endRecordingConfirmed(found[0])) {
        await this.#acknowledged("The end of the recording", api.patch(itemPath("consolerecordings", namespace, found[0].name), { spec: { ended: true } }));
      }
    } catch (problem) {
      this.#on.tell(`The recording was not ended: ${problem.message}`, "error");
    }
    this.#on.focus();
  }
}
