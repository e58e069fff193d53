// A tree as lanes: every trajectory is read from left to right, a shared prefix is drawn once.

const LANE = 27;
const CELL = 22;
const EDGE = 22;
const NARROWEST_TEXT = 36;
const CELL_WIDTHS = [6, 10, 16, 26, 40, 56, 66, 78, 92, 130, 190, 280];
/** The narrowest and the widest cells that are drawn unasked, as places in CELL_WIDTHS. */
const USUAL = { least: 5, most: 9 };
const COLOURS = new Map([
  ["advantage", "advantage"], ["success", "success below"], ["surprise", "surprise"], ["validity", "validity"], ["tag", "tag"],
]);

/** Where each step stands: its lane is that of the first leaf below it. */
function placeSteps(tree) {
  const places = new Map();
  tree.leaves.forEach((leaf, lane) => {
    const path = tree.path(leaf);
    path.forEach((step, depth) => { if (!places.has(step)) places.set(step, { lane, depth }); });
  });
  return places;
}

/** The widest cells with which the whole tree is seen, as a place in CELL_WIDTHS. */
function fittingWidth(tree, room) {
  const depth = Math.max(1, ...tree.leaves.map((leaf) => tree.path(leaf).length));
  return Math.max(0, CELL_WIDTHS.findLastIndex((width) => width * depth <= room - 90));
}

/** Advantages have outliers: colours end at one and a half times the 90th percentile. */
function advantageLimit(advantages) {
  const sizes = advantages.filter((value) => value !== null).map(Math.abs).sort((one, other) => one - other);
  return 1.5 * (sizes[Math.floor(0.9 * (sizes.length - 1))] ?? 0) || Math.max(0, ...sizes);
}

/** The class and the strength of a step's colour: [class, share from 0 to 1]. */
function shading(tree, colour, method) {
  if (colour === "advantage") {
    const advantages = tree.credit(method)?.advantages ?? [];
    const limit = advantageLimit(advantages);
    return (step) => {
      const value = advantages[step.id] ?? null;
      if (value === null) return ["unassigned", 0];
      return [value > 0 ? "gain" : "loss", limit ? Math.min(1, Math.abs(value) / limit) : 0];
    };
  }
  if (colour === "surprise") {
    const means = tree.steps.map((step) => step.surprises.reduce((sum, one) => sum + one, 0) / (step.surprises.length || 1));
    const most = Math.max(...means) || 1;
    return (step) => ["odd", means[step.id] / most];
  }
  if (colour === "validity") return (step) => ["bad", step.validity === "valid" ? 0 : step.validity === "malformed" ? 1 : 0.5];
  if (colour === "tag") {
    const tags = [...new Set(tree.steps.map((step) => step.tag))].filter((tag) => tag >= 0);
    return (step) => step.tag < 0 ? ["odd", 0] : [`series-${tags.indexOf(step.tag) % 6}`, 0.7];
  }
  return (step) => ["won", step.leaves ? step.success / step.leaves : 0];
}

/** What the colours mean. */
function colourLegend(tree, colour, method) {
  if (colour === "advantage") {
    const limit = advantageLimit(tree.credit(method)?.advantages ?? []);
    if (!limit) return h("span", { class: "quiet" }, `${method ?? "no credit"}: every advantage is 0`);
    return h("span", { class: "quiet" }, h("i", { class: "ramp both" }), ` ${method}: −${number(limit)} … +${number(limit)} and beyond; dashed: none`);
  }
  const words = { success: "share of the trajectories below that succeed", surprise: "mean −log p of a token, the tree's largest in full colour",
    validity: "half: inadmissible, full: malformed", tag: "a colour for every reasoning tag" }[colour];
  return h("span", { class: "quiet" }, colour !== "tag" && h("i", { class: `ramp ${colour}` }), ` ${words}`);
}

/** The drawing, and the nodes of its cells by step. */
function drawLanes(tree, { colour, method, width, onchoose }) {
  const places = placeSteps(tree);
  const shade = shading(tree, colour, method);
  const x = (step) => EDGE + places.get(step).depth * width;
  const y = (step) => 6 + places.get(step).lane * LANE;
  const cells = new Map();
  const bends = [];
  for (const step of places.keys()) {
    const parent = tree.steps[step.parent];
    if (!parent) bends.push(s("path", { class: "bend", d: `M6 6V${y(step) + CELL / 2}H${EDGE}` }));
    else if (places.get(parent).lane !== places.get(step).lane) {
      const start = x(parent) + width - 4;
      bends.push(s("path", { class: "bend", d: `M${start} ${y(parent) + CELL}V${y(step) + CELL / 2}H${x(step)}` }));
    }
    cells.set(step.id, laneCell(tree, step, x(step), y(step), width - 3, shade(step)));
  }
  const ends = tree.leaves.map((leaf) => {
    const letter = OUTCOMES[leaf.outcome];
    return s("text", { class: `end ${letter}`, x: x(leaf) + width + 3, y: y(leaf) + 16 }, MARKS[letter],
      s("title", {}, endingWords(leaf)));
  });
  const depth = Math.max(0, ...[...places.values()].map((place) => place.depth));
  const size = { width: EDGE + (depth + 1) * width + 30, height: 12 + tree.leaves.length * LANE };
  const drawing = s("svg", { class: "lanes", ...size, viewBox: `0 0 ${size.width} ${size.height}`, role: "group",
    "aria-label": `${tree.leaves.length} trajectories; arrow keys walk along and between them`,
    onclick: (event) => {
      const cell = event.target.closest("[data-step]");
      if (cell) onchoose(tree.steps[Number(cell.dataset.step)]);
    } }, bends, [...cells.values()], ends);
  return { drawing, cells };
}

function laneCell(tree, step, x, y, width, [shade, share]) {
  const words = tree.action(step);
  const classes = `cell ${shade}${step.validity === "valid" ? "" : " invalid"}`;
  return s("g", { class: classes, "data-step": step.id, "--strength": `${Math.round(75 * share)}%` },
    s("rect", { x, y, width, height: CELL, rx: Math.min(4, width / 3) }),
    width >= NARROWEST_TEXT && s("text", { x: x + 5, y: y + 15 }, cut(words, Math.floor((width - 8) / 6.5))),
    s("title", {}, `${step.id}: ${words}`));
}
