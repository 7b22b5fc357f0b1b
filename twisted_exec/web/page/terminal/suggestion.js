/** The machines that a user may have meant by a name that does not exist. */

import { fill, h, printable } from "../dom.js";

const MOST_MACHINES = 500;
const LEAST_LIKENESS = 0.5;
const MOST_PLACES = 3; // more that are equally near say nothing

/**
 * Return where the machine is, or the machines with the most similar name in the same namespace.
 *
 * @param {object} context of the page
 * @param {{namespace: string, name: string}} place
 * @returns {Promise<{namespace: string, name: string}[]>} none if there is none, or too many, or if the user may not list machines.
 */
export async function suggestions({ api, machines }, { namespace, name: routeName }) {
  const { kind, name } = machines.parse(routeName);
  const places = async (within, query) => {
    const { items = [] } = await api.request(machines.list(kind, within), { query }).catch(() => ({}));
    return items.map(({ metadata }) => ({ namespace: metadata.namespace, name: machines.routeName(kind, metadata.name) }));
  };
  const [elsewhere] = await places("", { fieldSelector: `metadata.name=${name}`, limit: 1 });
  // The machine itself may have been created meanwhile; an address may have the name of its kind.
  const isOther = (place) => machines.path(place.namespace, place.name) !== machines.path(namespace, routeName);
  if (elsewhere) return isOther(elsewhere) ? [elsewhere] : [];
  const here = await places(namespace, { limit: MOST_MACHINES });
  if (!here.every(isOther)) return [];
  const near = here.map((place) => ({ place, likeness: likeness(machines.parse(place.name).name, name) }));
  const most = Math.max(...near.map((each) => each.likeness));
  const nearest = near.filter((each) => most > LEAST_LIKENESS && each.likeness === most);
  return nearest.length > MOST_PLACES ? [] : nearest.map(({ place }) => place);
}

/**
 * Return a paragraph that names the machines as soon as they are found, with links to a part of each.
 *
 * @param {any} context of the page
 * @param {{namespace: string, name: string}} place
 * @param {string} [part] such as `logs`; empty: the console
 * @param {(text: string) => void} [tell] called with the text of the paragraph when there is one
 */
export function suggested(context, place, part = "", tell = () => {}) {
  const hint = h("p");
  suggestions(context, place).then((found) => {
    const links = found.map(({ namespace, name }, at) => {
      const label = namespace === place.namespace ? name : `${namespace} / ${name}`;
      const before = at === 0 ? "" : at < found.length - 1 ? ", " : " or ";
      return [before, h("a", { href: context.link(namespace, name, part) }, printable(label))];
    });
    if (!links.length) return;
    fill(hint, "Did you mean ", links, "?");
    tell(hint.textContent ?? "");
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
