/* Connects the controls of the page with what is drawn. */
"use strict";
(() => {
  const { data, compare, map, gradient } = Viewer;
  const find = id => document.getElementById(id), all = (what, root = document) => [...root.querySelectorAll(what)];
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const pair = data.pair || {};
  const state = {
    slices: data.planes.map(p => p.slices >> 1),
    fixed: pair.fixed, fixedName: data.names[pair.fixed],
    moving: pair.moving, movingName: data.names[pair.moving],
    view: "edges", phase: 1, place: .5, tiles: 8, share: .16, map: "grid",
  };
  const WORDS = {
    edges: find("compare-words")?.textContent,
    pair: "The fixed and the moving image; the same place is at the same place in both.",
    flicker: "The fixed and the moving image in turns: what jumps does not match.",
    checker: "Tiles of the fixed and the moving image in turns: edges should go on across tiles.",
    swipe: "The fixed image is left of the line, the moving one right of it: edges should go on across the line.",
  };
  const roomy = matchMedia("(min-width: 900px)");
  const boxes = { compare: all("#compare figure"), map: all("#warp figure") };
  const turns = new Map();

  /** Draws one box; if it is asked again while drawing, the last wish is drawn after it. */
  async function draw(kind, plane) {
    const box = boxes[kind][plane], key = kind + plane;
    if (!box) return;
    if (turns.has(key)) { turns.set(key, true); return; }
    turns.set(key, false);
    const canvas = box.querySelector("canvas"), number = state.slices[plane];
    if (kind === "compare") await compare(canvas, plane, number, state);
    else await map(canvas, plane, number, state.map);
    describe(kind, plane, canvas, number);
    const again = turns.get(key);
    turns.delete(key);
    if (again) draw(kind, plane);
  }

  function describe(kind, plane, canvas, number) {
    const p = data.planes[plane], where = p.slices > 1 ? `slice ${number + 1} of ${p.slices}` : "the slice";
    const views = { pair: "side by side", flicker: "in turns", checker: "as checkerboard", swipe: "left and right of a line" };
    const what = kind === "map" ? data.maps[state.map].name
      : state.view === "edges" ? `edges of the fixed image on the moving image, ${state.movingName}`
      : `fixed and moving image, ${state.movingName}, ${views[state.view]}`;
    canvas.setAttribute("aria-label", `${p.name}, ${where}: ${what}`);
    canvas.dataset.drawn = [state.view, state.moving, state.map, number].join(" ");
  }

  const drawAll = kind => data.planes.forEach((_, plane) => draw(kind, plane));

  function setSlice(plane, number) {
    const p = data.planes[plane];
    state.slices[plane] = Math.min(p.slices - 1, Math.max(0, number));
    for (const kind of ["compare", "map"]) {
      const box = boxes[kind][plane];
      if (!box) continue;
      const slider = box.querySelector("input");
      if (slider) slider.value = state.slices[plane];
      const out = box.querySelector("output");
      if (out) out.textContent = p.positions[state.slices[plane]];
      draw(kind, plane);
    }
  }

  function connectSlices() {
    for (const kind of ["compare", "map"]) boxes[kind].forEach((box, plane) => {
      const slider = box.querySelector("input");
      if (slider) slider.addEventListener("input", () => setSlice(plane, +slider.value));
    });
  }

  /** Radio buttons of a group call `action` with their value. */
  function connectChoice(name, action) {
    const buttons = all(`input[name="${name}"]`);
    buttons.forEach(button => button.addEventListener("change", () => { if (button.checked) action(button.value); }));
    const chosen = buttons.find(button => button.checked);
    if (chosen) action(chosen.value);
    return buttons;
  }

  function choose(buttons, number) {
    const button = buttons[number];
    if (button) { button.checked = true; button.dispatchEvent(new Event("change")); button.focus(); }
  }

  let timer = 0;
  function play(on) {
    clearInterval(timer);
    timer = 0;
    const button = find("play");
    if (button) { button.textContent = on ? "Pause" : "Play"; button.setAttribute("aria-pressed", String(on)); }
    if (on) timer = setInterval(flip, 1000 / find("speed").value);
  }
  function flip() { state.phase = 1 - state.phase; drawAll("compare"); }

  function setView(view) {
    state.view = view;
    all("[data-for]").forEach(tool => { tool.hidden = tool.dataset.for !== view; });
    boxes.compare.forEach(box => box.querySelector("canvas").classList.toggle("swiping", view === "swipe"));
    find("compare").querySelector(".planes").classList.toggle("wide", view === "pair");
    if (find("compare-words")) find("compare-words").textContent = WORDS[view];
    play(view === "flicker" && !still.matches);
    drawAll("compare");
  }

  function connectRange(id, action) {
    const slider = find(id);
    if (slider) slider.addEventListener("input", () => { action(+slider.value); drawAll("compare"); });
  }

  /** In the swipe view the line follows the pointer. */
  function connectPointer() {
    boxes.compare.forEach(box => {
      const canvas = box.querySelector("canvas");
      const follow = event => {
        if (state.view !== "swipe" || !event.buttons) return;
        const frame = canvas.getBoundingClientRect();
        state.place = Math.min(1, Math.max(0, (event.clientX - frame.left) / frame.width));
        find("place").value = 100 * state.place;
        drawAll("compare");
      };
      canvas.addEventListener("pointerdown", event => {
        if (state.view === "swipe") canvas.setPointerCapture(event.pointerId);
        follow(event);
      });
      canvas.addEventListener("pointermove", follow);
    });
  }

  function connectKeys(views, moving) {
    document.addEventListener("keydown", event => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const number = "12345".indexOf(event.key);
      if (number >= 0 && views.length) choose(views, number);
      else if (event.key === "b" && moving.length) choose(moving, (moving.findIndex(m => m.checked) + 1) % moving.length);
      else if (event.key === " " && state.view === "flicker" && event.target.tagName !== "BUTTON") { event.preventDefault(); play(!timer); }
    });
  }

  function setMap(name) {
    state.map = name;
    const about = data.maps[name], key = find("key");
    key.classList.toggle("plain", !about.ramp);
    key.querySelector(".scale").hidden = !about.ramp;
    key.querySelector("p").textContent = about.words;
    if (about.ramp) {
      key.querySelector(".bar").style.background = gradient(about.ramp);
      key.querySelector(".ticks").replaceChildren(...about.ticks.map(([share, words]) => {
        const tick = document.createElement("span");
        tick.textContent = words;
        tick.style.left = 100 * share + "%";
        return tick;
      }));
    }
    drawAll("map");
  }

  function connectTheme() {
    find("theme").addEventListener("click", () => {
      const root = document.documentElement;
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
    });
  }

  connectTheme();
  connectSlices();
  if (boxes.compare.length) {
    connectRange("place", value => { state.place = value / 100; });
    connectRange("tiles", value => { state.tiles = value; });
    connectRange("share", value => { state.share = value / 100; });
    if (find("speed")) find("speed").addEventListener("input", () => play(true));
    if (find("play")) find("play").addEventListener("click", () => play(!timer));
    roomy.addEventListener("change", () => drawAll("compare"));
    connectPointer();
    const moving = connectChoice("moving", name => { state.moving = name; state.movingName = data.names[name]; drawAll("compare"); });
    connectKeys(connectChoice("view", setView), moving);
  }
  if (boxes.map.length) connectChoice("map", setMap);
  data.planes.forEach((_, plane) => setSlice(plane, state.slices[plane]));
  addEventListener("beforeprint", () => all("details").forEach(part => { part.open = true; }));
})();
