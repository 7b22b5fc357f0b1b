/** Texts of a console's status, without a DOM. */

/** Return a duration such as `3.2 s`, `4 min 5 s` or `2 h 3 min`. */
export function duration(seconds) {
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** Return an amount such as `5120 bytes` or `34.7 MB`. */
export function amount(bytes) {
  if (bytes === 1) return "1 byte";
  if (bytes < 100_000) return `${bytes} bytes`;
  return bytes < 1e6 ? `${Math.round(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

/**
 * Return `{kind, text}` of a state of a session; kind: good, waiting, bad or off.
 *
 * @param {string} name
 * @param {object} detail as ConsoleSession says
 * @param {number} now milliseconds
 */
export function stateText(name, detail, now) {
  if (name === "connecting") return { kind: "waiting", text: "connecting" };
  if (name === "reconnecting") {
    const since = duration((now - detail.since) / 1000);
    const what = detail.unauthorized ? "waiting for your login" : "reconnecting";
    return { kind: "bad", text: `connection lost for ${since}; ${what}` };
  }
  if (name === "resumed") {
    const missed = detail.missed ? `; ${amount(detail.missed)} of output followed` : "";
    return { kind: "good", text: `reconnected after ${duration(detail.seconds)}${missed}` };
  }
  if (name === "open") {
    return { kind: "good", text: detail.resumable === false ? "connected (cannot be resumed)" : "connected" };
  }
  return { kind: "off", text: "ended" };
}

/** Return why a session has ended, as a sentence. */
export function endText({ reason, message, exitCode, code }) {
  if (reason === "UserLeft") return "You have closed this session.";
  if (exitCode !== null && exitCode !== undefined && (exitCode !== 0 || !message)) {
    return `The program at the console has ended with exit code ${exitCode}.`;
  }
  if (!message && !reason) return "The session has ended.";
  if (code === 404 && /session/.test(message ?? "")) {
    return `The session could not be kept for so long: ${message}`;
  }
  return message || reason;
}

/** Return the policies' demands in a refusal: `{reason: boolean, approval: boolean}`. */
export function demands({ code, message = "" }) {
  const isPolicy = code === 403 && message.includes("ConsolePolicy");
  return {
    reason: isPolicy && /requires a reason|a reason that/.test(message),
    approval: isPolicy && message.includes("requires the approval"),
  };
}

/** Return a refusal without its hints at commands, which the page has as buttons. */
export function withoutCommands(message) {
  return message.replace(/[:,] (?:use|request it with|request again with|make your own with) kubectl [^;]*/g, "");
}
