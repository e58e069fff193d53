// One trajectory as a chat: what the world said, what the policy answered, and what else was tried.

/** The turns of a trajectory; the nodes carry their step as data-turn. */
function chat(tree, leaf, methods, onchoose) {
  const path = tree.path(leaf);
  const parts = [bubble(tree.text(path[0].observation)), pictures(path[0].pictures, "at the start")];
  for (const step of path) parts.push(turn(tree, step, methods, onchoose));
  return h("div", { class: "chat" }, parts);
}

/** What the world said; a picture of characters keeps its columns. */
function bubble(text) {
  const lines = text.split("\n");
  const drawn = lines.some((line, place) => line.length > 2 && [1, 2].every((next) => lines[place + next]?.length === line.length));
  return h("pre", { class: `bubble world${drawn ? " drawn" : ""}` }, text || "(nothing)");
}

/** What the world showed; small pictures are enlarged dot by dot. */
function pictures(numbers, when) {
  return numbers.length > 0 && h("p", { class: "pictures" }, numbers.map((number, place) => {
    const picture = h("img", { alt: `picture ${place + 1} of ${numbers.length}, ${when}`,
      onload: () => picture.classList.toggle("small", picture.naturalHeight < 160) });
    pictureAddress(number).then((address) => { picture.src = address; }, (error) => picture.replaceWith(error.message));
    return picture;
  }));
}

function turn(tree, step, methods, onchoose) {
  return h("article", { class: "turn", "data-turn": step.id, onclick: (event) => { if (!event.target.closest("a, details, button")) onchoose(step); } },
    h("div", { class: "gutter" }, h("b", {}, step.id), methods.map((method) => advantageBar(tree, method, step))),
    h("div", { class: "said" },
      response(tree, step),
      h("p", { class: "act" }, step.tag >= 0 && h("span", { class: "chip" }, tree.text(step.tag)), " ",
        h("b", { class: step.validity === "valid" ? null : "bad" }, tree.action(step)), " ", step.validity !== "valid" && h("span", { class: "chip bad" }, step.validity)),
      facts(tree, step), alternatives(tree, step), step.moves.length > 0 && moves(tree, step), folds(tree, step),
      bubble(tree.text(step.next_observation)), pictures(step.next_pictures, `after step ${step.id}`),
      step.outcome && h("p", { class: "act" }, mark(step.outcome), ` ${endingWords(step)}`)));
}

function advantageBar(tree, method, step) {
  const column = tree.credit(method);
  const value = column?.advantages[step.id] ?? null;
  const limit = advantageLimit(column?.advantages ?? []) || 1;
  const share = value === null ? 0 : Math.min(1, Math.abs(value) / limit);
  return h("span", { class: `bar ${value > 0 ? "gain" : value < 0 ? "loss" : ""}`, title: method, "--share": `${50 * share}%` },
    h("i"), h("small", {}, signed(value)));
}

/** The response, each token tinted by how unlikely it was. */
function response(tree, step) {
  const text = tree.text(step.response);
  if (!step.token_ends.length) return h("pre", { class: "bubble policy" }, text || "(no response)");
  let from = 0;
  const tokens = step.token_ends.map((end, place) => {
    const surprise = step.surprises[place];
    const token = h("span", { class: surprise > 0.05 ? "token" : null, title: `−log p ${number(surprise)}`, "--strength": `${Math.round(Math.min(1, surprise / 4) * 70)}%` }, text.slice(from, end));
    from = end;
    return token;
  });
  return h("pre", { class: "bubble policy" }, tokens, text.slice(from));
}

/** Small facts: what a step repeated, scored or failed by. */
function facts(tree, step) {
  const chips = [];
  if (step.back === START) chips.push("back in the initial state");
  else if (step.back >= 0 && step.back === step.parent) chips.push("nothing changed");
  else if (step.back >= 0) chips.push(`back where it was after step ${step.back}`);
  if (step.reward) chips.push(`reward ${number(step.reward)}`);
  if (step.value !== null) chips.push(`value ${number(step.value)}`);
  if (step.score !== null) chips.push(`score ${number(step.score)}`);
  if (step.redrawn) chips.push(`drawn again ${step.redrawn} times`);
  if (step.stop === "length" || step.stop === "overlong") chips.push(step.stop === "length" ? "cut off by max_tokens" : "prompt too long to be asked");
  if (step.mask >= 0) chips.push(`not to be imitated: ${tree.text(step.mask)}`);
  if (step.error >= 0) chips.push(`errored: ${tree.text(step.error)}`);
  for (const [name, value] of step.notes) chips.push(`${plain(name)}: ${typeof value === "number" ? number(value) : cut(value, 200)}`);
  return chips.length > 0 && h("p", { class: "act" }, chips.map((chip) => h("span", { class: "chip plain" }, chip)));
}

/** The other actions that were tried from the same state, and what became of them. */
function alternatives(tree, step) {
  const others = tree.siblings(step);
  if (!others.length) return null;
  const shown = others.slice(0, 12).map((other) =>
    h("a", { class: "chip", href: changed({ step: other.id, leaf: null }) }, cut(tree.action(other), 60), " ",
      h("b", { class: other.success ? "gain" : "loss" }, `${other.success}/${other.leaves}`)));
  return h("p", { class: "act" }, h("span", { class: "quiet" }, "also tried here: "), shown, others.length > 12 && ` and ${others.length - 12} more`);
}

function moves(tree, step) {
  const rows = step.moves.map(([copy, action, validity, next, outcome]) =>
    [copy, tree.text(action), validity === "valid" ? "" : validity, cut(tree.text(next), 200), outcome ?? ""]);
  return table([["copy", true], ["action"], [""], ["what came back"], ["outcome"]], rows, { label: `moves of step ${step.id}` });
}

/** The prompt and the admissible actions, written when they are opened. */
function folds(tree, step) {
  const fold = (title, text) => h("details", { ontoggle: (event) => {
    if (event.target.open && event.target.childElementCount < 2) event.target.append(h("pre", { class: "bubble" }, text()));
  } }, h("summary", {}, title));
  const actions = step.admissible.map((place) => tree.text(place));
  const asked = step.continues ? "prompt, added to the conversation" : "prompt";
  return h("div", { class: "folds" }, fold(asked, () => tree.prompt(step)), actions.length > 0 && fold(`${actions.length} admissible actions`, () => actions.join("\n")));
}
