// The blocks of the page: unpacked when they are asked for, the newest dozen kept.

const KEPT_BLOCKS = 12;
const ROW_FIELDS = ["source", "line", "task", "kind", "instruction", "outcomes", "endings", "steps", "forks",
  "tokens", "repeated", "invalid", "surprise", "low", "high", "block", "place"];
const START = -2;

const unpacked = new Map();
/** [number of its first picture, name] of each block of pictures. */
let album = [];
const arrivals = new Map();

/** Called by the scripts of a page that keeps its blocks in files beside it. */
globalThis.agentcliBlock = (name, text) => {
  arrivals.get(name)?.(text);
  arrivals.delete(name);
};

const addresses = globalThis.trustedTypes && document.documentElement.dataset.blocks
  ? trustedTypes.createPolicy("blocks", { createScriptURL: (address) => address }) : null;

function blockText(name) {
  const inside = document.getElementById(`block-${name}`);
  if (inside) return Promise.resolve(inside.textContent);
  if (!/^[0-9a-f]{16}$/.test(name)) return Promise.reject(new Error(`no block ${name}`));
  return new Promise((resolve, reject) => {
    arrivals.set(name, resolve);
    const address = `${document.documentElement.dataset.blocks}/${name}.js`;
    const script = document.createElement("script");
    script.onload = () => script.remove();
    script.onerror = () => reject(new Error(`${address} is missing; it belongs beside this page`));
    script.src = addresses ? addresses.createScriptURL(address) : address;
    document.head.append(script);
  });
}

async function unpack(text) {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < bytes.length; place += 1) bytes[place] = binary.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function block(name) {
  const held = unpacked.get(name) ?? blockText(name).then(unpack);
  held.catch(() => unpacked.delete(name));
  unpacked.delete(name);
  unpacked.set(name, held);
  if (unpacked.size > KEPT_BLOCKS) unpacked.delete(unpacked.keys().next().value);
  return held;
}

/** The index, its rows as objects that know their source. */
async function readIndex() {
  const index = await unpack(document.getElementById("index").textContent);
  album = index.album;
  index.rows = index.trees.map((cells) => {
    const row = Object.fromEntries(ROW_FIELDS.map((field, place) => [field, cells[place]]));
    row.source = index.sources[row.source];
    return row;
  });
  index.byPlace = new Map(index.rows.map((row) => [`${row.source.name}:${row.line}`, row]));
  index.byTask = Map.groupBy(index.rows, (row) => row.task);
  return index;
}

/** The address of a picture, which holds all of it. */
async function pictureAddress(number) {
  const [first, name] = album.findLast(([first]) => first <= number);
  return `data:image/png;base64,${(await block(name))[number - first]}`;
}

/** A tree with its steps joined to one another. */
async function readTree(index, row) {
  const trees = await block(index.blocks[row.block]);
  return new LoadedTree(trees[row.place], row);
}

class LoadedTree {
  constructor(data, row) {
    this.row = row;
    this.data = data;
    this.texts = data.texts;
    this.steps = data.steps.map((cells, id) => ({ parent: -1, validity: "valid", outcome: null, tag: -1, error: -1,
      mask: -1, back: -1, pictures: [], next_pictures: [], admissible: [], moves: [], notes: [], surprises: [], token_ends: [], reward: 0, tokens: 0,
      leaves: 1, success: 0, continues: false, redrawn: 0, value: null, score: null, stop: "", ...cells, id, children: [] }));
    this.roots = this.steps.filter((step) => step.parent < 0);
    for (const step of this.steps) if (step.parent >= 0) this.steps[step.parent].children.push(step);
    this.leaves = this.orderedLeaves();
  }

  /** The leaves, those of one branch together. */
  orderedLeaves() {
    const leaves = [];
    const ahead = [...this.roots].reverse();
    while (ahead.length) {
      const step = ahead.pop();
      if (!step.children.length) leaves.push(step);
      ahead.push(...step.children.toReversed());
    }
    return leaves;
  }

  text(place) {
    return place < 0 ? "" : this.texts[place];
  }

  action(step) {
    if (step.error >= 0) return "errored";
    return this.text(step.action) || "(malformed)";
  }

  /** What a trajectory is called: its number is that of `agentcli show --trajectory`. */
  trajectory(leaf) {
    const number = this.leaves.filter((other) => other.id <= leaf.id).length;
    return `trajectory ${number} of ${this.leaves.length}, ${this.path(leaf).length} steps`;
  }

  path(leaf) {
    const steps = [];
    for (let step = leaf; step; step = this.steps[step.parent]) steps.unshift(step);
    return steps;
  }

  siblings(step) {
    const family = step.parent < 0 ? this.roots : this.steps[step.parent].children;
    return family.filter((other) => other !== step);
  }

  /** A prompt, put together from what it keeps of the one before. */
  prompt(step) {
    let text = "";
    for (const { prompt: [start, end, middle] } of this.path(step)) {
      text = text.slice(0, start) + this.text(middle) + text.slice(text.length - end);
    }
    return text;
  }

  credit(method) {
    return this.data.credit.find((column) => column.method === method);
  }

  /** Whether `leaf` is `step` or lies below it. */
  isBelow(leaf, step) {
    let one = leaf;
    while (one && one.id > step.id) one = this.steps[one.parent];
    return one === step;
  }
}
