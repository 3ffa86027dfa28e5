"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const canvas = byId("canvas"), pen = canvas.getContext("2d");
  const ABSENT = 65535, FEW = 4000, MOST_ZOOM = 4096;

  const decode = (text, Kind) => {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new Kind(bytes.buffer);
  };
  const hex = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  const ramp = data.ramp.map(hex);
  const shade = (part) => {
    const place = Math.min(Math.max(part, 0), 1) * (ramp.length - 1), low = Math.floor(place);
    const next = ramp[Math.min(low + 1, ramp.length - 1)];
    return ramp[low].map((value, i) => value + (next[i] - value) * (place - low));
  };

  const powers = data.powers.map((one) => ({ ...one, columns: one.columns.map((text) => decode(text, Uint16Array)) }));
  const colors = data.color && {
    ...data.color,
    values: decode(data.color.values, data.color.shades ? Uint8Array : Uint16Array),
    shades: data.color.shades && data.color.shades.map(hex),
  };

  // ---- state: the power, the axes, and the square that is shown --------------------
  const state = { power: powers.length - 1, x: data.first[0], y: data.first[1], zoom: 1, at: null };

  const wholeView = () => {
    const { first: ends } = powers[state.power];
    const half = 0.55 * Math.max(ends[state.x][1] - ends[state.x][0], ends[state.y][1] - ends[state.y][0]) || 1;
    return { at: [state.x, state.y].map((axis) => (ends[axis][0] + ends[axis][1]) / 2), half };
  };
  const view = () => {
    const { at, half } = wholeView();
    return { at: state.at || at, half: half / state.zoom };
  };

  const readAddress = () => {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const number = (name) => (wanted.has(name) && isFinite(wanted.get(name)) ? Number(wanted.get(name)) : null);
    const power = powers.findIndex((one) => one.power === number("power"));
    if (power >= 0) state.power = power;
    for (const axis of ["x", "y"]) {
      const place = data.axes.indexOf(wanted.get(axis));
      if (place >= 0) state[axis] = place;
    }
    state.zoom = Math.min(Math.max(number("zoom") || 1, 1), MOST_ZOOM);
    const at = (wanted.get("at") || "").split(",").map(Number);
    state.at = at.length === 2 && at.every(isFinite) && wanted.get("at") ? at : null;
  };
  const writeAddress = () => {
    const words = new URLSearchParams({ power: powers[state.power].power, x: data.axes[state.x], y: data.axes[state.y] });
    if (state.zoom !== 1) words.set("zoom", state.zoom.toPrecision(4));
    if (state.at) words.set("at", state.at.map((value) => value.toPrecision(6)).join(","));
    try { history.replaceState(null, "", "#" + words); } catch { /* not allowed inside some frames */ }
  };

  // ---- drawing ------------------------------------------------------------------------------------
  const count = (width, shown) => {
    const { columns, low, high } = powers[state.power];
    const xs = columns[state.x], ys = columns[state.y], n = xs.length, places = new Int32Array(n);
    const factor = (axis) => ((high[axis] - low[axis]) / 65534) * (width / (2 * shown.half));
    const shift = (axis, at) => (low[axis] - at + shown.half) * (width / (2 * shown.half));
    const ax = factor(state.x), bx = shift(state.x, shown.at[0]), ay = factor(state.y), by = shift(state.y, shown.at[1]);
    let inside = 0;
    for (let i = 0; i < n; i++) {
      const px = xs[i] * ax + bx, py = ys[i] * ay + by;
      const seen = xs[i] !== ABSENT && ys[i] !== ABSENT && px >= 0 && px < width && py >= 0 && py < width;
      places[i] = seen ? (width - 1 - Math.floor(py)) * width + Math.floor(px) : -1;
      inside += seen;
    }
    return { places, inside };
  };

  const paint = (width, places) => {
    const size = width * width, counts = new Uint32Array(size), image = new ImageData(width, width);
    for (const place of places) if (place >= 0) counts[place]++;
    const most = counts.reduce((a, b) => Math.max(a, b), 1);
    const own = colors && tint(size, places);
    for (let pixel = 0; pixel < size; pixel++) {
      if (!counts[pixel]) continue;
      const part = most > 1 ? Math.log(counts[pixel]) / Math.log(most) : 1;
      const color = own ? own(pixel) : shade(0.1 + 0.9 * part);
      image.data.set(color, 4 * pixel);
      image.data[4 * pixel + 3] = own ? 255 * (0.65 + 0.35 * part) : 255;
    }
    return { image, most };
  };

  // the colour of a pixel: the mean of a column of numbers, or the most frequent label
  const tint = (size, places) => {
    if (!colors.shades) {
      const sums = new Float64Array(size), known = new Uint32Array(size);
      places.forEach((place, i) => {
        if (place < 0 || colors.values[i] === ABSENT) return;
        sums[place] += colors.values[i];
        known[place]++;
      });
      return (pixel) => (known[pixel] ? shade(sums[pixel] / known[pixel] / 65534) : [128, 128, 128]);
    }
    const best = new Uint32Array(size), chosen = new Uint8Array(size).fill(255);
    for (let label = 0; label < colors.shades.length; label++) {
      const votes = new Uint32Array(size);
      places.forEach((place, i) => { if (place >= 0 && colors.values[i] === label) votes[place]++; });
      for (let pixel = 0; pixel < size; pixel++) {
        if (votes[pixel] > best[pixel]) { best[pixel] = votes[pixel]; chosen[pixel] = label; }
      }
    }
    return (pixel) => colors.shades[chosen[pixel]] || [128, 128, 128];
  };

  const ticks = (low, high) => {
    const rough = (high - low) / 5, base = 10 ** Math.floor(Math.log10(rough));
    const step = base * [1, 2, 5, 10].find((one) => rough <= one * base);
    const found = [];
    for (let k = Math.ceil(low / step); k * step <= high; k++) found.push(k * step);
    return found.map((value) => [value, Math.abs(value) < step / 1e6 ? "0" : format(value, step)]);
  };
  const format = (value, step) =>
    Math.abs(value) >= 1e4 || step < 1e-3 ? value.toExponential(Math.max(0, Math.floor(Math.log10(Math.abs(value) / step) + 1e-9)))
      : value.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));

  const draw = () => {
    const ratio = window.devicePixelRatio || 1, side = Math.max(200, Math.round(canvas.clientWidth * ratio));
    if (canvas.width !== side) canvas.width = canvas.height = side;
    const shown = view(), fine = count(side, shown), few = fine.inside <= FEW;
    const width = few ? side : Math.max(64, Math.round(side / (fine.inside < 40000 ? 2.5 : 2)));
    const { places } = few ? fine : count(width, shown);
    const { image, most } = paint(width, places);
    pen.fillStyle = data.background;
    pen.fillRect(0, 0, side, side);
    if (few) {
      const size = Math.max(2, Math.round(ratio * (fine.inside < 500 ? 4 : 2.5)));
      for (const place of new Set(places)) {
        if (place < 0) continue;
        pen.fillStyle = `rgb(${[0, 1, 2].map((i) => image.data[4 * place + i])})`;
        pen.fillRect((place % side) - size / 2, Math.floor(place / side) - size / 2, size, size);
      }
    } else {
      const sheet = document.createElement("canvas");
      sheet.width = sheet.height = width;
      sheet.getContext("2d").putImageData(image, 0, 0);
      pen.imageSmoothingEnabled = false;
      pen.drawImage(sheet, 0, 0, side, side);
    }
    drawAxes(side, ratio, shown);
    describe(fine.inside, shown, few, most);
  };

  const drawAxes = (side, ratio, shown) => {
    pen.font = `${11 * ratio}px system-ui, sans-serif`;
    pen.fillStyle = "rgba(38,38,38,0.85)";
    pen.lineJoin = "round";
    const place = (value, at) => ((value - at + shown.half) / (2 * shown.half)) * side;
    const write = (text, x, y) => { pen.strokeText(text, x, y); pen.fillText(text, x, y); };
    const bar = (x1, y1, x2, y2) => {
      pen.strokeStyle = "rgba(38,38,38,0.45)";
      pen.lineWidth = ratio;
      pen.beginPath(); pen.moveTo(x1, y1); pen.lineTo(x2, y2); pen.stroke();
      pen.strokeStyle = "rgba(255,255,255,0.85)";  // behind letters, so that points do not hide them
      pen.lineWidth = 4 * ratio;
    };
    pen.textAlign = "center";
    for (const [value, text] of ticks(shown.at[0] - shown.half, shown.at[0] + shown.half)) {
      const x = place(value, shown.at[0]);
      bar(x, side, x, side - 6 * ratio);
      if (x > 30 * ratio && x < side - 30 * ratio) write(text, x, side - 10 * ratio);
    }
    pen.textAlign = "left";
    for (const [value, text] of ticks(shown.at[1] - shown.half, shown.at[1] + shown.half)) {
      const y = side - place(value, shown.at[1]);
      bar(0, y, 6 * ratio, y);
      if (y > 24 * ratio && y < side - 30 * ratio) write(text, 9 * ratio, y + 4 * ratio);
    }
    pen.fillStyle = "rgba(38,38,38,0.95)";
    pen.textAlign = "right";
    write(`${data.axes[state.x]} →`, side - 10 * ratio, side - 28 * ratio);
    pen.textAlign = "left";
    write(`↑ ${data.axes[state.y]}`, 10 * ratio, 17 * ratio);
  };

  const whole = (value) => Math.round(value).toLocaleString("en-US");
  const describe = (inside, shown, few, most) => {
    const { power, outside } = powers[state.power];
    const drawn = `${whole(inside)} of ${whole(data.sampled)} ${data.sampled < data.rows ? "sampled rows" : "rows"}`;
    const text = `Power ${power}, ${data.axes[state.x]} against ${data.axes[state.y]}: ${drawn} in view, `
      + `zoom ${state.zoom.toPrecision(3)}. ` + (few ? "Each point is drawn." : `Shades are logarithmic, up to ${whole(most)} rows per pixel.`)
      + (outside ? ` ${whole(outside)} of all rows lie so far out that they are never shown.` : "");
    if (byId("status").textContent !== text) byId("status").textContent = text;
    canvas.setAttribute("aria-label", text);
    if (!colors) byId("most").textContent = few ? "" : `${whole(most)} per pixel`;
  };

  // ---- control ------------------------------------------------------------------------------------
  const pending = { frame: 0 };
  const show = () => {
    cancelAnimationFrame(pending.frame);
    pending.frame = requestAnimationFrame(draw);
    byId("power").value = state.power;
    byId("x").value = state.x;
    byId("y").value = state.y;
    writeAddress();
  };
  const zoomTo = (zoom, about) => {
    const before = view(), next = Math.min(Math.max(zoom, 1), MOST_ZOOM);
    const point = about ? about.map((part, i) => before.at[i] + (2 * part - 1) * before.half) : before.at;
    const factor = state.zoom / next;
    state.at = next === 1 ? null : before.at.map((value, i) => point[i] + (value - point[i]) * factor);
    state.zoom = next;
    show();
  };
  const move = (dx, dy) => {
    const { at, half } = view();
    state.at = [at[0] + 2 * half * dx, at[1] + 2 * half * dy];
    show();
  };
  const reset = () => { state.zoom = 1; state.at = null; show(); };
  const choose = (name) => (event) => { state[name] = Number(event.target.value); state.zoom = 1; state.at = null; show(); };

  powers.forEach((one, i) => byId("power").add(new Option(String(one.power), i)));
  for (const axis of ["x", "y"]) data.axes.forEach((name, i) => byId(axis).add(new Option(name, i)));
  for (const name of ["power", "x", "y"]) byId(name).addEventListener("change", choose(name));
  byId("closer").addEventListener("click", () => zoomTo(state.zoom * 2));
  byId("farther").addEventListener("click", () => zoomTo(state.zoom / 2));
  byId("reset").addEventListener("click", reset);
  document.querySelectorAll("[data-power]").forEach((button) => button.addEventListener("click", () => {
    state.power = Number(button.dataset.power);
    [state.x, state.y] = data.first;
    reset();
    byId("embedding").scrollIntoView({ behavior: "smooth" });
  }));
  const spot = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height];
  };
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    zoomTo(state.zoom * Math.exp(-event.deltaY / (event.deltaMode ? 10 : 300)), spot(event));
  }, { passive: false });
  let grip = null;
  canvas.addEventListener("pointerdown", (event) => { grip = spot(event); canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const now = spot(event);
    move(grip[0] - now[0], grip[1] - now[1]);
    grip = now;
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { grip = null; });
  canvas.addEventListener("dblclick", (event) => zoomTo(state.zoom * 2, spot(event)));
  const keys = {
    "+": () => zoomTo(state.zoom * 2), "=": () => zoomTo(state.zoom * 2), "-": () => zoomTo(state.zoom / 2), "0": reset,
    ArrowLeft: () => move(-0.1, 0), ArrowRight: () => move(0.1, 0), ArrowUp: () => move(0, 0.1), ArrowDown: () => move(0, -0.1),
  };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  window.addEventListener("hashchange", () => { if (location.hash.includes("=")) { readAddress(); show(); } });
  window.addEventListener("resize", show);

  readAddress();
  byId("power").value = state.power;
  byId("x").value = state.x;
  byId("y").value = state.y;
  draw();
})();
