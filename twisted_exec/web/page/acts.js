/** What the user changes at a server that may be silent. */

const PATIENCE_MILLISECONDS = 5000;

/**
 * Return the answer to a change; while the server is silent, say that the change waits, and afterwards that it was accepted.
 *
 * @param {string} act such as `Power off of vm-1`
 * @param {Promise<any>} answer
 * @param {(text: string, kind: string) => void} say
 */
export async function acknowledged(act, answer, say) {
  let hasWaited = false;
  const timer = setTimeout(() => {
    hasWaited = true;
    say(`${act} waits for the server.`, "warning");
  }, PATIENCE_MILLISECONDS);
  try {
    const found = await answer;
    if (hasWaited) say(`${act}: the server has accepted it.`, "");
    return found;
  } finally {
    clearTimeout(timer);
  }
}
