/* What the script of a page needs to write numbers and to divide axes, as the drawings in the page have them. */
'use strict';

/* Numbers for people. */
const trim = (value) => String(+value.toPrecision(4));
function figure(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
  return size >= 1000 ? Math.round(value).toLocaleString('en') : trim(value);
}
function short(value) {
  const [size, unit] = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']].find(([size]) => Math.abs(value) >= size) || [1, ''];
  return Math.abs(value) < 1e-3 && value !== 0 ? value.toExponential(0) : +(value / size).toPrecision(3) + unit;
}
function bytes(value) {
  const [size, unit] = [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']].find(([size]) => value >= size) || [1, 'B'];
  return +(value / size).toPrecision(3) + ' ' + unit;
}
function duration(seconds) {
  if (seconds < 60) {
    const [size, unit] = seconds >= 1 || seconds === 0 ? [1, 's'] : seconds >= 1e-3 ? [1e-3, 'ms'] : [1e-6, 'µs'];
    return +(seconds / size).toPrecision(3) + ' ' + unit;
  }
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
const say = (scale, value) =>
  ({ share: () => (100 * value).toFixed(2) + ' %', time: () => duration(value), moments: () => duration(value),
    bytes: () => bytes(value), whole: () => trim(value) }[scale] || (() => figure(value)))();

/* Axes: from values to shares of the width and back, with round numbers as ticks. */
function unit(about, high) {
  if (about.scale === 'share') return [0.01, '%'];
  if (about.scale === 'time') return high > 10800 ? [3600, 'h'] : high > 180 ? [60, 'min'] : [1, 's'];
  return [1, ''];
}
function step(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-12)));
  return [1, 2, 2.5, 5, 10].map((times) => times * power).find((step) => step >= least * 0.999) || power;
}
function multiples(step, low, high) {
  const list = [];
  for (let at = Math.ceil(low / step - 1e-6); at <= high / step + 1e-6 && list.length < 50; at++) list.push(at * step);
  return list;
}
function powers(base, times, low, high) {
  const first = Math.floor(Math.log(low) / Math.log(base) - 1e-9), last = Math.ceil(Math.log(high) / Math.log(base) + 1e-9);
  const every = Math.max(1, Math.ceil((last - first) / 8)), list = [];
  for (let at = first; at <= last; at += every) list.push(...times.map((times) => times * base ** at));
  return list.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
}
/* An axis from `low` to `high`: exactly, or widened to round numbers. */
function axis(about, [low, high], log, exact) {
  const [factor, name] = unit(about, high), base = about.scale === 'bytes' ? 4 : 10;
  if (!(high > low)) high = log ? low * base : low + (Math.abs(low) || 1);
  let apart = step((high - low) / factor / 4.5) * factor, ticks;
  if (about.scale === 'whole') apart = Math.max(1, Math.ceil(apart));
  if (log && !exact) {
    const fine = base === 10 && high / low < 100 ? [1, 2, 5] : [1];
    const round = powers(base, fine, low / base, high * base);
    [low, high] = [round.findLast((value) => value <= low * (1 + 1e-9)), round.find((value) => value >= high * (1 - 1e-9))];
    if (!(high > low)) high = low * base;
  } else if (!log && !exact) {
    const most = about.scale === 'share' && high <= 1 ? 1 : Infinity;
    [low, high] = [Math.floor(low / apart + 1e-6) * apart, Math.min(most, Math.ceil(high / apart - 1e-6) * apart)];
  }
  if (log) ticks = [[1], [1, 2, 5]].map((times) => powers(base, times, low, high)).find((list) => list.length > 2);
  ticks ||= multiples(apart, low, high);
  const digits = [0, 1, 2, 3, 4, 5, 6].find((digits) => Math.abs(apart / factor - (apart / factor).toFixed(digits)) < 1e-6 * apart / factor) ?? 6;
  const words = (value) => {
    if (about.scale === 'bytes') return bytes(value);
    if (about.scale === 'moments') return duration(value);
    return log || Math.abs(value / factor) >= 1e4 ? short(value / factor) : (value / factor).toFixed(digits);
  };
  const rise = (value) => (log ? Math.log(value) : value), length = rise(high) - rise(low);
  return {
    low, high, log, ticks: ticks.map((value) => [value, words(value)]),
    label: about.name + (name && ` (${name})`) + (log ? ', logarithmic' : ''),
    place: (value) => (rise(value) - rise(low)) / length,
    value: (share) => (log ? Math.exp(rise(low) + share * length) : low + share * length),
    has: (value) => value >= low - 1e-9 * (high - low) && value <= high + 1e-9 * (high - low),
  };
}
