// Why a step has its advantages: for every chosen method the numbers, the equations and the groups.

/** What to type for credit, where none is shown. */
function creditHint(tree) {
  const { path, evaluation } = tree.row.source;
  let words = `These trees have no credit. Give them some with: agentcli assign-credit ${path} --method grpo`;
  if (evaluation !== null) words = `An evaluation has no credit. Compute some with: agentcli view ${path} --credit grpo`;
  if (tree.data.credit.length) words = "No method is switched on.";
  return h("p", { class: "quiet" }, words);
}

function account(tree, step, methods) {
  if (!methods.length) return creditHint(tree);
  return h("div", {}, h("h3", {}, `Step ${step.id} `, h("small", {}, tree.action(step))), methods.map((method) => methodAccount(tree, step, method)));
}

function methodAccount(tree, step, method) {
  const column = tree.credit(method);
  const rows = column.rows[step.id] ?? [];
  const command = `agentcli assign-credit ${tree.row.source.path} --method ${method} --explain ${tree.row.line}:${step.id}`;
  return h("section", { class: "account" }, h("h4", {}, method, " ", advantageText(column.advantages[step.id])),
    rows.length > 1 && h("p", { class: "quiet" }, `${rows.length} rows, one for each leaf below; their mean counts`),
    !rows.length && h("p", { class: "quiet" }, "The method gives this step no row."),
    rows.slice(0, 4).map((one) => creditRow(tree, column, one)),
    rows.length > 4 && h("p", { class: "quiet" }, `and ${rows.length - 4} more rows`),
    // The command reads the trees of the training, not an evaluation's.
    tree.row.source.evaluation === null && h("p", {}, h("code", {}, command), " ", h("button", { type: "button", onclick: () => navigator.clipboard?.writeText(command) }, "copy")));
}

function creditRow(tree, column, row) {
  if (row.advantage === null) return h("p", { class: "quiet" }, `No advantage: ${tree.text(row.masked ?? -1) || "not assigned"}.`);
  const values = new Map();
  const entries = (row.account ?? []).map(([place, ...rest]) => {
    if (place < 0) return groupBlock(tree, column.groups[-1 - place], rest, values);
    const line = column.lines[place];
    values.set(line[0], rest[0]);
    return lineBlock(tree, line, rest[0], values);
  });
  const parts = (row.parts ?? []).map(([name, value]) => h("span", { class: "pair" }, h("b", {}, name), ` = ${number(value)} `));
  return h("div", {}, (row.weight ?? 1) !== 1 && h("p", { class: "quiet" }, `weight ${number(row.weight)}`), parts.length > 0 && h("p", {}, parts), entries);
}

/** A number as it was given, or an equation with its numbers put in. */
function lineBlock(tree, [name, formula, meaning, source], value, values) {
  const words = [tree.text(meaning), source && ` (${source})`];
  if (formula === null) return h("p", { class: "given" }, h("b", {}, name), ` = ${number(value)} `, h("span", { class: "quiet" }, words));
  const numbers = formula.replace(/(?<![\w.])[A-Za-z_]\w*/g, (one) => values.has(one) ? number(values.get(one)) : one);
  return h("div", { class: "equation" }, h("p", {}, h("b", {}, name), ` = ${formula}`, h("span", { class: "quiet" }, ` = ${numbers}`), " = ", h("b", {}, number(value))),
    h("p", { class: "quiet" }, words));
}

/** A group as a strip and a table that leads to its steps. */
function groupBlock(tree, group, chosen, values) {
  for (const [name, value] of [["mean", group.mean], ["std", group.std], ["W", group.weight]]) values.set(`${name}_${group.name}`, value);
  const rows = group.members.map(([id, score, weight], place) => {
    const step = group.of === "step" ? tree.steps[id] : null;
    const name = step ? h("a", { href: changed({ step: id, leaf: null }) }, id) : `copy ${id}`;
    const cells = [name, step ? cut(tree.action(step), 40) : "", step?.outcome ? mark(step.outcome) : "", number(score), `× ${number(weight)}`];
    return h("tr", { class: chosen.includes(place) ? "chosen" : null }, cells.map((cell, column) => h("td", { class: column > 2 ? "number" : null }, cell)));
  });
  return h("details", { class: "group", open: rows.length < 13 },
    h("summary", {}, h("b", {}, group.name), ` ${rows.length} entries, mean ${number(group.mean)}, std ${number(group.std)}, W ${number(group.weight)}`),
    h("p", { class: "quiet" }, tree.text(group.meaning)), strip(group, chosen),
    table([["step"], ["action"], ["end"], ["score", true], ["weight", true]], rows, { label: `group ${group.name}` }));
}

/** The scores on a line, the explained ones in colour, the mean as a tick. */
function strip(group, chosen) {
  const scores = group.members.map(([, score]) => score);
  const x = scale(Math.min(...scores), Math.max(...scores), 12, 408);
  const tick = (value, kind, top) => s("line", { class: kind, x1: x(value), x2: x(value), y1: top, y2: 26 });
  return s("svg", { class: "strip", viewBox: "0 0 420 44", role: "img", "aria-label": `scores from ${number(Math.min(...scores))} to ${number(Math.max(...scores))}` },
    s("line", { class: "grid", x1: 12, x2: 408, y1: 26, y2: 26 }), scores.map((score) => tick(score, "score", 14)),
    tick(group.mean, "mean", 4), chosen.map((place) => tick(scores[place], "mine", 10)),
    s("text", { class: "tick", x: 12, y: 40 }, number(Math.min(...scores))), s("text", { class: "tick", x: 408, y: 40, "text-anchor": "end" }, number(Math.max(...scores))));
}
