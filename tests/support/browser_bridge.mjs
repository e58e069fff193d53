// Drives a real browser for tests: a JSON command a line on stdin, its answer on stdout. Started by browsers.py.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [kind, executable, packages] = process.argv.slice(2);
const require = createRequire(`${packages}/`);
const puppeteer = require("puppeteer-core");
const axeSource = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const browser = await puppeteer.launch({ browser: kind, executablePath: executable, headless: true, protocolTimeout: 30000,
  defaultViewport: null, args: kind === "chrome" ? ["--no-sandbox", "--disable-background-networking"] : ["--width=1400", "--height=900"] });
let page = null;
let events = [];

const commands = {
  async open(address, width, scheme) {
    if (page) await page.close();
    page = await browser.newPage();
    events = [];
    page.on("console", (message) => events.push(`console: ${message.text()}`));
    page.on("pageerror", (error) => events.push(`error: ${error.message}`));
    page.on("dialog", async (dialog) => { events.push(`dialog: ${dialog.message()}`); await dialog.dismiss(); });
    page.on("request", (request) => events.push(`request: ${request.url()}`));
    // Firefox ESR cannot be given a size or a colour scheme by this driver: it has the window it was started with.
    if (kind === "chrome") {
      await page.setViewport({ width, height: 900 });
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    }
    await page.goto(address, { waitUntil: "load" });
    await page.waitForSelector("html[data-ready]", { timeout: 30000 });
  },
  async run(expression) { return page.evaluate(expression); },
  async wait(selector) { await page.waitForSelector(selector, { timeout: 20000 }); },
  async click(selector) { await page.click(selector); },
  async press(key) { await page.keyboard.press(key); },
  async type(selector, text) { await page.type(selector, text); },
  async picture(file, whole) { await page.screenshot({ path: file, fullPage: whole }); },
  async memory() { return (await page.metrics()).JSHeapUsedSize; },
  async events() { return events; },
  async axe() {
    await page.evaluate(axeSource);
    const found = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })");
    return found.violations.map((one) => [one.impact, one.id, one.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.failureSummary}`)]);
  },
  async close() { await browser.close(); },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...values] = JSON.parse(line);
  try {
    console.log(JSON.stringify({ value: (await commands[name](...values)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
  if (name === "close") process.exit(0);
}
