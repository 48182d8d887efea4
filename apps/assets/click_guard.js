// A table makes its rows anew when the page around it moves or its data changes. A browser gives no click to a row that was made anew
// between press and release of the button: this does, if the same row with the same words is under the pointer still.

function cellOf(event) {
  const path = event.composedPath()
  const cell = path.find((node) => node.classList?.contains("tabulator-cell"))
  const row = cell?.closest(".tabulator-row")
  return row ? { cell, target: path[0], table: cell.closest(".tabulator"), field: cell.getAttribute("tabulator-field"), words: row.innerText } : null
}

function guard() {
  let pressed = null
  let clicked = false
  addEventListener("pointerdown", (event) => { pressed = event.button === 0 ? cellOf(event) : null }, true)
  addEventListener("click", () => { clicked = true }, true)
  addEventListener("pointerup", (event) => {
    const was = pressed
    pressed = null
    if (was === null || was.target.isConnected) return
    const now = cellOf(event)
    if (now === null || now.table !== was.table || now.field !== was.field || now.words !== was.words) return
    clicked = false
    setTimeout(() => { if (!clicked && now.target.isConnected) now.target.click() }) // unless this browser gave one after all
  }, true)
}

if (!window.commcanary_click_guard) {
  window.commcanary_click_guard = true
  guard()
}

export function render({ el }) {
  el.hidden = true
}
