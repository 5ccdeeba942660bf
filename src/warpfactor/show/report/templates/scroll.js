/* Says of tables that are wider than the screen that they can be moved. */
"use strict";
(() => {
  const boxes = [...document.querySelectorAll(".scroll")];
  const look = () => boxes.forEach(box => {
    const more = box.scrollWidth > box.clientWidth + 1;
    box.classList.toggle("more", more);
    if (more) box.tabIndex = 0; else box.removeAttribute("tabindex");
  });
  addEventListener("resize", look);
  look();
})();
