/** The machine that a user may have meant by a name that does not exist. */

import { fill, h, printable } from "../dom.js";

const MOST_MACHINES = 500;
const LEAST_LIKENESS = 0.5;

/**
 * Return where the machine is, or a machine with a similar name in the same namespace.
 *
 * @param {object} context of the page
 * @param {{namespace: string, name: string}} place
 * @returns {Promise<{namespace: string, name: string} | null>} null if there is none, or if the user may not list machines.
 */
export async function suggestion({ api, machines }, { namespace, name: routeName }) {
  const { kind, name } = machines.parse(routeName);
  const places = async (within, query) => {
    const { items = [] } = await api.request(machines.list(kind, within), { query }).catch(() => ({}));
    return items.map(({ metadata }) => ({ namespace: metadata.namespace, name: machines.routeName(kind, metadata.name) }));
  };
  const [elsewhere] = await places("", { fieldSelector: `metadata.name=${name}`, limit: 1 });
  // The machine itself may have been created meanwhile; an address may have the name of its kind.
  const isOther = (place) => machines.path(place.namespace, place.name) !== machines.path(namespace, routeName);
  if (elsewhere) return isOther(elsewhere) ? elsewhere : null;
  const here = await places(namespace, { limit: MOST_MACHINES });
  if (!here.every(isOther)) return null;
  const near = here.map((place) => ({ place, likeness: likeness(machines.parse(place.name).name, name) }));
  const best = near.reduce((a, b) => (b.likeness > a.likeness ? b : a), { place: null, likeness: LEAST_LIKENESS });
  return best.place;
}

/**
 * Return a paragraph that names the machine as soon as it is found, with a link to a part of it.
 *
 * @param {any} context of the page
 * @param {{namespace: string, name: string}} place
 * @param {string} [part] such as `logs`; empty: the console
 */
export function suggested(context, place, part = "") {
  const hint = h("p");
  suggestion(context, place).then((found) => {
    if (!found) return;
    const label = found.namespace === place.namespace ? found.name : `${found.namespace} / ${found.name}`;
    fill(hint, "Did you mean ", h("a", { href: context.link(found.namespace, found.name, part) }, printable(label)), "?");
  });
  return hint;
}

/** Return how alike two names are, 0 to 1: the part of their characters that both have in the same order. */
export function likeness(one, other) {
  let row = new Array(other.length + 1).fill(0);
  for (const character of one) {
    row = row.reduce((next, above, at) => {
      next.push(at === 0 ? 0 : other[at - 1] === character ? row[at - 1] + 1 : Math.max(above, next[at - 1]));
      return next;
    }, []);
  }
  return (2 * row[other.length]) / (one.length + other.length);
}
