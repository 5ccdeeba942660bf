/* Sorts and filters the table of results. */
"use strict";
(() => {
  const body = document.querySelector(".results tbody"), heads = [...document.querySelectorAll(".results th[data-key]")];

  function value(row, number) {
    const text = row.cells[number].dataset.value;
    return text === "" ? null : isNaN(text) ? text : Number(text);
  }

  function compare(a, b) {
    if (a === null || b === null) return a === b ? 0 : a === null ? 2 : -2;
    return typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
  }

  function sort(head) {
    const rising = head.getAttribute("aria-sort") !== "ascending", sign = rising ? 1 : -1;
    heads.forEach(other => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const rows = [...body.rows].sort((a, b) => {
      const order = compare(value(a, head.cellIndex), value(b, head.cellIndex));
      return Math.abs(order) === 2 && (value(a, head.cellIndex) === null || value(b, head.cellIndex) === null) ? order : sign * order;
    });
    body.append(...rows);
  }

  heads.forEach(head => head.querySelector("button").addEventListener("click", () => sort(head)));
  document.querySelectorAll('input[name="level"]').forEach(button => button.addEventListener("change", () => {
    for (const row of body.rows) row.hidden = button.value !== "all" && row.dataset.level === "green";
  }));
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
})();
