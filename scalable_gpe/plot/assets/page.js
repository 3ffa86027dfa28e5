"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const canvas = byId("canvas"), pen = canvas.getContext("2d"), box = byId("hover");
  const N_STEPS = 65535, NEAR = 12, LEAST_ZOOM = 1 / 4, MOST_ZOOM = 4096, GREY = "#8c8c8c";

  const decode = (text, Kind) => {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new Kind(bytes.buffer);
  };
  const views = data.views.map((one) => ({ ...one, columns: one.columns.map((text) => decode(text, Uint16Array)) }));
  const rows = decode(data.rows, Int32Array), n = rows.length, hidden = new Set();
  const color = data.color && { ...data.color, values: decode(data.color.values, data.color.labels ? Int32Array : Float32Array) };
  const labels = color && color.labels;

  // ---- colours: of the label, of the number, or one for all ---------------------------------------
  const ramp = color && color.ramp && color.ramp.map((text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)));
  const shade = (part) => {
    const place = Math.min(Math.max(part, 0), 1) * (ramp.length - 1), low = Math.floor(place);
    const next = ramp[Math.min(low + 1, ramp.length - 1)];
    return `rgb(${ramp[low].map((value, i) => Math.round(value + (next[i] - value) * (place - low)))})`;
  };
  const colorOf = (i) => {
    if (!color) return data.single;
    if (labels) return color.shades[color.values[i]];
    const value = color.values[i];
    return isNaN(value) ? GREY : shade((value - color.low) / (color.high - color.low));
  };
  const fills = Array.from({ length: n }, (_, i) => colorOf(i));
  const shown = (i) => !labels || !hidden.has(color.values[i]);

  // ---- state: the view, its axes, and the square of it that is shown ------------------------------
  const state = { view: views.length - 1, x: 0, y: 1, zoom: 1, at: null, found: -1 };
  const square = () => {
    const { first } = views[state.view], axes = [state.x, state.y];
    const half = 0.55 * Math.max(...axes.map((axis) => first[axis][1] - first[axis][0]));
    return { at: state.at || axes.map((axis) => (first[axis][0] + first[axis][1]) / 2), half: half / state.zoom };
  };
  // the pixels of every point across and up, for a picture with so many pixels along its sides
  const placesOf = (side) => {
    const { columns, low, high } = views[state.view], { at, half } = square(), scale = side / (2 * half);
    return [state.x, state.y].map((axis, i) => {
      const step = ((high[axis] - low[axis]) / N_STEPS) * scale, start = (low[axis] - at[i] + half) * scale;
      return Float32Array.from(columns[axis], (value) => (i ? side - start - step * value : start + step * value));
    });
  };

  const draw = () => {
    const ratio = window.devicePixelRatio || 1, side = Math.max(200, Math.round(canvas.clientWidth * ratio));
    if (canvas.width !== side) canvas.width = canvas.height = side;
    const [xs, ys] = placesOf(side);
    let inside = 0;
    pen.clearRect(0, 0, side, side);
    const radius = ratio * Math.min(6, Math.max(1, Math.sqrt(9000 / n)) * Math.min(2, Math.sqrt(Math.max(1, state.zoom))));
    pen.globalAlpha = color ? 1 : Math.min(1, Math.max(0.3, Math.sqrt(8000 / n) * state.zoom));  // shows the density
    for (let i = 0; i < n; i++) {
      const x = xs[i], y = ys[i];
      if (x < 0 || y < 0 || x > side || y > side || !shown(i)) continue;
      inside += 1;
      pen.fillStyle = fills[i];
      if (radius < 1.6 * ratio) {
        pen.fillRect(x - radius, y - radius, 2 * radius, 2 * radius);
      } else {
        pen.beginPath(); pen.arc(x, y, radius, 0, 7); pen.fill();
      }
    }
    pen.globalAlpha = 1;
    if (state.found >= 0) {
      pen.strokeStyle = GREY;
      pen.lineWidth = 2 * ratio;
      pen.beginPath(); pen.arc(xs[state.found], ys[state.found], radius + 3 * ratio, 0, 7); pen.stroke();
    }
    describe(inside);
  };
  const describe = (inside) => {
    const whole = (number) => number.toLocaleString("en-US"), { title, outside } = views[state.view];
    const text = `${title}${title && ": "}${data.axes[state.x]} (across) and ${data.axes[state.y]} (up), ${whole(inside)} of ${whole(n)} `
      + `rows in view, zoom ${state.zoom.toPrecision(3)}.`
      + (outside ? ` ${whole(outside)} rows lie far out; zoom out to see them at the edge.` : "");
    if (byId("status").textContent !== text) byId("status").textContent = text;
    canvas.setAttribute("aria-label", text);
  };

  // ---- the address of the page keeps the view -----------------------------------------------------
  const readAddress = () => {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const view = views.findIndex((one) => one.title === wanted.get("view"));
    if (view >= 0) state.view = view;
    for (const axis of ["x", "y"]) {
      const place = data.axes.indexOf(wanted.get(axis));
      if (place >= 0) state[axis] = place;
    }
    state.zoom = Math.min(Math.max(Number(wanted.get("zoom")) || 1, LEAST_ZOOM), MOST_ZOOM);
    const at = (wanted.get("at") || "").split(",").map(Number);
    state.at = wanted.get("at") && at.length === 2 && at.every(isFinite) ? at : null;
  };
  const writeAddress = () => {
    const words = new URLSearchParams({ view: views[state.view].title, x: data.axes[state.x], y: data.axes[state.y] });
    if (state.zoom !== 1) words.set("zoom", state.zoom.toPrecision(4));
    if (state.at) words.set("at", state.at.map((value) => value.toPrecision(6)).join(","));
    try { history.replaceState(null, "", "#" + words); } catch { /* not allowed inside some frames */ }
  };
  const showChoice = () => { for (const name of ["view", "x", "y"]) byId(name).value = state[name]; };
  const pending = { frame: 0 };
  const redraw = () => { cancelAnimationFrame(pending.frame); pending.frame = requestAnimationFrame(draw); };
  const show = () => { redraw(); showChoice(); writeAddress(); };

  // ---- hover: name, label or value of the nearest point -------------------------------------------
  const line = (tag, text) => {
    const part = document.createElement(tag);
    part.textContent = text;
    return part;
  };
  const lines = (i) => {
    const row = `row ${rows[i]}`, parts = data.names ? [line("b", data.names[i]), line("div", row)] : [line("b", row)];
    if (color) {
      const number = color.values[i], value = labels ? labels[number] : isNaN(number) ? "missing" : String(Number(number.toPrecision(5)));
      parts.push(line("div", data.color_label ? `${data.color_label}: ${value}` : value));
    }
    return parts;
  };
  const hover = (px, py) => {
    const side = canvas.clientWidth, [xs, ys] = placesOf(side);
    let best = NEAR ** 2, found = -1;
    for (let i = 0; i < n && px !== null; i++) {
      const far = (xs[i] - px) ** 2 + (ys[i] - py) ** 2;
      if (far < best && shown(i)) { best = far; found = i; }
    }
    box.hidden = found < 0;
    if (found >= 0) {
      box.replaceChildren(...lines(found));
      box.style.left = `${xs[found] < side / 2 ? xs[found] + 12 : Math.max(0, xs[found] - 12 - box.offsetWidth)}px`;
      box.style.top = `${Math.max(0, ys[found] - 14)}px`;
    }
    if (found !== state.found) { state.found = found; redraw(); }
  };

  // ---- legend: a click hides or shows a label -----------------------------------------------------
  const legendItem = (name, place) => {
    const button = line("button", ""), key = document.createElement("i"), item = document.createElement("li");
    key.style.background = color.shades[place];
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.append(key, line("span", name));
    button.addEventListener("click", () => {
      if (!hidden.delete(place)) hidden.add(place);
      button.setAttribute("aria-pressed", String(!hidden.has(place)));
      redraw();
    });
    item.append(button);
    return item;
  };
  if (labels) byId("legend").append(...labels.map(legendItem));
  if (ramp) {
    byId("ramp").style.background = `linear-gradient(to right, ${color.ramp.join(", ")})`;
    byId("ends").append(...[color.low, color.high].map((end) => line("span", String(Number(end.toPrecision(3))))));
  }

  // ---- control ------------------------------------------------------------------------------------
  const zoomTo = (zoom, px = canvas.clientWidth / 2, py = canvas.clientWidth / 2) => {
    const before = square(), share = Math.min(Math.max(zoom, LEAST_ZOOM), MOST_ZOOM), side = canvas.clientWidth;
    const shift = before.half * (1 - state.zoom / share);
    state.at = [before.at[0] + (2 * px / side - 1) * shift, before.at[1] + (1 - 2 * py / side) * shift];
    state.zoom = share;
    show();
  };
  const move = (dx, dy) => {
    const { at, half } = square();
    state.at = [at[0] + 2 * half * dx, at[1] + 2 * half * dy];
    show();
  };
  const reset = () => { state.zoom = 1; state.at = null; state.found = -1; box.hidden = true; show(); };
  const spot = (event) => { const edge = canvas.getBoundingClientRect(); return [event.clientX - edge.left, event.clientY - edge.top]; };
  let grip = null;
  canvas.addEventListener("pointerdown", (event) => { grip = spot(event); canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    const now = spot(event), side = canvas.clientWidth;
    if (!grip) { hover(...now); return; }
    hover(null);
    move((grip[0] - now[0]) / side, (now[1] - grip[1]) / side);
    grip = now;
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { grip = null; });
  canvas.addEventListener("pointerleave", () => hover(null));
  canvas.addEventListener("dblclick", (event) => zoomTo(state.zoom * 2, ...spot(event)));
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey) return;  // a page scrolls past the picture
    event.preventDefault();
    zoomTo(state.zoom * Math.exp(-event.deltaY / (event.deltaMode ? 10 : 300)), ...spot(event));
  }, { passive: false });
  const keys = {
    "+": () => zoomTo(state.zoom * 2), "=": () => zoomTo(state.zoom * 2), "-": () => zoomTo(state.zoom / 2), "0": reset,
    ArrowLeft: () => move(-0.1, 0), ArrowRight: () => move(0.1, 0), ArrowUp: () => move(0, 0.1), ArrowDown: () => move(0, -0.1),
  };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  for (const name of ["view", "x", "y"]) {
    byId(name).addEventListener("change", (event) => { state[name] = Number(event.target.value); reset(); });
  }
  byId("reset").addEventListener("click", reset);
  window.addEventListener("hashchange", () => { if (location.hash.includes("=")) { readAddress(); show(); } });
  window.addEventListener("resize", redraw);

  readAddress();
  showChoice();
  draw();
})();
