"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const canvas = byId("canvas"), pen = canvas.getContext("2d"), box = byId("hover");
  const NEAR = 12, LEAST_ZOOM = 1 / 64, MOST_ZOOM = 4096;
  document.documentElement.classList.toggle("dark", data.theme === "dark");

  const decode = (text, Kind) => {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new Kind(bytes.buffer);
  };
  const xs = decode(data.x, Float32Array), ys = decode(data.y, Float32Array), n = xs.length;
  const rows = data.rows && decode(data.rows, Int32Array);
  const color = data.color && { ...data.color, values: decode(data.color.values, data.color.labels ? Int32Array : Float32Array) };
  const labels = color && color.labels, hidden = new Set();

  // ---- colours: of the label, of the number, or one for all ---------------------------------------
  const hex = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  const ramp = data.ramp.map(hex);
  const shade = (part) => {
    const place = Math.min(Math.max(part, 0), 1) * (ramp.length - 1), low = Math.floor(place);
    const next = ramp[Math.min(low + 1, ramp.length - 1)];
    return `rgb(${ramp[low].map((value, i) => Math.round(value + (next[i] - value) * (place - low)))})`;
  };
  const colorOf = (i) => {
    if (!color) return data.single;
    if (labels) return color.shades[color.values[i]];
    const value = color.values[i];
    return isNaN(value) ? data.missing : shade((value - color.low) / (color.high - color.low));
  };
  const fills = Array.from({ length: n }, (_, i) => colorOf(i));
  const shown = (i) => !labels || !hidden.has(color.values[i]);

  // ---- the square that is shown -------------------------------------------------------------------
  const state = { zoom: 1, at: data.centre.slice(), found: -1 };
  const half = () => data.half / state.zoom;
  const toPixel = (i, side) => [
    ((xs[i] - state.at[0]) / (2 * half()) + 0.5) * side, (0.5 - (ys[i] - state.at[1]) / (2 * half())) * side,
  ];

  const draw = () => {
    const ratio = window.devicePixelRatio || 1, side = Math.max(200, Math.round(canvas.clientWidth * ratio));
    if (canvas.width !== side) canvas.width = canvas.height = side;
    pen.fillStyle = data.background;
    pen.fillRect(0, 0, side, side);
    const radius = ratio * Math.min(6, Math.max(1, Math.sqrt(9000 / n)) * Math.min(2, Math.sqrt(Math.max(1, state.zoom))));
    for (let i = 0; i < n; i++) {
      const [x, y] = toPixel(i, side);
      if (x < -9 || y < -9 || x > side + 9 || y > side + 9 || !shown(i)) continue;
      pen.fillStyle = fills[i];
      if (radius < 1.6 * ratio) {
        pen.fillRect(x - radius, y - radius, 2 * radius, 2 * radius);
      } else {
        pen.beginPath(); pen.arc(x, y, radius, 0, 7); pen.fill();
      }
    }
    if (state.found >= 0) {
      const [x, y] = toPixel(state.found, side);
      pen.strokeStyle = getComputedStyle(document.body).color;
      pen.lineWidth = 2 * ratio;
      pen.beginPath(); pen.arc(x, y, radius + 3 * ratio, 0, 7); pen.stroke();
    }
  };
  const pending = { frame: 0 };
  const show = () => { cancelAnimationFrame(pending.frame); pending.frame = requestAnimationFrame(draw); };

  // ---- hover: name, label or value of the nearest point -------------------------------------------
  const nearest = (px, py) => {
    const side = canvas.clientWidth, scale = side / (2 * half());
    const x = state.at[0] + (px - side / 2) / scale, y = state.at[1] - (py - side / 2) / scale;
    let best = (NEAR / scale) ** 2, found = -1;
    for (let i = 0; i < n; i++) {
      const far = (xs[i] - x) ** 2 + (ys[i] - y) ** 2;
      if (far < best && shown(i)) { best = far; found = i; }
    }
    return found;
  };
  const line = (tag, text) => {
    const part = document.createElement(tag);
    part.textContent = text;
    return part;
  };
  const describe = (i) => {
    const row = `row ${rows ? rows[i] : i}`, lines = data.names ? [line("b", data.names[i]), line("div", row)] : [line("b", row)];
    if (color) {
      const value = labels ? labels[color.values[i]] : isNaN(color.values[i]) ? "missing" : String(Number(color.values[i].toPrecision(5)));
      lines.push(line("div", data.color_label ? `${data.color_label}: ${value}` : value));
    }
    return lines;
  };
  const hover = (px, py) => {
    const found = px === null ? -1 : nearest(px, py);
    box.hidden = found < 0;
    if (found >= 0) {
      const side = canvas.clientWidth, [x, y] = toPixel(found, side);
      box.replaceChildren(...describe(found));
      box.style.left = `${x < side / 2 ? x + 12 : Math.max(0, x - 12 - box.offsetWidth)}px`;
      box.style.top = `${Math.max(0, y - 14)}px`;
    }
    if (found !== state.found) { state.found = found; show(); }
  };

  // ---- legend: a click hides or shows a label -----------------------------------------------------
  const makeLegend = () => {
    if (labels) {
      labels.forEach((name, place) => {
        const button = line("button", ""), key = document.createElement("i"), item = document.createElement("li");
        key.style.background = color.shades[place];
        button.type = "button";
        button.setAttribute("aria-pressed", "true");
        button.append(key, line("span", name));
        button.addEventListener("click", () => {
          if (!hidden.delete(place)) hidden.add(place);
          button.setAttribute("aria-pressed", String(!hidden.has(place)));
          show();
        });
        item.append(button);
        byId("legend").append(item);
      });
    } else if (color) {
      byId("ramp").style.background = `linear-gradient(to right, ${data.ramp.join(", ")})`;
      byId("ends").replaceChildren(...[color.low, color.high].map((end) => line("span", String(Number(end.toPrecision(3))))));
    }
    byId("ramp").hidden = byId("ends").hidden = !color || Boolean(labels);
  };

  // ---- control ------------------------------------------------------------------------------------
  const zoomTo = (zoom, px, py) => {
    const next = Math.min(Math.max(zoom, LEAST_ZOOM), MOST_ZOOM), side = canvas.clientWidth;
    const dx = (px / side - 0.5) * 2, dy = (0.5 - py / side) * 2, before = half();
    state.zoom = next;
    state.at = [state.at[0] + dx * (before - half()), state.at[1] + dy * (before - half())];
    show();
  };
  const move = (dx, dy) => { state.at = [state.at[0] + 2 * half() * dx, state.at[1] + 2 * half() * dy]; show(); };
  const reset = () => { state.zoom = 1; state.at = data.centre.slice(); show(); };
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
    if (document.activeElement !== canvas && !event.ctrlKey) return;  // a notebook scrolls past the picture
    event.preventDefault();
    zoomTo(state.zoom * Math.exp(-event.deltaY / (event.deltaMode ? 10 : 300)), ...spot(event));
  }, { passive: false });
  const middle = () => canvas.clientWidth / 2;
  const keys = {
    "+": () => zoomTo(state.zoom * 2, middle(), middle()), "=": () => zoomTo(state.zoom * 2, middle(), middle()),
    "-": () => zoomTo(state.zoom / 2, middle(), middle()), "0": reset,
    ArrowLeft: () => move(-0.1, 0), ArrowRight: () => move(0.1, 0), ArrowUp: () => move(0, 0.1), ArrowDown: () => move(0, -0.1),
  };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  byId("reset").addEventListener("click", reset);
  window.addEventListener("resize", show);

  makeLegend();
  draw();
})();
