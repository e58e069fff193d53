// The address after # holds the whole view, so that every view is a link. It is input like any other.

/** What the address says, by name. */
function route() {
  return new URLSearchParams(location.hash.slice(1));
}

/** The address of the present view with changes; null takes a name away. */
function changed(changes) {
  return address({ ...Object.fromEntries(route()), ...changes });
}

/** The address of a view. */
function address(values) {
  const kept = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#${new URLSearchParams(kept.map(([name, value]) => [name, String(value)]))}`;
}

/** Goes to a changed view; without `remember` the back button skips the present one. */
function go(changes, remember = true) {
  if (remember) location.hash = changed(changes);
  else location.replace(changed(changes));
}

function treeAddress(row, more = {}) {
  return address({ view: "tree", run: row.source.name, line: row.line, ...more });
}
