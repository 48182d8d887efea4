// Names and roles that the libraries leave out, so that a screen reader can say what a control is:
// the buttons of number fields and bars of progress have no name, and a grid may only have groups of rows as children.

function named(el, name) {
  if (name && !el.hasAttribute("aria-label")) el.setAttribute("aria-label", name)
}

function role(el, value) {
  if (el && el.getAttribute("role") !== value) el.setAttribute("role", value)
}

function numberField(field) {
  const name = field.querySelector("label")?.textContent.trim() ?? "the value"
  const of = (side) => field.querySelector(`.MuiInputAdornment-position${side} .MuiIconButton-root`)
  for (const [side, verb] of [["Start", "Decrease"], ["End", "Increase"]]) {
    const button = of(side)
    if (button && !button.textContent.trim()) named(button, `${verb} ${name}`)
  }
}

function grid(el) {
  role(el.querySelector(":scope > .tabulator-tableholder"), "rowgroup")
  role(el.querySelector(":scope > .tabulator-tableholder > .tabulator-table"), "presentation")
  role(el.querySelector(":scope > .tabulator-footer"), "row")
  role(el.querySelector(":scope > .tabulator-footer > .tabulator-footer-contents"), "gridcell")
}

function heading(el) {
  if (!el.textContent.trim()) role(el, "presentation")
  else if (el.getAttribute("role") === "presentation") el.removeAttribute("role")
}

const RULES = [
  [".MuiTextField-root", numberField],
  [".MuiLinearProgress-root, .MuiCircularProgress-root", (el) => named(el, "Progress")],
  [".tabulator[role=grid]", grid],
  ["h5.MuiTypography-h5", heading],
]

export function render({ el }) {
  const watched = new WeakSet()
  let due = null

  // what is under a node, and in the shadow trees of it
  function mend(root) {
    if (root instanceof ShadowRoot || root === document) watch(root)
    for (const [selector, rule] of RULES) {
      if (root.matches?.(selector)) rule(root)
      for (const found of root.querySelectorAll(selector)) rule(found)
    }
    if (root.shadowRoot) mend(root.shadowRoot)
    for (const inner of root.querySelectorAll("*")) if (inner.shadowRoot) mend(inner.shadowRoot)
  }

  function watch(root) {
    if (watched.has(root)) return
    watched.add(root)
    new MutationObserver(changed).observe(root, { childList: true, subtree: true })
  }

  // before the browser paints: nobody meets a control that has no name yet
  function changed(records) {
    for (const target of new Set(records.map((r) => r.target))) {
      for (const [selector, rule] of RULES) {
        const within = target.closest?.(selector)
        if (within) rule(within)
      }
    }
    for (const { addedNodes } of records) for (const node of addedNodes) if (node instanceof Element) mend(node)
    due ??= setTimeout(() => { due = null; mend(document) }, 1000) // a shadow tree that came later than its host
  }

  mend(document)
  el.hidden = true
}
