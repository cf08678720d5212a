document.addEventListener("DOMContentLoaded", () => {
  // On a phone a wide figure is too small to read: it keeps its width and scrolls sideways, as code does.
  for (const figure of document.querySelectorAll("img.sphx-glr-single-img")) {
    const frame = document.createElement("div");
    frame.className = "wide-figure";
    frame.tabIndex = 0; // for the arrow keys
    figure.replaceWith(frame);
    frame.append(figure);
  }
  // Code that only draws is folded, so that the lines of tallytree stand out.
  for (const code of document.querySelectorAll(".sphx-glr-example-title .highlight-Python, .sphx-glr-example-title div.highlight-python")) {
    if (!code.textContent.includes("plt.show()")) continue;
    const fold = document.createElement("details"), title = document.createElement("summary");
    fold.className = "drawing";
    title.textContent = "Code of the pictures";
    code.replaceWith(fold);
    fold.append(title, code);
  }
});
