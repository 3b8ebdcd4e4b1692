// The distribution of a number: a curve, stems for values that repeat, and the ghost of what it was
// before anything was known.

import { draw } from "/page/dom.js";
import { axisOf } from "/page/values.js";

const WIDTH = 320;
const HEIGHT = 92;

export class Plot {
  constructor(column) {
    this.axis = axisOf(column);
    this.step = column.step;
    this.element = draw("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "plot", "aria-hidden": "true",
    });
    this.parts = {};
    for (const [name, tag] of [
      ["region", "rect"], ["ghost", "path"], ["fill", "path"], ["line", "path"], ["stems", "path"],
      ["band", "rect"], ["mean", "line"], ["mark", "line"],
    ]) {
      this.parts[name] = draw(tag, { class: name, "vector-effect": "non-scaling-stroke" });
      this.element.append(this.parts[name]);
    }
  }

  x(value) {
    const [low, high] = this.axis;
    return (WIDTH * (value - low)) / (high - low);
  }

  // What it was with nothing known; drawn behind all that follows.
  remember(answer) {
    this.before = answer;
  }

  show(answer) {
    const peak = Math.max(highest(answer), this.before ? highest(this.before) : 0) || 1;
    const tall = Math.max(tallest(answer), this.before ? tallest(this.before) : 0) || 1;
    this.parts.ghost.setAttribute("d", this.before ? this.outline(this.before, peak, tall) : "");
    const curve = this.curve(answer, peak);
    this.parts.line.setAttribute("d", curve);
    this.parts.fill.setAttribute("d", curve && `${curve}Z`);
    this.parts.stems.setAttribute("d", this.stems(answer, tall));
    this.parts.stems.style.strokeWidth = `${this.stemWidth(answer)}px`;
    this.hide("region", "mark");
  }

  // The ends of the interval and the mean, as places on the axis.
  span(low, high, mean) {
    const from = this.x(low);
    set(this.parts.band, { x: from, y: HEIGHT - 4, width: Math.max(2, this.x(high) - from), height: 4 });
    const at = this.x(mean);
    set(this.parts.mean, { x1: at, x2: at, y1: HEIGHT - 14, y2: HEIGHT });
  }

  // A value that is known, or an interval; of what was expected only the ghost is left.
  mark(low, high) {
    for (const name of ["line", "fill", "stems"]) this.parts[name].setAttribute("d", "");
    this.hide("band", "mean");
    if (this.before) {
      const own = this.outline(this.before, highest(this.before) || 1, tallest(this.before) || 1);
      this.parts.ghost.setAttribute("d", own);
    }
    const from = this.x(low);
    set(this.parts.region, { x: from, y: 0, width: Math.max(0, this.x(high) - from), height: HEIGHT });
    set(this.parts.mark, { x1: from, x2: from, y1: 0, y2: low === high ? HEIGHT : 0 });
  }

  hide(...names) {
    for (const name of names) {
      const part = this.parts[name];
      set(part, part.tagName === "rect" ? { width: 0 } : { x1: 0, x2: 0, y1: 0, y2: 0 });
    }
  }

  outline(answer, peak, tall) {
    return this.curve(answer, peak) + this.stems(answer, tall);
  }

  curve(answer, peak) {
    if (answer.density.probability < 0.02) return "";
    const { positions, heights } = answer.density;
    const top = HEIGHT - 8;
    // Flat to both ends: beyond the curve there is next to nothing.
    const points = [[Math.min(-1, this.x(positions[0])), HEIGHT], [this.x(positions[0]), HEIGHT]];
    positions.forEach((value, place) => points.push([this.x(value), HEIGHT - (heights[place] / peak) * top]));
    points.push([this.x(positions.at(-1)), HEIGHT], [Math.max(WIDTH + 1, this.x(positions.at(-1))), HEIGHT]);
    return points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");
  }

  stems(answer, tall) {
    const top = HEIGHT - 8;
    return answer.repeated.positions
      .map((value, place) => {
        const y = HEIGHT - (answer.repeated.probabilities[place] / tall) * top;
        return `M${this.x(value).toFixed(1)},${HEIGHT}V${y.toFixed(1)}`;
      })
      .join("");
  }

  stemWidth(answer) {
    const count = answer.repeated.positions.length;
    return count > 60 ? 1.5 : count > 25 ? 3 : count > 8 ? 6 : 12;
  }
}

function highest(answer) {
  return answer.density.probability < 0.02 ? 0 : Math.max(...answer.density.heights);
}

function tallest(answer) {
  return Math.max(0, ...answer.repeated.probabilities);
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}
