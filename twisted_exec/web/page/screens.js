/** Screens of machines, as the server renders them. */

/**
 * Read the screen of a machine; @throws {ApiError} 501 if the server renders none, which is remembered.
 *
 * @param {object} context of the page
 * @param {{namespace: string, name: string}} place
 * @param {object} options of the request: `query`, `signal`
 */
export async function readScreen({ api, machines, store }, place, options) {
  try {
    const answer = await api.request(`${machines.path(place.namespace, place.name)}/screen`, options);
    store.remove(key(place));
    return answer;
  } catch (error) {
    if (error.code === 501) store.set(key(place), true);
    throw error;
  }
}

/** Whether the server has answered that it renders no screen of this machine; a later answer may differ. */
export function hasNoScreen({ store }, place) {
  return store.get(key(place), false);
}

function key({ namespace, name }) {
  return `no-screen.${namespace}/${name}`;
}
