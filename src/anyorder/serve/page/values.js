// Values of columns: how they lie on an axis, how they are written, how they are sent.

const TIMES = new Set(["date and time", "date", "duration"]);

export function isTime(column) {
  return TIMES.has(column.type);
}

export function isNumber(column) {
  return column.levels === null;
}

// Where the axis of a column begins and ends: where nearly all values of training lie.
export function axisOf(column) {
  const [low, high] = column.typical;
  const room = high > low ? 0.03 * (high - low) : column.step ?? 1;
  const step = column.step ?? 0;
  const ends = [Math.max(low - room, column.low - step / 2), Math.min(high + room, column.high + step / 2)];
  return ends[1] > ends[0] ? ends : [low - 1, high + 1];
}

export function sliderStep(column) {
  const [low, high] = axisOf(column);
  const fine = (high - low) / 400;
  if (!column.step) return fine;
  return column.step * Math.max(1, Math.round(fine / column.step));
}

export function snapped(column, place) {
  if (!column.step || isTime(column)) return place;
  const decimals = Math.max(0, Math.round(-Math.log10(column.step)));
  return Number((Math.round(place / column.step) * column.step).toFixed(decimals));
}

export function within(column, place) {
  return Math.min(column.high, Math.max(column.low, place));
}

// A place on the axis, for people.
export function written(column, place) {
  if (column.type === "duration") return duration(place);
  if (isTime(column)) return moment(column, place);
  if (column.step) {
    const decimals = Math.min(6, Math.max(0, Math.round(-Math.log10(column.step))));
    return plain(place.toFixed(decimals));
  }
  return plain(Number(place.toPrecision(4)).toString());
}

// The same in a few digits, where there is little room.
export function brief(column, place) {
  if (isTime(column)) return written(column, place);
  const rounded = Number(place.toPrecision(4));
  return column.step && column.step > Math.abs(place) / 1000 ? written(column, place) : plain(rounded.toString());
}

function plain(digits) {
  const [whole, fraction] = digits.split(".");
  // Years and the like stay as they are; long numbers are easier to read in threes.
  const grouped = whole.replace("-", "").length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, "\u202f") : whole;
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}

function moment(column, seconds) {
  const text = new Date(1000 * seconds).toISOString();
  return column.type === "date" || column.step >= 86400 ? text.slice(0, 10) : text.slice(0, 16).replace("T", " ");
}

function duration(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (Math.abs(seconds) >= size) return `${Number((seconds / size).toFixed(1))} ${unit}`;
  }
  return `${Number(seconds.toFixed(2))} s`;
}

// A place on the axis, as it is sent.
export function sent(column, place) {
  if (column.type === "duration") return `${place} seconds`;
  if (column.type === "date") return new Date(1000 * place).toISOString().slice(0, 10);
  if (column.type === "date and time") {
    const text = new Date(1000 * place).toISOString();
    return column.zoned ? text : text.slice(0, 19);
  }
  return snapped(column, place);
}

// What is written into a field.
export function fieldText(column, place) {
  return isTime(column) ? String(sent(column, place)) : String(snapped(column, Number(place.toPrecision(7))));
}

// What was typed: a place on the axis, or null if it cannot be read here. Only a time that the
// page cannot place is sent as it was typed.
export function readField(column, text) {
  const typed = text.trim();
  if (typed === "") return null;
  if (column.type === "duration") {
    const number = Number(typed.replace(/\s*(s|seconds)$/, ""));
    return Number.isFinite(number) ? number : null;
  }
  if (isTime(column)) {
    const moment = Date.parse(/[zZ]|[+-]\d\d:\d\d$/.test(typed) || typed.length <= 10 ? typed : `${typed}Z`);
    return Number.isNaN(moment) ? null : moment / 1000;
  }
  const number = Number(typed);
  return Number.isFinite(number) ? number : null;
}
