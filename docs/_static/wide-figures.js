// On a phone a figure of several panels is too small to read: it keeps its width and scrolls sideways, as code does.
document.addEventListener("DOMContentLoaded", () => {
  for (const figure of document.querySelectorAll("img.sphx-glr-single-img")) {
    const frame = document.createElement("div");
    frame.className = "wide-figure";
    frame.tabIndex = 0; // for the arrow keys
    figure.replaceWith(frame);
    frame.append(figure);
  }
});
