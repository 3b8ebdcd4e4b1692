// Small tools for building the page, and what all three kinds of model share.

export function make(tag, options = {}, ...children) {
  const { text, on, ...attributes } = options;
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("aria-")) element.setAttribute(name, String(value));
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  if (text !== undefined) element.textContent = text;
  for (const [event, handler] of Object.entries(on ?? {})) element.addEventListener(event, handler);
  element.append(...children);
  return element;
}

const SPACE = "http://www.w3.org/2000/svg";

export function draw(tag, attributes = {}) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export function notice(sentence) {
  document.getElementById("notice").textContent = sentence ?? "";
}

export function speak(sentence) {
  document.getElementById("spoken").textContent = sentence;
}

export function panel(title, ...children) {
  return make("section", { class: "panel" }, make("h2", { text: title }), ...children);
}

// The question as code, in two tongues, with a button that copies it.
export class Snippet {
  constructor() {
    this.texts = { Python: "", curl: "" };
    this.chosen = "Python";
    this.code = make("code");
    this.tabs = Object.keys(this.texts).map((name) => make("button", {
      type: "button", text: name, "aria-pressed": name === this.chosen,
      on: { click: () => this.choose(name) },
    }));
    this.copied = make("button", { type: "button", text: "Copy", on: { click: () => this.copy() } });
    const bar = make("div", { class: "tabs" }, ...this.tabs, make("span"), this.copied);
    this.element = panel("This question as code", bar, make("pre", { tabindex: 0 }, this.code));
  }

  choose(name) {
    this.chosen = name;
    for (const tab of this.tabs) tab.setAttribute("aria-pressed", tab.textContent === name);
    this.show(this.texts);
  }

  show(texts) {
    this.texts = texts;
    this.code.textContent = texts[this.chosen];
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(this.texts[this.chosen]);
      this.copied.textContent = "Copied";
      speak("Copied");
    } catch {
      getSelection().selectAllChildren(this.code);
      this.copied.textContent = "Selected";
    }
    setTimeout(() => { this.copied.textContent = "Copy"; }, 1500);
  }
}

export function curl(path, body, hasToken) {
  const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
  const token = hasToken ? " \\\n  -H \"Authorization: Bearer $ANYORDER_TOKEN\"" : "";
  return `curl ${location.origin}${path} \\\n  -H 'Content-Type: application/json'${token} \\\n  -d '${quoted}'`;
}

export function python(value) {
  if (value === null || value === undefined) return "None";
  if (value === true || value === false) return value ? "True" : "False";
  return typeof value === "number" ? String(value) : JSON.stringify(value);
}

export function percent(share) {
  if (share > 0 && share < 0.01) return "<1%";
  if (share < 1 && share > 0.99) return ">99%";
  return `${Math.round(100 * share)}%`;
}
