// Elements from plain values. A text only ever becomes a text node or an attribute.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

/** An HTML element. Attributes that begin with "on" are listeners, with "--" properties. */
function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

/** A table: columns are [title, is number], rows are lists of cells, or <tr> elements. */
function table(columns, rows, attributes = {}) {
  const heads = columns.map(([title, number]) =>
    h("th", { scope: "col", class: number ? "number" : null }, title));
  const lines = rows.map((row) => row instanceof Node ? row : h("tr", {},
    row.map((cell, place) => h("td", { class: columns[place][1] ? "number" : null }, cell))));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": attributes.label || "table" },
    h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, lines)));
}

/** A titled box. */
function card(title, note, ...children) {
  return h("section", { class: "card" }, h("h3", {}, title), note && h("p", { class: "quiet" }, note), children);
}

/** A labelled choice; `options` are [value, text]. */
function choice(label, options, value, onchoose) {
  const list = h("select", { onchange: (event) => onchoose(event.target.value) },
    options.map(([one, text]) => h("option", { value: one, selected: one === value }, text)));
  return h("label", {}, label, " ", list);
}

/** Buttons of which one is pressed; `options` are [value, text]. */
function segments(label, options, value, onchoose) {
  return h("div", { class: "segments", role: "group", "aria-label": label },
    options.map(([one, text]) =>
      h("button", { type: "button", "aria-pressed": String(one === value), onclick: () => onchoose(one) }, text)));
}
