// The first view: loops, evaluations, how trajectories end, where methods disagree, runs.

function overview(index) {
  const parts = [];
  for (const note of index.notes) parts.push(h("p", { class: "note" }, note));
  for (const run of index.runs) parts.push(runSection(index, run));
  parts.push(evaluationSection(index), endingSection(index), agreementSection(index), stageSection(index));
  return h("div", { class: "page" }, parts);
}

function runSection(index, run) {
  if (!run.iterations.length && !run.curves.length) return null;
  const loop = run.iterations.length > 0;
  const heading = loop ? `${run.iterations.length} iterations` : "training";
  return h("section", {}, h("h2", {}, run.name, " ", h("small", {}, heading)),
    run.warnings.map((warning) => h("p", { class: "note" }, warning)),
    loop && tiles(run), h("div", { class: "cards" }, loop && loopCharts(index, run), curveCharts(run)));
}

function tiles(run) {
  const { first, last, measured_on: measured } = run.headline;
  const { steps, tokens, seconds } = run.iterations.at(-1);
  const facts = [[`${percent(first)} → ${percent(last)} %`, `success: ${measured}`],
    [number(steps), "environment steps"], [number(tokens), "tokens generated"],
    [`${number(Math.round(seconds))} s`, "of work"]];
  return h("div", { class: "tiles" }, facts.map(([fact, words]) => h("div", { class: "card" }, h("b", {}, fact), h("span", { class: "quiet" }, words))));
}

function successPoints(index, run, rates) {
  return run.iterations.map((iteration, x) => {
    const rate = rates(iteration);
    if (!rate) return { x, y: null };
    const title = `iteration ${x}: ${percent(rate.rate)} % (${interval(rate)})`;
    const held = index.sources.some((source) => source.name === iteration.source);
    const href = held ? address({ view: "trees", run: iteration.source }) : null;
    return { x, y: 100 * rate.rate, low: 100 * rate.low, high: 100 * rate.high, title, href };
  });
}

function loopCharts(index, run) {
  const chart = (label, name, rates) =>
    lineChart({ label, xLabel: "iteration", top: 100, series: [{ name, points: successPoints(index, run, rates) }] });
  const kinds = [...new Set(run.iterations.flatMap((iteration) => Object.keys(iteration.results.kinds)))].sort();
  const shares = (name, value) => ({ name, points: run.iterations.map((one, x) => ({ x, y: 100 * one.results[value] })) });
  const labels = [...new Set(run.iterations.flatMap((iteration) => Object.keys(iteration.evaluated)))];
  const evaluated = labels.map((label) => ({ name: label, points: run.iterations.map((one, x) => ({ x, y: Object.hasOwn(one.evaluated, label) ? 100 * one.evaluated[label] : null })) }));
  const tokens = run.iterations.map((one, x) => ({ x, y: one.tokens }));
  return [
    card("Success of what was sampled, %", "With its 95 % interval. Every iteration has tasks of its own, so neighbours differ by luck too. A point opens its trees.",
      chart("success over iterations", "iteration", (iteration) => iteration.success)),
    labels.length > 0 && card("Evaluations in between, % success", null, lineChart({ label: "evaluations", xLabel: "iteration", top: 100, series: evaluated })),
    kinds.length > 1 && kinds.map((kind) => card(plain(kind), "sampled success, %",
      chart(`success on ${kind}`, "iteration", (iteration) => kindSuccess(iteration.results, kind)))),
    run.iterations.length > 0 && card("Repeated moves and malformed responses, %", null,
      lineChart({ label: "repeated and malformed", xLabel: "iteration", series: [shares("repeated", "repetitive"), shares("malformed", "malformed")] })),
    card("Tokens generated so far", null, lineChart({ label: "tokens", xLabel: "iteration", series: [{ name: "iteration", points: tokens }] })),
  ];
}

function curveCharts(run) {
  const xLabel = run.iterations.length ? "iteration" : "update";
  return run.curves.map((curve) => card(curve.title, null, lineChart({ label: curve.title, xLabel,
    series: [{ name: curve.title, points: curve.values.map((y, place) => ({ x: curve.places[place], y })) }] })));
}

/** Success on one kind of task, where there was any; a kind may be called anything. */
function kindSuccess(results, kind) {
  return Object.hasOwn(results.kinds, kind) ? results.kinds[kind].success : null;
}

function evaluationSection(index) {
  const rows = index.runs.flatMap((run) => run.evaluations.map((one) => ({ run: run.name, one })));
  if (!rows.length) return null;
  const cells = rows.map(({ run, one }) => {
    const source = index.sources.find((held) => held.name === `${run}/evaluation/${one.label}`);
    const name = source ? h("a", { href: address({ view: "trees", run: source.name }) }, one.label) : one.label;
    return [run, name, `${one.panel.name}: ${one.panel.tasks}`, h("b", {}, percent(one.success.rate)), interval(one.success), number(one.steps),
      number(one.tokens), percent(one.repetitive), percent(one.explore), percent(one.malformed), percent(one.inadmissible), one.episodes];
  });
  const columns = ["run", "evaluation", "panel"].map((title) => [title, false]).concat(
    ["success %", "95 %", "steps", "tokens", "repeated %", "explore %", "malformed %", "inadmissible %", "episodes"].map((title) => [title, true]));
  const kinds = [...new Set(rows.flatMap(({ one }) => Object.keys(one.kinds)))].sort();
  const ofKind = (kind) => rows.flatMap(({ run, one }, series) => {
    const rate = kind === null ? one.success : kindSuccess(one, kind);
    return rate ? [{ name: `${run} · ${one.label}`, ...rate, series }] : [];
  });
  return h("section", {}, h("h2", {}, "Evaluations"),
    table(columns, cells, { label: "evaluations" }),
    h("div", { class: "cards" }, [null, ...(kinds.length > 1 ? kinds : [])].map((kind) =>
      card(kind === null ? "All tasks" : plain(kind), "success, % with its 95 % interval", intervalChart(kind ?? "all tasks", ofKind(kind))))),
    pairedTests(index));
}

function pairedTests(index) {
  const row = (label, first, other, kind, tests) => [label, `${other} against ${first}`, kind, points(tests.success.difference),
    `${points(tests.success.low)} – ${points(tests.success.high)}`, tests.gained, tests.lost, tests.tasks, chance(tests.mcnemar), number(tests.tokens)];
  const rows = Object.entries(index.comparisons).flatMap(([label, byRun]) => {
    // Nothing is said of the first run but what the others are compared with.
    const [first] = Object.entries(byRun).find(([, results]) => !results.against);
    return Object.entries(byRun).filter(([, results]) => results.against).flatMap(([run, { against, kinds }]) => [
      row(label, first, run, "all", against),
      ...Object.entries(kinds).map(([kind, results]) => row(label, first, run, plain(kind), results.against))]);
  });
  if (!rows.length) return null;
  const columns = [["evaluation"], ["runs"], ["kind"], ["difference", true], ["95 %", true], ["tasks gained", true], ["lost", true], ["of", true], ["McNemar p", true], ["tokens ×", true]];
  return h("section", {}, h("h3", {}, "The same tasks in pairs, success in percentage points"), table(columns, rows, { label: "paired tests" }));
}

function endingSection(index) {
  const held = index.sources.filter((source) => source.endings.length);
  if (!held.length) return null;
  const row = (source) => {
    const counts = new Map(source.endings);
    const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
    const parts = index.endings.filter((name) => counts.has(name)).map((name) => [name, counts.get(name)]);
    return [h("a", { href: address({ view: "trees", run: source.name }) }, source.name), stackedBar(parts, total),
      ...index.endings.map((name) => counts.get(name) ?? "")];
  };
  const columns = [["trees"], ["share"], ...index.endings.map((name) => [name, true])];
  const iterations = new Set(index.runs.flatMap((run) => run.iterations.map((iteration) => iteration.source)));
  const [inLoops, others] = [held.filter((source) => iterations.has(source.name)), held.filter((source) => !iterations.has(source.name))];
  return h("section", {}, h("h2", {}, "How trajectories end"),
    h("p", { class: "quiet" }, "Repeated: most of the last five steps take an action again in its state. Inadmissible: the world refused most of them. Malformed: most had no readable action."),
    others.length > 0 && table(columns, others.map(row), { label: "endings" }),
    inLoops.length > 0 && h("details", { open: inLoops.length < 9 }, h("summary", {}, `${inLoops.length} iterations`), table(columns, inLoops.map(row), { label: "endings of iterations" })));
}

function agreementSection(index) {
  const held = index.sources.filter((source) => source.agreement);
  if (!held.length) return null;
  return h("section", {}, h("h2", {}, "How far methods agree"), held.map((source) => agreementCard(index, source)));
}

function agreementCard(index, source) {
  const { agreement, disagreements } = source.agreement;
  const pairs = agreement.filter((pair) => pair.kind === null).map((pair) => [pair.methods.join(" and "), number(pair.pearson),
    number(pair.spearman), percent(pair.share_opposite), percent(pair.share_zero_in_one), pair.steps]);
  const steps = disagreements.map((step) => {
    const row = index.byPlace.get(`${source.name}:${step.line}`);
    const href = treeAddress(row, { step: step.step, credit: source.methods.join(",") });
    return [h("a", { href }, `${step.line}:${step.step}`), cut(step.action ?? "", 60), plain(step.kind),
      Object.entries(step.advantages).map(([method, value]) => h("span", { class: "pair" }, `${method} `, advantageText(value), " "))];
  });
  return card(source.name, null,
    table([["methods"], ["Pearson", true], ["Spearman", true], ["opposite signs, %", true], ["zero in one, %", true], ["steps", true]], pairs, { label: "agreement" }),
    steps.length > 0 && [h("h4", {}, "Where they differ most"), table([["step"], ["action"], ["kind"], ["advantages"]], steps, { label: "disagreements" })]);
}

function advantageText(value) {
  return h("b", { class: value > 0 ? "gain" : value < 0 ? "loss" : "quiet" }, signed(value));
}

function stageSection(index) {
  const rows = index.runs.flatMap((run) => [
    ...run.stages.map((stage) => [run.name, stage.name, stage.method ?? "", stage.model ?? "", stage.success === null ? "" : percent(stage.success),
      stage.seconds === null ? "" : number(Math.round(stage.seconds)), stage.finished.slice(0, 16).replace("T", " ")]),
    ...run.unfinished.map((stage) => [run.name, `${stage} (not ended)`, "", "", "", "", ""])]);
  if (!rows.length) return null;
  return h("section", {}, h("h2", {}, "Runs"), table([["run"], ["stage"], ["method"], ["model"], ["success %", true], ["seconds", true], ["ended (UTC)"]], rows, { label: "runs" }));
}
