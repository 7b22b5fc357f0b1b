/**
 * Frames of a machine's log: pieces of text with the offset behind each (docs/reference/logs.rst).
 */

const HEAD_BYTES = 24;
const MOST_TEXT_BYTES = 1 << 20;
const DESCRIPTION = /^frames; epoch=([0-9a-f]{16}); start=([0-9]{1,19})(?:; end=([0-9]{1,19}))?$/;

/** Bit of a frame's state: the text so far ends within a line. */
export const MID_LINE = 1;

/**
 * Read the response header Console-Log.
 *
 * @param {string | null} header
 * @returns {{epoch: string, start: number, end: number | undefined} | null} null if the body is plain text.
 */
export function parseFraming(header) {
  const match = DESCRIPTION.exec((header ?? "").trim());
  if (!match) return null;
  const [, epoch, start, end] = match;
  return { epoch, start: Number(start), end: end === undefined ? undefined : Number(end) };
}

/** Splits a body into frames; a frame is delivered when it is complete. */
export class FrameDecoder {
  #buffer = new Uint8Array(0);

  /**
   * @param {Uint8Array} data
   * @returns {{text: Uint8Array, state: number, offset: number, seconds: number}[]} seconds: of the last byte before the
   *   offset, since 1970.
   * @throws {RangeError} a frame is too large: the body is not one of frames.
   */
  feed(data) {
    const bytes = joined(this.#buffer, data);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const frames = [];
    let at = 0;
    while (bytes.length - at >= HEAD_BYTES) {
      const size = view.getUint32(at);
      if (size > MOST_TEXT_BYTES) throw new RangeError(`a frame of the log has ${size} bytes`);
      const begin = at + HEAD_BYTES;
      if (bytes.length < begin + size) break;
      frames.push({
        text: bytes.slice(begin, begin + size),
        state: view.getUint32(at + 4),
        offset: Number(view.getBigUint64(at + 8)),
        seconds: Number(view.getBigUint64(at + 16) / 1000n) / 1e6,
      });
      at = begin + size;
    }
    this.#buffer = bytes.slice(at);
    return frames;
  }
}

/**
 * @param {Uint8Array} first
 * @param {Uint8Array} second
 * @returns {Uint8Array}
 */
export function joined(first, second) {
  if (!first.length) return second;
  const bytes = new Uint8Array(first.length + second.length);
  bytes.set(first);
  bytes.set(second, first.length);
  return bytes;
}
