// Sliders and charts of the report. Everything that is text was written by the template; this only sets numbers.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const { temperature, referral } = data;
  const find = (query) => document.querySelector(query);
  const all = (query, within = document) => [...within.querySelectorAll(query)];

  // As in numbers.py, digit for digit.
  const fixed = (value, digits) => (value === null || Number.isNaN(value) ? "–" : value.toFixed(digits));
  const percent = (share, digits = 1) => fixed(share === null ? null : 100 * share, digits);
  const count = (value) => {
    const [whole, rest] = fixed(value, Number.isInteger(value) ? 0 : 1).split(".");
    return whole.replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f") + (rest ? `.${rest}` : "");
  };
  const ratio = (part, total) => (total > 0 ? part / total : null);
  const last = (list) => list[list.length - 1];
  // Wilson interval of a share, as in metrics/intervals.py, operation for operation.
  const limits = (part, total) => {
    if (!(total > 0)) return "–";
    const { z, scale } = referral;
    const n = total * scale, share = (part * scale) / n;
    const centre = (share + (z * z) / (2 * n)) / (1 + (z * z) / n);
    const half = (z / (1 + (z * z) / n)) * Math.sqrt((share * (1 - share)) / n + (z * z) / (4 * n * n));
    return [centre - half, centre + half].map((v) => percent(Math.min(Math.max(v, 0), 1))).join(" to ");
  };

  // In the frame of a notebook the address of a section would be one of the notebook.
  if (location.href === "about:srcdoc") {
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[href^='#']");
      if (!link) return;
      event.preventDefault();
      document.getElementById(link.hash.slice(1))?.scrollIntoView();
    });
  }

  // Colours follow the theme; on paper they are always the light ones.
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const isDark = () => (root.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";
  const DASHES = [[2, 3], [], [8, 4], [], [10, 3, 2, 3]];

  const base = {
    responsive: true,
    maintainAspectRatio: false,
    animation: false,
    interaction: { mode: "nearest", intersect: false },
  };
  const axis = (text, more = {}) => ({ title: { display: true, text }, min: 0, ...more });
  const inPercent = { callback: (value) => `${fixed(Number(value), 0)} %` };

  // The legend shows a line as it is drawn; left to itself it takes the style of a line's points, which have no dashes.
  const withDashes = {
    usePointStyle: true,
    generateLabels: (chart) =>
      Chart.defaults.plugins.legend.labels.generateLabels(chart).map((item) => {
        const { borderDash = [] } = chart.data.datasets[item.datasetIndex];
        return { ...item, lineDash: borderDash, lineWidth: item.pointStyle === "line" ? 2.5 : item.lineWidth };
      }),
  };
  const asLines = { ...withDashes, pointStyle: "line", pointStyleWidth: 44 };

  const N_BINS = temperature.states[0].bins.length;
  const bins = [...Array(N_BINS).keys()];
  const range = (i) => `${percent(i / N_BINS, 0)} to ${percent((i + 1) / N_BINS, 0)} %`;

  const reliabilityChart = new Chart(find("#reliability-chart"), {
    type: "bar",
    data: {
      labels: bins.map(range),
      datasets: [
        { type: "line", label: "mean confidence", showLine: false, pointStyle: "circle", pointRadius: 5, data: [] },
        { type: "line", label: "calibrated", pointStyle: "line", pointRadius: 0, borderDash: [5, 4], borderWidth: 1.5, data: bins.map((i) => (100 * (i + 0.5)) / N_BINS) },
        { label: "interval", pointStyle: "rect", grouped: false, barPercentage: 0.14, data: [] },
        { label: "right", pointStyle: "rect", grouped: false, barPercentage: 1, categoryPercentage: 0.94, data: [] },
      ],
    },
    options: {
      ...base,
      interaction: { mode: "index", intersect: false },
      scales: {
        x: { title: { display: true, text: "confidence" }, grid: { display: false }, ticks: { callback: (i) => `${percent(i / N_BINS, 0)}–${percent((i + 1) / N_BINS, 0)}`, maxRotation: 60, autoSkip: true } },
        y: axis("right", { max: 100, ticks: inPercent }),
      },
      plugins: {
        legend: { labels: { ...withDashes } },
        tooltip: {
          callbacks: {
            label: (item) => {
              const bin = state().bins[item.dataIndex];
              const text = {
                right: () => `right ${percent(bin[2])} % of ${count(bin[0])}`,
                interval: () => `interval ${percent(bin[3])} to ${percent(bin[4])} %`,
                "mean confidence": () => `mean confidence ${percent(bin[1])} %`,
              }[item.dataset.label];
              return bin[0] > 0 && text ? text() : "";
            },
          },
        },
      },
    },
  });

  const xs = temperature.values;
  const points = (key, factor) => temperature.states.map((one, i) => ({ x: xs[i], y: factor * one[key] }));
  const losses = temperature.states.map((one) => one.nll);
  const temperatureChart = new Chart(find("#temperature-chart"), {
    type: "line",
    data: {
      datasets: [
        { label: "NLL", yAxisID: "y", pointRadius: 0, data: points("nll", 1) },
        { label: "ECE in %", yAxisID: "y2", pointRadius: 0, borderDash: [6, 4], data: points("ece", 100) },
        { label: "this T", yAxisID: "y", showLine: false, pointRadius: 7, data: [] },
        { label: "this T", yAxisID: "y2", showLine: false, pointRadius: 7, data: [] },
      ],
    },
    options: {
      ...base,
      scales: {
        x: { type: "logarithmic", title: { display: true, text: "temperature T" }, min: xs[0], max: last(xs), ticks: { callback: (value) => String(value), maxTicksLimit: 8 } },
        y: axis("NLL", { max: Math.min(Math.max(...losses), 4 * Math.min(...losses) + 0.1) }),
        y2: axis("ECE", { position: "right", grid: { drawOnChartArea: false }, ticks: inPercent }),
      },
      plugins: { legend: { labels: { ...asLines, filter: (item) => item.text !== "this T" } } },
    },
  });

  // Share of right predictions decided against share of errors referred.
  const curve = ({ right, wrong }) =>
    right[0].map((below, i) => ({
      x: 100 * (1 - (ratio(below, last(right[0])) ?? 0)),
      y: 100 * (ratio(wrong[0][i], last(wrong[0])) ?? 0),
    }));
  const curves = referral.counts.map(curve);
  const referralChart = new Chart(find("#referral-chart"), {
    type: "line",
    data: {
      datasets: [
        ...referral.names.map((label, i) => ({ label, pointRadius: 0, borderDash: DASHES[i % DASHES.length], data: curves[i] })),
        { label: "threshold", showLine: false, pointRadius: 7, data: [] },
      ],
    },
    options: {
      ...base,
      scales: {
        x: { type: "linear", ...axis("right predictions decided", { max: 100, ticks: inPercent }) },
        y: axis("errors caught", { max: 100, ticks: inPercent }),
      },
      plugins: {
        legend: { labels: { ...asLines, filter: (item) => item.text !== "threshold" } },
        tooltip: {
          callbacks: {
            label: (item) => `${item.dataset.label}: ${fixed(item.parsed.y, 1)} % of the errors caught, ${fixed(item.parsed.x, 1)} % of the right predictions decided`,
          },
        },
      },
    },
  });

  const slider = find("#t");
  const threshold = find("#threshold");
  const method = find("#method");

  // A method that is not one temperature, where it is the recommended one or its button was pressed; else null.
  let chosen = temperature.chosen;
  const state = () => (chosen === null ? temperature.states[Number(slider.value)] : temperature.methods[chosen]);

  const showTemperature = () => {
    const i = Number(slider.value);
    const { bins: rows, ...one } = state();
    const label = temperature.labels[i];
    const button = chosen === null ? null : find(`[data-method="${chosen}"]`);
    slider.setAttribute("aria-valuetext", `T = ${label}`);
    find("#t-value").textContent = button === null ? label : "–";
    const shown = {
      label: button === null ? `T = ${label}` : button.textContent,
      confidence: percent(one.confidence),
      accuracy: percent(one.accuracy),
      ece: percent(one.ece),
      nll: one.nll === null ? "∞" : fixed(one.nll, 4),
    };
    for (const [key, text] of Object.entries(shown)) find(`[data-t-out="${key}"]`).textContent = text;
    all("#bins tbody tr").forEach((row, k) => {
      const [n, confidence, right, low, high] = rows[k];
      const cells = n > 0 ? [`${percent(confidence)} %`, `${percent(right)} %`, `${percent(low)} to ${percent(high)}`] : ["–", "–", "–"];
      [count(n), ...cells].forEach((text, j) => { row.cells[j + 1].textContent = text; });
    });
    all("[data-t]").forEach((b) => b.setAttribute("aria-pressed", String(chosen === null && Number(b.dataset.t) === i)));
    all("[data-method]").forEach((b) => b.setAttribute("aria-pressed", String(b === button)));
    const [dots, , whiskers, bars] = reliabilityChart.data.datasets;
    dots.data = rows.map((bin) => (bin[0] > 0 ? 100 * bin[1] : null));
    whiskers.data = rows.map((bin) => (bin[0] > 0 ? [100 * bin[3], 100 * bin[4]] : null));
    bars.data = rows.map((bin) => (bin[0] > 0 ? 100 * bin[2] : null));
    reliabilityChart.update();
    temperatureChart.data.datasets[2].data = button === null ? [{ x: xs[i], y: one.nll }] : [];
    temperatureChart.data.datasets[3].data = button === null ? [{ x: xs[i], y: 100 * one.ece }] : [];
    temperatureChart.update();
  };

  // Everything at one threshold, of all samples (group 0) or of one class.
  const outcome = (group) => {
    const { right, wrong } = referral.counts[Number(method.value)];
    const i = Number(threshold.value);
    const r = right[group], e = wrong[group];
    return {
      total: last(r) + last(e),
      errors: last(e),
      referred: r[i] + e[i],
      caught: e[i],
      slipped: last(e) - e[i],
      kept: last(r) - r[i],
    };
  };

  const showReferral = () => {
    const m = Number(method.value), i = Number(threshold.value);
    const o = outcome(0);
    const text = referral.labels[i];
    threshold.setAttribute("aria-valuetext", `confidence ${text}`);
    find("#threshold-value").textContent = text;
    const shown = {
      referred: count(o.referred),
      caught: count(o.caught),
      errors: count(o.errors),
      slipped: count(o.slipped),
      kept: count(o.kept),
      threshold: text,
      "referred-share": percent(ratio(o.referred, o.total)),
      "caught-share": percent(ratio(o.caught, o.errors)),
      "referred-limits": limits(o.referred, o.total),
      "caught-limits": limits(o.caught, o.errors),
      "error-limits": limits(o.slipped, o.total - o.referred),
      "error-rate": percent(ratio(o.slipped, o.total - o.referred)),
    };
    for (const [key, value] of Object.entries(shown)) find(`[data-ref="${key}"]`).textContent = value;
    all("#referral-classes tbody tr").forEach((row) => {
      const of = outcome(Number(row.dataset.group));
      all("[data-cell]", row).forEach((cell) => { cell.textContent = count(of[cell.dataset.cell]); });
    });
    last(referralChart.data.datasets).data = [curves[m][i]];
    referralChart.data.datasets.slice(0, -1).forEach((set, k) => { set.borderWidth = k === m ? 3.5 : 1.5; });
    last(referralChart.data.datasets).pointBackgroundColor = colour(`--c${m}`);
    referralChart.update();
  };

  const paint = () => {
    const ink = colour("--ink"), line = colour("--line"), soft = colour("--soft");
    for (const chart of [reliabilityChart, temperatureChart, referralChart]) {
      for (const scale of Object.values(chart.options.scales)) {
        scale.ticks = { ...scale.ticks, color: soft };
        scale.title.color = ink;
        scale.grid = { ...scale.grid, color: line };
      }
      chart.options.plugins.legend.labels.color = ink;
    }
    const paintSet = (set, value) => Object.assign(set, { borderColor: value, backgroundColor: value, pointBackgroundColor: value, pointBorderColor: value });
    const [dots, diagonal, whiskers, bars] = reliabilityChart.data.datasets;
    paintSet(dots, colour("--dot"));
    paintSet(diagonal, soft);
    paintSet(whiskers, ink);
    paintSet(bars, colour("--bar"));
    const [nll, ece, here, here2] = temperatureChart.data.datasets;
    paintSet(nll, colour("--bar"));
    paintSet(here, colour("--bar"));
    paintSet(ece, colour("--dot"));
    paintSet(here2, colour("--dot"));
    referralChart.data.datasets.forEach((set, i) => paintSet(set, colour(`--c${i % 5}`)));
    last(referralChart.data.datasets).pointBorderColor = ink;
    showTemperature();
    showReferral();
  };

  slider.addEventListener("input", () => {
    chosen = null;
    showTemperature();
  });
  threshold.addEventListener("input", showReferral);
  for (const event of ["input", "change"]) method.addEventListener(event, showReferral);
  all("[data-t]").forEach((button) =>
    button.addEventListener("click", () => {
      chosen = null;
      slider.value = button.dataset.t;
      showTemperature();
    }),
  );
  all("[data-method]").forEach((button) =>
    button.addEventListener("click", () => {
      chosen = button.dataset.method;
      showTemperature();
    }),
  );

  const toggle = find("#theme");
  const nameToggle = () => { toggle.textContent = isDark() ? "Light colours" : "Dark colours"; };
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameToggle();
    paint();
  });
  prefersDark.addEventListener("change", () => { nameToggle(); paint(); });

  // On paper: light, and charts in a size of their own. What the window measures now is not the page: the style sheet
  // fits them into it.
  const PAPER = [[reliabilityChart, 420, 300], [temperatureChart, 420, 300], [referralChart, 720, 300]];
  let before;
  const sharp = (ratio) => PAPER.forEach(([chart]) => { chart.options.devicePixelRatio = ratio; });
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    sharp(3);
    paint();
    PAPER.forEach(([chart, width, height]) => chart.resize(width, height));
  });
  addEventListener("afterprint", () => {
    if (before === undefined) delete root.dataset.theme;
    else root.dataset.theme = before;
    sharp(undefined);
    paint();
    PAPER.forEach(([chart]) => chart.resize());
  });

  nameToggle();
  paint();
  root.dataset.ready = "yes"; // for tests
})();
