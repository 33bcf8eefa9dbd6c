// Builds elements. Text is only ever set as text, so nothing that a bot or a person wrote can become markup.

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value") element.value = value;
    else if (name === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(viewBox, shapes, properties = {}) {
  const root = document.createElementNS(SVG, "svg");
  root.setAttribute("viewBox", viewBox);
  for (const [name, value] of Object.entries(properties)) root.setAttribute(name, value);
  for (const [tag, attributes] of shapes) {
    const shape = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
    root.append(shape);
  }
  return root;
}

// Files are served by the stand-in itself, whatever its port was when they were uploaded.
export function ownPath(address) {
  return new URL(address, location.href).pathname;
}

export function isSafeLink(address) {
  return /^(https?:\/\/|mailto:)/i.test(address);
}
