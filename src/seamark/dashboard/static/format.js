// Figures as people read them. Unknown (null, undefined, -1, NaN) is a dash.

export const UNKNOWN = "–";

export function known(value) {
  return typeof value === "number" && Number.isFinite(value) && value !== -1;
}

export function count(value) {
  return known(value) ? Math.round(value).toLocaleString("en-US") : UNKNOWN;
}

export function rate(value) {
  if (!known(value)) return UNKNOWN;
  if (value === 0) return "0/s";
  if (value < 10) return `${value.toFixed(1)}/s`;
  if (value < 10_000) return `${count(value)}/s`;
  return value < 1e6 ? `${(value / 1e3).toFixed(1)} k/s` : `${(value / 1e6).toFixed(2)} M/s`;
}

export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  if (value < 1000) return `${Math.round(value)} B`;
  for (const unit of ["kB", "MB", "GB", "TB"]) {
    value /= 1000;
    if (value < 999.5 || unit === "TB") return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
  }
}

export function duration(ms) {
  if (!known(ms)) return UNKNOWN;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(2) : s.toFixed(1)} s`;
  return coarse(ms);
}

// Without fractions: for what ticks, and for long times.
export function coarse(ms) {
  if (!known(ms)) return UNKNOWN;
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  const min = Math.floor(s / 60);
  if (min < 60) return min < 10 && s % 60 ? `${min} min ${s % 60} s` : `${min} min`;
  const h = Math.floor(min / 60);
  if (h < 48) return min % 60 ? `${h} h ${min % 60} min` : `${h} h`;
  return `${Math.floor(h / 24)} d ${h % 24} h`;
}

export function ago(timestamp, now) {
  if (!known(timestamp)) return UNKNOWN;
  const ms = now - timestamp;
  return ms < 1000 ? "just now" : `${coarse(ms)} ago`;
}

const pad = (number, digits = 2) => String(number).padStart(digits, "0");

export function clock(timestamp) {
  const at = new Date(timestamp);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

export function exact(timestamp) {
  if (!known(timestamp)) return UNKNOWN;
  const at = new Date(timestamp);
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${clock(timestamp)}.${pad(at.getMilliseconds(), 3)}`;
}

export function percent(share) {
  return known(share) ? `${Math.round(share * 100)} %` : UNKNOWN;
}

// What Spark calls a part by its class is shown by the class's name alone.
export function plainName(name) {
  return (name || "").replace(/^(\w+\.)+(\w+)(@\w+)?$/, "$2");
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
