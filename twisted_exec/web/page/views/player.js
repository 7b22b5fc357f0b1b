/** The player of asciinema, which is large and is loaded when the first recording is opened. */

import { loadStyles, loadVendored } from "../dom.js";

/**
 * Seconds behind a position that is sought.  The player sums the times of events in another order than the page, and
 * a position that is smaller by the last bit of a number would leave out the event at it: the last one, at the end.
 */
const MARGIN = 1e-6;

/** @type {Promise<any> | null} */
let loading = null;

function load() {
  // The player reads its colours from the style sheet when it is created.
  loading ??= Promise.all([loadVendored("asciinema-player.js"), loadStyles("vendor/asciinema-player.css")]).then(
    ([library]) => library,
    () => null,
  );
  return loading;
}

/**
 * Open a player in an element.
 *
 * @param {HTMLElement} stage is emptied.
 * @param {{header: any, events: [number, string, string][]}} cast
 * @param {object} options
 * @param {number} options.limit seconds; longer pauses are cut to this length.
 * @param {number} options.position
 * @param {number} options.speed
 * @param {boolean} options.showsKeys
 * @param {(isPlaying: boolean) => void} options.changed
 * @param {() => void} options.ended
 * @returns {Promise<null | {play(): void, pause(): void, seek(position: number): void, position(): number,
 *   isPlaying: boolean, dispose(): void}>} null if the player is not installed.
 */
export async function openPlayer(stage, cast, options) {
  const library = await load();
  if (!library) return null;
  stage.replaceChildren();
  const { cols, rows } = cast.header.term;
  const data = [{ version: 3, term: { cols, rows } }, ...cast.events];
  const player = library.create(
    { data },
    stage,
    {
      cols, rows, fit: "both", terminalFontSize: "15px", preload: true, controls: true,
      idleTimeLimit: Number.isFinite(options.limit) ? options.limit : undefined,
      speed: options.speed,
      keystrokeOverlay: options.showsKeys,
    },
  );
  // The library lets it have the focus.
  const screen = stage.querySelector("pre");
  screen?.setAttribute("role", "group");
  screen?.setAttribute("aria-label", "Recorded screen");
  if (options.position > 0) player.seek(options.position + MARGIN);
  let at = options.position;
  let isPlaying = false;
  const learn = async () => {
    at = await player.getCurrentTime();
  };
  const change = (value) => {
    isPlaying = value;
    options.changed(value);
  };
  player.addEventListener("playing", () => change(true));
  player.addEventListener("pause", () => change(false));
  player.addEventListener("ended", () => {
    change(false);
    options.ended();
  });
  const timer = setInterval(learn, 200);
  return {
    play: () => player.play(),
    pause: () => player.pause(),
    seek: (position) => player.seek(position + MARGIN).then(learn),
    position: () => at,
    get isPlaying() {
      return isPlaying;
    },
    dispose: () => {
      clearInterval(timer);
      player.dispose();
    },
  };
}
