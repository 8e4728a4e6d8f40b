// Draws the lanes of a timeline, with a zoom: the data is what timelines/page.py writes.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("lanes");
  const said = document.getElementById("said");
  const ROW = 28, BAR = 18, HEAD = 22, NAME = 130, LABEL = 40;
  const whole = Math.max(data.end, 1e-9);
  let from = 0, to = whole, drag = null;

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
  const width = () => canvas.clientWidth - NAME;
  const x = (time) => NAME + ((time - from) / (to - from)) * width();
  const time = (px) => from + ((px - NAME) / width()) * (to - from);
  const text = (seconds) => {
    for (const [unit, factor] of [["s", 1], ["ms", 1e3], ["µs", 1e6]])
      if (Math.abs(seconds) * factor >= 1 || unit === "µs") return +(seconds * factor).toPrecision(4) + " " + unit;
  };

  function scale(pen, height) {
    const step = 10 ** Math.floor(Math.log10((to - from) / 3));
    pen.strokeStyle = style("--line");
    pen.fillStyle = style("--quiet");
    for (let mark = Math.ceil(from / step) * step; mark <= to; mark += step) {
      pen.beginPath();
      pen.moveTo(x(mark), HEAD);
      pen.lineTo(x(mark), height);
      pen.stroke();
      pen.fillText(text(mark), x(mark) + 3, HEAD - 8);
    }
  }

  // What is narrower than a pixel is drawn with its neighbours.
  function lane(pen, events, top) {
    for (const isWork of [false, true]) {
      let last = -1;
      for (const [begin, end, first, second, wait, label] of events) {
        if ((wait === 0) !== isWork || end < from || begin > to) continue;
        const left = Math.max(x(begin), NAME), right = Math.min(Math.max(x(end), x(begin) + 1), NAME + width());
        if (right - left <= 1 && Math.floor(left) === last) continue;
        last = Math.floor(left);
        pen.fillStyle = pen.strokeStyle = first;
        if (wait === 1) pen.strokeRect(left, top + 5, right - left, BAR - 10);
        else if (wait === 2) pen.fillRect(left, top + 5, right - left, BAR - 10);
        else pen.fillRect(left, top, right - left, BAR);
        if (second) {
          pen.fillStyle = second;
          pen.fillRect(left, top + BAR / 2, right - left, BAR / 2);
        }
        if (label && right - left > LABEL && right - left > pen.measureText(label).width + 8) {
          pen.fillStyle = "#fff";
          pen.fillText(label, left + 4, top + 13);
        }
      }
    }
  }

  function arrows(pen) {
    pen.strokeStyle = style("--text");
    let drawn = 0;
    for (const [source, begin, target, end] of data.arrows) {
      const far = Math.abs(x(end) - x(begin)) + Math.abs(target - source);
      if (source === target || end < from || begin > to || far < 1 || drawn++ > 400) continue;
      const down = target > source, y = HEAD + target * ROW + (down ? 4 : BAR + 4);
      pen.beginPath();
      pen.moveTo(x(begin), HEAD + source * ROW + (down ? BAR + 4 : 4));
      pen.lineTo(x(end), y);
      pen.lineTo(x(end) - 3, y + (down ? -4 : 4));
      pen.moveTo(x(end), y);
      pen.lineTo(x(end) + 3, y + (down ? -4 : 4));
      pen.stroke();
    }
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1, height = HEAD + data.lanes.length * ROW + 6;
    canvas.style.height = height + "px";
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11px ui-monospace, Menlo, 'DejaVu Sans Mono', monospace";
    scale(pen, height);
    data.lanes.forEach((one, index) => lane(pen, one.events, HEAD + index * ROW + 4));
    arrows(pen);
    pen.clearRect(0, 0, NAME, height);
    pen.fillStyle = style("--text");
    data.lanes.forEach((one, index) => pen.fillText(one.name.slice(0, 18), 4, HEAD + index * ROW + 17));
  }

  function show(begin, end) {
    const length = Math.min(Math.max(end - begin, whole * 1e-7), whole);
    from = Math.min(Math.max(begin, 0), whole - length);
    to = from + length;
    draw();
  }
  const zoom = (about, factor) => show(about - (about - from) * factor, about + (to - about) * factor);

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(time(event.offsetX), event.deltaY < 0 ? 0.8 : 1.25);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, from, to };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const moved = ((drag.x - event.offsetX) / width()) * (drag.to - drag.from);
      show(drag.from + moved, drag.to + moved);
      return;
    }
    const row = Math.floor((event.offsetY - HEAD) / ROW), now = time(event.offsetX);
    const near = ((to - from) / width()) * 2;
    const found = (data.lanes[row]?.events ?? []).filter(([begin, end]) => begin - near <= now && now <= end + near);
    const best = found.sort((a, b) => a[4] - b[4] || a[1] - a[0] - (b[1] - b[0]))[0];
    said.textContent = best ? best[6] + (found.length > 1 ? `\nand ${found.length - 1} more here` : "") : "";
  });
  canvas.addEventListener("keydown", (event) => {
    const middle = (from + to) / 2, step = (to - from) / 5;
    const keys = {
      "+": () => zoom(middle, 0.7), "=": () => zoom(middle, 0.7), "-": () => zoom(middle, 1.4),
      ArrowLeft: () => show(from - step, to - step), ArrowRight: () => show(from + step, to + step),
      0: () => show(0, whole),
    };
    keys[event.key]?.();
  });
  window.addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
