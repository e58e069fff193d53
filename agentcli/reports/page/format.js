// Numbers and words as they are shown. No number is computed here that Python did not give.

const MARKS = { s: "✓", f: "✕", t: "▪", e: "!" };
const OUTCOMES = { success: "s", failure: "f", truncated: "t", errored: "e" };

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A number with about three digits that matter. */
function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 1000) return whole.format(value).replace("-", "−");
  const digits = size >= 100 ? 1 : size >= 0.1 ? 3 : size >= 0.001 ? 4 : 6;
  return String(Number(value.toFixed(digits))).replace("-", "−");
}

/** An advantage with its sign. */
function signed(value) {
  if (value === null || value === undefined) return "none";
  return (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(value).toFixed(Math.abs(value) < 0.1 ? 4 : 2);
}

/** A share in percent. */
function percent(share) {
  return share === null || share === undefined ? "–" : (100 * share).toFixed(1);
}

/** A share with its interval. */
function interval(rate) {
  return `${percent(rate.low)} – ${percent(rate.high)}`;
}

/** A difference of shares with its sign. */
function points(share) {
  return (share > 0 ? "+" : share < 0 ? "−" : "") + (100 * Math.abs(share)).toFixed(1);
}

/** A probability of chance. */
function chance(p) {
  return p === null || p === undefined ? "–" : p < 0.001 ? "< 0.001" : p.toFixed(3);
}

/** A kind or a method without its underscores. */
function plain(name) {
  return name.replaceAll("_", " ");
}

/** A text cut to a length. */
function cut(text, length) {
  const line = text.replaceAll("\n", " ");
  return line.length <= length ? line : `${line.slice(0, Math.max(1, length - 1))}…`;
}

/** How a trajectory ended: its outcome, and what explains a failure. */
function endingWords(leaf) {
  return leaf.ending === leaf.outcome ? leaf.outcome : `${leaf.outcome}: ${leaf.ending}`;
}

/** The mark of an outcome. */
function mark(outcome) {
  return h("span", { class: `mark ${OUTCOMES[outcome]}`, title: outcome }, MARKS[OUTCOMES[outcome]]);
}

/** A square for each leaf. */
function leafSquares(letters) {
  const won = [...letters].filter((letter) => letter === "s").length;
  return h("span", { class: "leaves", role: "img", "aria-label": `${won} of ${letters.length} succeeded` },
    [...letters].map((letter) => h("i", { class: letter })));
}

/** The share of the letters that are successes; null without letters. */
function shareWon(letters) {
  return letters.length ? [...letters].filter((letter) => letter === "s").length / letters.length : null;
}
