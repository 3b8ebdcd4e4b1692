// The page of a text: write with holes, see what may stand in them.

import { Latest, ask, hasToken, settled } from "/page/api.js";
import { Snippet, curl, make, notice, panel, percent, python, speak } from "/page/dom.js";

const FILLS = 5;

export async function show(model, main) {
  const page = new TextPage(model);
  main.append(page.element);
  await page.refresh();
  page.fill.run();
}

class TextPage {
  constructor(model) {
    this.model = model;
    this.seed = 0;
    this.live = new Latest(() => this.refresh());
    this.fill = new Latest(() => this.refreshFills());
    this.later = settled(() => this.fill.run(), 350);
    this.snippet = new Snippet();
    this.cells = make("div", { class: "cells", "aria-hidden": "true" });
    this.holes = make("div", { class: "holes" });
    this.fills = make("ul", { class: "fills" });
    this.score = make("p", { class: "fine" });
    const where = document.getElementById("about");
    where.textContent = `${model.name} · up to ${model.length} characters · ${model.parameters.toLocaleString("en")} weights`;
    this.element = make("div", { class: "text-page" },
      this.writingPanel(), panel("Fills", this.choices(), this.fills),
      panel("What may stand in each hole, given all you wrote", this.holes), this.snippet.element);
  }

  writingPanel() {
    const { hole, length } = this.model;
    this.input = make("textarea", {
      id: "text", maxlength: length, rows: 3, spellcheck: "false", autocapitalize: "off", "aria-describedby": "hint",
      on: { input: () => this.changed() },
    });
    this.input.value = begin(this.model);
    const hint = make("p", { class: "fine", id: "hint", text: `${hole} is a hole, Alt+H writes one. The model knows: ${shown(this.model.alphabet)}` });
    this.input.addEventListener("keydown", (event) => {
      if (event.altKey && event.code === "KeyH") {
        event.preventDefault();
        this.input.setRangeText(hole, this.input.selectionStart, this.input.selectionEnd, "end");
        this.changed();
      }
    });
    const legend = make("p", { class: "fine", text: "Orange: how unexpected a character was, after those before it. Blue: a hole, with the likeliest character." });
    return panel("Write, with holes", make("label", { class: "unseen", for: "text", text: "Text with holes" }),
      this.input, hint, this.cells, legend, this.score);
  }

  choices() {
    const told = make("output", { text: "1.0" });
    this.temperature = make("input", {
      type: "range", min: 0.2, max: 1.5, step: 0.1, value: 1,
      on: { input: () => { told.textContent = Number(this.temperature.value).toFixed(1); this.later(); } },
    });
    const again = make("button", { type: "button", text: "Draw again", on: { click: () => { this.seed += 1; this.fill.run(); } } });
    return make("div", { class: "choices" }, again, make("label", {}, "temperature", this.temperature, told));
  }

  changed() {
    this.live.run();
    this.later();
  }

  async refresh() {
    const text = this.input.value;
    if (text === "") {
      this.cells.replaceChildren();
      this.holes.replaceChildren();
      return;
    }
    const started = performance.now();
    try {
      const { positions, log_prob } = await ask("/v1/positions", { text });
      this.showCells(positions);
      this.showHoles(positions);
      const known = positions.filter((position) => !position.hole).length;
      const bits = known ? -log_prob / known / Math.log(2) : 0;
      this.score.textContent = `What you wrote: ${log_prob.toFixed(1)} nats, ${bits.toFixed(2)} bits a character.`;
      notice("");
    } catch (error) {
      notice(error.message);
    }
    document.getElementById("pace").textContent = `${Math.round(performance.now() - started)} ms`;
    document.body.dataset.answers = Number(document.body.dataset.answers) + 1;
    this.describe();
  }

  showCells(positions) {
    this.cells.replaceChildren(...positions.map((position) => {
      const best = position.hole ? Object.entries(position.likely)[0] : null;
      const level = best ? best[1] : Math.min(1, -Math.log2(position.probability) / 8);
      const bar = make("i");
      bar.style.height = `${Math.max(1, 14 * level)}px`;
      return make("span", { class: position.hole ? "cell hole" : "cell" },
        visible(best ? best[0] : position.character), make("span", { class: "surprise" }, bar));
    }));
  }

  showHoles(positions) {
    const holes = positions.map((position, place) => ({ ...position, place })).filter((position) => position.hole);
    this.holes.replaceChildren(...holes.slice(0, 24).map(({ place, likely }) => make("div", {},
      make("h3", { text: `character ${place + 1}` }),
      make("ul", {}, ...Object.entries(likely).map(([character, share]) => {
        const bar = make("span", { class: "bar" });
        bar.style.width = `${100 * share}%`;
        return make("li", {}, make("code", { text: visible(character) }),
          make("span", { class: "length", "aria-hidden": "true" }, bar), make("span", { class: "share", text: percent(share) }));
      })))));
    if (!holes.length) this.holes.append(make("p", { class: "fine", text: `Write ${this.model.hole} where a character is unknown.` }));
  }

  async refreshFills() {
    const text = this.input.value;
    if (!text.includes(this.model.hole)) {
      this.fills.replaceChildren();
      return;
    }
    try {
      const temperature = Number(this.temperature.value);
      const { fills } = await ask("/v1/infill", { text, n: FILLS, temperature, seed: this.seed });
      this.fills.replaceChildren(...fills.map((fill) => make("li", {}, ...[...fill].map((character, place) => (
        text[place] === this.model.hole ? make("mark", { text: visible(character) }) : character)))));
      speak(`Fills: ${fills.slice(0, 2).join("; ")}`);
    } catch (error) {
      notice(error.message);
    }
  }

  describe() {
    const text = this.input.value;
    document.getElementById("formula").replaceChildren("p(", make("span", { class: "asked", text: "holes" }), " | ",
      make("span", { class: "known", text: text.length > 60 ? `${text.slice(0, 60)}…` : text }), ")");
    this.snippet.show({
      Python: `import anyorder as ao\n\nmodel = ao.load(${python(this.model.run)})\nmodel.infill(${python(text)}, n=${FILLS}, seed=${this.seed})\nmodel.log_prob(${python(text)})      # holes are marginalised`,
      curl: curl("/v1/infill", { text, n: FILLS, seed: this.seed }, hasToken()),
    });
  }
}

// Something to begin with, in letters that the model knows.
function begin({ alphabet, hole, length }) {
  const text = `the st${hole}tem${hole}nt ${hole}ould r${hole}is${hole} an ex${hole}epti${hole}n`.slice(0, length);
  return [...text].every((character) => character === hole || alphabet.includes(character)) ? text : hole.repeat(Math.min(8, length));
}

function visible(character) {
  return character === " " ? "␣" : character === "\n" ? "↵" : character;
}

function shown(alphabet) {
  const text = [...alphabet].map(visible).join("");
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
