/* Draws the slices: two images compared in several ways, and maps of the warp. No library, nothing from the network. */
"use strict";
const Viewer = (() => {
  const data = JSON.parse(document.getElementById("pictures").textContent);
  const EDGE = [255, 159, 28], LINE = "#ff9f1c", FOLD = [230, 0, 150];
  const RAMPS = {
    diverging: ["#08306b", "#2b6cb0", "#7fb2dd", "#c9dff0", "#f4f4f2", "#fbd7b0", "#f0a35e", "#c86414", "#7a3303"],
    sequential: ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"],
  };
  const sheets = new Map();

  /** The sheet of a stack and plane as an image, decoded once. */
  function load(name, plane) {
    const key = name + "/" + plane;
    if (!sheets.has(key)) {
      const image = new Image();
      image.src = data.sheets[name][plane];
      sheets.set(key, image.decode().then(() => image));
    }
    return sheets.get(key);
  }

  /** One slice of a stack as a canvas of its own size. */
  async function slice(name, plane, number) {
    const p = data.planes[plane], sheet = await load(name, plane), canvas = document.createElement("canvas");
    canvas.width = p.width; canvas.height = p.height;
    const x = (number % p.across) * p.tileWidth, y = Math.floor(number / p.across) * p.tileHeight;
    canvas.getContext("2d", { willReadFrequently: true }).drawImage(sheet, x, y, p.width, p.height, 0, 0, p.width, p.height);
    return canvas;
  }

  function ramp(name) {
    const stops = RAMPS[name].map(h => [1, 3, 5].map(i => parseInt(h.slice(i, i + 2), 16))), table = [];
    for (let i = 0; i < 256; i++) {
      const at = i / 255 * (stops.length - 1), k = Math.min(Math.floor(at), stops.length - 2), t = at - k;
      table.push(stops[k].map((v, c) => Math.round(v + t * (stops[k + 1][c] - v))));
    }
    return table;
  }

  const gradient = name => `linear-gradient(90deg, ${RAMPS[name].join(", ")})`;

  /** How many canvas pixels a slice pixel gets: small slices are drawn larger, so that lines on them are fine. */
  const zoom = p => Math.max(1, Math.min(8, Math.ceil(640 / Math.max(p.width, p.height))));

  function begin(canvas, width, height) {
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = true; context.imageSmoothingQuality = "high";
    context.fillStyle = "#000"; context.fillRect(0, 0, width, height);
    return context;
  }

  function label(context, words, x, y, align, size) {
    context.font = `600 ${size}px system-ui, sans-serif`;
    context.textAlign = align; context.textBaseline = "middle"; context.lineJoin = "round";
    context.lineWidth = size / 4; context.strokeStyle = "rgba(0,0,0,.75)"; context.fillStyle = "#e9edf1";
    context.strokeText(words, x, y); context.fillText(words, x, y);
  }

  function letters(context, p, x, y, width, height) {
    if (!p.letters.length) return;
    const size = Math.round(Math.max(width, height) / 30), near = size * .9, [left, right, top, bottom] = p.letters;
    label(context, left, x + near, y + height / 2, "center", size);
    label(context, right, x + width - near, y + height / 2, "center", size);
    label(context, top, x + width / 2, y + near, "center", size);
    label(context, bottom, x + width / 2, y + height - near, "center", size);
  }

  /** Thin edges of a picture (Canny: blur, slope, its ridges, two thresholds) as a canvas; `share` of its pixels begin one. */
  function edges(picture, share) {
    const w = picture.width, h = picture.height, n = w * h;
    const pixels = picture.getContext("2d", { willReadFrequently: true }).getImageData(0, 0, w, h).data;
    let grey = new Float32Array(n);
    for (let i = 0; i < n; i++) grey[i] = pixels[4 * i];
    for (let pass = 0; pass < 3; pass++) grey = blur(grey, w, h);
    const gx = new Float32Array(n), gy = new Float32Array(n), slope = new Float32Array(n);
    for (let y = 1; y < h - 1; y++) for (let x = 1, i = y * w + 1; x < w - 1; x++, i++) {
      gx[i] = grey[i + 1] - grey[i - 1]; gy[i] = grey[i + w] - grey[i - w]; slope[i] = Math.hypot(gx[i], gy[i]);
    }
    const sorted = Float32Array.from(slope.filter(s => s > .5)).sort();
    const high = sorted.length ? sorted[Math.floor((1 - share) * (sorted.length - 1))] : 1, low = high * .45;
    const keep = ridges(slope, gx, gy, w, h, low), out = document.createElement("canvas");
    out.width = w; out.height = h;
    const context = out.getContext("2d"), image = context.createImageData(w, h), stack = [];
    for (let i = 0; i < n; i++) if (keep[i] === 1 && slope[i] >= high) { keep[i] = 2; stack.push(i); }
    while (stack.length) {
      const i = stack.pop();
      for (const d of [-w - 1, -w, -w + 1, -1, 1, w - 1, w, w + 1]) if (keep[i + d] === 1) { keep[i + d] = 2; stack.push(i + d); }
    }
    const paint = [...EDGE, 255];
    for (let i = 0; i < n; i++) if (keep[i] === 2) for (const d of [0, 1, w, w + 1]) image.data.set(paint, 4 * (i + d));
    context.putImageData(image, 0, 0);
    return out;
  }

  function blur(grey, w, h) {
    const across = new Float32Array(grey.length), out = new Float32Array(grey.length);
    for (let i = 0; i < grey.length; i++) {
      const x = i % w;
      across[i] = (grey[x ? i - 1 : i] + 2 * grey[i] + grey[x < w - 1 ? i + 1 : i]) / 4;
    }
    for (let i = 0; i < grey.length; i++) {
      const y = Math.floor(i / w);
      out[i] = (across[y ? i - w : i] + 2 * across[i] + across[y < h - 1 ? i + w : i]) / 4;
    }
    return out;
  }

  function ridges(slope, gx, gy, w, h, low) {
    const keep = new Uint8Array(w * h);
    for (let y = 2; y < h - 2; y++) for (let x = 2, i = y * w + 2; x < w - 2; x++, i++) {
      const s = slope[i];
      if (s < low) continue;
      const ax = Math.abs(gx[i]), ay = Math.abs(gy[i]);
      const d = ay < .414 * ax ? 1 : ax < .414 * ay ? w : gx[i] * gy[i] > 0 ? w + 1 : w - 1;
      if (s >= slope[i + d] && s > slope[i - d]) keep[i] = 1;
    }
    return keep;
  }

  function enlarged(picture, factor) {
    const canvas = document.createElement("canvas");
    canvas.width = picture.width * factor; canvas.height = picture.height * factor;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.imageSmoothingQuality = "high";
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    return canvas;
  }

  /** Two images of one slice, in one of the ways of comparing. */
  async function compare(canvas, plane, number, state) {
    const p = data.planes[plane], z = zoom(p), w = p.width * z, h = p.height * z;
    const [fixed, moving] = await Promise.all([slice(state.fixed, plane, number), slice(state.moving, plane, number)]);
    const size = Math.round(Math.max(w, h) / 26);
    if (state.view === "pair") return pair(canvas, p, fixed, moving, w, h, size, state);
    const context = begin(canvas, w, h);
    const draw = picture => context.drawImage(picture, 0, 0, w, h);
    if (state.view === "flicker") {
      draw(state.phase ? moving : fixed);
      label(context, state.phase ? state.movingName : state.fixedName, size * .6, size, "left", size);
    } else if (state.view === "edges") {
      draw(moving);
      context.drawImage(edges(enlarged(fixed, z), state.share), 0, 0);
    } else if (state.view === "swipe") {
      draw(moving);
      const x = Math.round(w * state.place);
      context.save(); context.beginPath(); context.rect(0, 0, x, h); context.clip(); draw(fixed); context.restore();
      context.fillStyle = LINE; context.fillRect(x - 1, 0, 2, h);
      label(context, state.fixedName, size * .6, size, "left", size);
      label(context, state.movingName, w - size * .6, size, "right", size);
    } else {
      draw(moving);
      const step = Math.max(w, h) / state.tiles;
      context.save(); context.beginPath();
      for (let y = 0, j = 0; y < h; y += step, j++) for (let x = 0, i = 0; x < w; x += step, i++) if ((i + j) % 2) context.rect(x, y, step, step);
      context.clip(); draw(fixed); context.restore();
    }
    letters(context, p, 0, 0, w, h);
  }

  function pair(canvas, p, fixed, moving, w, h, size, state) {
    const flat = data.planes.length === 1 || matchMedia("(min-width: 900px)").matches, gap = Math.round(size / 2);
    const context = flat ? begin(canvas, 2 * w + gap, h) : begin(canvas, w, 2 * h + gap);
    const [x, y] = flat ? [w + gap, 0] : [0, h + gap];
    context.drawImage(fixed, 0, 0, w, h); context.drawImage(moving, x, y, w, h);
    context.fillStyle = "#3a4046"; context.fillRect(flat ? w : 0, flat ? 0 : h, flat ? gap : w, flat ? h : gap);
    label(context, state.fixedName, size * .6, size, "left", size);
    label(context, state.movingName, x + size * .6, y + size, "left", size);
    letters(context, p, 0, 0, w, h); letters(context, p, x, y, w, h);
  }

  /** A map of the warp on one slice. */
  async function map(canvas, plane, number, name) {
    const p = data.planes[plane], z = zoom(p), w = p.width * z, h = p.height * z, context = begin(canvas, w, h);
    if (name === "grid") {
      context.globalAlpha = .5;
      if (data.under) context.drawImage(await slice(data.under, plane, number), 0, 0, w, h);
      context.globalAlpha = 1;
      lines(context, p, number, z);
    } else {
      const picture = await slice(name, plane, number), inner = picture.getContext("2d", { willReadFrequently: true });
      const image = inner.getImageData(0, 0, p.width, p.height), table = ramp(data.maps[name].ramp);
      const folds = name === "jacobian" ? (await slice("folds", plane, number)).getContext("2d", { willReadFrequently: true }).getImageData(0, 0, p.width, p.height).data : null;
      for (let i = 0; i < image.data.length; i += 4) image.data.set(folds && folds[i] > 127 ? FOLD : table[image.data[i]], i);
      inner.putImageData(image, 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(picture, 0, 0, w, h);
    }
    letters(context, p, 0, 0, w, h);
  }

  const steps = new Map();
  function lines(context, p, number, z) {
    const { pitch, unit, rows, columns } = p.lines;
    if (!steps.has(p)) steps.set(p, Int8Array.from(atob(p.lines.data), c => c.charCodeAt(0)));
    const values = steps.get(p), first = number * rows * columns;
    const place = (r, c) => {
      const k = 2 * (first + r * columns + c), start = (pitch >> 1) + .5;
      return [(start + c * pitch + values[k + 1] * unit) * z, (start + r * pitch + values[k] * unit) * z];
    };
    context.strokeStyle = LINE; context.lineWidth = Math.max(1, z * .45); context.lineJoin = "round";
    context.beginPath();
    for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) context[c ? "lineTo" : "moveTo"](...place(r, c));
    for (let c = 0; c < columns; c++) for (let r = 0; r < rows; r++) context[r ? "lineTo" : "moveTo"](...place(r, c));
    context.stroke();
  }

  return { data, compare, map, gradient };
})();
