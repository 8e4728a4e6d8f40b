// Tables on a small screen (site.css): code breaks behind a point, a comma, a bracket and the like; on a phone a row
// is a list, in which each cell but the first stands beside its column's name.
document.addEventListener("DOMContentLoaded", () => {
    for (const table of document.querySelectorAll("article table.docutils")) {
        const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
        for (const cell of table.querySelectorAll("tbody td:not(:first-child)")) {
            cell.dataset.column = names[cell.cellIndex];
        }
        for (const code of table.querySelectorAll("code .pre")) {
            code.innerHTML = code.innerHTML.replace(/[(.,:_/=](?=\w)/g, "$&<wbr>");
        }
    }
});
