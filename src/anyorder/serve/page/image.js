// The page of images: paint a hole, see what may have been there.

import { Latest, ask, hasToken, settled } from "/page/api.js";
import { Snippet, curl, make, notice, panel, python, speak } from "/page/dom.js";

const COMPLETIONS = 6;

export async function show(model, main) {
  const page = new ImagePage(model);
  main.append(page.element);
  await page.another();
}

class ImagePage {
  constructor(model) {
    this.model = model;
    this.seed = 0;
    this.image = new Array(model.height * model.width * model.channels).fill(0);
    this.hole = new Array(model.height * model.width).fill(false);
    this.cursor = { row: Math.floor(model.height / 2), column: Math.floor(model.width / 2) };
    this.paint = new Latest(() => this.complete());
    this.later = settled(() => this.paint.run(), 150);
    this.snippet = new Snippet();
    this.gallery = make("div", { class: "gallery", role: "list", "aria-label": "Completions" });
    const size = `${model.height}x${model.width}x${model.channels}`;
    document.getElementById("about").textContent = `${model.name} · ${size} · ${model.levels} levels · ${model.parameters.toLocaleString("en")} weights`;
    document.getElementById("formula").replaceChildren("p(", make("span", { class: "asked", text: "the hole" }), " | ", make("span", { class: "known", text: "all other pixels" }), ")");
    this.right = panel("What may have been there", this.actions(), this.gallery);
    this.element = make("div", { class: "image-page" }, this.paintingPanel(), this.right, this.snippet.element);
  }

  paintingPanel() {
    this.canvas = make("canvas", {
      class: "canvas", tabindex: 0, role: "img", width: this.model.width, height: this.model.height,
      "aria-label": "The image. Arrow keys move a brush, space paints.", "aria-describedby": "painting-hint",
    });
    let painting = false;
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const row = Math.floor(((event.clientY - box.top) / box.height) * this.model.height);
      const column = Math.floor(((event.clientX - box.left) / box.width) * this.model.width);
      this.brush(row, column);
    };
    this.canvas.addEventListener("pointerdown", (event) => { painting = true; this.canvas.setPointerCapture(event.pointerId); at(event); });
    this.canvas.addEventListener("pointermove", (event) => { if (painting) at(event); });
    this.canvas.addEventListener("pointerup", () => { painting = false; });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => this.redraw());
    this.size = make("input", { type: "range", min: 1, max: Math.max(2, Math.floor(this.model.width / 3)), value: Math.max(1, Math.floor(this.model.width / 8)) });
    const half = (name, inside) => make("button", { type: "button", text: name, on: { click: () => this.setHole(inside) } });
    const { height, width } = this.model;
    this.file = make("input", { type: "file", accept: "image/*", class: "unseen", id: "file", on: { change: () => this.choose() } });
    const file = make("button", { type: "button", text: "Choose a picture", on: { click: () => this.file.click() } });
    return panel("Paint a hole", this.canvas, make("p", { class: "fine", id: "painting-hint", text: "Drag over the picture, or use the arrow keys and space." }),
      make("div", { class: "choices" },
        make("label", {}, "brush", this.size),
        half("Lower half", (row) => row >= height / 2), half("Right half", (_, column) => column >= width / 2),
        half("Middle", (row, column) => Math.abs(row - (height - 1) / 2) < height / 4 && Math.abs(column - (width - 1) / 2) < width / 4),
        half("No hole", () => false)),
      make("div", { class: "choices" }, make("button", { type: "button", text: "Another image", on: { click: () => this.another() } }), file, this.file));
  }

  actions() {
    const again = make("button", { type: "button", text: "Draw again", on: { click: () => { this.seed += 1; this.paint.run(); } } });
    return make("p", { class: "row fine" }, "Completions drawn from the model, given all pixels outside the hole.", again);
  }

  brush(row, column) {
    const radius = Number(this.size.value) / 2;
    for (let r = 0; r < this.model.height; r += 1) {
      for (let c = 0; c < this.model.width; c += 1) {
        if (Math.abs(r - row) < radius && Math.abs(c - column) < radius) this.hole[r * this.model.width + c] = true;
      }
    }
    this.redraw();
    this.later();
  }

  key(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const { height, width } = this.model;
    if (event.key in moves) {
      const [down, right] = moves[event.key];
      this.cursor.row = Math.min(height - 1, Math.max(0, this.cursor.row + down));
      this.cursor.column = Math.min(width - 1, Math.max(0, this.cursor.column + right));
      this.redraw();
    } else if (event.key === " ") this.brush(this.cursor.row, this.cursor.column);
    else return;
    event.preventDefault();
    speak(`Row ${this.cursor.row + 1}, column ${this.cursor.column + 1}`);
  }

  setHole(inside) {
    const { height, width } = this.model;
    for (let row = 0; row < height; row += 1) {
      for (let column = 0; column < width; column += 1) this.hole[row * width + column] = inside(row, column);
    }
    this.redraw();
    this.paint.run();
  }

  async another() {
    this.seed += 1;
    try {
      const { images } = await ask("/v1/sample", { n: 1, seed: this.seed });
      [this.image] = images;
      if (!this.hole.includes(true)) this.setHole((row) => row >= this.model.height / 2);
      else { this.redraw(); this.paint.run(); }
    } catch (error) {
      notice(error.message);
    }
  }

  // A picture is cropped and shrunk here: the server never sees a file.
  async choose() {
    const [file] = this.file.files;
    if (!file) return;
    try {
      const picture = await createImageBitmap(file);
      const { height, width, channels, levels } = this.model;
      const scale = Math.min(picture.width / width, picture.height / height);
      const canvas = make("canvas", { width, height });
      const context = canvas.getContext("2d");
      context.imageSmoothingQuality = "high";
      context.drawImage(picture, (picture.width - scale * width) / 2, (picture.height - scale * height) / 2, scale * width, scale * height, 0, 0, width, height);
      const { data } = context.getImageData(0, 0, width, height);
      this.image = this.image.map((_, place) => {
        const pixel = 4 * Math.floor(place / channels);
        const light = channels === 1 ? 0.299 * data[pixel] + 0.587 * data[pixel + 1] + 0.114 * data[pixel + 2] : data[pixel + (place % channels)];
        return Math.min(levels - 1, Math.floor((light / 256) * levels));
      });
      this.redraw();
      this.paint.run();
    } catch {
      notice("This file could not be read as a picture.");
    }
  }

  redraw() {
    put(this.canvas, this.model, this.image, this.hole);
    if (document.activeElement !== this.canvas) return;
    const context = this.canvas.getContext("2d");
    context.fillStyle = "#1a5fd0aa";
    context.fillRect(this.cursor.column, this.cursor.row, 1, 1);
  }

  async complete() {
    if (!this.hole.includes(true)) {
      this.gallery.replaceChildren(make("p", { class: "fine", text: "Paint a hole first." }));
      return;
    }
    const started = performance.now();
    this.right.classList.add("busy");
    try {
      const body = { image: this.image, hole: this.hole, n: COMPLETIONS, seed: this.seed };
      const { images } = await ask("/v1/inpaint", body);
      this.gallery.replaceChildren(...images.map((image, place) => {
        const canvas = make("canvas", { width: this.model.width, height: this.model.height, role: "listitem", "aria-label": `Completion ${place + 1}` });
        put(canvas, this.model, image);
        return canvas;
      }));
      notice("");
      speak(`${images.length} completions drawn.`);
      document.body.dataset.answers = Number(document.body.dataset.answers) + 1;
      this.snippet.show({
        Python: `import anyorder as ao\n\nmodel = ao.load(${python(this.model.run)})\n# image: whole numbers (height, width); hole: booleans of that shape\nmodel.inpaint(image, hole, n=${COMPLETIONS}, seed=${this.seed})`,
        curl: curl("/v1/inpaint", { image: ["..."], hole: ["..."], n: COMPLETIONS, seed: this.seed }, hasToken()),
      });
    } catch (error) {
      notice(error.message);
    }
    this.right.classList.remove("busy");
    document.getElementById("pace").textContent = `${Math.round(performance.now() - started)} ms`;
  }
}

// Pixels on a canvas; a hole is hatched.
function put(canvas, model, image, hole) {
  const context = canvas.getContext("2d");
  const data = context.createImageData(model.width, model.height);
  for (let pixel = 0; pixel < model.height * model.width; pixel += 1) {
    for (let channel = 0; channel < 3; channel += 1) {
      const code = image[pixel * model.channels + (model.channels === 1 ? 0 : channel)];
      data.data[4 * pixel + channel] = Math.round((255 * code) / (model.levels - 1));
    }
    data.data[4 * pixel + 3] = 255;
    if (hole?.[pixel]) {
      const row = Math.floor(pixel / model.width);
      const even = (row + pixel % model.width) % 2 === 0;
      data.data.set(even ? [196, 120, 74, 255] : [168, 92, 48, 255], 4 * pixel);
    }
  }
  context.putImageData(data, 0, 0);
}
