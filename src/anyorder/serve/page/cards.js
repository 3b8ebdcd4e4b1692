// One card a column: what is known about it, and the control that sets it.

import { make, percent } from "/page/dom.js";
import { Plot } from "/page/plot.js";
import { axisOf, brief, fieldText, isNumber, isTime, readField, sent, sliderStep, snapped, within, written } from "/page/values.js";

let number = 0;

class Card {
  constructor(column, changed) {
    this.column = column;
    this.changed = changed;
    this.id = `column-${(number += 1)}`;
    this.readout = make("p", { class: "readout" });
    this.message = make("p", { class: "message", role: "alert", id: `${this.id}-message` });
    const title = make("h3", { id: this.id, text: column.name });
    const kind = make("span", { class: "kind", text: [column.type, column.details].filter(Boolean).join(" · ") });
    this.counted = make("p", { class: "counted" });
    this.element = make("article", { class: "card", "aria-labelledby": this.id },
      make("div", { class: "head" }, title, kind), this.readout);
  }

  // What is wrong with this column; it stands until the column is changed.
  say(sentence) {
    this.message.textContent = sentence ?? "";
    this.element.classList.toggle("refused", Boolean(sentence));
  }

  // The best guess, something beside it, and how sure it is.
  tell(best, aside, sureness) {
    this.readout.replaceChildren(make("strong", { text: best }), make("span", { class: "aside", text: aside }),
      make("span", { class: "sureness", text: sureness }));
  }

  // How many training rows match what is known, and the shares of the likeliest levels among them.
  count(answer) {
    const rows = answer?.rows ?? null;
    const shares = (answer?.shares ?? []).slice(0, 3).map((share, place) => `${answer.levels[place]} ${percent(share)}`);
    const matching = rows === null ? "" : `${rows.toLocaleString("en")} training ${rows === 1 ? "row matches" : "rows match"}`;
    this.counted.textContent = [matching, ...shares].join(" · ");
  }

  touched() {
    this.say("");
    this.element.classList.toggle("known", this.given() !== undefined);
    this.changed();
  }
}

class NumberCard extends Card {
  constructor(column, changed) {
    super(column, changed);
    this.plot = new Plot(column);
    [this.low, this.high] = axisOf(column);
    this.place = snapped(column, (this.low + this.high) / 2);
    this.ends = [this.place, this.place];
    this.mode = column.context ? "Value" : "Unknown";
    this.slider = this.range("", (place) => this.slid(place));
    this.upper = this.range(", greatest", (place) => this.slidTo(1, place));
    this.fields = [this.field("", 0), this.field(", greatest", 1)];
    const track = make("div", { class: "track" }, this.slider, this.upper);
    const scale = make("div", { class: "scale", "aria-hidden": "true" },
      ...[this.low, this.high].map((end) => make("span", { text: brief(column, within(column, end)) })));
    const fields = make("div", { class: "fields" }, this.fields[0], make("span", { class: "to", text: "to" }), this.fields[1]);
    this.element.append(
      make("div", { class: "chart" }, this.plot.element), track, scale,
      make("div", { class: "controls" }, this.modes()), fields, this.counted, this.message);
    this.set(this.mode);
  }

  range(which, moved) {
    return make("input", {
      type: "range", min: this.low, max: this.high, step: sliderStep(this.column), value: this.place,
      "aria-label": `${this.column.name}${which}`, "aria-describedby": `${this.id}-message`,
      // A slider never leaves the range of training; what is typed may.
      on: { input: (event) => moved(within(this.column, snapped(this.column, Number(event.target.value)))) },
    });
  }

  field(which, end) {
    return make("input", {
      type: "text", inputmode: isTime(this.column) ? "text" : "decimal", autocomplete: "off", placeholder: "or type it",
      "aria-label": `${this.column.name}${which}, typed`, "aria-describedby": `${this.id}-message`,
      on: { change: (event) => this.typed(end, event.target.value) },
    });
  }

  modes() {
    const names = this.column.context ? ["Value"] : ["Unknown", "Value", "Range"];
    this.radios = names.map((name) => make("input", {
      type: "radio", name: this.id, value: name, on: { change: () => { this.set(name); this.touched(); } },
    }));
    return make("fieldset", { class: "modes" }, make("legend", { class: "unseen", text: `What is known of ${this.column.name}` }),
      ...this.radios.map((radio) => make("label", {}, radio, make("span", { text: radio.value }))));
  }

  set(mode) {
    if (mode === "Range" && this.mode !== "Range") {
      const half = 0.1 * (this.high - this.low);
      this.ends = [Math.max(this.low, this.place - half), Math.min(this.high, this.place + half)]
        .map((end) => snapped(this.column, end));
    }
    if (mode === "Value" && this.mode === "Range") this.place = snapped(this.column, (this.ends[0] + this.ends[1]) / 2);
    this.mode = mode;
    for (const radio of this.radios) radio.checked = radio.value === mode;
    this.element.dataset.mode = mode;
    this.element.classList.toggle("known", mode !== "Unknown");
    this.upper.hidden = mode !== "Range";
    this.slider.setAttribute("aria-label", `${this.column.name}${mode === "Range" ? ", least" : ""}`);
    this.refresh();
  }

  refresh() {
    const [low, high] = this.mode === "Range" ? this.ends : [this.place, this.place];
    this.slider.value = low;
    this.upper.value = high;
    for (const [slider, place] of [[this.slider, low], [this.upper, high]]) {
      slider.setAttribute("aria-valuetext", this.mode === "Unknown" ? "unknown" : written(this.column, place));
    }
    this.fields[0].value = this.mode === "Unknown" ? "" : fieldText(this.column, low);
    this.fields[1].value = this.mode === "Range" ? fieldText(this.column, high) : "";
    if (this.mode === "Unknown") return;
    this.plot.mark(low, high);
    const text = this.mode === "Value" ? written(this.column, low) : `${written(this.column, low)} to ${written(this.column, high)}`;
    this.tell(text, "", this.mode === "Value" ? "known" : "known to lie there");
  }

  slid(place) {
    if (this.mode === "Range") {
      this.slidTo(0, place);
      return;
    }
    this.place = place;
    this.set("Value");
    this.touched();
  }

  slidTo(end, place) {
    this.ends[end] = place;
    // An end that meets the other pushes it along.
    if (this.ends[0] > this.ends[1]) this.ends[1 - end] = place;
    this.refresh();
    this.touched();
  }

  typed(end, text) {
    const place = readField(this.column, text);
    if (place === null) {
      this.say(`"${text.slice(0, 20)}" is no ${this.column.type}. Write one such as ${fieldText(this.column, this.place)}.`);
      return;
    }
    if (this.mode !== "Range") {
      this.place = place;
      this.set("Value");
    } else {
      this.ends[end] = place;
      this.refresh();
    }
    this.touched();
  }

  forget() {
    this.say("");
    if (!this.column.context) this.set("Unknown");
  }

  given() {
    if (this.mode === "Unknown") return undefined;
    if (this.mode === "Value") return sent(this.column, this.place);
    return { low: sent(this.column, this.ends[0]), high: sent(this.column, this.ends[1]) };
  }

  remember(answer) {
    this.plot.remember(answer);
  }

  show(answer) {
    this.count(answer);
    if (this.mode !== "Unknown" || !answer) return;
    const { low, median, high, mean } = answer.positions;
    this.plot.show(answer);
    this.plot.span(low, high, mean);
    this.place = snapped(this.column, Math.min(this.high, Math.max(this.low, median)));
    this.slider.value = this.place;
    const [from, to] = [low, high].map((end) => brief(this.column, end));
    const error = answer.standard_error === null || isTime(this.column) ? "" : ` ± ${Number(answer.standard_error.toPrecision(2))}`;
    this.tell(brief(this.column, median), `median; mean ${brief(this.column, mean)}${error}`, `90% in ${from} to ${to}`);
  }
}

const SHOWN = 40;

class CategoryCard extends Card {
  constructor(column, changed) {
    super(column, changed);
    this.chosen = new Set(column.context ? [0] : []);
    this.menu = make("select", { "aria-label": column.name, "aria-describedby": `${this.id}-message`, on: { change: () => this.picked() } });
    if (!column.context) this.menu.append(make("option", { value: "", text: "Unknown" }));
    column.levels.forEach((level, place) => this.menu.append(make("option", { value: place, text: String(level) })));
    this.several = make("option", { value: "several", text: "Several", disabled: true, hidden: true });
    this.menu.append(this.several);
    this.list = make("ul", { class: "bars", "aria-label": `Levels of ${column.name}` });
    this.bars = new Map();
    this.element.append(make("div", { class: "chart" }, this.list), make("div", { class: "controls" }, this.menu), this.counted, this.message);
    this.build([...column.levels.keys()].slice(0, SHOWN));
    this.mark();
  }

  build(places) {
    this.bars.clear();
    this.list.replaceChildren(...places.map((place) => {
      const share = make("span", { class: "share", text: "" });
      const ghost = make("span", { class: "ghost-bar" });
      const bar = make("span", { class: "bar" });
      const button = make("button", {
        type: "button", "aria-pressed": "false", on: { click: () => this.toggled(place) },
      }, make("span", { class: "level", text: String(this.column.levels[place]) }),
      make("span", { class: "length", "aria-hidden": "true" }, ghost, bar), share);
      this.bars.set(place, { button, bar, ghost, share });
      return make("li", {}, button);
    }));
  }

  picked() {
    this.chosen = new Set(this.menu.value === "" ? [] : [Number(this.menu.value)]);
    this.mark();
    this.touched();
  }

  toggled(place) {
    if (this.chosen.has(place)) this.chosen.delete(place);
    else this.chosen.add(place);
    if (this.column.context) this.chosen = new Set([place]);
    if (this.chosen.size === this.column.levels.length && !this.column.context) this.chosen.clear();
    this.mark();
    this.touched();
  }

  mark() {
    const several = this.chosen.size > 1;
    this.several.hidden = !several;
    this.menu.value = several ? "several" : this.chosen.size ? String([...this.chosen][0]) : "";
    this.element.classList.toggle("known", this.chosen.size > 0);
    for (const [place, { button }] of this.bars) button.setAttribute("aria-pressed", this.chosen.has(place));
    if (!this.chosen.size) return;
    const names = [...this.chosen].map((place) => String(this.column.levels[place]));
    this.tell(names.join(" or "), "", "known");
    for (const [place, { bar, share }] of this.bars) {
      const only = this.chosen.size === 1 && this.chosen.has(place);
      bar.style.width = only ? "100%" : "0";
      share.textContent = only ? "known" : "";
    }
  }

  forget() {
    this.say("");
    if (this.column.context) return;
    this.chosen.clear();
    this.mark();
  }

  given() {
    const levels = [...this.chosen].map((place) => this.column.levels[place]);
    return levels.length === 0 ? undefined : levels.length === 1 ? levels[0] : levels;
  }

  shares(answer) {
    const found = new Map(answer.levels.map((level, place) => [level, answer.probabilities[place]]));
    return this.column.levels.map((level) => found.get(level) ?? 0);
  }

  remember(answer) {
    const shares = this.shares(answer);
    if (this.column.levels.length > 12) {
      this.build([...shares.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, SHOWN));
    }
    for (const [place, { ghost }] of this.bars) ghost.style.width = `${100 * shares[place]}%`;
  }

  show(answer) {
    this.count(answer);
    if (this.chosen.size || !answer) return;
    const shares = this.shares(answer);
    for (const [place, { bar, share }] of this.bars) {
      bar.style.width = `${100 * shares[place]}%`;
      share.textContent = percent(shares[place]);
    }
    const best = Math.max(...shares);
    const error = answer.standard_errors === null ? "" : ` ± ${(100 * answer.standard_errors[0]).toFixed(1)}%`;
    this.tell(String(this.column.levels[shares.indexOf(best)]), "", `most likely, with ${percent(best)}${error}`);
  }
}

export function makeCard(column, changed) {
  return isNumber(column) ? new NumberCard(column, changed) : new CategoryCard(column, changed);
}
