// The state graph of a tree, from left to right by the distance from the start. Python has placed the states.

const STATE = { width: 150, height: 36, gapX: 70, gapY: 16 };

function stateGraph(tree, asked) {
  const graph = tree.data.graph;
  const states = graph.states.map(([column, row, text, kind, visits, value, hops, truncated, action], id) =>
    ({ id, column, row, text: tree.text(text), kind, visits, value, hops, truncated, action: tree.text(action) }));
  const edges = graph.edges.map(([source, target, action, count, gain]) => ({ source, target, action: tree.text(action), count, gain }));
  const step = asked.has("step") ? tree.steps[Number(asked.get("step"))] : null;
  const wanted = asked.get("state") ?? (step ? graph.targets[step.id] : NaN);
  const chosen = states[Number(wanted)];
  return h("div", { class: "split" },
    h("div", { class: "card scroll tall", tabindex: 0, role: "region", "aria-label": "state graph" }, drawStates(states, edges, chosen)),
    h("aside", { class: "card" }, chosen ? stateFacts(tree, states, edges, chosen) : h("p", { class: "quiet" },
      "A state is the greener the nearer it is to a success; an edge is blue where it gains and orange where it loses. Choose a state.")));
}

function stateName(state) {
  if (state.kind !== "state") return state.kind;
  return state.action || `start: ${state.text}`;
}

function drawStates(states, edges, chosen) {
  const x = (state) => 10 + state.column * (STATE.width + STATE.gapX);
  const y = (state) => 44 + state.row * (STATE.height + STATE.gapY);
  const width = Math.max(...states.map(x)) + STATE.width + 20;
  const height = Math.max(...states.map(y)) + STATE.height + 20;
  const touches = (edge) => chosen && (edge.source === chosen.id || edge.target === chosen.id);
  const near = new Set(edges.filter(touches).flatMap((edge) => [edge.source, edge.target]));
  const lines = edges.filter((edge) => edge.source !== edge.target).map((edge) => {
    const from = states[edge.source];
    const to = states[edge.target];
    const forward = to.column > from.column;
    const x1 = x(from) + (forward ? STATE.width : STATE.width / 2);
    const x2 = x(to) + (forward ? 0 : STATE.width / 2);
    const y1 = y(from) + (forward ? STATE.height / 2 : 0);
    const y2 = y(to) + (forward ? STATE.height / 2 : 0);
    const bend = forward ? `C${x1 + 40} ${y1} ${x2 - 40} ${y2} ${x2} ${y2}` : `C${x1} ${y1 - 40} ${x2} ${y2 - 40} ${x2} ${y2}`;
    return s("path", { class: `edge ${edge.gain > 0 ? "gain" : edge.gain < 0 ? "loss" : ""}${chosen && !touches(edge) ? " far" : ""}`,
      d: `M${x1} ${y1}${bend}`, "stroke-width": Math.min(6, 1 + Math.log2(edge.count)) }, s("title", {}, `${edge.action}: taken ${edge.count} times, gain ${signed(edge.gain)}`));
  });
  const boxes = states.map((state) => s("a", { href: changed({ state: state.id, step: null }) },
    s("g", { class: `state ${state.kind}${state === chosen ? " chosen" : chosen && !near.has(state.id) ? " far" : ""}`, "--strength": `${Math.round(60 * state.value)}%` },
      s("rect", { x: x(state), y: y(state), width: STATE.width, height: STATE.height, rx: 6 }),
      s("text", { class: "name", x: x(state) + 8, y: y(state) + 15 }, cut(stateName(state), 22)),
      s("text", { x: x(state) + 8, y: y(state) + 29 }, `V ${number(state.value)} · ${state.hops === null ? "dead end" : `${number(state.hops)} to go`} · × ${state.visits}`))));
  return s("svg", { class: "states", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${states.length} states` }, lines, boxes);
}

function stateFacts(tree, states, edges, chosen) {
  const out = edges.filter((edge) => edge.source === chosen.id).map((edge) =>
    [h("a", { href: changed({ state: edge.target, step: null }) }, cut(edge.action, 60)), edge.count, advantageText(edge.gain)]);
  const from = tree.steps.filter((step) => tree.data.graph.sources[step.id] === chosen.id);
  return [h("h3", {}, "State ", h("small", {}, `V ${number(chosen.value)} · ${chosen.visits} visits${chosen.truncated ? ` · ${chosen.truncated} cut off` : ""}`)),
    h("pre", { class: "bubble" }, chosen.text),
    out.length > 0 && table([["action"], ["taken", true], ["gain", true]], out, { label: "actions" }),
    h("p", {}, h("span", { class: "quiet" }, "steps from here: "), from.slice(0, 40).map((step) => h("a", { class: "chip", href: changed({ tab: null, state: null, step: step.id }) }, step.id)))];
}
