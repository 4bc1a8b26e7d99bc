"use strict";
const byId = (id) => document.getElementById(id);
const table = byId("settings");
const rows = [...table.tBodies[0].rows];
const drawn = [...document.querySelectorAll("svg [data-setting]")];
const details = [...document.querySelectorAll("details[data-setting]")];
const sections = [...document.querySelectorAll("section[data-env]")];

function show(chosen) {
  for (const part of drawn) part.classList.toggle("dim", !chosen.has(part.dataset.setting));
}

function filter() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const env = byId("environment").value;
  const chosen = new Set();
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = (env && row.dataset.env !== env) || !words.every((word) => text.includes(word));
    if (!row.hidden) chosen.add(row.dataset.setting);
  }
  for (const part of details) part.hidden = !chosen.has(part.dataset.setting);
  const environments = new Set(rows.filter((row) => !row.hidden).map((row) => row.dataset.env));
  for (const part of sections) part.hidden = !environments.has(part.dataset.env);
  byId("count").textContent = `${chosen.size} of ${rows.length}`;
  show(chosen);
  return chosen;
}

function sortBy(head) {
  const column = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const text = head.classList.contains("text");
  const key = (row) => text ? row.cells[column].textContent : row.cells[column].dataset.value;
  rows.sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (!text && (x === "" || y === "")) return (x === "") - (y === "");
    const order = text ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
}

byId("filter").addEventListener("input", filter);
byId("environment").addEventListener("change", filter);
for (const head of table.tHead.rows[0].cells) {
  head.firstElementChild.addEventListener("click", () => sortBy(head));
}
for (const row of rows) {
  row.addEventListener("mouseenter", () => show(new Set([row.dataset.setting])));
  row.addEventListener("mouseleave", filter);
}
function open() {
  const target = location.hash && byId(location.hash.slice(1));
  for (let part = target; part; part = part.parentElement) {
    if (part.tagName === "DETAILS") part.open = true;
    if (part.tagName === "FIGURE" && part.parentElement.matches(".switch")) {
      const views = [...part.parentElement.children].filter((each) => each.tagName === "FIGURE");
      part.parentElement.querySelectorAll("input")[views.indexOf(part)].checked = true;
    }
  }
  if (target) target.scrollIntoView();
}
addEventListener("hashchange", open);
open();
filter();
