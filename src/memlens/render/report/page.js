// Draws what the page says as JSON, and sorts its tables. Reads the theme's colours from page.css.
//
// A chart comes as JSON in its <figure>: the keys and types are `Spec` in charts.py, and nothing else is read.
// Sizes are whole bytes, drawn divided by `factor`; places along the axis are whole numbers, drawn divided by
// `per_unit`. Every text goes through `safe`. A new key goes into `Spec` first.
"use strict";
(() => {
  const style = () => getComputedStyle(document.documentElement);
  const colour = (name) => style().getPropertyValue("--c-" + name).trim() || style().getPropertyValue("--soft");
  // plotly reads tags and entities in any text: a name from a record has none
  const safe = (text) =>
    String(text).replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);
  const short = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  const tail = (text, most) => (text.length > most ? "…" + text.slice(1 - most) : text);
  const CURVE = 300, EDGES = 90, ROW = 17, SIGN = 6.6; // pixels: the curve, around it, a row of calls, a letter
  const narrow = () => window.innerWidth < 640;

  function traces(spec) {
    const x = spec.x.map((place) => place / spec.per_unit);
    const scaled = (sizes) => sizes.map((size) => size / spec.factor);
    const hover = `%{y:.3f} ${spec.unit}`;
    const found = spec.areas.map((area) => ({
      type: "scatter", mode: "lines", x, y: scaled(area.y), name: safe(short(area.name, narrow() ? 30 : 44)), stackgroup: "all",
      line: { shape: "hv", width: 0 }, fillcolor: colour(area.colour), hovertemplate: hover,
    }));
    for (const line of spec.lines) {
      found.push({
        type: "scatter", mode: "lines", x, y: scaled(line.y), name: safe(line.name), hovertemplate: hover,
        line: { shape: "hv", width: 1.4, color: colour(line.colour), dash: line.dash || "solid" },
      });
    }
    if (spec.phases && spec.phases.length) {
      found.push({
        type: "scatter", mode: "lines", x, y: found[found.length - 1].y, text: spec.phases.map(safe), name: "",
        hovertemplate: "%{text}<extra></extra>", line: { width: 0 }, showlegend: false,
      });
    }
    (spec.calls || []).forEach((call, row) => found.push(...calls(spec, call, row)));
    return found;
  }

  // a row of brackets below the curve for each function
  function calls(spec, call, row) {
    const x = [], y = [], text = [];
    for (const [start, end, grew] of call.spans) {
      const told = safe(`${call.name}: ${((end - start) / 1e6).toFixed(3)} s, ${grew}`);
      x.push(start / spec.per_unit, end / spec.per_unit, null);
      y.push(row, row, null);
      text.push(told, told, null);
    }
    return [{
      type: "scatter", mode: "lines+markers", x, y, text, yaxis: "y2", showlegend: false, name: "",
      hovertemplate: "%{text}<extra></extra>", line: { width: 3, color: colour("p" + (row % 8)) },
      marker: { symbol: "line-ns-open", size: 10, color: colour("p" + (row % 8)), line: { width: 2 } },
    }];
  }

  // how many rows plotly's legend will have: each entry as wide as the longest
  function legendRows(spec, width) {
    const names = [...spec.areas, ...spec.lines].map((each) => short(each.name, narrow() ? 30 : 44).length);
    const beside = Math.max(Math.floor((width - 60) / (Math.max(...names, 1) * SIGN + 50)), 1);
    return Math.ceil(names.length / beside);
  }

  function layout(spec, width) {
    const ink = style().getPropertyValue("--ink").trim(), soft = style().getPropertyValue("--soft").trim();
    const grid = style().getPropertyValue("--line").trim(), panel = style().getPropertyValue("--panel").trim();
    const rows = (spec.calls || []).length, below = rows ? (ROW * rows) / (CURVE + ROW * rows) : 0;
    const shapes = [], annotations = [];
    const last = spec.x.length ? spec.x[spec.x.length - 1] : 1, first = spec.x.length ? spec.x[0] : 0;
    const room = (text) => ((short(text, narrow() ? 10 : 24).length + 2) * SIGN * (last - first)) / (width - 70);
    let taken = -Infinity;
    const line = (x, dash, color, width) => shapes.push({
      type: "line", x0: x, x1: x, y0: below, y1: 1, yref: "paper", layer: "below", line: { color, width, dash },
    });
    const label = (x, text, color) => annotations.push({
      x, y: 1, yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 11, color },
      text: safe(short(text, narrow() ? 10 : 24)),
    });
    for (const band of spec.bands || []) {
      const start = band.from / spec.per_unit;
      line(start, "dot", soft, 0.6);
      if (band.to - band.from < room(band.text) / 2 || band.from < taken) continue;
      taken = band.from + room(band.text);
      label(start, band.text, soft);
    }
    for (const mark of spec.marks || []) {
      line(mark.x / spec.per_unit, "dash", soft, 0.8);
      if (mark.x < taken) continue;
      taken = mark.x + room(mark.text);
      label(mark.x / spec.per_unit, mark.text, soft);
    }
    if (spec.moment) {
      const x = spec.moment.x / spec.per_unit, right = spec.moment.x > first + 0.8 * (last - first);
      line(x, "dash", ink, 1);
      annotations.push({
        x, y: 0.99, yref: "paper", xanchor: right ? "right" : "left", yanchor: "top", showarrow: false,
        text: safe(short(spec.moment.text, 30)), font: { size: 11, color: ink }, bgcolor: panel,
      });
    }
    for (const rule of spec.rules || []) {
      const y = rule.y / spec.factor;
      shapes.push({ type: "line", x0: 0, x1: 1, xref: "paper", y0: y, y1: y, line: { color: colour("p1"), width: 1.5 } });
      annotations.push({
        x: 0, xref: "paper", y, xanchor: "left", yanchor: "bottom", showarrow: false, text: safe(rule.text),
        font: { size: 11, color: colour("p1") },
      });
    }
    const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: grid, automargin: true };
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, family: style().fontFamily || "sans-serif" },
      margin: { l: 8, r: 8, t: 28, b: 8 }, hovermode: "x unified", shapes, annotations,
      hoverlabel: { bgcolor: panel, bordercolor: grid, font: { color: ink, size: 12 } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink },
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      showlegend: true, legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", font: { size: 12 }, traceorder: "normal" },
      xaxis: {
        ...axis, rangemode: "tozero", anchor: rows ? "y2" : "y", hoverformat: spec.axis === "events" ? ",d" : ",.3f",
        title: { text: spec.axis, font: { size: 12, color: soft }, standoff: 6 },
      },
      yaxis: { ...axis, title: { text: spec.unit, font: { size: 12, color: soft } }, rangemode: "tozero", domain: [below ? below + 0.03 : 0, 1] },
      ...(rows ? {
        yaxis2: {
          ...axis, domain: [0, below], autorange: "reversed", fixedrange: true, showgrid: false, zeroline: false,
          tickmode: "array", tickvals: spec.calls.map((_, row) => row),
          ticktext: spec.calls.map((call) => safe(tail(call.name, narrow() ? 16 : 32))), tickfont: { size: 11 },
        },
      } : {}),
    };
  }

  const config = {
    responsive: true, displaylogo: false, displayModeBar: "hover",
    // named one by one: among the others is one that uploads the chart
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], showSendToCloud: false, plotlyServerURL: "",
  };

  function draw() {
    for (const figure of document.querySelectorAll("figure.chart")) {
      const spec = JSON.parse(figure.querySelector("script").textContent);
      const place = figure.querySelector(".curve");
      const width = place.clientWidth, around = EDGES + 20 * legendRows(spec, width);
      place.style.height = `${CURVE + around + ROW * (spec.calls || []).length}px`;
      Plotly.react(place, traces(spec), layout(spec, width), config);
    }
  }

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
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
