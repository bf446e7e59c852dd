/* Lets readers explore the charts of a page: values under the pointer, zoom, logarithms, means, and which runs to see.
   Every chart is already drawn; it is drawn again, from the data beside it, only when somebody changes something.
   All text is set as text, never as markup. */
'use strict';

const SVG = 'http://www.w3.org/2000/svg';
const DRAG = 5, TALL = 24; /* Shorter drags are clicks; flatter ones mean a range of the horizontal axis alone. */
const NEAR = 6, ROWS = 8, STRIDE = 3; /* How far from the pointer values are shown, how many, and how far arrows go at least. */
const LABEL = 13, LETTER = 6.9; /* Sizes of letters. */
const SMOOTHABLE = 8; /* Points from which a mean is worth having. */
const page = { hidden: new Set(), smoothing: 0, charts: [] };

const make = (space) => (name, attributes, ...children) => {
  const element = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const html = make(''), svg = make(SVG);
const text = (x, y, anchor, words, kind) => svg('text', { x, y, 'text-anchor': anchor, class: kind }, words);
const line = (x1, y1, x2, y2, kind) => svg('path', { d: `M${x1} ${y1}L${x2} ${y2}`, class: kind });

/* Each value averaged with those before it, which count less the older they are. */
function smoothed(points) {
  let mean = 0, weight = 0;
  const keep = page.smoothing;
  return points.map(([x, y]) => {
    [mean, weight] = [mean * keep + y * (1 - keep), weight * keep + (1 - keep)];
    return [x, mean / weight];
  });
}

const sample = (one) =>
  svg('svg', { class: 'sample', viewBox: '0 0 36 12', 'aria-hidden': 'true' },
    ...(one.loose ? [] : [svg('path', { class: `line c${one.colour}`, 'stroke-dasharray': one.faint ? 'none' : one.dashes || 'none', d: 'M1 6L35 6' })]),
    svg('path', { class: `mark c${one.colour}`, d: 'M18 6' + one.shape }));

/* A button that stays pressed. */
function toggle(words, label, pressed, act) {
  const button = html('button', { type: 'button', 'aria-pressed': pressed, 'aria-label': label, title: label }, ...words);
  button.addEventListener('click', () => {
    const now = button.getAttribute('aria-pressed') !== 'true';
    button.setAttribute('aria-pressed', now);
    act(now);
  });
  return button;
}

/* What is under the pointer, in words beside it. */
class Readout {
  constructor(figure, drawing) {
    this.box = html('div', { class: 'readout', role: 'status', hidden: '' });
    this.drawing = drawing;
    this.figure = figure;
    figure.append(this.box);
  }
  show(share, heading, rows) {
    const words = rows.map(([one, said]) => html('div', {}, ...(one ? [sample(one)] : []), html('span', {}, said)));
    this.box.replaceChildren(...(heading ? [html('b', {}, heading)] : []), ...words);
    this.box.hidden = false;
    const outer = this.figure.getBoundingClientRect(), inner = this.drawing.getBoundingClientRect();
    const left = inner.left - outer.left + share * inner.width, room = inner.width - this.box.offsetWidth;
    const beside = share > 0.5 ? left - this.box.offsetWidth - 14 : left + 14;
    this.box.style.left = Math.max(0, Math.min(beside, room)) + 'px';
    this.box.style.top = inner.top - outer.top + 30 + 'px';
  }
  hide() {
    this.box.hidden = true;
  }
}

class Chart {
  constructor(figure, data) {
    [this.figure, this.data, this.drawing] = [figure, data, figure.querySelector(':scope > svg')];
    this.log = { x: data.x.log, y: data.y.log };
    this.zoom = {};
    this.hidden = new Set();
    this.clip = `plot-${page.charts.length}`;
    this.readout = new Readout(figure, this.drawing);
    this.fixed = [...this.drawing.querySelectorAll(':scope > desc')];
    this.drawing.querySelectorAll('title').forEach((title) => title.remove()); /* The browser's own tooltips. */
    this.drawing.setAttribute('tabindex', '0');
    this.drawing.classList.add('explored');
    this.frame = data.frame;
    this.span = { x: data.frame.right - data.frame.left, y: data.frame.bottom - data.frame.top };
    [this.x, this.y] = this.axes(this.visible());
    this.controls();
    this.listen();
  }

  visible() {
    return this.data.series.filter((one) => !(one.key === null ? this.hidden.has(one.name) : page.hidden.has(one.key)));
  }
  place([x, y]) {
    return [this.frame.left + this.x.place(x) * this.span.x, this.frame.bottom - this.y.place(y) * this.span.y];
  }
  drawable([x, y]) {
    return (!this.log.x || x > 0) && (!this.log.y || y > 0);
  }

  axes(lines) {
    const ends = (values, about, log) => {
      const sound = values.filter((value) => !log || value > 0);
      const [low, high] = sound.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
      if (low > high) return log ? [1, 10] : [0, 1];
      return [about.zero && !log ? Math.min(0, low) : low, high];
    };
    const { x, y } = this.data, points = lines.flatMap((one) => one.points), all = lines.length === this.data.series.length;
    /* As it was drawn, as long as nothing else is wanted. */
    const drawn = (name, about) => this.zoom[name] || (all && !this.zoom.x && this.log[name] === about.log ? about.ends : null);
    const [wantedX, wantedY] = [drawn('x', x), drawn('y', y)];
    const across = axis(x, wantedX || ends(points.map((point) => point[0]), x, this.log.x), this.log.x, !!wantedX);
    const values = lines.flatMap((one) => one.points.flatMap((point, at) => (across.has(point[0]) ? [point[1], ...(one.ranges[at] || [])] : [])));
    values.push(...this.data.guides.map(({ at }) => at[0] + at[1] * across.high));
    return [across, axis(y, wantedY || ends(values, y, this.log.y), this.log.y, !!wantedY)];
  }

  draw() {
    const { left, top, bottom, right, width } = this.frame, lines = this.visible();
    [this.x, this.y] = this.axes(lines);
    const back = [], front = svg('g', { 'clip-path': `url(#${this.clip})` }), labels = [];
    for (const [value, words] of this.y.ticks) {
      const y = this.place([this.x.low, value])[1];
      back.push(line(left, y, right, y, 'grid'), text(left - 7, y + 4, 'end', words, 'tick'));
    }
    for (const [value, words] of this.x.ticks) {
      const x = this.place([value, this.y.low])[0];
      back.push(line(x, bottom, x, bottom + 4, 'axis'), text(x, bottom + 17, 'middle', words, 'tick'));
    }
    back.push(line(left, bottom, right, bottom, 'axis'), text(0, 13, 'start', this.y.label, 'unit'));
    back.push(text(right, bottom + 36, 'end', this.x.label, 'unit'));
    for (const { name, at } of this.data.guides) {
      const shares = Array.from({ length: 61 }, (_, index) => this.x.value(index / 60));
      const places = shares.map((x) => [x, at[0] + at[1] * x]).filter((point) => this.drawable(point)).map((point) => this.place(point));
      front.append(svg('path', { class: 'guide', d: path(places) }));
      if (places.length) labels.push({ at: places.at(-1), name, kind: 'name guided' });
    }
    for (const one of [...lines].sort((a, b) => b.faint - a.faint)) {
      const end = this.series(front, one);
      if (end && one.name) labels.push({ at: end, name: one.name, kind: `name n${one.colour}` });
    }
    const clip = svg('clipPath', { id: this.clip }, svg('rect', { x: left - 5, y: top - 5, width: this.span.x + 10, height: this.span.y + 10 }));
    this.drawing.replaceChildren(...this.fixed, clip, ...back, front, ...names(labels, this.frame, width));
    this.whole.hidden = !this.zoom.x && !this.zoom.y;
  }

  /* One line with its marks and ranges; the place of its last point that can be seen. */
  series(into, one) {
    const smooth = page.smoothing > 0 && one.noisy && one.points.length >= SMOOTHABLE;
    const places = (points) => points.filter((point) => this.drawable(point)).map((point) => this.place(point));
    const points = smooth ? smoothed(one.points) : one.points, at = places(points);
    const stroke = { 'stroke-dasharray': one.faint ? 'none' : one.dashes || 'none' };
    if (smooth) into.append(svg('path', { class: `line c${one.colour} raw`, d: path(places(one.points)) }));
    if (!one.loose) into.append(svg('path', { class: `line c${one.colour}${one.faint && !smooth ? ' faint' : ''}`, d: path(at), ...stroke }));
    one.ranges.forEach(([low, high], index) => {
      const [x] = one.points[index];
      if (high <= low || !this.drawable([x, low])) return;
      const [[across, down], [, up]] = [this.place([x, low]), this.place([x, high])], kind = `range n${one.colour}`;
      into.append(line(across, down, across, up, kind), line(across - 3, down, across + 3, down, kind), line(across - 3, up, across + 3, up, kind));
    });
    const seen = points.filter((point) => this.drawable(point) && this.x.has(point[0]) && this.y.has(point[1])).map((point) => this.place(point));
    const marked = one.tips ? seen : one.faint ? [] : seen.slice(-1);
    for (const [x, y] of marked) into.append(svg('path', { class: `mark c${one.colour}`, d: `M${x} ${y}${one.shape}` }));
    return seen.at(-1);
  }

  /* Points near this place, the nearest first. */
  near([x, y]) {
    const found = [], loose = this.data.series.every((one) => one.loose);
    for (const one of this.visible()) {
      const means = page.smoothing > 0 && one.noisy && one.points.length >= SMOOTHABLE ? smoothed(one.points) : one.points;
      let best = null;
      one.points.forEach((point, index) => {
        if (!this.drawable(means[index]) || !this.x.has(point[0]) || !this.y.has(means[index][1])) return;
        const at = this.place(means[index]), across = Math.abs(at[0] - x), away = Math.hypot(across, at[1] - y);
        const far = loose || one.loose ? away : across;
        if (!best || far < best.far) best = { one, index, at, far, away, across, mean: means === one.points ? null : means[index][1] };
      });
      if (best) found.push(best);
    }
    const least = Math.min(...found.map((one) => one.far));
    return found.filter((one) => one.far <= Math.max(least, loose ? 0 : NEAR)).sort((a, b) => a.away - b.away).slice(0, loose ? 1 : ROWS);
  }

  point(place) {
    const found = this.near(place);
    this.drawing.querySelectorAll('.cursor').forEach((old) => old.remove());
    if (found.length === 0) return this.readout.hide();
    const { x, y } = this.data, at = found[0].at[0], rows = found.map(({ one, index, mean }) => {
      const value = one.tips ? one.tips[index] : say(y.scale, one.points[index][1]);
      const own = one.full && one.full + (value.includes(': ') ? ', ' : ': ');
      return [one, own + value + (mean === null ? '' : `, mean ${say(y.scale, mean)}`)];
    });
    const marks = found.map((one) => svg('circle', { cx: one.at[0], cy: one.at[1], r: 5 }));
    this.drawing.append(svg('g', { class: 'cursor' }, line(at, this.frame.top, at, this.frame.bottom, 'axis'), ...marks));
    this.cursor = found[0].at;
    this.readout.show(at / this.frame.width, `${x.name}: ${say(x.scale, found[0].one.points[found[0].index][0])}`, rows);
  }
  leave() {
    this.drawing.querySelectorAll('.cursor, .drag').forEach((old) => old.remove());
    this.readout.hide();
  }

  /* Shows this part of the plot: its corners, as places. */
  show([fromX, fromY], [toX, toY]) {
    const share = (value, low, length) => Math.max(0, Math.min(1, (value - low) / length));
    const part = (axis, a, b) => [Math.min(a, b), Math.max(a, b)].map((share) => axis.value(share));
    const { left, bottom } = this.frame, wide = Math.abs(toX - fromX) > DRAG, tall = Math.abs(toY - fromY) > TALL;
    const x = [fromX, toX].map((x) => share(x, left, this.span.x)), y = [fromY, toY].map((y) => share(bottom - y, 0, this.span.y));
    const wanted = { x: wide ? part(this.x, ...x) : this.zoom.x, y: tall ? part(this.y, ...y) : wide ? undefined : this.zoom.y };
    if ((wide && x[0] === x[1]) || (tall && y[0] === y[1])) return;
    this.zoom = wanted;
    this.draw();
  }
  reset() {
    this.zoom = {};
    this.leave();
    this.draw();
  }

  listen() {
    const { drawing } = this;
    const at = (event) => {
      const box = drawing.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top].map((value) => (value * this.frame.width) / box.width);
    };
    let from = null;
    drawing.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      from = at(event);
      drawing.setPointerCapture(event.pointerId);
      this.point(from);
    });
    drawing.addEventListener('pointermove', (event) => {
      const to = at(event);
      drawing.querySelectorAll('.drag').forEach((old) => old.remove());
      if (!from || Math.max(Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1])) <= DRAG) return this.point(to);
      this.leave();
      const tall = Math.abs(to[1] - from[1]) > TALL, wide = Math.abs(to[0] - from[0]) > DRAG;
      const [x, width] = wide ? [Math.min(from[0], to[0]), Math.abs(to[0] - from[0])] : [this.frame.left, this.span.x];
      const [y, height] = tall ? [Math.min(from[1], to[1]), Math.abs(to[1] - from[1])] : [this.frame.top, this.span.y];
      drawing.append(svg('rect', { class: 'drag', x, y, width, height }));
    });
    drawing.addEventListener('pointerup', (event) => {
      const [start, end] = [from, at(event)];
      from = null;
      if (start && Math.max(Math.abs(end[0] - start[0]), Math.abs(end[1] - start[1])) > DRAG) {
        this.leave();
        this.show(start, end);
      }
    });
    drawing.addEventListener('pointercancel', () => [(from = null), this.leave()]);
    drawing.addEventListener('pointerleave', () => from || this.leave());
    drawing.addEventListener('blur', () => this.leave());
    drawing.addEventListener('dblclick', () => this.reset());
    drawing.addEventListener('keydown', (event) => this.key(event));
  }

  /* Arrows go from point to point, plus and minus zoom there, escape shows everything again. */
  key(event) {
    const { left, right, top, bottom } = this.frame, [x, y] = this.cursor || [left - 1, (top + bottom) / 2];
    const places = () => this.visible().flatMap((one) => one.points.filter((point) => this.drawable(point) && this.x.has(point[0])));
    const go = (way) => {
      const across = places().map((point) => this.place(point)[0]).filter((at) => way * (at - x) > STRIDE);
      if (across.length === 0) return;
      const next = [way > 0 ? Math.min(...across) : Math.max(...across), y];
      this.point(next);
      this.cursor = next;
    };
    const zoom = (part) => this.show([x - part * this.span.x, y], [x + part * this.span.x, y]);
    const act = { ArrowRight: () => go(1), ArrowLeft: () => go(-1), '+': () => zoom(0.25), '-': () => this.reset(), Escape: () => this.reset() }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  controls() {
    const words = (axis) => (axis === 'x' ? 'horizontal' : 'vertical');
    const own = [...new Map(this.data.series.filter((one) => one.key === null && one.name).map((one) => [one.name, one])).values()];
    const lines = (own.length > 1 ? own : []).map((one) =>
      toggle([sample(one), one.name], `show ${one.full}`, true, (now) => {
        this.hidden[now ? 'delete' : 'add'](one.name);
        this.draw();
      }));
    const logs = ['x', 'y'].map((axis, index) => {
      const button = toggle([`log ${axis}`], `logarithmic ${words(axis)} axis`, this.log[axis], (now) => {
        this.log[axis] = now;
        if (now && this.zoom[axis]?.[0] <= 0) delete this.zoom[axis];
        this.draw();
      });
      button.disabled = !this.data.series.some((one) => one.points.some((point) => point[index] > 0));
      return button;
    });
    this.whole = html('button', { type: 'button', hidden: '' }, 'whole');
    this.whole.addEventListener('click', () => this.reset());
    this.drawing.after(html('div', { class: 'controls' }, ...lines, ...logs, this.whole));
  }
}

const path = (places) => places.map(([x, y], index) => (index ? 'L' : 'M') + x.toFixed(1) + ' ' + y.toFixed(1)).join('');

/* Names beside the ends of lines, moved where they would cover each other. */
function names(labels, { top, bottom }, width) {
  const taken = [];
  return labels.sort((a, b) => a.at[1] - b.at[1]).flatMap(({ at, name, kind }) => {
    const shown = name.length > 15 ? name.slice(0, 14) + '…' : name;
    const x = Math.min(at[0] + 7, width - LETTER * shown.length - 2), end = x + LETTER * shown.length;
    for (let index = 0; index < 120; index++) {
      const y = at[1] + 4 + (index % 2 ? -(index + 1) / 2 : index / 2) * 4;
      if (y < top + 4 || y > bottom + 2) continue;
      if (taken.some((other) => end >= other.x && x <= other.end && Math.abs(y - other.y) < LABEL)) continue;
      taken.push({ x, end, y });
      return [text(x, y, 'start', shown, kind)];
    }
    return [];
  });
}

/* What the parts of other plots say about themselves. */
function tips(figure, drawing) {
  const readout = new Readout(figure, drawing);
  for (const title of drawing.querySelectorAll('title')) {
    if (title.parentNode !== drawing) title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
  drawing.addEventListener('pointermove', (event) => {
    const tip = event.target.dataset.tip, box = drawing.getBoundingClientRect();
    if (tip) readout.show((event.clientX - box.left) / box.width, '', [[null, tip]]);
    else readout.hide();
  });
  drawing.addEventListener('pointerleave', () => readout.hide());
}

/* What concerns all charts: which runs to see, and how smooth. */
function tools() {
  const place = document.querySelector('.tools') || html('div', { class: 'tools' });
  place.classList.add('live');
  for (const item of place.querySelectorAll('[data-key]')) {
    const key = +item.dataset.key;
    item.append(toggle([...item.childNodes], 'show ' + item.textContent.trim(), true, (now) => {
      page.hidden[now ? 'delete' : 'add'](key);
      document.querySelectorAll(`figure [data-key="${key}"]`).forEach((part) => part.classList.toggle('off', !now));
      page.charts.filter((chart) => chart.data.series.some((one) => one.key === key)).forEach((chart) => chart.draw());
    }));
  }
  if (page.charts.some((chart) => chart.data.series.some((one) => one.noisy && one.points.length >= SMOOTHABLE))) {
    const slider = html('input', { type: 'range', min: 0, max: 0.98, step: 0.02, value: 0 }), said = html('output', {}, 'off');
    slider.addEventListener('input', () => {
      page.smoothing = +slider.value;
      said.textContent = page.smoothing ? page.smoothing.toFixed(2) : 'off';
      page.charts.filter((chart) => chart.data.series.some((one) => one.noisy)).forEach((chart) => chart.draw());
    });
    place.append(html('label', { class: 'smoothing' }, 'smoothing ', slider, said));
  }
  const hint = 'Drag in a chart to zoom, double click for all of it; arrow keys read values.';
  if (page.charts.length) place.append(html('span', { class: 'hint' }, hint));
  if (place.childNodes.length && !place.isConnected) document.querySelector('main').before(place);
}

for (const figure of document.querySelectorAll('figure')) {
  const drawing = figure.querySelector(':scope > svg'), data = figure.querySelector(':scope > script');
  if (drawing && data) page.charts.push(new Chart(figure, JSON.parse(data.textContent)));
  else if (drawing) tips(figure, drawing);
}
tools();
