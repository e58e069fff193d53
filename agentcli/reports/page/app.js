// Shows the view that the address names, and follows it and the keys.

const VIEWS = new Map([["overview", "overview"], ["trees", "trees"], ["compare", "compare"]]);

async function start() {
  const index = await readIndex();
  const main = document.querySelector("main");
  const links = new Map([...VIEWS].map(([name, title]) => [name, h("a", { href: address({ view: name }) }, title)]));
  document.querySelector("header").append(h("b", {}, "agentcli"), h("span", { class: "quiet title" }, index.title), h("nav", { "aria-label": "views" }, [...links.values()]));
  let drawing = 0;
  /** The tree on the screen, so that a key need not draw everything anew. */
  let present = null;

  async function show() {
    const asked = route();
    const name = asked.get("view") ?? "overview";
    drawing += 1;
    const mine = drawing;
    for (const [one, link] of links) {
      if (one === name || (one === "trees" && name === "tree")) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    try {
      const row = present?.tree.row;
      if (name === "tree" && row && row.source.name === asked.get("run") && String(row.line) === asked.get("line")) {
        await present.show(asked);
        document.documentElement.dataset.ready = String(drawing);
        return;
      }
      const view = await drawn(name, index, asked);
      // A newer address may have been asked for while a block was unpacked.
      if (mine !== drawing) return;
      present = view instanceof TreeView ? view : null;
      main.replaceChildren(present?.node ?? view);
      scrollTo(0, 0);
      present?.mark();
    } catch (error) {
      if (mine !== drawing) return;
      present = null;
      main.replaceChildren(h("div", { class: "page" }, h("p", { class: "note", role: "alert" }, `This view cannot be shown: ${error.message}`)));
    }
    document.documentElement.dataset.ready = String(drawing);
  }

  addEventListener("hashchange", show);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, summary")) return;
    if (event.key === "/" && document.getElementById("filter")) {
      event.preventDefault();
      document.getElementById("filter").focus();
    } else if (present?.key(event.key)) event.preventDefault();
  });
  await show();
  performance.mark("ready");
}

function drawn(name, index, asked) {
  if (name === "trees") return list(index, asked);
  if (name === "tree") return treeView(index, asked);
  if (name === "compare") return comparison(index, asked);
  return overview(index);
}

start();
