// The same tasks in two runs: leaves side by side, the biggest losses first.

/** How many tasks are drawn. */
const DRAWN = 500;

function comparison(index, asked) {
  const names = index.sources.map((source) => source.name);
  const [first, second] = comparedNames(index, asked);
  const options = names.map((name) => [name, name]);
  const pairs = first && second ? commonTasks(index, first, second) : [];
  // What has not changed comes last: a reader looks for what has.
  const sign = asked.get("order") === "gains" ? -1 : 1;
  pairs.sort((one, other) => (other.gain !== 0) - (one.gain !== 0) || sign * (one.gain - other.gain));
  const shown = pairs.filter((pair) => !asked.get("kind") || pair.before.kind === asked.get("kind"));
  const kinds = [...new Set(pairs.map((pair) => pair.before.kind))].sort();
  const counted = (test) => shown.filter(test).length;
  return h("div", { class: "page" },
    h("h1", { class: "hidden" }, "Compare"),
    h("div", { class: "tools" }, choice("before", options, first, (before) => go({ before, after: second })),
      choice("after", options, second, (after) => go({ before: first, after })),
      choice("kind", [["", "all"], ...kinds.map((kind) => [kind, plain(kind)])], asked.get("kind") ?? "", (kind) => go({ kind, before: first, after: second })),
      segments("order", [["", "losses first"], ["gains", "gains first"]], asked.get("order") ?? "", (order) => go({ order, before: first, after: second }))),
    h("p", { class: "quiet", id: "count" }, pairs.length
      ? `${shown.length} tasks in both: ${counted((pair) => pair.gain > 0)} gained, ${counted((pair) => pair.gain < 0)} lost, ${counted((pair) => pair.gain === 0)} alike`
      : "No task has trees in both; choose two that walked the same tasks."),
    shown.length > DRAWN && h("p", { class: "quiet" }, `The first ${DRAWN} are below; "order" and "kind" choose others.`),
    shown.length > 0 && pairTable(shown));
}

/** The two files that the address names, else those of two runs that share the most tasks. */
function comparedNames(index, asked) {
  const names = index.sources.map((source) => source.name);
  const typed = [asked.get("before"), asked.get("after")];
  if (typed.every((name) => names.includes(name))) return typed;
  const shared = new Map();
  for (const rows of index.byTask.values()) {
    const sources = [...new Set(rows.map((row) => row.source))];
    for (const [place, one] of sources.entries()) {
      for (const other of sources.slice(place + 1)) {
        const pair = JSON.stringify([one.name, other.name]);
        // Runs before and after are what is mostly compared, by evaluations that were made alike.
        const weight = (one.run === other.run ? 1 : 1000) * (one.evaluation === other.evaluation ? 1000 : 1);
        shared.set(pair, (shared.get(pair) ?? 0) + weight);
      }
    }
  }
  const [most] = [...shared].sort((one, other) => other[1] - one[1]);
  return most ? JSON.parse(most[0]) : [names[0] ?? "", names[1] ?? ""];
}

function commonTasks(index, first, second) {
  const pairs = [];
  for (const rows of index.byTask.values()) {
    const before = rows.find((row) => row.source.name === first);
    const after = rows.find((row) => row.source.name === second);
    if (before && after) pairs.push({ before, after, gain: shareWon(after.outcomes) - shareWon(before.outcomes) });
  }
  return pairs;
}

function pairTable(pairs) {
  const rows = pairs.slice(0, DRAWN).map(({ before, after, gain }) => {
    const beside = `${after.source.name}:${after.line}`;
    return [h("span", {}, h("a", { href: treeAddress(before, { beside }) }, cut(before.instruction || before.task, 80)), " ", h("span", { class: "quiet" }, plain(before.kind))),
      leafSquares(before.outcomes), leafSquares(after.outcomes), h("b", { class: gain > 0 ? "gain" : gain < 0 ? "loss" : "quiet" }, points(gain)),
      number(before.steps), number(after.steps), number(before.tokens), number(after.tokens)];
  });
  return table([["task"], ["before"], ["after"], ["success, points", true], ["steps before", true], ["after", true], ["tokens before", true], ["after", true]], rows, { label: "tasks in both" });
}
