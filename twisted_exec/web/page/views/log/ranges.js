/**
 * Ranges of offsets in which a log is read: bounded pieces, whatever the machine prints.
 */

/** Bytes that are read at once. */
export const PIECE_BYTES = 64 << 10;
/** Rows that are shown of one piece. */
export const PIECE_LINES = 1000;
/** Pieces that are shown at once; others are read again when the user comes back. */
export const MOST_PIECES = 6;

/**
 * @typedef {{start: number, end: number}} Range of offsets; the end is not included.
 */

/**
 * The piece before an offset.
 *
 * @param {number} offset
 * @param {Range} log what is retained.
 * @param {number} [size]
 * @returns {Range | null} null at the beginning of the log.
 */
export function before(offset, log, size = PIECE_BYTES) {
  const end = Math.min(offset, log.end);
  if (end <= log.start) return null;
  return { start: Math.max(log.start, end - size), end };
}

/**
 * The piece from an offset on.
 *
 * @param {number} offset
 * @param {Range} log
 * @param {number} [size]
 * @returns {Range | null} null at the end of the log.
 */
export function from(offset, log, size = PIECE_BYTES) {
  const start = Math.max(offset, log.start);
  if (start >= log.end) return null;
  return { start, end: Math.min(log.end, start + size) };
}

/**
 * The piece that shows an offset with some text before it.
 *
 * @param {number} offset
 * @param {Range} log
 * @param {number} [size]
 * @returns {Range | null} null if the log is empty.
 */
export function around(offset, log, size = PIECE_BYTES) {
  const wanted = Math.min(Math.max(offset, log.start), log.end);
  const start = Math.max(log.start, wanted - (size >> 2));
  return from(start, log, size) ?? before(log.end, log, size);
}

/**
 * The query of a request for a range.
 *
 * @param {Range} range
 * @param {string} epoch
 * @returns {Record<string, string>}
 */
export function queryOf(range, epoch) {
  return {
    ...FORM,
    fromOffset: String(range.start),
    toOffset: String(range.end),
    epoch,
  };
}

/** The form in which logs are read: with offsets and times. */
export const FORM = Object.freeze({ frames: "true", timestamps: "true" });
