/* Sorts and filters the table of results, and enlarges its pictures. */
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
  const filter = document.getElementById("filter");
  function show() {
    const all = document.querySelector('input[name="level"]:checked').value === "all", words = filter.value.trim().toLowerCase();
    for (const row of body.rows)
      row.hidden = (!all && row.dataset.level === "green") || !`${row.cells[1].textContent} ${row.cells[2].textContent}`.toLowerCase().includes(words);
    document.getElementById("none").textContent = [...body.rows].every(row => row.hidden) ? "No result is left by this choice." : "";
  }
  document.querySelectorAll('input[name="level"]').forEach(button => button.addEventListener("change", show));
  filter.addEventListener("input", show);

  const large = document.getElementById("large");
  body.addEventListener("click", event => {
    const button = event.target.closest("button.open");
    if (!button) return;
    const picture = button.querySelector("img");
    large.querySelector("img").src = picture.src;
    large.querySelector("img").alt = picture.alt;
    large.querySelector("p").textContent = button.closest("tr").cells[1].dataset.value;
    large.showModal();
  });
  large.addEventListener("click", event => { if (event.target === large) large.close(); });

  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
})();
