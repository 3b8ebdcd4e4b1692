// The page of a table: set what is known, watch what follows for all else.

import { Latest, ask, hasToken, settled } from "/page/api.js";
import { makeCard } from "/page/cards.js";
import { Snippet, curl, make, notice, panel, python, speak } from "/page/dom.js";
import { isNumber, written } from "/page/values.js";

const DRAWS = 6;
const SETTLING = 220; // milliseconds without a change, after which the slower answers are asked for

export async function show(model, main) {
  const page = new TablePage(model);
  main.append(page.element);
  await page.begin();
}

class TablePage {
  constructor(model) {
    this.model = model;
    this.cards = model.columns.map((column) => makeCard(column, () => this.changed()));
    this.seed = 0;
    this.live = new Latest(() => this.refresh());
    this.judging = new Latest(() => this.refreshSurprise());
    this.slow = new Latest(() => this.refreshSlowly());
    this.later = settled(() => this.slow.run(), SETTLING);
    this.snippet = new Snippet();
    const grid = make("div", { class: "cards" }, ...this.cards.map((card) => card.element));
    const side = make("aside", { class: "side", "aria-label": "About the record" },
      this.surprisePanel(), this.gainsPanel());
    const below = make("div", { class: "below" }, this.completionsPanel(), this.snippet.element);
    this.element = make("div", { class: "table-page" }, grid, side, below);
    const names = model.columns.length;
    document.getElementById("about").textContent = `${model.name} · ${names} columns · ${model.parameters.toLocaleString("en")} weights`;
    const reset = document.getElementById("reset");
    reset.hidden = false;
    reset.addEventListener("click", () => this.forget());
  }

  async begin() {
    const start = await ask("/v1/conditionals", { given: this.given() });
    for (const card of this.cards) {
      const answer = own(start.columns, card.column.name);
      if (answer) card.remember(answer);
      card.show(answer);
    }
    this.describe();
    this.slow.run();
  }

  given() {
    const known = Object.create(null); // a column may be called __proto__
    for (const card of this.cards) {
      const value = card.given();
      if (value !== undefined) known[card.column.name] = value;
    }
    return known;
  }

  unknown() {
    return this.cards.filter((card) => card.given() === undefined);
  }

  changed() {
    this.describe();
    this.live.run();
    this.judging.run();
    this.later();
  }

  forget() {
    for (const card of this.cards) card.forget();
    this.changed();
  }

  async refresh() {
    const given = this.given();
    const started = performance.now();
    try {
      const answer = await ask("/v1/conditionals", { given });
      for (const card of this.cards) card.show(own(answer.columns, card.column.name));
      notice(answer.warnings.join(" "));
      const pace = performance.now() - started;
      document.getElementById("pace").textContent = `${Math.round(pace)} ms`;
      document.body.dataset.answers = Number(document.body.dataset.answers) + 1;
    } catch (error) {
      this.refused(error);
    }
  }

  async refreshSurprise() {
    const given = this.given();
    try {
      this.showSurprise(await ask("/v1/surprise", { given }), Object.keys(given).length);
    } catch {
      // The same mistake is told by the answer about the columns.
    }
  }

  // The sentence goes to the card that it names, or above all of them.
  refused(error) {
    const card = this.cards.find((one) => error.message.includes(`"${one.column.name}"`)
      || error.message.includes(`.${one.column.name}\``));
    if (card) card.say(error.message);
    else notice(error.message);
  }

  async refreshSlowly() {
    await Promise.allSettled([this.refreshGains(), this.refreshCompletions()]);
    const known = Object.keys(this.given()).length;
    const rest = this.unknown().slice(0, 4).map((card) => `${card.column.name} ${card.readout.innerText.replace(/\s+/g, " ")}`);
    if (known) speak(`${known} known. ${this.surpriseText.textContent} ${rest.join("; ")}.`);
  }

  surprisePanel() {
    this.needle = make("div", { class: "needle" });
    this.surpriseText = make("p", { class: "surprise-text", text: "Nothing is known yet." });
    this.nats = make("p", { class: "fine", text: "0.00 nats" });
    const gauge = make("div", { class: "gauge", "aria-hidden": "true" }, this.needle);
    const ends = make("div", { class: "scale", "aria-hidden": "true" }, make("span", { text: "usual" }), make("span", { text: "rare" }));
    return panel("Surprise of the record so far", gauge, ends, this.surpriseText, this.nats);
  }

  showSurprise(found, known) {
    const rank = known && found.rank !== null ? found.rank : null;
    this.needle.style.left = `${100 * (rank ?? 0)}%`;
    this.needle.classList.toggle("off", rank === null);
    this.nats.textContent = `${found.nats.toFixed(2)} nats`;
    if (!known) this.surpriseText.textContent = "Nothing is known yet.";
    else if (rank === null) {
      this.surpriseText.textContent = "With ranges and sets there is no rank, only the probability that the record lies in them.";
    } else {
      const share = Math.round(100 * rank);
      const others = share === 100 ? "nearly all" : share === 0 ? "hardly any" : `${share} of 100`;
      this.surpriseText.textContent = `More surprising than ${others} records that the model would draw.`;
    }
  }

  gainsPanel() {
    this.target = make("select", { id: "target", on: { change: () => this.slow.run() } });
    for (const column of this.model.columns) {
      if (!column.context) this.target.append(make("option", { value: column.name, text: column.name }));
    }
    this.target.value = this.target.options[this.target.options.length - 1].value;
    this.gains = make("ul", { class: "gains" });
    this.gainsNote = make("p", { class: "fine" });
    return panel("What to measure next",
      make("p", { class: "row" }, make("label", { for: "target", text: "to know" }), this.target), this.gains, this.gainsNote);
  }

  async refreshGains() {
    const target = this.target.value;
    const entries = Object.entries(this.given()).filter(([, value]) => typeof value !== "object");
    const known = Object.fromEntries(entries);
    if (this.given()[target] !== undefined) {
      this.gains.replaceChildren();
      this.gainsNote.textContent = `${target} is known already: choose another.`;
      return;
    }
    const { gains } = await ask("/v1/information_gain", { target, given: known });
    const ranges = entries.length < Object.keys(this.given()).length;
    this.gainsNote.textContent = `In nats about ${target}${ranges ? ", from the values that are known" : ""}.`;
    const most = Math.max(0.05, ...Object.values(gains));
    const asked = this.given();
    this.gains.replaceChildren(...Object.entries(gains)
      .filter(([name]) => asked[name] === undefined).slice(0, 6)
      .map(([name, gain]) => {
        const bar = make("span", { class: "bar" });
        bar.style.width = `${(100 * Math.max(0, gain)) / most}%`;
        return make("li", {}, make("span", { class: "level", text: name }),
          make("span", { class: "length", "aria-hidden": "true" }, bar), make("span", { class: "share", text: gain.toFixed(2) }));
      }));
  }

  completionsPanel() {
    this.rows = make("tbody");
    const heads = this.model.columns.map((column) => make("th", { scope: "col", class: isNumber(column) ? "number" : null, text: column.name }));
    const table = make("table", {}, make("caption", { class: "unseen", text: "Records drawn given what is known" }),
      make("thead", {}, make("tr", {}, ...heads)), this.rows);
    this.heads = heads;
    const again = make("button", { type: "button", id: "again", text: "Draw again", on: { click: () => { this.seed += 1; this.refreshCompletions(); } } });
    return panel("Completions", make("p", { class: "fine row" }, "Whole records drawn from the model, given what is known.", again),
      make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Completions" }, table));
  }

  async refreshCompletions() {
    const given = this.given();
    try {
      const { rows } = await ask("/v1/sample", { given, n: DRAWS, seed: this.seed });
      const columns = this.model.columns;
      columns.forEach((column, place) => this.heads[place].classList.toggle("known", given[column.name] !== undefined));
      this.rows.replaceChildren(...rows.map((row) => make("tr", {}, ...columns.map((column) => make("td", {
        class: [given[column.name] === undefined ? "" : "known", isNumber(column) ? "number" : ""].join(" ").trim() || null,
        text: cell(column, own(row, column.name)),
      })))));
    } catch (error) {
      this.refused(error);
    }
  }

  // The question as a formula on top, and as code below.
  describe() {
    const given = this.given();
    const asked = this.unknown().map((card) => card.column.name);
    const known = Object.entries(given).map(([name, value]) => `${name} ${relation(value)}`);
    const formula = document.getElementById("formula");
    const parts = [make("span", { class: "asked", text: asked.join(", ") || "nothing" })];
    if (known.length) parts.push(make("span", { class: "bar-sign", text: " | " }), make("span", { class: "known", text: known.join(", ") }));
    formula.replaceChildren("p(", ...parts, ")");
    const target = asked.includes(this.target?.value) ? this.target.value : asked.at(-1) ?? this.model.columns[0].name;
    const literal = `{${Object.entries(given).map(([name, value]) => `${python(name)}: ${evidence(value)}`).join(", ")}}`;
    this.snippet.show({
      Python: `import anyorder as ao\n\nmodel = ao.load(${python(this.model.run)})\ngiven = ${literal}\nmodel.conditional(${python(target)}, given=given)      # .mean() .interval(0.9) .plot()\nmodel.sample(${DRAWS}, given=given, random_state=${this.seed})`,
      curl: curl("/v1/conditionals", { given }, hasToken()),
    });
  }
}

function relation(value) {
  if (Array.isArray(value)) return `in {${value.join(", ")}}`;
  if (typeof value === "object") return `in ${value.low} to ${value.high}`;
  return `= ${value}`;
}

function evidence(value) {
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `(${python(value.low)}, ${python(value.high)})`;
  return python(value);
}

function cell(column, value) {
  if (value === null || value === undefined) return "";
  if (isNumber(column) && typeof value === "number") return written(column, value);
  return String(value).replace("T00:00:00", "").replace("T", " ");
}

// What an answer holds under a name; one such as "constructor" is not for Object.prototype to say.
function own(record, name) {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}
