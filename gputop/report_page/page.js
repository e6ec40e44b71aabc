"use strict";
// Tables sort by the exact values of figures; the rest of the page needs no script.
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const figures = head.classList.contains("n");
    const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : figures;
    const key = row => {
      const cell = row.cells[column], data = cell.querySelector("data");
      if (!figures) return cell.textContent;
      return data && data.value !== "null" ? Number(data.value) : -Infinity;  // unknown figures are least
    };
    const order = (one, other) => figures ? (key(one) > key(other)) - (key(one) < key(other))
      : key(one).localeCompare(key(other));
    const rows = [...body.rows].sort((one, other) => down ? order(other, one) : order(one, other));
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  }));
}
// A box of the flame graph: a click makes it as wide as the page, a click on the widest one shows all again.
const statusLine = document.getElementById("status");
for (const flame of document.querySelectorAll("svg.flame")) {
  const boxes = [...flame.children];
  const places = boxes.map(box => [parseFloat(box.getAttribute("x")), parseFloat(box.getAttribute("width"))]);
  const show = (left, width) => boxes.forEach((box, number) => {
    const begin = Math.max((places[number][0] - left) / width * 100, 0);
    const end = Math.min((places[number][0] + places[number][1] - left) / width * 100, 100);
    box.setAttribute("x", begin + "%");
    box.setAttribute("width", Math.max(end - begin, 0) + "%");
  });
  boxes.forEach((box, number) => {
    box.addEventListener("click", () => {
      const wide = parseFloat(box.getAttribute("width")) > 99.9;
      show(...(wide ? [0, 100] : places[number]));
    });
    box.addEventListener("mouseenter", () => { statusLine.textContent = box.querySelector("title").textContent; });
  });
}
