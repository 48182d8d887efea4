// The provenance graph: a click on a node tells the server, and everything that is a link stays one (new tab, copy, keyboard).

export function render({ model, el }) {
  const host = document.createElement("div")
  host.className = "cl"
  el.append(host)

  const draw = () => {
    const focused = host.querySelector(":focus")?.dataset.node
    const open = host.querySelector("details")?.open
    const at = host.querySelector(".scroll")
    const scroll = at ? [at.scrollLeft, at.scrollTop] : [0, 0]
    host.innerHTML = model.html
    const now = host.querySelector(".scroll")
    if (now) [now.scrollLeft, now.scrollTop] = scroll
    if (open && host.querySelector("details")) host.querySelector("details").open = true
    if (focused) [...host.querySelectorAll("[data-node]")].find((n) => n.dataset.node === focused)?.focus({ preventScroll: true })
  }

  const point = (node) => {
    const name = node?.dataset.node
    for (const path of host.querySelectorAll("path")) path.classList.toggle("on", !!name && (path.dataset.a === name || path.dataset.b === name))
    const says = host.querySelector(".says")
    if (says && node?.dataset.says) says.textContent = node.dataset.says
  }

  host.addEventListener("mouseover", (event) => point(event.target.closest("[data-node]")))
  host.addEventListener("focusin", (event) => point(event.target.closest("[data-node]")))
  host.addEventListener("click", (event) => {
    const link = event.target.closest("[data-open], [data-kind]")
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return
    event.preventDefault()
    model.send_msg(link.dataset.open !== undefined ? { open: link.dataset.open } : { kind: link.dataset.kind })
  })
  model.on("html", draw)
  draw()
}
