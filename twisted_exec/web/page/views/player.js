/** The player of asciinema, which is large and is loaded when the first recording is opened. */

import { loadStyles, loadVendored, printable } from "../dom.js";
import { coloursOf } from "../terminal/screen.js";
import { withReadableText } from "./readable.js";

/**
 * Seconds behind a position that is sought.  The player sums the times of events in another order than the page, and
 * a position that is smaller by the last bit of a number would leave out the event at it: the last one, at the end.
 */
const MARGIN = 1e-6;
const POSTER_MARGIN = 0.01; // the same, with as many digits as the poster's position has

/** @type {Promise<any> | null} */
let loading = null;

/** Load the library of the player; @throws {Error} this installation has none, or the server cannot be reached. */
export function load() {
  // The player reads its colours from the style sheet when it is created.
  loading ??= Promise.all([loadVendored("asciinema-player.js"), loadStyles("vendor/asciinema-player.css")]).then(
    ([library]) => library,
    (problem) => {
      loading = null; // it may be loaded again later
      throw problem;
    },
  );
  return loading;
}

/**
 * Open a player in an element.
 *
 * @param {any} library see {@link load}.
 * @param {HTMLElement} stage is emptied.
 * @param {{header: any, events: [number, string, string][]}} cast
 * @param {object} options
 * @param {number} options.limit seconds; longer pauses are cut to this length.
 * @param {number} options.position
 * @param {number} options.speed
 * @param {{isDark: boolean}} options.theme
 * @param {boolean} options.showsKeys
 * @param {{position: number, label: string}[]} options.marks
 * @param {number} options.poster the position that is shown before it plays.
 * @param {(isPlaying: boolean) => void} options.changed
 * @param {() => void} options.ended
 * @returns {{play(): void, pause(): void, seek(position: number): void, position(): number,
 *   showsPoster: boolean, isPlaying: boolean, dispose(): void}}
 */
export function openPlayer(library, stage, cast, options) {
  stage.replaceChildren();
  const { cols, rows } = cast.header.term;
  const colours = coloursOf(options.theme);
  const theme = { bg: colours.background, fg: colours.foreground, palette: Object.values(colours).slice(-16).join(":") };
  const data = [{ version: 3, term: { cols, rows, theme } }, ...withReadableText(cast.events, options.theme.isDark)];
  const player = library.create(
    { data },
    stage,
    {
      // With a size among the options the player ignores the sizes in the recording; the style sheet fits the text.
      fit: false, preload: true, controls: true,
      idleTimeLimit: Number.isFinite(options.limit) ? options.limit : undefined,
      speed: options.speed,
      keystrokeOverlay: options.showsKeys,
      markers: options.marks.map(({ position, label }) => [position, printable(label)]),
      poster: `npt:${(options.poster + POSTER_MARGIN).toFixed(3)}`,
    },
  );
  // The library lets it have the focus.
  const screen = stage.querySelector("pre");
  screen?.setAttribute("role", "group");
  screen?.setAttribute("aria-label", "Recorded screen");
  let hasPoster = true;
  // Behind the poster, a seek to a later position shows an empty screen: the player believes to be there already.
  const seek = async (position) => {
    if (hasPoster) await player.seek(0);
    hasPoster = false;
    await player.seek(position + MARGIN);
  };
  if (options.position > 0) seek(options.position);
  let at = options.position;
  let isPlaying = false;
  const learn = async () => {
    at = await player.getCurrentTime();
  };
  const change = (value) => {
    isPlaying = value;
    options.changed(value);
  };
  player.addEventListener("playing", () => {
    hasPoster = false;
    change(true);
  });
  player.addEventListener("pause", () => change(false));
  player.addEventListener("ended", () => {
    change(false);
    options.ended();
  });
  const timer = setInterval(learn, 200);
  return {
    play: () => player.play(),
    pause: () => player.pause(),
    seek: (position) => seek(position).then(learn),
    position: () => (hasPoster ? options.position : at),
    get showsPoster() {
      return hasPoster;
    },
    get isPlaying() {
      return isPlaying;
    },
    dispose: () => {
      clearInterval(timer);
      player.dispose();
    },
  };
}
