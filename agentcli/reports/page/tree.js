// One tree: its lanes or its state graph, below it a trajectory and the account of a step.

/** The place in CELL_WIDTHS that was chosen by a button; null: what fits. */
let chosenZoom = null;

async function treeView(index, asked) {
  const row = index.byPlace.get(`${asked.get("run")}:${asked.get("line")}`);
  if (!row) return h("div", { class: "page" }, h("p", { class: "note" }, "There is no such tree in this page."));
  const tree = await readTree(index, row);
  const view = new TreeView(index, tree);
  await view.show(asked);
  return view;
}

class TreeView {
  constructor(index, tree) {
    this.index = index;
    this.tree = tree;
    this.upper = h("div", {});
    this.chatPlace = h("section", { class: "card tall", tabindex: 0, "aria-label": "trajectory" });
    this.side = h("section", { class: "card tall", tabindex: 0, "aria-label": "explanation" });
    this.panes = h("div", { class: "split" }, this.chatPlace, this.side);
    this.node = h("div", { class: "page" }, this.heading(), this.upper, this.panes);
  }

  heading() {
    const { row, data } = this.tree;
    const alike = this.index.byTask.get(row.task).filter((other) => other !== row);
    const [before, after] = [this.neighbour(-1), this.neighbour(1)];
    const won = [...row.outcomes].filter((letter) => letter === "s").length;
    return h("div", {},
      h("p", { class: "quiet" }, h("a", { href: address({ view: "trees", run: row.source.name }) }, row.source.name), ` tree ${row.line} `,
        before && h("a", { href: treeAddress(before), "aria-label": "previous tree" }, "←"), " ", after && h("a", { href: treeAddress(after), "aria-label": "next tree" }, "→"),
        alike.length > 0 && [" also in ", alike.slice(0, 8).map((other) => [h("a", { href: treeAddress(other) }, other.source.name), ` (${[...other.outcomes].filter((letter) => letter === "s").length}/${other.outcomes.length}) `])]),
      h("h1", { class: data.instruction.length > 120 ? "long" : null }, data.instruction || data.task),
      h("p", { class: "quiet" }, `${plain(data.kind)} · grown by ${data.method} · ${number(row.steps)} steps, ${row.outcomes.length} trajectories, `, h("b", {}, `${won} succeeded`),
        ` · ${number(data.ledger.generated_tokens)} tokens written, ${number(data.ledger.prompt_tokens)} read`));
  }

  get zoom() {
    if (chosenZoom !== null) return chosenZoom;
    return Math.min(USUAL.most, Math.max(USUAL.least, fittingWidth(this.tree, Math.min(innerWidth, 1560))));
  }

  neighbour(offset) {
    const rows = this.index.rows;
    const other = rows[rows.indexOf(this.tree.row) + offset];
    return other?.source === this.tree.row.source ? other : null;
  }

  /** Reads the address, and draws what has changed. */
  async show(asked) {
    const { tree } = this;
    const held = tree.data.credit.map((column) => column.method);
    const methods = (asked.get("credit") ?? held[0] ?? "").split(",").filter((method) => held.includes(method));
    const colours = [...COLOURS.keys()].filter((name) => held.length || name !== "advantage");
    const colour = colours.includes(asked.get("colour")) ? asked.get("colour") : methods.length ? "advantage" : "success";
    const step = tree.steps[asked.has("step") ? Number(asked.get("step")) : -1] ?? null;
    const wanted = tree.steps[Number(asked.get("leaf") ?? NaN)];
    const below = (leaf) => !step || tree.isBelow(leaf, step);
    const leaf = wanted && tree.leaves.includes(wanted) && below(wanted) ? wanted : tree.leaves.find(below) ?? tree.leaves[0] ?? null;
    const tab = asked.get("tab") === "states" && tree.data.graph ? "states" : "tree";
    const drawn = JSON.stringify([methods, colour, tab, this.zoom, tab === "states" && [asked.get("state"), asked.get("step")]]);
    const talked = JSON.stringify([methods, leaf?.id]);
    Object.assign(this, { methods, step, leaf });
    if (drawn !== this.drawn) this.draw(asked, { held, methods, colour, colours, tab });
    if (talked !== this.talked) this.talk(asked);
    Object.assign(this, { drawn, talked });
    this.mark();
    await this.showSide(asked);
  }

  draw(asked, { held, methods, colour, colours, tab }) {
    const { tree } = this;
    const toggled = (method) => methods.includes(method) ? methods.filter((one) => one !== method) : [...methods, method];
    const tools = h("div", { class: "tools" },
      tree.data.graph && segments("view", [["tree", "tree"], ["states", "state graph"]], tab, (one) => go({ tab: one === "tree" ? null : one, state: null })),
      tab === "tree" && choice("colour by", colours.map((name) => [name, COLOURS.get(name)]), colour, (one) => go({ colour: one })),
      held.length > 0 && h("div", { class: "segments", role: "group", "aria-label": "credit" }, held.map((method) =>
        h("button", { type: "button", "aria-pressed": String(methods.includes(method)), onclick: () => go({ credit: toggled(method).join(",") || "none" }) }, method))),
      tab === "tree" && [colourLegend(tree, colour, methods[0]), this.zoomButtons(asked)]);
    if (tab === "states") {
      this.cells = new Map();
      this.upper.replaceChildren(tools, stateGraph(tree, asked));
      return;
    }
    const onchoose = (step) => this.choose(step);
    const { drawing, cells } = drawLanes(tree, { colour, method: methods[0], width: CELL_WIDTHS[this.zoom], onchoose });
    this.cells = cells;
    this.lanes = h("div", { class: "card scroll", tabindex: 0, role: "region", "aria-label": "tree", onwheel: (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.setZoom(event.deltaY < 0 ? 1 : -1);
    } }, drawing);
    this.upper.replaceChildren(tools, this.lanes);
  }

  zoomButtons() {
    const fit = () => this.setZoom(fittingWidth(this.tree, this.lanes.clientWidth) - this.zoom);
    const button = (label, words, onclick) => h("button", { type: "button", "aria-label": words, onclick }, label);
    return h("span", { class: "zoom" }, button("+", "wider", () => this.setZoom(1)), button("−", "narrower", () => this.setZoom(-1)), button("fit", "fit", fit));
  }

  setZoom(change) {
    chosenZoom = Math.min(CELL_WIDTHS.length - 1, Math.max(0, this.zoom + change));
    this.show(route());
  }

  choose(step) {
    const leaf = this.leaf && this.tree.isBelow(this.leaf, step) ? this.leaf.id : null;
    go({ step: step.id, leaf }, false);
  }

  talk(asked) {
    const { tree, leaf } = this;
    if (!leaf) {
      this.chatPlace.replaceChildren(h("p", { class: "quiet" }, "The tree has no steps."));
      return;
    }
    const others = this.choices(tree).filter((_, place) => tree.leaves[place] !== leaf);
    const elsewhere = this.index.byTask.get(tree.row.task).filter((row) => row !== tree.row).slice(0, 20).map((row) =>
      [`${row.source.name}:${row.line}`, `${row.source.name}:${row.line}`]);
    this.chatPlace.replaceChildren(
      h("div", { class: "tools" }, h("h2", {}, `${tree.trajectory(leaf)} `), mark(leaf.outcome), ` ${endingWords(leaf)} `,
        choice("beside", [["", "explanation"], ...others, ...elsewhere], asked.get("beside") ?? "", (beside) => go({ beside }))),
      chat(tree, leaf, this.methods, (step) => this.choose(step)));
  }

  /** The trajectories of a tree, as choices of what stands beside. */
  choices(tree) {
    const { source, line } = tree.row;
    return tree.leaves.map((leaf) => [`${source.name}:${line}:${leaf.id}`, `${MARKS[OUTCOMES[leaf.outcome]]} ${tree.trajectory(leaf)}`]);
  }

  /** Marks the chosen step and its trajectory. */
  mark() {
    const path = new Set(this.leaf ? this.tree.path(this.leaf) : []);
    for (const [id, cell] of this.cells) {
      cell.classList.toggle("along", path.has(this.tree.steps[id]));
      cell.classList.toggle("chosen", this.step?.id === id);
    }
    let chosen = null;
    for (const node of this.chatPlace.querySelectorAll("[data-turn]")) {
      const same = Number(node.dataset.turn) === this.step?.id;
      node.classList.toggle("chosen", same);
      if (same) chosen = node;
    }
    const scroll = () => { if (chosen) this.chatPlace.scrollTop = chosen.offsetTop - 40; };
    scroll();
    // Turns out of sight are measured when they come into it.
    requestAnimationFrame(scroll);
    const state = this.upper.querySelector(".state.chosen rect");
    if (state) state.closest(".scroll").scrollLeft = Number(state.getAttribute("x")) - 250;
    const cell = this.cells.get(this.step?.id)?.firstChild;
    if (cell && this.lanes) {
      const x = Number(cell.getAttribute("x"));
      const { scrollLeft, clientWidth } = this.lanes;
      if (x < scrollLeft || x + 100 > scrollLeft + clientWidth) this.lanes.scrollLeft = x - clientWidth / 2;
    }
  }

  async showSide(asked) {
    const other = asked.get("beside") && await this.besideChat(asked.get("beside"));
    this.panes.classList.toggle("equal", Boolean(other));
    for (const mark of this.panes.querySelectorAll(".parting")) mark.remove();
    if (!other) {
      this.side.replaceChildren(this.step ? account(this.tree, this.step, this.methods) : this.extremes());
      return;
    }
    this.side.replaceChildren(...other.nodes);
    this.markParting(other.tree, other.leaf);
    // Both sides show the same moment.
    const turn = this.side.querySelectorAll("[data-turn]")[this.tree.path(this.leaf).indexOf(this.step)];
    if (turn) this.side.scrollTop = turn.offsetTop - 40;
  }

  /** Marks, on both sides, the first step where the actions differ. */
  markParting(otherTree, otherLeaf) {
    const path = this.tree.path(this.leaf);
    const other = otherTree.path(otherLeaf);
    const place = path.findIndex((step, depth) => !other[depth] || this.tree.action(step) !== otherTree.action(other[depth]));
    const parting = place < 0 ? path.length : place;
    for (const pane of [this.chatPlace, this.side]) {
      pane.querySelectorAll("[data-turn]")[parting]?.before(h("p", { class: "parting" }, "From here on they differ."));
    }
  }

  async besideChat(wanted) {
    const [, name, line, id] = /^(.*?):(\d+)(?::(\d+))?$/.exec(wanted) ?? [];
    const row = this.index.byPlace.get(`${name}:${line}`);
    if (!row) return null;
    const tree = row === this.tree.row ? this.tree : await readTree(this.index, row);
    const leaf = tree.leaves.find((one) => one.id === Number(id ?? NaN)) ?? tree.leaves.find((one) => one.outcome === "success") ?? tree.leaves[0];
    if (!leaf) return null;
    const held = tree.data.credit.map((column) => column.method).filter((method) => this.methods.includes(method));
    const nodes = [h("div", { class: "tools" }, h("h2", {}, row === this.tree.row ? "Beside it " : `${name}:${line} `), mark(leaf.outcome), ` ${endingWords(leaf)} `,
      choice("trajectory", this.choices(tree), `${name}:${line}:${leaf.id}`, (beside) => go({ beside })),
      h("a", { href: treeAddress(row, { leaf: leaf.id }) }, "open"), " ", h("a", { href: changed({ beside: null }) }, "close")),
    chat(tree, leaf, held, (step) => go(Object.fromEntries(new URLSearchParams(treeAddress(row, { step: step.id, leaf: leaf.id, beside: null }).slice(1)))))];
    return { nodes, tree, leaf };
  }

  /** What is shown before a step is chosen: the ends of every method's scale, and the keys. */
  extremes() {
    const blocks = this.methods.map((method) => {
      const given = this.tree.steps.map((step) => [step, this.tree.credit(method).advantages[step.id]]).filter(([, value]) => value !== null);
      given.sort((one, other) => other[1] - one[1]);
      const ends = given.length > 8 ? [...given.slice(0, 4), ...given.slice(-4)] : given;
      return [h("h4", {}, `${method}: most and least`), table([["step", true], ["action"], ["advantage", true]],
        ends.map(([step, value]) => [h("a", { href: changed({ step: step.id, leaf: null }) }, step.id), cut(this.tree.action(step), 60), advantageText(value)]), { label: `extremes of ${method}` })];
    });
    return h("div", {}, h("h3", {}, "Why this advantage"),
      h("p", { class: "quiet" }, "Choose a step. Arrow keys walk along a trajectory (← →) and between trajectories (↑ ↓); n and p go to the next and the previous tree; Ctrl and the wheel zoom."),
      this.methods.length ? blocks : creditHint(this.tree));
  }

  /** Walks by a key. Says whether the key means anything here. */
  key(name) {
    const { tree, step, leaf } = this;
    if (name === "n" || name === "p") {
      const row = this.neighbour(name === "n" ? 1 : -1);
      if (row) location.hash = treeAddress(row, { credit: route().get("credit"), colour: route().get("colour") });
      return Boolean(row);
    }
    if (!leaf) return false;
    const path = tree.path(leaf);
    const place = path.indexOf(step);
    const walk = { ArrowRight: 1, ArrowLeft: -1 }[name];
    if (walk) {
      const next = path[Math.min(path.length - 1, Math.max(0, place + walk))];
      go({ step: next.id, leaf: leaf.id }, false);
      return true;
    }
    const turn = { ArrowDown: 1, ArrowUp: -1 }[name];
    const other = turn && tree.leaves[tree.leaves.indexOf(leaf) + turn];
    if (!other) return false;
    const there = tree.path(other);
    go({ step: there[Math.min(there.length - 1, Math.max(0, place))].id, leaf: other.id }, false);
    return true;
  }
}
