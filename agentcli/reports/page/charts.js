// Charts as SVG: lines with bands, and intervals. Colours come from the style sheet.

const WIDTH = 480;
const HEIGHT = 210;
const MARGIN = { left: 44, right: 14, top: 12, bottom: 34 };

/** Round numbers from low to high, about five. */
function ticks(low, high) {
  const rough = (high - low) / 4 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((unit) => unit * power).find((unit) => unit >= rough);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, place) => (first + place) * step);
}

function scale(low, high, from, to) {
  const span = high - low || 1;
  return (value) => from + (value - low) / span * (to - from);
}

/**
 * Lines over x. A series is {name, points: [{x, y, low, high, href, title}]}; y may be null.
 * `top` is the least upper end of the axis.
 */
function lineChart({ label, series, xLabel, bottom = 0, top = null }) {
  const all = series.flatMap((one) => one.points).filter((point) => point.y !== null);
  const ys = all.flatMap((point) => [point.y, point.low ?? point.y, point.high ?? point.y]);
  const xs = all.map((point) => point.x);
  const yTicks = ticks(Math.min(bottom, ...ys), Math.max(top ?? -Infinity, ...ys));
  const x = scale(Math.min(...xs), Math.max(...xs), MARGIN.left, WIDTH - MARGIN.right);
  const high = Math.max(yTicks.at(-1), ...ys);
  const y = scale(Math.min(yTicks[0], ...ys), high, HEIGHT - MARGIN.bottom, MARGIN.top);
  const grid = yTicks.map((value) => [
    s("line", { class: "grid", x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: y(value), y2: y(value) }),
    s("text", { class: "tick", x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, number(value)),
  ]);
  const xTicks = ticks(Math.min(...xs), Math.max(...xs)).filter((value) => Number.isInteger(value));
  const bottomTicks = xTicks.map((value) =>
    s("text", { class: "tick", x: x(value), y: HEIGHT - MARGIN.bottom + 16, "text-anchor": "middle" }, number(value)));
  const title = s("text", { class: "tick", x: WIDTH - MARGIN.right, y: HEIGHT - 4, "text-anchor": "end" }, `${xLabel} →`);
  const lines = series.map((one, place) => drawnSeries(one, place, x, y));
  const legend = series.length > 1 && h("p", { class: "legend" },
    series.map((one, place) => h("span", { class: `series-${place % 6}` }, "● ", one.name, " ")));
  return [legend, s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": label },
    grid, bottomTicks, title, lines)];
}

function drawnSeries({ name, points: given }, place, x, y) {
  const drawn = given.filter((point) => point.y !== null);
  const line = drawn.map((point) => `${x(point.x).toFixed(1)},${y(point.y).toFixed(1)}`).join(" ");
  const banded = drawn.filter((point) => point.low !== undefined);
  const band = [...banded.map((point) => `${x(point.x).toFixed(1)},${y(point.high).toFixed(1)}`),
    ...banded.toReversed().map((point) => `${x(point.x).toFixed(1)},${y(point.low).toFixed(1)}`)].join(" ");
  const dots = drawn.map((point) => {
    const words = `${name} ${number(point.x)}: ${number(point.y)}`;
    const dot = s("circle", { cx: x(point.x), cy: y(point.y), r: point.href ? 4 : drawn.length > 60 ? 1 : 2 },
      s("title", {}, point.title ?? words));
    return point.href ? s("a", { href: point.href, "aria-label": point.title ?? words }, dot) : dot;
  });
  return s("g", { class: `series-${place % 6}` },
    banded.length > 1 && s("polygon", { class: "band", points: band }),
    s("polyline", { class: "line", points: line }), dots);
}

/** A row for each {name, rate, low, high}, all shares. */
function intervalChart(label, rows) {
  const left = 190;
  const height = 24 * rows.length + 26;
  const x = scale(0, 1, left, WIDTH - MARGIN.right);
  const grid = [0, 0.25, 0.5, 0.75, 1].map((value) => [
    s("line", { class: "grid", x1: x(value), x2: x(value), y1: 16, y2: height }),
    s("text", { class: "tick", x: x(value), y: 11, "text-anchor": "middle" }, number(100 * value)),
  ]);
  const lines = rows.map(({ name, rate, low, high, series }, place) => {
    const y = 30 + 24 * place;
    return s("g", { class: `series-${series % 6}` },
      s("text", { class: "tick", x: left - 10, y: y + 4, "text-anchor": "end" }, cut(name, 30)),
      s("line", { class: "interval", x1: x(low), x2: x(high), y1: y, y2: y }),
      s("circle", { cx: x(rate), cy: y, r: 4.5 }, s("title", {}, `${name}: ${percent(rate)} % (${percent(low)} – ${percent(high)})`)));
  });
  return s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label }, grid, lines);
}

/** Shares of a whole as a bar; parts are [name, count]. */
function stackedBar(parts, total) {
  return h("span", { class: "stack", role: "img", "aria-label": parts.map(([name, count]) => `${name} ${count}`).join(", ") },
    parts.map(([name, count]) => h("i", { class: `ending ${name}`, title: `${name}: ${count}`, "--share": `${100 * count / total}%` })));
}
