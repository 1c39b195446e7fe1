// Draws what the page says as JSON, tells who held memory at a moment, and sorts its tables.
//
// A chart comes as JSON in its <figure>: the keys and types are `Spec` in charts.py, and nothing else is read.
// Sizes are whole bytes, drawn divided by `factor`; places along the axis are whole numbers, drawn divided by
// `per_unit`. Lists of numbers are packed (`packed` in charts.py). Text from a record is only ever set as text.
"use strict";
(() => {
  const token = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
  const colour = (name) => token("--c-" + name) || token("--soft");
  const short = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  const tail = (text, most) => (text.length > most ? "…" + text.slice(1 - most) : text);
  const narrow = () => window.innerWidth < 640;
  const CURVE = 300, ROW = 17, LETTER = 6.6, MIB = 1048576; // pixels: the curve, a row of calls, a letter
  const ROWS = 12; // of lines and of allocations at a moment
  const mib = (size) => (size / MIB).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

  function unpack(pairs) {
    const values = [];
    let value = 0;
    for (let place = 0; place < pairs.length; place += 2)
      for (let times = pairs[place + 1]; times > 0; times--) values.push((value += pairs[place]));
    return values;
  }

  function element(name, properties, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) key.includes("-") ? made.setAttribute(key, value) : (made[key] = value);
    made.append(...children);
    return made;
  }

  // the chart ------------------------------------------------------------------------------------------

  function chart(figure) {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    const place = figure.querySelector(".curve");
    const at = unpack(spec.x), x = at.map((each) => each / spec.per_unit);
    const areas = spec.areas.map((area) => ({ name: area.name, colour: area.colour, sizes: unpack(area.y) }));
    const lines = spec.lines.map((line) => ({ name: line.name, colour: line.colour, dash: line.dash, sizes: unpack(line.y) }));
    const phases = [];
    for (const [text, times] of spec.phases || []) phases.push(...Array(times).fill(text));
    const events = spec.events ? unpack(spec.events) : [];
    const held = spec.holdings ? holdings(spec.holdings) : null;
    let chosen = spec.moment ? nearest(at, spec.moment.x) : -1;
    let plot = null;

    function draw() {
      if (plot) plot.destroy();
      place.replaceChildren();
      const width = place.clientWidth;
      plot = new uPlot(options(width), [x, ...stacked(areas, spec.factor), ...lines.map((each) => each.sizes.map((size) => size / spec.factor))], place);
      calls(spec, plot, place);
      plot.over.tabIndex = 0;
      plot.over.setAttribute("aria-label", "arrow keys move the moment, a click chooses one");
      plot.over.addEventListener("keydown", (key) => {
        const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -50, PageDown: 50, Home: -Infinity, End: Infinity }[key.key];
        if (step === undefined) return;
        key.preventDefault();
        choose(Math.max(0, Math.min(x.length - 1, (chosen < 0 ? 0 : chosen) + step)));
      });
      let pressed = 0;
      plot.over.addEventListener("mousedown", (press) => (pressed = press.clientX));
      plot.over.addEventListener("click", (click) => {
        if (Math.abs(click.clientX - pressed) < 4) choose(plot.posToIdx(click.clientX - plot.over.getBoundingClientRect().left));
      });
      if (held && chosen >= 0) choose(chosen);
    }

    function choose(index) {
      if (!held) return;
      chosen = index;
      const when = spec.axis === "events" ? `event ${events[index].toLocaleString("en")}` : `${x[index].toFixed(3)} s`;
      held.show(figure.querySelector(".moment"), events[index], phases[index] ? `${when}, ${phases[index]}` : when);
      plot.redraw(false);
      plot.setLegend({ idx: chosen }, false);
    }

    function options(width) {
      const ink = token("--ink"), soft = token("--soft"), grid = token("--line");
      const family = getComputedStyle(document.body).fontFamily;
      const steps = uPlot.paths.stepped({ align: 1 });
      const told = (sizes) => (_, __, ___, index) => (index === null || index === undefined ? "" : `${(sizes[index] / spec.factor).toFixed(3)} ${spec.unit}`);
      const axis = { stroke: soft, font: `12px ${family}`, labelFont: `12px ${family}`, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
      const top = Math.max(0, ...(spec.rules || []).map((rule) => rule.y / spec.factor));
      return {
        width, height: CURVE, padding: [22, 14, 0, 0],
        legend: { live: true },
        cursor: { drag: { x: !matchMedia("(pointer: coarse)").matches, y: false, click: () => {} }, points: { show: false } },
        scales: { x: { time: false }, y: { range: (_, __, most) => [0, Math.max(most || 1, top) * 1.06] } },
        axes: [
          { ...axis, label: spec.axis, labelSize: 18, size: 30, values: (_, places) => places.map((each) => each.toLocaleString("en")) },
          { ...axis, label: spec.unit, labelSize: 18, size: 56, values: (_, sizes) => sizes.map((each) => each.toLocaleString("en")) },
        ],
        series: [
          { label: spec.axis === "events" ? "event" : "seconds", value: (_, value, __, index) => (index === null || index === undefined ? "" : `${value.toLocaleString("en")}${phases[index] ? ", " + phases[index] : ""}`) },
          ...[...areas].reverse().map((each) => ({ label: short(each.name, narrow() ? 30 : 44), fill: colour(each.colour), stroke: colour(each.colour), width: 0, paths: steps, points: { show: false }, value: told(each.sizes) })),
          ...lines.map((each) => ({ label: each.name, stroke: colour(each.colour), width: 1.4, dash: each.dash ? [2, 3] : [], paths: steps, points: { show: false }, value: told(each.sizes) })),
        ],
        hooks: { draw: [(self) => marks(self, ink, soft, family)] },
      };
    }

    // what stands across the curves: phases, marks, the moment, limits
    function marks(self, ink, soft, family) {
      const { ctx, bbox } = self, ratio = devicePixelRatio, most = narrow() ? 10 : 24;
      const right = bbox.left + bbox.width;
      const line = (from, to, dash, stroke, width) => {
        ctx.beginPath(); ctx.setLineDash(dash.map((each) => each * ratio)); ctx.strokeStyle = stroke; ctx.lineWidth = width * ratio;
        ctx.moveTo(...from); ctx.lineTo(...to); ctx.stroke();
      };
      const upright = (left, dash, stroke, width) => line([left, bbox.top], [left, bbox.top + bbox.height], dash, stroke, width);
      const write = (text, left, top, stroke, align) => { ctx.fillStyle = stroke; ctx.textAlign = align || "left"; ctx.fillText(text, left, top); };
      ctx.save();
      ctx.font = `${11 * ratio}px ${family}`;
      let taken = -Infinity;
      const label = (left, text, room) => {
        const shown = short(text, most), width = ctx.measureText(shown).width;
        if (left < taken || room < width / 2 || left + width > right + 14 * ratio) return;
        taken = left + width + 8 * ratio;
        write(shown, left, bbox.top - 6 * ratio, soft);
      };
      const inside = (left) => left >= bbox.left - 1 && left <= right + 1;
      const across = (value) => self.valToPos(value / spec.per_unit, "x", true);
      for (const band of spec.bands || []) {
        const left = across(band.from);
        if (!inside(left)) continue;
        upright(left, [1, 3], soft, 0.6);
        label(left, band.text, across(band.to) - left);
      }
      for (const mark of spec.marks || []) {
        const left = across(mark.x);
        if (!inside(left)) continue;
        upright(left, [5, 4], soft, 0.8);
        label(left, mark.text, Infinity);
      }
      for (const rule of spec.rules || []) {
        const top = self.valToPos(rule.y / spec.factor, "y", true);
        line([bbox.left, top], [right, top], [], colour("p1"), 1.5);
        write(rule.text, bbox.left + 4 * ratio, top - 5 * ratio, colour("p1"));
      }
      if (chosen >= 0 && inside(across(at[chosen]))) {
        const left = across(at[chosen]), late = left > bbox.left + 0.8 * bbox.width;
        upright(left, [5, 3], ink, 1.2);
        const said = spec.moment && at[chosen] === spec.moment.x ? spec.moment.text : "";
        write(short(said, 30), left + (late ? -5 : 5) * ratio, bbox.top + 13 * ratio, ink, late ? "right" : "left");
      }
      ctx.restore();
    }

    draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    let before = place.clientWidth;
    new ResizeObserver(() => {
      if (place.clientWidth === before) return;
      before = place.clientWidth;
      draw();
    }).observe(place);
  }

  function nearest(places, wanted) {
    let low = 0, high = places.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      places[middle] < wanted ? (low = middle + 1) : (high = middle);
    }
    return low;
  }

  // areas on top of each other, the highest first: each is painted over by those below it
  function stacked(areas, factor) {
    const tops = [];
    let below = null;
    for (const layer of areas) {
      below = layer.sizes.map((size, index) => size + (below ? below[index] : 0));
      tops.unshift(below.map((size) => size / factor));
    }
    return tops;
  }

  // a row of brackets below the curve for each function
  function calls(spec, plot, place) {
    const rows = spec.calls || [];
    if (!rows.length) return;
    const canvas = element("canvas", { className: "calls" }), said = element("p", { className: "note" });
    const left = plot.bbox.left / devicePixelRatio, width = plot.bbox.width / devicePixelRatio;
    canvas.width = place.clientWidth * devicePixelRatio;
    canvas.height = ROW * rows.length * devicePixelRatio;
    canvas.style.height = `${ROW * rows.length}px`;
    plot.root.querySelector(".u-wrap").after(canvas, said);
    const across = (value) => left + plot.valToPos(value / spec.per_unit, "x");
    const paint = () => {
      const ctx = canvas.getContext("2d"), family = getComputedStyle(document.body).fontFamily;
      ctx.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
      ctx.clearRect(0, 0, canvas.width, canvas.height);
      ctx.font = `11px ${family}`;
      rows.forEach((call, row) => {
        const middle = ROW * row + ROW / 2;
        ctx.fillStyle = ctx.strokeStyle = colour("p" + (row % 8));
        for (const [start, end] of call.spans) {
          const from = Math.max(across(start), left), to = Math.min(across(end), left + width);
          if (to >= from) ctx.fillRect(from, middle - 2, Math.max(to - from, 1), 4);
        }
        ctx.fillStyle = token("--ink");
        ctx.fillText(tail(call.name, narrow() ? 16 : 32), left + 4, middle - 3);
      });
    };
    canvas.addEventListener("mousemove", (move) => {
      const call = rows[Math.floor(move.offsetY / ROW)];
      const span = call && call.spans.find(([start, end]) => across(start) - 2 <= move.offsetX && move.offsetX <= across(end) + 2);
      said.textContent = span ? `${call.name}: ${((span[1] - span[0]) / 1e6).toFixed(3)} s, ${span[2]}` : "";
    });
    plot.hooks.draw.push(paint);
    paint();
  }

  // who holds memory at a moment -------------------------------------------------------------------------

  function holdings(given) {
    const start = unpack(given.start), end = unpack(given.end), bytes = unpack(given.bytes);
    const category = unpack(given.category), module = unpack(given.module), line = unpack(given.line);

    function sums(alive, of) {
      const totals = new Map();
      for (const each of alive) totals.set(of[each], (totals.get(of[each]) || 0) + bytes[each]);
      return [...totals].sort((a, b) => b[1] - a[1]);
    }

    const size = (value) => element("td", { className: "number", title: `${value} bytes`, "data-bytes": value }, mib(value));
    const table = (title, rows) =>
      element("figure", { className: "block table" }, element("figcaption", {}, title),
        element("div", { className: "scroll" }, element("table", {}, element("tbody", {}, ...rows))));

    function tree(alive) {
      const root = { bytes: 0, children: new Map() };
      for (const [number, total] of sums(alive, module)) {
        const path = given.modules[number];
        const parts = path === null ? ["(outside every module)"] : path === "" ? ["(the model itself)"] : path.split(".");
        let node = root;
        for (const part of parts) {
          if (!node.children.has(part)) node.children.set(part, { bytes: 0, children: new Map() });
          node = node.children.get(part);
          node.bytes += total;
        }
      }
      return root;
    }

    function branch(name, node) {
      let children = [...node.children], label = name;
      while (children.length === 1 && children[0][1].bytes === node.bytes) { // one chain is one row
        label += "." + children[0][0];
        node = children[0][1];
        children = [...node.children];
      }
      const row = [element("span", { title: `${node.bytes} bytes`, "data-bytes": node.bytes }, `${mib(node.bytes)} MiB `), label];
      if (!children.length) return element("li", {}, ...row);
      children.sort((a, b) => b[1].bytes - a[1].bytes);
      return element("li", {}, element("details", {}, element("summary", {}, ...row), element("ul", {}, ...children.map(([part, below]) => branch(part, below)))));
    }

    function show(panel, event, when) {
      const alive = [];
      let total = given.baseline;
      for (let each = 0; each < start.length && start[each] <= event; each++)
        if (end[each] > event) { alive.push(each); total += bytes[each]; }
      const rows = sums(alive, category).map(([number, sum]) =>
        element("tr", {}, element("td", {}, element("i", { className: "chip c-" + given.colours[number] }), given.categories[number]), size(sum)));
      if (given.baseline) rows.push(element("tr", {}, element("td", {}, "there before the recording"), size(given.baseline)));
      const held = sums(alive, line), modules = [...tree(alive).children].sort((a, b) => b[1].bytes - a[1].bytes);
      const largest = [...alive].sort((a, b) => bytes[b] - bytes[a]).slice(0, ROWS);
      panel.replaceChildren(
        element("p", { className: "lead" }, element("strong", {}, `At ${when}: `), element("span", { "data-bytes": total, title: `${total} bytes` }, `${mib(total)} MiB allocated`), ". Click the curve, or use the arrow keys on it, for another moment."),
        element("div", { className: "blocks" },
          table("What it is for, MiB", rows),
          element("figure", { className: "block table" }, element("figcaption", {}, "By module"), element("ul", { className: "tree" }, ...modules.map(([name, node]) => branch(name, node)))),
          table("By line, MiB", held.slice(0, ROWS).map(([number, sum]) => element("tr", {}, element("td", {}, given.lines[number] || "(no line known)"), size(sum)))),
          table("Largest allocations, MiB", largest.map((each) => element("tr", {}, element("td", {}, [given.categories[category[each]], given.modules[module[each]], given.lines[line[each]]].filter(Boolean).join(", ")), size(bytes[each])))),
        ),
      );
    }

    return { show };
  }

  // tables ------------------------------------------------------------------------------------------------

  // a click sorts by a column, the next one the other way round; numbers by their value
  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const number = head.classList.contains("number");
      const before = head.getAttribute("aria-sort");
      const order = before ? (before === "descending" ? "ascending" : "descending") : number ? "descending" : "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const value = (row) => {
        const cell = row.cells[column];
        return number ? Number(cell.dataset.sort ?? -Infinity) : cell.textContent.trim();
      };
      const sign = order === "ascending" ? 1 : -1;
      const compare = (a, b) => (number ? a - b || 0 : a.localeCompare(b, undefined, { numeric: true }));
      [...body.rows].sort((a, b) => sign * compare(value(a), value(b))).forEach((row) => body.append(row));
    }));
  }

  document.querySelectorAll("table").forEach(sortable);
  document.querySelectorAll("figure.chart").forEach(chart);
})();
