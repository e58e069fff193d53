// The list of trees: filtered, sorted, and searched through all texts.

const SHOWN_ROWS = 200;
const MOST_HITS = 200;
const SOLVED = [["", "any"], ["none", "none succeed"], ["mixed", "mixed"], ["all", "all succeed"]];
/** Columns by what the address calls them: title, and the value that they are sorted by. */
const COLUMNS = new Map([
  ["run", ["run", (row) => row.source.name]],
  ["line", ["line", (row) => row.line]],
  ["task", ["task", (row) => row.instruction]],
  ["success", ["leaves", (row) => shareWon(row.outcomes)]],
  ["steps", ["steps", (row) => row.steps]],
  ["forks", ["forks", (row) => row.forks]],
  ["tokens", ["tokens", (row) => row.tokens]],
  ["repeated", ["repeated %", (row) => row.repeated]],
  ["invalid", ["malformed or inadmissible", (row) => row.invalid]],
  ["surprise", ["surprise", (row) => row.surprise]],
  ["advantage", ["advantage", (row) => row.low === null ? null : row.high - row.low]],
]);

function solvedAs(row) {
  const share = shareWon(row.outcomes);
  return share === 1 ? "all" : share > 0 ? "mixed" : "none";
}

/** The rows that the address asks for, in its order. */
function listedRows(index, asked) {
  const text = (asked.get("text") ?? "").toLowerCase();
  const wanted = (name, value) => !asked.get(name) || asked.get(name) === value;
  const rows = index.rows.filter((row) => (wanted("run", row.source.name) || row.source.name.startsWith(`${asked.get("run")}/`))
    && wanted("kind", row.kind) && wanted("solved", solvedAs(row))
    && (!text || `${row.instruction} ${row.task}`.toLowerCase().includes(text)));
  const sorted = COLUMNS.get(asked.get("sort"));
  if (!sorted) return rows;
  const sign = asked.get("up") ? 1 : -1;
  const compare = (one, other) => one === other ? 0 : one === null ? 1 : other === null ? -1 : sign * (one < other ? -1 : 1);
  return rows.toSorted((one, other) => compare(sorted[1](one), sorted[1](other)));
}

function list(index, asked) {
  const rows = listedRows(index, asked);
  const names = [...new Set(index.sources.flatMap((source) => [source.run, source.name]))];
  const kinds = [...new Set(index.rows.map((row) => row.kind))].sort();
  const trajectories = rows.reduce((sum, row) => sum + row.outcomes.length, 0);
  const filter = h("input", { type: "search", id: "filter", placeholder: "filter tasks", "aria-label": "filter tasks", value: asked.get("text"),
    onchange: (event) => go({ text: event.target.value }) });
  const search = h("input", { type: "search", id: "search", placeholder: "search all texts, Enter", "aria-label": "search all texts", value: asked.get("find"),
    onchange: (event) => go({ find: event.target.value }) });
  const hits = h("div", { id: "hits", "aria-live": "polite" });
  if (asked.get("find")) showHits(index, rows, asked.get("find"), hits);
  return h("div", { class: "page" },
    h("h1", { class: "hidden" }, "Trees"),
    h("div", { class: "tools" },
      choice("run", [["", "all"], ...names.map((name) => [name, name])], asked.get("run") ?? "", (run) => go({ run })),
      choice("kind", [["", "all"], ...kinds.map((kind) => [kind, plain(kind)])], asked.get("kind") ?? "", (kind) => go({ kind })),
      segments("solved", SOLVED, asked.get("solved") ?? "", (solved) => go({ solved })), filter, search),
    h("p", { class: "quiet", id: "count" }, `${whole.format(rows.length)} trees, ${whole.format(trajectories)} trajectories`),
    hits, listTable(rows, asked));
}

function listTable(rows, asked) {
  const highest = Math.max(1e-9, ...rows.filter((row) => row.low !== null).map((row) => Math.max(row.high, -row.low)));
  const heads = [...COLUMNS].map(([name, [title]], place) => {
    const active = asked.get("sort") === name;
    const arrow = active ? (asked.get("up") ? " ↑" : " ↓") : "";
    const direction = active && !asked.get("up") ? "1" : null;
    return h("th", { scope: "col", class: place > 3 || place === 1 ? "number" : null, "aria-sort": active ? (asked.get("up") ? "ascending" : "descending") : null },
      h("a", { href: changed({ sort: name, up: direction }) }, title, arrow));
  });
  const body = h("tbody");
  const more = h("button", { type: "button", onclick: () => add() }, "show more");
  let shown = 0;
  const add = () => {
    for (const row of rows.slice(shown, shown + SHOWN_ROWS)) body.append(listRow(row, highest));
    shown += SHOWN_ROWS;
    more.hidden = shown >= rows.length;
  };
  add();
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "trees" }, h("table", { class: "list" }, h("thead", {}, h("tr", {}, heads)), body), more);
}

function listRow(row, highest) {
  const won = [...row.outcomes].filter((letter) => letter === "s").length;
  return h("tr", {},
    h("td", { class: "quiet" }, row.source.name), h("td", { class: "number" }, row.line),
    h("td", { class: "task" }, h("a", { href: treeAddress(row) }, cut(row.instruction || row.task, 90)), " ", h("span", { class: "quiet" }, plain(row.kind))),
    h("td", {}, leafSquares(row.outcomes.slice(0, 32)), ` ${won}/${row.outcomes.length}`),
    [number(row.steps), row.forks || "", number(row.tokens), percent(row.repeated), row.invalid || "", number(row.surprise)]
      .map((cell) => h("td", { class: "number" }, cell)),
    h("td", {}, row.low !== null && advantageRange(row, highest)));
}

/** From the least to the largest advantage, 0 in the middle. */
function advantageRange(row, highest) {
  const place = (value) => 50 + 50 * value / highest;
  return h("span", { class: "range", role: "img", "aria-label": `${signed(row.low)} to ${signed(row.high)}`, title: `${signed(row.low)} to ${signed(row.high)}`,
    "--from": `${place(row.low)}%`, "--to": `${100 - place(row.high)}%` }, h("i"));
}

/** Searches tree after tree, so that the page stays usable; a newer search ends an older one. */
async function showHits(index, rows, wanted, place) {
  const text = wanted.toLowerCase();
  const progress = h("p", { class: "quiet" });
  const found = h("ul");
  place.append(progress, found);
  let hits = 0;
  for (const [searched, row] of rows.entries()) {
    if (searched % 20 === 0) {
      progress.textContent = `searching: ${searched} of ${rows.length} trees, ${hits} hits`;
      await new Promise((resolve) => setTimeout(resolve));
      if (!place.isConnected && searched > 0) return;
    }
    const tree = await readTree(index, row);
    const step = tree.steps.find((one) => [one.action, one.response, one.next_observation, one.observation, one.tag]
      .some((where) => tree.text(where).toLowerCase().includes(text)));
    if (!step && !row.instruction.toLowerCase().includes(text)) continue;
    hits += 1;
    found.append(h("li", {}, h("a", { href: treeAddress(row, { step: step?.id }) }, `${row.source.name}:${row.line}${step ? ` step ${step.id}` : ""}`), " ", cut(row.instruction, 90)));
    if (hits >= MOST_HITS) break;
  }
  progress.textContent = `${hits} trees${hits >= MOST_HITS ? " or more" : ""} hold “${wanted}”`;
}
