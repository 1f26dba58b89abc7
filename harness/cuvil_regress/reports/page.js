"use strict";

// A link of the grid leads to a cell: open it, wherever the reader came from.
function openTarget() {
  const found = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (found instanceof HTMLDetailsElement) {
    found.open = true;
    found.querySelector("summary").focus({ preventScroll: true });
    found.scrollIntoView();
  }
}

addEventListener("hashchange", openTarget);
openTarget();
