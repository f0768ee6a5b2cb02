// Sliders of the report. The template wrote all text and drew all charts; this only sets numbers and moves shapes.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const { temperature, referral, frame, lowest, few } = data;
  const find = (query) => document.querySelector(query);
  const all = (query, within = document) => [...within.querySelectorAll(query)];

  // As in numbers.py, digit for digit.
  const fixed = (value, digits) => (value === null || Number.isNaN(value) ? "–" : value.toFixed(digits));
  const percent = (share, digits = 1) => fixed(share === null ? null : 100 * share, digits);
  const count = (value) => {
    const [whole, rest] = fixed(value, Number.isInteger(value) ? 0 : 1).split(".");
    return whole.replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f") + (rest ? `.${rest}` : "");
  };
  // As in charts.py: at most four signs.
  const short = (n) => {
    for (const [unit, sign] of [[1e6, "M"], [1e3, "k"]]) {
      if (n >= 0.9995 * unit) return fixed(n / unit, n < 9.95 * unit ? 1 : 0) + sign;
    }
    return fixed(n, Number.isInteger(n) || n >= 99.95 ? 0 : 1);
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

  // Places in a drawing, as in charts.py.
  const [left, top, width, height] = frame;
  const round = (value) => Math.round(10 * value) / 10;
  const atX = (share) => round(left + width * share);
  const atConfidence = (share) => atX((Math.max(share, lowest) - lowest) / (1 - lowest)); // two classes begin at 50 %
  const atY = (share) => round(top + height * (1 - share));
  const set = (shape, attributes) => { for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value); };

  const drawBin = (group, k, n, [weight, confidence, right, low, high]) => {
    group.toggleAttribute("data-empty", !(weight > 0));
    if (!(weight > 0)) return;
    group.classList.toggle("few", weight < few);
    const [start, end] = [k, k + 1].map((edge) => atConfidence(edge / n));
    const x = round(start + 1), wide = round(end - start - 2), middle = round((start + end) / 2);
    const tops = [atY(right), atY(confidence)];
    const [bar, gap, level, halo, whisker] = ["bar", "gap", "level", "halo", "whisker"].map((name) => group.querySelector(`.${name}`));
    set(bar, { x, width: wide, y: tops[0], height: round(top + height - tops[0]) });
    set(gap, { x, width: wide, y: Math.min(...tops), height: round(Math.abs(tops[0] - tops[1])) });
    set(level, { d: `M${x},${tops[1]}h${wide}` });
    const d = `M${round(middle - 3)},${atY(high)}h6M${middle},${atY(high)}V${atY(low)}M${round(middle - 3)},${atY(low)}h6`;
    set(halo, { d });
    set(whisker, { d });
    const number = group.querySelector(".n");
    set(number, { x: middle });
    number.textContent = short(weight);
    const range = `${percent(k / n, 0)} to ${percent((k + 1) / n, 0)}\u00a0%`;
    group.querySelector("title").textContent = `${range}: ${percent(right)}\u00a0% of ${count(weight)} right (${percent(low)} to ${percent(high)}), mean confidence ${percent(confidence)}\u00a0%`;
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

  const slider = find("#t");
  const threshold = find("#threshold");
  const method = find("#method");

  // A method that is not one temperature, where it is the recommended one or its button was pressed; else null.
  let chosen = temperature.chosen;
  let clicked = null; // the last button of a temperature: several may have the same one

  const showTemperature = () => {
    const i = Number(slider.value);
    const { bins: rows, ...one } = chosen === null ? temperature.states[i] : temperature.methods[chosen];
    const button = chosen === null ? null : find(`[data-method="${chosen}"]`);
    const label = button === null ? `T = ${temperature.labels[i]}` : button.textContent;
    find("#t-control").classList.toggle("unused", button !== null);
    slider.setAttribute("aria-valuetext", button === null ? label : `not used: ${label} is not a single temperature`);
    find("#t-value").textContent = button === null ? temperature.labels[i] : "not used";
    find("[data-t-name]").textContent = label;
    const shown = {
      label,
      confidence: percent(one.confidence),
      accuracy: percent(one.accuracy),
      ece: percent(one.ece),
      nll: one.nll === null ? "∞" : fixed(one.nll, 4),
    };
    for (const [key, text] of Object.entries(shown)) find(`[data-t-out="${key}"]`).textContent = text;
    all("#bins tbody tr").forEach((row, k) => {
      const [n, confidence, right, low, high] = rows[k];
      const cells = n > 0 ? [`${percent(right)}\u00a0%`, `${percent(low)} to ${percent(high)}`, `${percent(confidence)}\u00a0%`] : ["–", "–", "–"];
      [...cells, count(n)].forEach((text, j) => { row.cells[j + 1].textContent = text; });
    });
    const same = chosen === null ? all("[data-t]").filter((b) => Number(b.dataset.t) === i) : [];
    const pressed = same.includes(clicked) ? clicked : same[0];
    all("[data-t]").forEach((b) => b.setAttribute("aria-pressed", String(b === pressed)));
    all("[data-method]").forEach((b) => b.setAttribute("aria-pressed", String(b === button)));
    all("#reliability-chart .bin").forEach((group, k) => drawBin(group, k, rows.length, rows[k]));
    all("#temperature-chart .here").forEach((dot) => {
      const place = temperature.places[Number(dot.dataset.panel)][i];
      dot.toggleAttribute("data-empty", button !== null || place === null);
      if (place !== null) set(dot, { cx: place[0], cy: place[1] });
    });
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
    // Share of right predictions decided against share of errors referred.
    set(find("#referral-dot"), { cx: atX(ratio(o.kept, o.total - o.errors) ?? 1), cy: atY(ratio(o.caught, o.errors) ?? 0) });
    all("#referral .curve").forEach((curve) => {
      curve.classList.toggle("chosen", curve.dataset.methods.split(" ").includes(String(m)));
    });
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
      clicked = button;
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

  // A table that is wider than the window points that out.
  const hints = () => all(".wide").forEach((part) => {
    const scroll = part.querySelector(".scroll");
    part.querySelector(".hint").hidden = scroll.scrollWidth <= scroll.clientWidth + 1;
  });
  addEventListener("resize", hints);
  all("details").forEach((part) => part.addEventListener("toggle", hints));

  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";
  const toggle = find("#theme");
  const nameToggle = () => { toggle.textContent = isDark() ? "Light colours" : "Dark colours"; };
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameToggle();
  });
  prefersDark.addEventListener("change", nameToggle);

  nameToggle();
  hints();
  showTemperature();
  showReferral();
  root.dataset.ready = "yes"; // for tests
})();
