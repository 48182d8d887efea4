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

const RULES = [
  [".MuiTextField-root", numberField],
  [".MuiLinearProgress-root, .MuiCircularProgress-root", (el) => named(el, "Progress")],
  [".tabulator[role=grid]", grid],
  ["h5.MuiTypography-h5", (el) => { if (!el.textContent.trim()) role(el, "presentation") }],
]

export function render({ el }) {
  const watched = new WeakSet()
  let due = null
  function mend(root) {
    if (!watched.has(root)) {
      watched.add(root)
      new MutationObserver(later).observe(root, { childList: true, subtree: true })
    }
    for (const [selector, rule] of RULES) for (const found of root.querySelectorAll(selector)) rule(found)
    for (const inner of root.querySelectorAll("*")) if (inner.shadowRoot) mend(inner.shadowRoot)
  }
  function later() {
    due ??= setTimeout(() => { due = null; mend(document) }, 200)
  }
  later()
  el.hidden = true
}
