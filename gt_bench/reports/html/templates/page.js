"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  let parsed = null; // the details are most of the page, and read when the first is asked for
  const cellOf = (id) => (parsed ??= JSON.parse(document.getElementById("cells").textContent))[id];
  const $ = (id) => document.getElementById(id);
  const el = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  };
  const table = (heads, rows) =>
    el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", { scope: "col" }, h)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((v) => el("td", {}, v === null ? "–" : String(v))))))));
  // what is between backticks is code
  const coded = (text) => text.split("`").map((part, i, all) => (i % 2 && i < all.length - 1 ? el("code", {}, part) : i % 2 ? "`" + part : part));
  const distinct = (values) => [...new Set(values)];
  const percent = (row, value) => (row.unit === "percent" ? 100 * value : value);
  // plotly reads a little HTML in texts: names must not be any
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // ---- tables
  const language = { search: "search", lengthMenu: "_MENU_ a page", info: "_START_ to _END_ of _TOTAL_", infoFiltered: "(of _MAX_)" };
  const board = new DataTable("#board", { pageLength: 25, lengthMenu: [25, 100, { label: "all", value: -1 }], order: [], language, autoWidth: false });
  for (const select of document.querySelectorAll("#filters select")) {
    const column = board.column(Number(select.dataset.column));
    const texts = distinct(column.nodes().toArray().map((node) => node.textContent.trim())).sort();
    select.append(...texts.map((text) => el("option", { value: text }, text)));
    select.addEventListener("change", () => column.search(select.value ? (text) => text.trim() === select.value : "").draw());
  }
  $("filters").addEventListener("reset", () => {
    for (const select of document.querySelectorAll("#filters select")) board.column(Number(select.dataset.column)).search("");
    board.search("").draw();
  });
  new DataTable("#claims-table", { paging: false, order: [], language, autoWidth: false });
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const node of closed) node.open = true;
    board.page.len(-1).draw();
  });
  addEventListener("afterprint", () => {
    for (const node of closed) node.open = false;
    board.page.len(25).draw();
  });

  // whatever is far down is made when it comes near
  const later = new Map();
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      later.get(entry.target)();
    }
  }, { rootMargin: "400px" });
  const whenNear = (node, work) => { later.set(node, work); seen.observe(node); };
  for (const node of document.querySelectorAll("table.printed"))
    whenNear(node, () => new DataTable(node, { paging: false, searching: false, info: false, order: [], autoWidth: false }));

  // ---- plots
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const SYMBOLS = { reproduced: "circle", consistent: "diamond", better: "triangle-up", worse: "triangle-down", undecided: "square", none: "x" };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const LIGHT = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d31", "#7f7f7f"];
  const DARK = ["#56b4e9", "#e69f00", "#2fc59a", "#ff8a4c", "#e6a3ca", "#b3dcf7", "#c9a46a", "#b0b0b0"];
  let SERIES = dark.matches ? DARK : LIGHT;
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const MARKS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon"];
  const axis = (title, more = {}) => ({ title: { text: title }, gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"), automargin: true, ...more });
  const logarithmic = (title) => axis(title, { type: "log", exponentformat: "power", dtick: 1 });
  const drawn = new Map();
  const draw = (id, make) => {
    const node = $(id);
    drawn.set(id, make);
    const { traces, layout, empty } = make();
    if (!traces.length) {
      Plotly.purge(node);
      node.replaceChildren(el("p", {}, empty));
      return;
    }
    if (!node.querySelector(".plot-container")) node.replaceChildren();
    const basic = {
      paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: colour("ink"), size: 12 }, margin: { l: 60, r: 15, t: 10, b: 60 }, height: 400,
      hovermode: "closest", hoverlabel: { align: "left" }, legend: { orientation: "h", y: 0, yref: "container", yanchor: "bottom" }, showlegend: traces.some((t) => t.name),
    };
    // a legend of many lines gets its room below, not the plot's
    if (!layout.legend) basic.height += 19 * Math.max(0, Math.ceil(traces.filter((t) => t.name).length / 3) - 2);
    Plotly.react(node, traces, { ...basic, ...layout }, { responsive: true, displaylogo: false, displayModeBar: false });
    node.removeAllListeners("plotly_click");
    node.on("plotly_click", ({ points }) => points[0].customdata && open(points[0].customdata));
  };
  const whenSeen = (id, make) => whenNear($(id), () => draw(id, make));
  const again = () => { for (const [id, make] of drawn) draw(id, make); };
  dark.addEventListener("change", () => { SERIES = dark.matches ? DARK : LIGHT; again(); });
  const narrow = matchMedia("(max-width: 640px)");
  narrow.addEventListener("change", again);

  const choose = (id, values, redraw, first = values[0]) => {
    const select = $(id) || el("select"); // no own results
    select.append(...values.map((value) => el("option", { value }, value)));
    if (first !== undefined) select.value = first;
    select.addEventListener("change", redraw);
    return () => select.value;
  };
  const most = (rows) => {
    const counts = new Map();
    for (const row of rows) counts.set(row.dataset, (counts.get(row.dataset) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0];
  };

  // differences
  const judged = data.rows.filter((row) => row.interval_low !== null && row.published_mean);
  const suite = choose("forest-suite", ["all", ...distinct(judged.map((row) => row.suite))], () => draw("forest", forest), judged.length > 60 ? judged[0].suite : "all");
  const difference = (rows, compact) => {
    rows = [...rows].reverse();
    const better = (row, value) => (100 * value * (row.direction === "max" ? 1 : -1)) / Math.abs(row.published_mean);
    const cut = (text, most = 20) => plain(text.length > most ? `${text.slice(0, most - 1)}…` : text);
    const metric = (row) => (rows.filter((r) => r.id === row.id).length > 1 ? `, ${row.metric}` : "");
    const names = rows.map((row) => (compact ? cut(`${row.model}, ${row.dataset}${metric(row)}`, narrow.matches ? 24 : 42) : narrow.matches ? `${cut(row.dataset + metric(row))}<br>${cut(row.model)}` : plain(`${row.dataset}, ${row.model}${metric(row)}`)));
    // one number that scatters widely would hide the others: its line leaves the picture
    const ends = rows.flatMap((row) => [row.interval_low, row.interval_high].map((v) => Math.abs(better(row, v)))).sort((a, b) => a - b);
    const widest = Math.max(1, 1.3 * (ends[Math.floor(0.9 * ends.length)] || 1), ...rows.map((row) => Math.abs(better(row, row.difference))));
    const margins = { x: [], y: [], array: [] };
    rows.forEach((row, i) => { if (row.margin !== null) { margins.x.push(0); margins.y.push(i); margins.array.push(Math.abs(better(row, row.margin))); } });
    const traces = rows.length ? [{ x: margins.x, y: margins.y, mode: "markers", type: "scatter", marker: { size: 1, color: colour("line") }, hoverinfo: "skip", showlegend: false,
      error_x: { type: "data", array: margins.array, thickness: compact ? 6 : 9, width: 0, color: colour("line") } }] : [];
    for (const kind of Object.keys(SYMBOLS)) {
      const mine = rows.map((row, i) => [row, i]).filter(([row]) => row.kind === kind);
      if (!mine.length) continue;
      const middle = mine.map(([row]) => better(row, row.difference));
      const spans = mine.map(([row]) => [better(row, row.interval_low), better(row, row.interval_high)].sort((a, b) => a - b));
      traces.push({ x: middle, y: mine.map(([, i]) => i), name: `${mine[0][0].sign} ${kind}`, mode: "markers", type: "scatter", customdata: mine.map(([row]) => row.id),
        marker: { symbol: SYMBOLS[kind], size: compact ? 6 : 9, color: colour(kind) },
        error_x: { type: "data", symmetric: false, array: spans.map((e, i) => e[1] - middle[i]), arrayminus: spans.map((e, i) => middle[i] - e[0]), color: colour(kind), thickness: 1.5, width: 0 },
        hoverinfo: "text", text: mine.map(([row], i) => plain(`${row.dataset}, ${row.model}, ${row.metric}: ${row.verdict}; ours ${row.mean_text}, published ${row.published_printed}; ${middle[i].toFixed(1)} % [${spans[i].map((e) => e.toFixed(1)).join(", ")}]`)) });
    }
    // where the numbers of a paper begin, from the bottom up
    const groups = compact ? rows.map((row, i) => [row.paper, i]).filter(([paper, i]) => i === rows.length - 1 || rows[i + 1].paper !== paper) : [];
    return { traces, empty: "no number of ours is compared with a published one yet",
      layout: { height: compact ? 70 + 12 * rows.length : 110 + (narrow.matches ? 40 : 22) * rows.length,
        xaxis: axis("ours minus published, %", { zeroline: true, zerolinecolor: colour("quiet"), zerolinewidth: 2, range: [-1.05 * widest, 1.05 * widest] }),
        yaxis: axis("", { tickvals: names.map((_, i) => i), ticktext: names, range: [-0.7, rows.length - 0.3], tickfont: { size: compact ? 9 : 12 } }),
        shapes: groups.map(([, i]) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: i + 0.5, y1: i + 0.5, line: { color: colour("line"), width: 1 } })),
        annotations: groups.map(([paper, i]) => ({ xref: "paper", x: 1, y: i + 0.4, xanchor: "right", yanchor: "top", showarrow: false, text: plain(paper), bgcolor: colour("paper"), font: { size: 11, color: colour("quiet") } })),
        showlegend: !compact, legend: { orientation: "h", y: 1, yanchor: "bottom" }, margin: { l: 10, r: 15, t: compact ? 5 : 30, b: 40 } } };
  };
  const numbers = data.rows.filter((row) => row.paper !== null);
  const papers = distinct(numbers.map((row) => row.paper));
  whenSeen("overview-plot", () => difference(papers.flatMap((paper) => numbers.filter((row) => row.paper === paper)), true));
  const forest = () => difference(judged.filter((row) => suite() === "all" || row.suite === suite()), false);
  whenSeen("forest", forest);

  // own results, next to others on the dataset
  const chosen = choose("own-dataset", data.own.map(([dataset, metric]) => `${dataset}, ${metric}`), () => draw("own-plot", mine));
  const mine = () => {
    const rows = data.rows.filter((row) => `${row.dataset}, ${row.metric}` === chosen());
    rows.sort((a, b) => (a.mean - b.mean) * (a.direction === "max" ? 1 : -1)); // the best is uppermost
    const several = distinct(rows.map((row) => row.model)).length < rows.length;
    const points = (some, name, mean, std, colour, symbol) => ({ x: some.map(([row]) => percent(row, row[mean])), y: some.map(([, i]) => i), name, mode: "markers", type: "scatter",
      customdata: some.map(([row]) => row.id), marker: { symbol, size: 9, color: colour }, hoverinfo: "text",
      text: some.map(([row]) => plain(`${row.suite}, ${row.model}: ${mean === "mean" ? `${row.mean_text} over ${row.runs} runs, ${row.source}` : `published ${row.published_printed}`}`)),
      ...(std && { error_x: { type: "data", array: some.map(([row]) => percent(row, row[std] || 0)), color: colour, thickness: 1.5, width: 3 } }) });
    const placed = rows.map((row, i) => [row, i]);
    const traces = [
      points(placed.filter(([row]) => row.published_mean !== null), "published", "published_mean", null, colour("quiet"), "line-ns-open"),
      points(placed.filter(([row]) => row.source !== "own"), "shipped", "mean", "std", SERIES[7], "circle-open"),
      points(placed.filter(([row]) => row.source === "own"), "your results", "mean", "std", colour("accent"), "circle"),
    ].filter((trace) => trace.x.length);
    const unit = rows.length && rows[0].unit === "percent" ? ", %" : "";
    return { traces, empty: "no result with a mean", layout: { height: 110 + (narrow.matches ? 40 : 24) * rows.length, showlegend: true,
      xaxis: axis(plain(`${rows.length ? rows[0].metric : ""}${unit}`)), margin: { l: 10, r: 15, t: 30, b: 40 }, legend: { orientation: "h", y: 1, yanchor: "bottom" },
      yaxis: axis("", { tickvals: rows.map((_, i) => i), ticktext: rows.map((row) => plain(row.model) + (several ? (narrow.matches ? "<br>" : ", ") + plain(row.suite) : "")), range: [-0.7, rows.length - 0.3] }) } };
  };
  if (data.own.length) whenSeen("own-plot", mine);

  // cost
  const mains = data.rows.filter((row, i) => data.rows.findIndex((r) => r.id === row.id) === i);
  const costly = choose("cost-dataset", distinct(mains.map((row) => row.dataset)).sort(), () => { draw("cost-seconds", cost("seconds_per_epoch", "s")); draw("cost-memory", cost("peak_memory_mib", "MiB")); }, most(mains.filter((row) => row.seconds_per_epoch)));
  const cost = (key, unit) => () => {
    const rows = mains.filter((row) => row.dataset === costly() && row[key]);
    const devices = distinct(rows.map((row) => row.device)), suites = distinct(rows.map((row) => row.suite));
    const traces = rows.map((row, n) => ({
      x: [row[key]], y: [percent(row, row.mean)], customdata: [row.id], mode: "markers", type: "scatter",
      name: plain([row.model, suites.length > 1 ? row.suite : "", devices.length > 1 ? row.device : ""].filter(Boolean).join(", ")),
      hoverinfo: "text", hovertext: plain(`${row.suite}, ${row.model}: ${row.mean_text}, ${row[key]} ${unit} on ${row.device}, ${row.parameters} parameters`),
      error_y: { type: "data", array: [percent(row, row.std)], thickness: 1, width: 3, color: SERIES[n % 8] }, marker: { size: 10, symbol: MARKS[(n + Math.floor(n / 8)) % 8], color: SERIES[n % 8] },
    }));
    const row = rows[0] || {};
    return { traces, empty: "nothing was measured on this dataset", layout: { xaxis: axis(`${key === "peak_memory_mib" ? "peak MiB" : "training seconds per epoch"}${devices.length === 1 ? ` on ${plain(devices[0])}` : ""} (log)`, { type: "log", minorloglabels: "complete", nticks: 6 }),
      yaxis: axis(plain(`${row.metric}${row.unit === "percent" ? ", %" : ""} ${row.direction === "max" ? "↑" : "↓"}`)) } };
  };
  whenSeen("cost-seconds", cost("seconds_per_epoch", "s"));
  whenSeen("cost-memory", cost("peak_memory_mib", "MiB"));

  // learning curves
  const lines = (cells, key, title, scale = 1) => {
    const traces = [];
    cells.forEach(([name, cell], n) => {
      const curve = cell.curves && cell.curves[key];
      if (!curve) return;
      const by = (values) => values.map((v) => (v === null ? null : scale * v));
      if (cells.length <= 4) traces.push({ x: [...curve.epoch, ...[...curve.epoch].reverse()], y: [...by(curve.high), ...by(curve.low).reverse()], fill: "toself", fillcolor: SERIES[n % 8] + "22", line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false, legendgroup: name });
      traces.push({ x: curve.epoch, y: by(curve.median), name: plain(name), mode: "lines", line: { color: SERIES[n % 8], dash: DASHES[Math.floor(n / 8) % 4], width: 1.8 }, legendgroup: name });
    });
    return { traces, empty: "no curve was recorded", layout: { xaxis: axis("epoch"), yaxis: axis(plain(title)), showlegend: cells.length > 1 } };
  };
  const curved = mains.filter((row) => row.curves);
  const learning = choose("curves-dataset", distinct(curved.map((row) => row.dataset)).sort(), () => { draw("curves-val", curve("val")); draw("curves-loss", curve("train_loss")); }, most(curved));
  const curve = (key) => () => {
    const rows = curved.filter((row) => row.dataset === learning());
    const several = distinct(rows.map((row) => row.suite)).length > 1;
    const cells = rows.map((row) => [several ? `${row.model} (${row.suite})` : row.model, cellOf(row.id)]);
    return lines(cells, key, key === "val" && rows.length ? `validation ${rows[0].metric}` : "training loss");
  };
  whenSeen("curves-val", curve("val"));
  whenSeen("curves-loss", curve("train_loss"));

  // scaling
  const slope = (x, y) => Math.log(y[y.length - 1] / y[y.length - 2]) / Math.log(x[x.length - 1] / x[x.length - 2]);
  // a point that had little of its core is open, and no line or exponent is fitted to it
  const starved = (row, y) => y === "seconds" && row.starved;
  const series = (groups, x, y, xTitle, yTitle, empty) => ({
    traces: [...groups].map(([name, rows], n) => {
      const xs = rows.map((row) => row[x]), ys = rows.map((row) => row[y]), sound = rows.filter((row) => !starved(row, y));
      const fit = sound.length > 1 ? ` (exponent ${slope(sound.map((row) => row[x]), sound.map((row) => row[y])).toFixed(2)})` : "";
      const open = sound.length < rows.length ? " (open: less than 80 % of a core)" : "";
      return { x: xs, y: ys, customdata: rows.map((row) => row.id), name: plain(name + fit + open), mode: open ? "markers" : "lines+markers",
        line: { color: SERIES[n % 8], dash: DASHES[Math.floor(n / 8) % 4] }, marker: { color: SERIES[n % 8], symbol: rows.map((row) => MARKS[n % 8] + (starved(row, y) ? "-open" : "")), size: 7 } };
    }),
    layout: { xaxis: logarithmic(xTitle), yaxis: logarithmic(yTitle) }, empty,
  });
  const grouped = (rows, key) => rows.reduce((found, row) => found.set(key(row), [...(found.get(key(row)) || []), row]), new Map());
  const sizes = grouped(data.scaling, (row) => `${row.model}, ${row.family}, ${row.device}`);
  const unmeasured = "no model was run on datasets of several sizes yet: gt-bench train polynormer-er-scaling-1000-polynormer polynormer-er-scaling-10000-polynormer";
  whenSeen("scaling-seconds", () => series(sizes, "size", "seconds", "nodes", "processor or GPU seconds per epoch", unmeasured));
  whenSeen("scaling-memory", () => series(sizes, "size", "memory", "nodes", "peak MiB", unmeasured));
  const counted = new Map(Object.entries(data.growth).map(([name, found]) => [name, found.sizes.map((size, i) => ({ size, operations: found.operations[i] }))]));
  whenSeen("growth", () => series(counted, "size", "operations", "nodes (by edges: edges)", "operations", "not counted yet: gt-bench claims --recompute growth"));
  const mean = (rows) => [...grouped(rows, (row) => row.edges)].sort((a, b) => a[0] - b[0]).map(([edges, same]) => ({ edges, seconds: same.reduce((s, r) => s + r.seconds, 0) / same.length, memory: same.reduce((s, r) => s + r.memory, 0) / same.length }));
  const hot = new Map([...grouped(data.hot, (row) => row.model)].map(([model, rows]) => [model, mean(rows)]));
  const unrun = "not measured here yet: python benchmarks/hot_scaling.py";
  whenSeen("hot-seconds", () => series(hot, "edges", "seconds", "directed edges", "forward seconds", unrun));
  whenSeen("hot-memory", () => series(hot, "edges", "memory", "directed edges", "peak MiB", unrun));

  // custom plots, whose layout has priority
  data.custom.forEach((figure, n) => {
    if (!figure) return;
    const margin = { l: 60, r: 15, t: figure.layout.title ? 50 : 10, b: 60 };
    whenSeen(`custom-${n}`, () => ({ traces: structuredClone(figure.data), layout: { margin, ...structuredClone(figure.layout) }, empty: "the figure is empty" }));
  });

  // ---- one cell
  const copyButton = (text) => {
    const button = el("button", { type: "button", class: "copy" }, "copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "copied";
      } catch { // a browser that forbids it: the text is selected instead
        getSelection().selectAllChildren(button.parentElement.nextElementSibling);
        button.textContent = "selected";
      }
    });
    return button;
  };
  const dialog = $("cell");
  const open = (id) => {
    const cell = cellOf(id);
    if (!cell) return;
    const body = $("cell-body");
    body.replaceChildren(el("h2", { id: "cell-title" }, cell.cell));
    if (cell.lines.length) body.append(table(["metric", "ours", "runs", "published", "difference [95 %]", "verdict", "claim"], cell.lines));
    body.append(el("h3", {}, "The command that makes it", copyButton(cell.command)), el("pre", {}, cell.command));
    if (cell.remarks.length) body.append(el("h3", {}, "Remarks"), el("ul", {}, ...cell.remarks.map((text) => el("li", {}, ...coded(text)))));
    const curves = cell.curves ? Object.keys(cell.curves) : [];
    if (curves.length) body.append(el("h3", {}, "Learning curves"), el("div", { class: "plots" }, ...curves.map((key) => el("div", { class: "plot", id: `cell-${key}` }))));
    if (cell.recipe.length) body.append(el("h3", {}, "Recipe, with the origin of each value"), table(["key", "value", "origin"], cell.recipe));
    if (cell.runs && cell.runs.length) {
      const runs = el("details", cell.runs.length > 10 ? {} : { open: "" }, el("summary", {}, `${cell.runs.length} runs`), table(["seed", "split", "status", "validation", "test", "best epoch", "seconds", "digest"], cell.runs));
      body.append(el("h3", {}, "Runs"), runs);
    }
    if (cell.digests) {
      const facts = [["commit", cell.commits.join(", ")], ["device", cell.devices.join(", ")], ["threads", cell.threads.join(", ")], ["from, to", cell.when.join(" to ")],
        ...Object.entries(cell.digests).map(([key, values]) => [`digest of ${key}`, values.join(", ")]), ...Object.entries(cell.environment)];
      body.append(el("h3", {}, "Where it was made"), el("dl", {}, ...facts.filter(([, v]) => v).flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, value)])));
    }
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    for (const key of curves) draw(`cell-${key}`, () => lines([[cell.cell, cell]], key, key === "val" ? `validation ${cell.metric}` : "training loss"));
    if (location.hash !== `#cell=${encodeURIComponent(id)}`) history.replaceState(null, "", `#cell=${encodeURIComponent(id)}`);
  };
  dialog.addEventListener("close", () => {
    for (const key of ["cell-val", "cell-train_loss"]) drawn.delete(key);
    history.replaceState(null, "", location.pathname + location.search);
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-cell]");
    if (button) open(button.dataset.cell);
  });
  const unfold = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    const first = target.tagName === "SECTION" && target.querySelector(":scope > details");
    for (let node = first || target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  document.addEventListener("click", (event) => { if (event.target.closest('a[href^="#"]')) setTimeout(unfold); }); // also a section that was closed again
  unfold();
  const fromAddress = () => { const match = /^#cell=(.+)$/.exec(location.hash); if (match) open(decodeURIComponent(match[1])); };
  addEventListener("hashchange", fromAddress);
  fromAddress();
  document.documentElement.dataset.ready = "yes";
})();
