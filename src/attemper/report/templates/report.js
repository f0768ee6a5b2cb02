"use strict";
// Every row is in the page; the control shows those of one threshold.
const control = document.getElementById("threshold");
function show() {
  const step = Number(control.value);
  for (const row of document.querySelectorAll("#steps tbody tr")) {
    row.classList.toggle("selected", Number(row.dataset.step) === step);
    if (Number(row.dataset.step) === step) {
      for (const text of document.querySelectorAll(".at-threshold")) text.textContent = row.dataset.threshold;
    }
  }
  for (const body of document.querySelectorAll("#by-class tbody")) body.hidden = Number(body.dataset.step) !== step;
  for (const row of document.querySelectorAll("#errors tbody tr")) row.hidden = Number(row.dataset.step) <= step;
}
if (control) {
  control.closest("label").hidden = false;
  control.addEventListener("input", show);
}
