/* Asks for the job's numbers every second and draws them. All text is set as text, never as markup. */
'use strict';

const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 420, HEIGHT = 240, LEFT = 46, TOP = 14, BOTTOM = 32;
const MOST_BARS = 32, WIDE = 20, LATE = 0.05, ODD = 1.5;

function make(space, name, attributes, ...children) {
  const element = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  element.append(...children);
  return element;
}
const html = (name, attributes, ...children) => make('', name, attributes, ...children);
const svg = (name, attributes, ...children) => make(SVG, name, attributes, ...children);
const text = (x, y, anchor, words, kind) => svg('text', { x, y, 'text-anchor': anchor, class: kind || 'tick' }, words);
const line = (x1, y1, x2, y2, kind) => svg('line', { x1, y1, x2, y2, class: kind });
const known = (value) => typeof value === 'number' && isFinite(value);

/* Numbers for people. */
const grouped = (value) => Math.round(value).toLocaleString('en');
const percent = (value, digits) => (100 * value).toFixed(digits) + ' %';
const rate = (value) => (value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : grouped(value));
const fine = (value) => {
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-4 || size >= 1e5) ? value.toExponential(2) : value.toFixed(size < 10 ? 4 : 2);
};
function bytes(value) {
  const units = [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']];
  const [size, unit] = units.find(([size]) => value >= size) || [1, 'B'];
  return (value / size).toFixed(value / size < 10 && size > 1 ? 1 : 0) + ' ' + unit;
}
function duration(seconds) {
  if (seconds < 60) return seconds.toFixed(seconds < 10 ? 1 : 0) + ' s';
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/* Round numbers from at most `low` to at least `high`. */
function scale(low, high) {
  if (!(high > low)) high = low + Math.max(Math.abs(low), 1e-9);
  const rough = (high - low) / 4.5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough * 0.999);
  const first = Math.floor(low / step + 1e-9), last = Math.ceil(high / step - 1e-9);
  const ticks = [];
  for (let index = first; index <= last; index++) ticks.push(index * step);
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step * 1.001))));
  return { low: first * step, high: last * step, ticks, digits };
}
/* Powers of ten, for values that differ a lot. */
function powers(low, high) {
  const first = Math.floor(Math.log10(low) + 1e-9), last = Math.max(first + 1, Math.ceil(Math.log10(high) - 1e-9));
  const ticks = [];
  for (let power = first; power <= last; power++) ticks.push(10 ** power);
  return { low: first, high: last, ticks };
}
function short(value, digits) {
  const units = [[1e9, 'G'], [1e6, 'M'], [1e4, 'k']].find(([size]) => Math.abs(value) >= size);
  if (!units) return value.toFixed(digits);
  const size = units[0] === 1e4 ? 1e3 : units[0];
  return +(value / size).toFixed(2) + units[1];
}

/* A figure: made once, with its heading; what is in it is replaced. */
const figures = new Map();
function figure(id, title, caption, drawing) {
  let parts = figures.get(id);
  if (!parts) {
    const note = html('p'), place = html('div');
    const whole = html('figure', { id }, html('figcaption', {}, html('h2', {}, title), note), place);
    parts = { note, place };
    figures.set(id, parts);
    document.getElementById('plots').append(whole);
  }
  parts.note.textContent = caption;
  parts.place.replaceChildren(drawing);
}

/* Lines over time; each has its own stroke, and its name where it ends. */
function chart(id, title, caption, series, options) {
  series = series.filter((one) => one.points.length > 0);
  if (series.length === 0) return;
  const all = series.flatMap((one) => one.points), names = Math.max(...series.map((one) => one.name.length));
  const right = WIDTH - 14 - 6.6 * names;
  const longest = Math.max(...all.map((point) => point[0]));
  const unit = longest > 10800 ? [3600, 'h'] : longest > 180 ? [60, 'min'] : [1, 's'];
  const values = all.map((point) => point[1]).concat(known(options.guide) ? [options.guide] : []);
  const factor = options.share ? 100 : 1, least = Math.min(...values), most = Math.max(...values);
  const wide = options.wide && least > 0 && most / least > WIDE;
  const y = wide ? powers(least, most) : scale((options.zero ? 0 : least) * factor, most * factor);
  if (options.share) y.high = Math.min(y.high, 100);
  const height = (value) => ((wide ? Math.log10(value) : value * factor) - y.low) / (y.high - y.low);
  const x = scale(0, longest / unit[0]);
  const ends = Math.max(longest / unit[0], 1e-9);
  const across = (value) => LEFT + (value / unit[0] / ends) * (right - LEFT);
  const up = (value) => HEIGHT - BOTTOM - height(value) * (HEIGHT - BOTTOM - TOP);
  const drawing = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img' });
  for (const tick of y.ticks.filter((tick) => wide || tick <= y.high + 1e-9)) {
    const at = up(tick / factor), words = wide ? `${+tick.toPrecision(1)}` : short(tick, y.digits);
    drawing.append(line(LEFT, at, right, at, 'grid-line'), text(LEFT - 6, at + 4, 'end', words));
  }
  for (const tick of x.ticks.filter((tick) => tick <= ends)) {
    const at = across(tick * unit[0]);
    drawing.append(line(at, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 4, 'axis'));
    drawing.append(text(at, HEIGHT - BOTTOM + 17, 'middle', tick.toFixed(x.digits)));
  }
  drawing.append(line(LEFT, HEIGHT - BOTTOM, right, HEIGHT - BOTTOM, 'axis'));
  drawing.append(text(WIDTH - 2, HEIGHT - BOTTOM + 17, 'end', unit[1]));
  if (known(options.guide)) drawing.append(line(LEFT, up(options.guide), right, up(options.guide), 'guide'));
  const labels = [];
  series.forEach((one) => {
    const places = one.points.map((point) => [across(point[0]), up(point[1])]);
    const path = places.map((place, at) => (at ? 'L' : 'M') + place[0].toFixed(1) + ' ' + place[1].toFixed(1)).join('');
    drawing.append(svg('path', { d: path, class: `line s${one.style}` }));
    const marked = one.marks && places.length < 60 ? places : places.slice(-1);
    for (const [cx, cy] of marked) drawing.append(mark(cx, cy, one.style));
    labels.push({ name: one.name, style: one.style, x: places.at(-1)[0], y: places.at(-1)[1] });
  });
  const taken = [];
  for (const label of labels) {
    const width = 8 + 6.6 * label.name.length;
    const free = (y) => taken.every((other) => Math.abs(other.y - y) >= 14 || label.x > other.x + other.width || other.x > label.x + width);
    const places = [0, -14, 14, -28].map((move) => label.y + move).filter((y) => y >= TOP && y <= HEIGHT - BOTTOM - 2);
    const y = places.find(free) ?? label.y;
    taken.push({ x: label.x, y, width });
    drawing.append(text(label.x + 8, y + 4, 'start', label.name, `name s${label.style}`));
  }
  const last = series.map((one) => `${one.name} ${options.show(one.points.at(-1)[1])}`).join(', ');
  drawing.setAttribute('aria-label', `${title}, over ${duration(longest)}. Now: ${last}`);
  figure(id, title, caption + (wide ? ', logarithmic' : ''), drawing);
}
function mark(x, y, style) {
  if (style === 0) return svg('circle', { cx: x, cy: y, r: 4, class: 'mark s0' });
  return svg('path', { d: `M${x} ${y - 5}L${x + 5} ${y}L${x} ${y + 5}L${x - 5} ${y}Z`, class: `mark s${style}` });
}

/* A bar for each rank, with its value beside it. */
function bars(id, title, caption, rows, most, show) {
  if (rows.length === 0) return;
  const names = Math.max(...rows.map((row) => row.name.length)), left = 12 + 6.6 * names, right = WIDTH - 76;
  const height = 10 + rows.length * 22;
  const drawing = svg('svg', { viewBox: `0 0 ${WIDTH} ${height}`, role: 'img' });
  rows.forEach((row, at) => {
    const y = 6 + at * 22, width = Math.max(1, (row.value / (most || 1)) * (right - left));
    drawing.append(text(left - 7, y + 12, 'end', row.name));
    drawing.append(svg('rect', { x: left, y, width, height: 15, rx: 2, class: `bar s${row.marked ? 1 : 0}` }));
    drawing.append(text(left + width + 6, y + 12, 'start', show(row.value) + (row.marked ? ' ◂' : '')));
  });
  drawing.append(line(left, 2, left, height - 4, 'axis'));
  drawing.setAttribute('aria-label', `${title}. ` + rows.map((row) => `${row.name} ${show(row.value)}`).join(', '));
  figure(id, title, caption, drawing);
}

function keys(now) {
  const said = now.said, all = [];
  const add = (name, value, detail) => all.push([name, value, detail || '']);
  const of = (whole) => (known(whole) ? `of ${whole}` : '');
  add('step', `${said.step}`, known(said.steps) ? `${of(said.steps)}, ${percent(said.step / Math.max(1, said.steps), 0)}` : '');
  if (known(said.epoch)) add('epoch', `${Math.min(Math.floor(said.epoch) + 1, said.epochs || Infinity)}`, of(said.epochs));
  if (known(now.left)) add('left', duration(Math.ceil(now.left)), 'if it goes on like this');
  const steps = known(now.steps_per_second) ? rate(now.steps_per_second) : '';
  if (known(now.samples_per_second)) add('samples/s', rate(now.samples_per_second), steps && steps + ' steps/s');
  else if (steps) add('steps/s', steps);
  if (known(said.loss)) add('loss', fine(said.loss), 'in training');
  if (known(said.accuracy)) add('accuracy', percent(said.accuracy, 1), 'in training');
  const test = known(said.test_loss) ? 'loss ' + fine(said.test_loss) : '';
  if (known(said.test_accuracy)) add('test accuracy', percent(said.test_accuracy, 2), test);
  else if (test) add('test loss', fine(said.test_loss));
  const hosts = new Set(now.ranks.map((rank) => rank.host)).size;
  add('ranks', now.ranks.length, `on ${hosts} host${hosts === 1 ? '' : 's'}`);
  document.getElementById('keys').replaceChildren(...all.map(([name, value, detail]) =>
    html('div', {}, html('dt', {}, name), html('dd', { class: 'value' }, value), html('dd', { class: 'detail' }, detail))));
}

function plots(data) {
  const { now, history } = data;
  const course = (name, style, field, marks) => ({
    name, style, marks, points: history.filter((row) => known(row[field])).map((row) => [row.seconds, row[field]]),
  });
  const time = 'over time';
  const losses = [course('training', 0, 'loss'), course('test', 1, 'test_loss', true)];
  chart('loss', 'Loss', time, losses, { zero: true, wide: true, show: fine });
  const learned = [course('training', 0, 'accuracy'), course('test', 1, 'test_accuracy', true)];
  chart('accuracy', 'Accuracy (%)', time, learned, { share: true, show: (value) => percent(value, 1) });
  const speed = course('samples/s', 0, 'samples_per_second');
  const pace = course('steps/s', 0, 'steps_per_second');
  const shown = speed.points.length > 0 ? speed : pace;
  chart('throughput', 'Throughput', `${shown.name} of all ranks together, mean of ten seconds`, [{ ...shown, name: '' }], { zero: true, show: rate });
  chart('steps', 'Steps', known(now.said.steps) ? `over time; the dotted line is the last, ${now.said.steps}` : time,
    [{ ...course('', 0, 'step') }], { zero: true, guide: now.said.steps, show: grouped });
  const compared = now.ranks.filter((rank) => known(rank.late));
  if (compared.length > 1) {
    const share = (value) => percent(value, 0);
    chart('lateness', 'Lateness (%)', 'time that others wait for the latest rank', [course('', 0, 'late')],
      { share: true, zero: true, show: share });
    const sorted = [...compared].sort((one, other) => other.late - one.late), latest = sorted[0];
    const chosen = sorted.slice(0, MOST_BARS).sort((one, other) => one.rank - other.rank);
    const mean = compared.reduce((sum, rank) => sum + rank.late, 0) / compared.length;
    const late = latest.late >= LATE, blamed = late && latest.late >= ODD * mean;
    const rows = chosen.map((rank) => ({ name: `rank ${rank.rank}`, value: rank.late, marked: blamed && rank === latest }));
    const few = compared.length > MOST_BARS ? ` The ${MOST_BARS} latest of ${compared.length}.` : '';
    const phase = latest.phase ? `, because of ${latest.phase}` : '';
    const blame = blamed ? `The others wait for rank ${latest.rank} on ${latest.host}${phase}.` : late ? 'Ranks are late in turn.' : 'No rank is late.';
    bars('late', 'Late, by rank', blame + few, rows, 1, share);
  }
  const heaviest = [...now.ranks].filter((rank) => rank.memory > 0).sort((one, other) => other.memory - one.memory);
  const first = heaviest.slice(0, MOST_BARS).sort((one, other) => one.rank - other.rank);
  bars('memory', 'Largest memory, by rank', heaviest.length > MOST_BARS ? `The ${MOST_BARS} largest of ${heaviest.length}.` : 'of each process until now',
    first.map((rank) => ({ name: `rank ${rank.rank}`, value: rank.memory })), heaviest.length ? heaviest[0].memory : 1, bytes);
}

/* How full and how busy the GPU of each rank is. */
function gpus(ranks) {
  const full = (rank) => rank.gpu.memory / rank.gpu.total;
  const fullest = ranks.filter((rank) => rank.gpu && rank.gpu.total > 0).sort((one, other) => full(other) - full(one));
  const shown = fullest.slice(0, MOST_BARS).sort((one, other) => one.rank - other.rank);
  const few = fullest.length > MOST_BARS ? ` The ${MOST_BARS} fullest of ${fullest.length}.` : '';
  const share = (value) => percent(value, 0), name = (rank) => `rank ${rank.rank}`;
  bars('gpu-memory', 'GPU memory, by rank', 'in use now, by all processes.' + few,
    shown.map((rank) => ({ name: name(rank), value: full(rank) })), 1, share);
  const busy = shown.filter((rank) => known(rank.gpu.busy));
  bars('gpu-busy', 'GPU busy, by rank', 'share of the last moments.' + few,
    busy.map((rank) => ({ name: name(rank), value: rank.gpu.busy / 100 })), 1, share);
}

/* How many steps of the slowest worker weights from parameter servers lacked. */
function staleness(ranks) {
  const all = ranks.map((rank) => rank.staleness).filter((one) => one);
  if (all.length === 0) return;
  const names = ['0', '1', '2', '3', '4–7', '8–15', '16–31', '32–63', '64 and more'];
  const times = names.map((_, at) => all.reduce((sum, one) => sum + one[at], 0));
  const total = times.reduce((sum, one) => sum + one, 0), last = times.findLastIndex((one) => one > 0);
  const rows = times.slice(0, last + 1).map((one, at) => ({ name: names[at], value: one / total }));
  bars('staleness', 'Staleness', 'steps of the slowest worker that weights from servers lacked, by share of all reads',
    rows, 1, (value) => percent(value, 0));
}

function table(ranks) {
  const cell = (value, kind) => html('td', kind ? { class: kind } : {}, value);
  document.getElementById('table').hidden = false;
  document.getElementById('ranks').replaceChildren(...ranks.map((rank) => html('tr', {},
    cell(`${rank.rank}`), cell(rank.host), cell(known(rank.step) ? `${rank.step}` : '–', 'number'),
    cell(known(rank.late) ? percent(rank.late, 0) : '–', 'number'), cell(rank.phase || ''), cell(bytes(rank.memory), 'number'),
    cell(rank.gpu && known(rank.gpu.busy) ? rank.gpu.busy + ' %' : '–', 'number'),
    cell(rank.gpu ? `${bytes(rank.gpu.memory)} of ${bytes(rank.gpu.total)}` : '–', 'number'))));
}

/* When workers came or went, the newest first. */
function rounds(all) {
  document.getElementById('changes').hidden = all.length < 2;
  document.getElementById('rounds').replaceChildren(...all.map(([seconds, words]) =>
    html('li', {}, `after ${duration(seconds)}: ${words}`)).reverse());
}

function draw(data) {
  const { now } = data;
  document.getElementById('name').textContent = data.name;
  rounds(data.rounds || []);
  if (!now) return;
  document.title = (known(now.said.steps) ? percent(now.said.step / Math.max(1, now.said.steps), 0) + ' · ' : '') + data.name;
  const done = document.getElementById('done');
  const share = known(now.said.steps) ? now.said.step / now.said.steps : now.said.epoch / now.said.epochs;
  done.hidden = !known(share);
  if (known(share)) done.value = Math.min(1, share);
  keys(now);
  plots(data);
  gpus(now.ranks);
  staleness(now.ranks);
  table(now.ranks);
}

function tell(words, bad) {
  const state = document.getElementById('state');
  state.className = bad ? 'bad' : '';
  if (state.textContent !== words) state.textContent = words;
}

let before = '', changed = Date.now(), failures = 0;
async function ask() {
  let data = null;
  try {
    const answer = await fetch('data', { cache: 'no-store' });
    if (!answer.ok) throw new Error(answer.status);
    const words = await answer.text();
    data = JSON.parse(words);
    failures = 0;
    if (words !== before) {
      [before, changed] = [words, Date.now()];
      draw(data);
    }
  } catch (error) {
    failures += 1;
    if (failures > 2) tell('No answer from the job any more: it has ended, or the connection has. This is what was known last.', true);
    return void setTimeout(ask, 2000);
  }
  const silent = (Date.now() - changed) / 1000 + (data.now ? data.now.silent : 0);
  if (data.ended) {
    document.body.dataset.ended = data.ended.well;
    const time = data.now ? ` after ${duration(data.now.seconds)}` : '';
    tell(data.ended.well ? `The job has ended well${time}.` : `The job has ended: ${data.ended.how}`, !data.ended.well);
    return;
  }
  if (!data.now) tell('The job runs; the program has not said yet how far it is.');
  else tell(`running for ${duration(Math.floor(data.now.seconds))}` + (silent > 10 ? `; no news for ${duration(Math.floor(silent))}` : ''), silent > 60);
  setTimeout(ask, 1000);
}
ask();
