// Links that save the chart beside them. The picture has what the card says above the chart: title, badges, legend.

const STYLE = `
  .save { display: flex; justify-content: flex-end; align-items: center; gap: 2px; font: 400 11.5px Roboto, 'Helvetica Neue', Arial, sans-serif;
    color: var(--mui-palette-text-secondary, #56616f); }
  .save button { all: unset; cursor: pointer; padding: 3px 6px; border-radius: 4px; color: var(--mui-palette-primary-main, #0f7285); }
  .save button:hover { text-decoration: underline; }
  .save button:focus-visible { outline: 2px solid var(--mui-palette-primary-main, #0f7285); }
  @media print { .save { display: none; } }`
const FONT = "Roboto, 'Helvetica Neue', Arial, sans-serif"
const PAD = 16

// Elements below `root` that match, also inside of shadow roots, in the order of the page.
function* deep(root, selector) {
  for (const el of root.querySelectorAll("*")) {
    if (el.matches(selector)) yield el
    if (el.shadowRoot) yield* deep(el.shadowRoot, selector)
  }
}

function card(view) {
  for (let at = view.parent; at; at = at.parent) {
    const inside = [at.el, at.shadow_el].filter(Boolean).flatMap((root) => [...deep(root, ".tt")])
    if (inside.length) return at.shadow_el ?? at.el
  }
  return null
}

const text = (root, selector) => root ? [...deep(root, selector)].map((el) => el.textContent.trim()).filter(Boolean) : []

function swatch(mark) {
  if (mark === null) return { color: null, wide: 0, high: 0 }
  const { backgroundColor, opacity, width, height } = getComputedStyle(mark)
  return { color: backgroundColor, opacity: Number(opacity), wide: parseFloat(width) || 11, high: parseFloat(height) || 11 }
}

function described(view) {
  const root = card(view)
  const legend = root ? [...deep(root, ".lg span")].map((el) => ({ label: el.textContent.trim(), ...swatch(el.querySelector("i")) })) : []
  return { title: text(root, ".tt")[0] ?? "Chart", note: text(root, ".st")[0] ?? "", badges: text(root, ".head .b").join("  \u00b7  "), legend }
}

function colors(el) {
  const style = getComputedStyle(el)
  const of = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise
  return { paper: of("--mui-palette-background-paper", "#ffffff"), ink: of("--mui-palette-text-primary", "#18212d"),
           quiet: of("--mui-palette-text-secondary", "#56616f") }
}

// What is written above the chart: text at a place, swatches of the legend.
function header(about, width, measure) {
  const items = []
  let y = PAD + 14
  items.push({ text: about.title, x: PAD, y, size: 15, weight: 700, tone: "ink" })
  for (const line of [about.note, about.badges].filter(Boolean)) {
    y += 18
    items.push({ text: line, x: PAD, y, size: 12, weight: 400, tone: "quiet" })
  }
  let x = PAD
  if (about.legend.length) y += 22
  for (const entry of about.legend) {
    const left = entry.color ? entry.wide + 6 : 0
    const wide = measure(entry.label, 12) + left + 16
    if (x + wide > width - PAD && x > PAD) { x = PAD; y += 18 }
    if (entry.color) items.push({ swatch: entry.color, opacity: entry.opacity, x, y: y - 4 - entry.high / 2, wide: entry.wide, high: entry.high })
    items.push({ text: entry.label, x: x + left, y, size: 12, weight: 400, tone: "quiet" })
    x += wide
  }
  return { items, height: y + 10 }
}

function measurer() {
  const ctx = document.createElement("canvas").getContext("2d")
  return (label, size) => { ctx.font = `400 ${size}px ${FONT}`; return ctx.measureText(label).width }
}

function png(layer, head, width, height, tone) {
  const ratio = layer.pixel_ratio
  const out = document.createElement("canvas")
  out.width = Math.ceil(width * ratio)
  out.height = Math.ceil((height + head.height) * ratio)
  const ctx = out.getContext("2d")
  ctx.scale(ratio, ratio)
  ctx.fillStyle = tone.paper
  ctx.fillRect(0, 0, width, height + head.height)
  for (const item of head.items) {
    ctx.fillStyle = item.swatch ?? tone[item.tone]
    ctx.globalAlpha = item.opacity ?? 1
    if (item.swatch) { ctx.fillRect(item.x, item.y, item.wide, item.high); continue }
    ctx.font = `${item.weight} ${item.size}px ${FONT}`
    ctx.fillText(item.text, item.x, item.y)
  }
  ctx.globalAlpha = 1
  ctx.drawImage(layer.canvas, 0, head.height, width, height)
  return new Promise((done) => out.toBlob(done, "image/png"))
}

const escaped = (s) => s.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c])

async function svg(layer, head, width, height, tone) {
  const drawn = await (await layer.to_blob()).text()
  const lines = head.items.map((item) => item.swatch
    ? `<rect x="${item.x}" y="${item.y}" width="${item.wide}" height="${item.high}" fill="${item.swatch}" fill-opacity="${item.opacity}"/>`
    : `<text x="${item.x}" y="${item.y}" font-size="${item.size}" font-weight="${item.weight}" fill="${tone[item.tone]}">${escaped(item.text)}</text>`)
  const whole = `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="${width}" height="${height + head.height}">`
    + `<rect width="100%" height="100%" fill="${tone.paper}"/><g font-family="${FONT.replaceAll('"', "'")}">${lines.join("")}</g>`
    + `<g transform="translate(0 ${head.height})">${drawn.replace(/^<\?xml[^>]*>\s*/, "")}</g></svg>`
  return new Blob([whole], { type: "image/svg+xml" })
}

function save(blob, name) {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(blob)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10000)
}

export function render({ model, view, el }) {
  const named = (suffix) => (described(view).title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "chart") + "." + suffix
  const style = document.createElement("style")
  style.textContent = STYLE
  const row = document.createElement("div")
  row.className = "save"
  const picture = async (kind) => {
    const chart = view.parent.child_views.find((v) => v !== view && v.export)
    const layer = chart.export(kind)
    const { width, height } = chart.el.getBoundingClientRect()
    const head = header(described(view), width, measurer())
    const made = await (kind === "png" ? png : svg)(layer, head, width, height, colors(el))
    save(made, named(kind))
  }
  const actions = { PNG: () => picture("png"), SVG: () => picture("svg") }
  if (model.table) actions.CSV = () => model.send_msg("csv")
  for (const [label, act] of Object.entries(actions)) {
    const button = document.createElement("button")
    button.type = "button"
    button.textContent = label
    button.setAttribute("aria-label", `Save this chart as ${label}`)
    button.addEventListener("click", act)
    row.append(button)
  }
  model.on("msg:custom", (event) => { const data = event.data ?? event; if (data.csv !== undefined) save(new Blob([data.csv], { type: "text/csv" }), named("csv")) })
  el.append(style, row)
}
